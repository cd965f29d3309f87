package watch

import (
	"testing"

	"github.com/dovakiin0/agent-sandbox/proto"
	"github.com/dovakiin0/agent-sandbox/router/route"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// pod is a ready Pod of a Sandbox.
func pod(sandbox, sandboxUID, podUID string, ips ...string) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: sandbox, UID: types.UID(podUID), ResourceVersion: "5",
			Labels: map[string]string{
				proto.LabelSandboxNameHash: proto.NameHash(sandbox), corev1.LabelTopologyZone: "zone-a",
			},
			OwnerReferences:   []metav1.OwnerReference{sandboxRef(sandbox, sandboxUID)},
			CreationTimestamp: metav1.Unix(1000, 0),
		},
		Status: corev1.PodStatus{
			Phase:      corev1.PodRunning,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		},
	}
	for _, ip := range ips {
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: ip})
	}
	return p
}

func TestReadPod(t *testing.T) {
	p, invalid := fromPod(pod("s1", "u1", "p1", "10.0.0.1"), false)
	require.Zero(t, invalid)
	require.Equal(t, &part{
		object: key{"default", "s1"}, version: 5, created: 1000, sandbox: "s1", sandboxUID: "u1",
		endpoints: []route.Address{{Addr: addr("10.0.0.1"), PodUID: "p1", Zone: "zone-a"}},
	}, p)
}

func TestPodsThatAreNoSandbox(t *testing.T) {
	for name, change := range map[string]func(*corev1.Pod){
		"unclaimed":      func(p *corev1.Pod) { p.Labels[proto.LabelWarmPool] = "" },
		"no owner":       func(p *corev1.Pod) { p.OwnerReferences = nil },
		"other kind":     func(p *corev1.Pod) { p.OwnerReferences[0].Kind = "ReplicaSet" },
		"other group":    func(p *corev1.Pod) { p.OwnerReferences[0].APIVersion = "agents.example.com/v1" },
		"no group":       func(p *corev1.Pod) { p.OwnerReferences[0].APIVersion = "v1" },
		"not controlled": func(p *corev1.Pod) { p.OwnerReferences[0].Controller = to(false) },
	} {
		o := pod("s1", "u1", "p1", "10.0.0.1")
		change(o)
		p, _ := fromPod(o, false)
		assert.Empty(t, p.sandbox, name)
		assert.Empty(t, p.endpoints, name)
	}
	o := pod("s1", "u1", "p1", "10.0.0.1")
	o.OwnerReferences[0].APIVersion = "agents.x-k8s.io/v1alpha1"
	p, _ := fromPod(o, false)
	assert.Equal(t, "s1", p.sandbox, "any version of the API")
	o.OwnerReferences[0].Name = "s2"
	p, _ = fromPod(o, false)
	assert.Equal(t, "s2", p.sandbox, "the Sandbox has the name, whatever the Pod's is")
}

func TestPodConditions(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*corev1.Pod)
		want   route.Condition
	}{
		"ready":                     {func(*corev1.Pod) {}, route.Ready},
		"not ready":                 {func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }, route.NotReady},
		"readiness unknown":         {func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionUnknown }, route.NotReady},
		"no readiness yet":          {func(p *corev1.Pod) { p.Status.Conditions = nil }, route.NotReady},
		"terminating":               {func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }, route.Terminating},
		"terminating and not ready": {func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{}; p.Status.Conditions = nil }, route.NotReady},
	} {
		o := pod("s1", "u1", "p1", "10.0.0.1")
		c.change(o)
		p, _ := fromPod(o, false)
		if assert.Len(t, p.endpoints, 1, name) {
			assert.Equal(t, c.want, p.endpoints[0].Condition, name)
		}
	}
}

func TestPodAddresses(t *testing.T) {
	p, invalid := fromPod(pod("s1", "u1", "p1", "169.254.0.1", "127.0.0.1", "fd00::1", "10.0.0.1"), false)
	require.Equal(t, 2, invalid)
	require.Len(t, p.endpoints, 2)
	r, _ := merge([]*part{p}, "u1")
	require.Len(t, r.Endpoints, 1)
	require.Equal(t, addr("10.0.0.1"), r.Endpoints[0].Addr)

	p, _ = fromPod(pod("s1", "u1", "p1"), false)
	require.Equal(t, "s1", p.sandbox, "a Pod without address is known, and waited for")
	require.Empty(t, p.endpoints)
}

func TestFinishedPods(t *testing.T) {
	for _, phase := range []corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed} {
		o := pod("s1", "u1", "p1", "10.0.0.1")
		o.Status.Phase = phase
		p, _ := fromPod(o, false)
		require.Equal(t, route.StateFinished, p.state)
		require.Empty(t, p.endpoints)
	}
}
