package reconcile

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
)

func phase(p corev1.PodPhase) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Status.Phase = p }
}

func notReady(pod *corev1.Pod) {
	pod.Status.Conditions[1].Status = corev1.ConditionFalse
}

func noIPs(pod *corev1.Pod) { pod.Status.PodIP, pod.Status.PodIPs = "", nil }

func TestReadyCondition(t *testing.T) {
	sb := newSandbox("s")
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "ns"}}
	pod := func(change ...func(*corev1.Pod)) *corev1.Pod { return ownedBy(sb, runningPod(change...)) }
	multiple := multiplePodsError(2)
	boom := errors.New("boom")

	for name, c := range map[string]struct {
		change   []func(*agents.Sandbox)
		children children
		want     string
	}{
		"no pod":                  {nil, children{}, "False DependenciesNotReady Pod does not exist"},
		"pending":                 {nil, children{pod: pod(phase(corev1.PodPending))}, "False DependenciesNotReady Pod exists with phase: Pending"},
		"no phase yet":            {nil, children{pod: pod(phase(""))}, "False DependenciesNotReady Pod exists with phase: "},
		"running, not ready":      {nil, children{pod: pod(notReady)}, "False DependenciesNotReady Pod is Running but not Ready"},
		"ready, no address":       {nil, children{pod: pod(noIPs)}, "False DependenciesNotReady Pod is Ready but has no podIPs yet"},
		"ready":                   {nil, children{pod: pod()}, "True DependenciesReady Pod is Ready"},
		"succeeded":               {nil, children{pod: pod(phase(corev1.PodSucceeded))}, "False PodSucceeded Pod completed successfully"},
		"failed":                  {nil, children{pod: pod(phase(corev1.PodFailed))}, "False PodFailed Pod failed"},
		"service wanted, there":   {[]func(*agents.Sandbox){withService(new(true))}, children{pod: pod(), service: service}, "True DependenciesReady Pod is Ready; Service Exists"},
		"service wanted, missing": {[]func(*agents.Sandbox){withService(new(true))}, children{pod: pod()}, "False DependenciesNotReady Pod is Ready; Service does not exist"},
		"service kept":            {nil, children{pod: pod(), service: service}, "True DependenciesReady Pod is Ready; Service Exists"},
		"service off":             {[]func(*agents.Sandbox){withService(new(false))}, children{pod: pod()}, "True DependenciesReady Pod is Ready"},
		"service there, no pod":   {[]func(*agents.Sandbox){withService(new(true))}, children{service: service}, "False DependenciesNotReady Pod does not exist; Service Exists"},
		"suspending":              {[]func(*agents.Sandbox){suspended}, children{pod: pod()}, "False SandboxSuspended Sandbox is suspending"},
		"suspended":               {[]func(*agents.Sandbox){suspended}, children{}, "False SandboxSuspended Sandbox is suspended"},
		"suspended, pod finished": {[]func(*agents.Sandbox){suspended}, children{pod: pod(phase(corev1.PodFailed))}, "False SandboxSuspended Sandbox is suspending"},
		"error":                   {nil, children{pod: pod(), err: boom}, "False ReconcilerError Error seen: boom"},
		"error beats suspension":  {[]func(*agents.Sandbox){suspended}, children{err: boom}, "False ReconcilerError Error seen: boom"},
		"many pods beat all":      {[]func(*agents.Sandbox){suspended}, children{podErr: multiple, err: boom}, "False MultiplePods " + multiple.Error()},
		"errors are joined":       {nil, children{err: errors.Join(boom, errors.New("bang"))}, "False ReconcilerError Error seen: boom\nbang"},
	} {
		t.Run(name, func(t *testing.T) {
			got := readyCondition(newSandbox("s", c.change...), c.children)
			assert.Equal(t, c.want, string(got.Status)+" "+got.Reason+" "+got.Message)
		})
	}
	assert.Equal(t, "multiple Pods (3) are controlled by this Sandbox; refusing to choose or create a Pod", multiplePodsError(3).Error())
}

func TestOtherConditions(t *testing.T) {
	sb := newSandbox("s")
	boom := errors.New("boom")
	owned := ownedBy(sb, runningPod())
	foreign := runningPod(func(p *corev1.Pod) { p.OwnerReferences = []metav1.OwnerReference{foreignRef} })
	scheduled := func(status corev1.ConditionStatus, reason, message string) *corev1.Pod {
		return ownedBy(sb, runningPod(func(p *corev1.Pod) {
			p.Status.Conditions[0] = corev1.PodCondition{Type: corev1.PodScheduled, Status: status, Reason: reason, Message: message}
		}))
	}
	unscheduled := ownedBy(sb, runningPod(func(p *corev1.Pod) { p.Status.Conditions = nil }))

	for name, c := range map[string]struct {
		suspended bool
		children  children
		kind      agents.ConditionType
		want      string // "" when the condition must be absent
	}{
		"not suspended":          {false, children{pod: owned}, agents.ConditionSuspended, "False NotSuspended Sandbox is not suspended"},
		"suspension unknown":     {true, children{podErr: boom, err: boom}, agents.ConditionSuspended, "Unknown PodStateUnknown Pod state is unknown. Sandbox suspension cannot be confirmed"},
		"suspended":              {true, children{}, agents.ConditionSuspended, "True PodTerminated Pod has been terminated. Sandbox is suspended"},
		"suspended, foreign pod": {true, children{pod: foreign}, agents.ConditionSuspended, "False PodNotOwned Refused to delete pod because it is not owned by this sandbox"},
		"suspending":             {true, children{pod: owned}, agents.ConditionSuspended, "False PodTerminating Pod is terminating. Sandbox is suspending"},

		"scheduled":              {false, children{pod: scheduled("True", "", "")}, agents.ConditionPodScheduled, "True PodScheduled "},
		"unschedulable":          {false, children{pod: scheduled("False", "Unschedulable", "0/3 nodes")}, agents.ConditionPodScheduled, "False Unschedulable 0/3 nodes"},
		"not scheduled, why":     {false, children{pod: scheduled("False", "", "m")}, agents.ConditionPodScheduled, "False PodSchedulingUnknown m"},
		"not reported":           {false, children{pod: unscheduled}, agents.ConditionPodScheduled, "Unknown PodSchedulingUnknown Pod has not reported a PodScheduled condition yet"},
		"scheduling unknown":     {false, children{podErr: boom, err: boom}, agents.ConditionPodScheduled, "Unknown PodSchedulingUnknown Pod state is unknown. Pod scheduling cannot be determined"},
		"no pod, no scheduling":  {false, children{}, agents.ConditionPodScheduled, ""},
		"foreign, no scheduling": {false, children{pod: foreign, podErr: boom, err: boom}, agents.ConditionPodScheduled, ""},

		"running is not finished": {false, children{pod: owned}, agents.ConditionFinished, ""},
		"foreign is not finished": {false, children{pod: runningPod(phase(corev1.PodFailed))}, agents.ConditionFinished, ""},
		"succeeded":               {false, children{pod: ownedBy(sb, runningPod(phase(corev1.PodSucceeded)))}, agents.ConditionFinished, "True PodSucceeded Pod completed successfully"},
		"failed":                  {false, children{pod: ownedBy(sb, runningPod(phase(corev1.PodFailed)))}, agents.ConditionFinished, "True PodFailed Pod failed"},
	} {
		t.Run(name, func(t *testing.T) {
			sb := newSandbox("s")
			if c.suspended {
				suspended(sb)
			}
			// Conditions of an earlier pass must go where they no longer hold.
			for _, kind := range []agents.ConditionType{agents.ConditionPodScheduled, agents.ConditionFinished} {
				sb.Status.Conditions = append(sb.Status.Conditions, condition(kind, metav1.ConditionTrue, "Old", "old"))
			}
			sb.Status = sandboxStatus(sb, c.children, "cluster.local", time.Now())
			got := find(sb, c.kind)
			if c.want == "" {
				assert.Nil(t, got)
				return
			}
			require.NotNil(t, got)
			assert.Equal(t, c.want, string(got.Status)+" "+got.Reason+" "+got.Message)
			assert.Equal(t, sb.Generation, got.ObservedGeneration)
		})
	}
}

func TestStatusFields(t *testing.T) {
	sb := newSandbox("s")
	now := time.Now()
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "ns"}}

	status := sandboxStatus(sb, children{pod: ownedBy(sb, runningPod()), service: service}, "corp.example", now)
	assert.Equal(t, []string{"10.128.0.7"}, status.PodIPs)
	assert.Equal(t, "node-1", status.NodeName)
	assert.Equal(t, "agents.x-k8s.io/sandbox-name-hash=f60c4582", status.LabelSelector)
	assert.Equal(t, "s", status.Service)
	assert.Equal(t, "s.ns.svc.corp.example", status.ServiceFQDN)

	sb.Status = status
	gone := sandboxStatus(sb, children{}, "corp.example", now)
	assert.Empty(t, gone.PodIPs)
	assert.Empty(t, gone.NodeName)
	assert.Equal(t, status.LabelSelector, gone.LabelSelector, "the selector stays")
	assert.Empty(t, gone.Service)
	assert.Empty(t, gone.ServiceFQDN)

	foreign := sandboxStatus(sb, children{pod: runningPod(), podErr: errors.New("x"), err: errors.New("x")}, "corp.example", now)
	assert.Empty(t, foreign.PodIPs, "a foreign pod must not leak its address")

	multiple := sandboxStatus(sb, children{podErr: multiplePodsError(2)}, "corp.example", now)
	assert.Equal(t, "s", multiple.Service, "nobody looked for the Service")
}

func TestTransitionTimeMovesWithStatusOnly(t *testing.T) {
	sb := newSandbox("s")
	start := time.Now().Truncate(time.Second)
	sb.Status = sandboxStatus(sb, children{pod: ownedBy(sb, runningPod())}, "d", start)

	suspended(sb)
	sb.Generation = 2
	sb.Status = sandboxStatus(sb, children{pod: ownedBy(sb, runningPod())}, "d", start.Add(time.Minute))
	got := find(sb, agents.ConditionSuspended)
	assert.Equal(t, reasonPodTerminating, got.Reason)
	assert.Equal(t, int64(2), got.ObservedGeneration)
	assert.True(t, got.LastTransitionTime.Time.Equal(start), "NotSuspended to PodTerminating keeps the time")

	sb.Status = sandboxStatus(sb, children{}, "d", start.Add(2*time.Minute))
	assert.True(t, find(sb, agents.ConditionSuspended).LastTransitionTime.Time.Equal(start.Add(2*time.Minute)))

	order := []string{}
	for _, c := range sb.Status.Conditions {
		order = append(order, c.Type)
	}
	assert.Equal(t, []string{"Suspended", "Ready"}, order)
}

func TestExpiredStatus(t *testing.T) {
	sb := newSandbox("s")
	sb.Status = sandboxStatus(sb, children{pod: ownedBy(sb, runningPod(phase(corev1.PodFailed)))}, "d", time.Now())
	sb.Status = expiredStatus(sb, sb.Status, time.Now())
	assert.Nil(t, find(sb, agents.ConditionPodScheduled))
	assert.NotNil(t, find(sb, agents.ConditionFinished), "Finished is kept")
	ready := find(sb, agents.ConditionReady)
	assert.Equal(t, "False SandboxExpired Sandbox has expired", string(ready.Status)+" "+ready.Reason+" "+ready.Message)
	assert.NotEmpty(t, sb.Status.PodIPs, "nothing is torn down yet")
}
