package reconcile

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
)

func TestWhichStatusMayWait(t *testing.T) {
	sb := newSandbox("s")
	now := time.Now()
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "ns"}}
	status := func(c children, change ...func(*agents.Sandbox)) agents.SandboxStatus {
		sb := newSandbox("s", change...)
		if c.pod != nil {
			c.pod = ownedBy(sb, c.pod)
		}
		return sandboxStatus(sb, c, "d", now)
	}
	nextGeneration := func(sb *agents.Sandbox) { sb.Generation = 2 }
	ready := status(children{pod: runningPod()})
	pending := status(children{pod: runningPod(phase(corev1.PodPending), noIPs)})
	address := status(children{pod: runningPod(notReady)})
	expired := expiredStatus(sb, ready, now)

	for name, c := range map[string]struct {
		have, want agents.SandboxStatus
		can        bool
	}{
		"first look at a starting pod": {agents.SandboxStatus{}, pending, true},
		"with its service":             {agents.SandboxStatus{}, status(children{pod: runningPod(notReady), service: service}), true},
		"a starting pod has moved on":  {pending, address, true},
		"ready":                        {pending, ready, false},
		"ready at once":                {agents.SandboxStatus{}, ready, false},
		"no longer ready":              {ready, address, false},
		"its pod is gone":              {ready, status(children{}), false},
		"its address is gone":          {address, pending, false},
		"its service is gone":          {status(children{service: service}), status(children{}), false},
		"an error":                     {pending, status(children{err: multiplePodsError(2)}), false},
		"after an error":               {status(children{err: multiplePodsError(2)}), pending, false},
		"suspended":                    {ready, status(children{}, suspended), false},
		"resumed":                      {status(children{}, suspended), pending, false},
		"a new generation only":        {ready, status(children{pod: runningPod()}, nextGeneration), true},
		"a new generation, suspended":  {status(children{}, suspended), status(children{}, suspended, nextGeneration), true},
		"expired":                      {ready, expired, false},
		"torn down":                    {expired, agents.SandboxStatus{Conditions: expired.Conditions}, false},
	} {
		t.Run(name, func(t *testing.T) {
			require.NotEqual(t, c.have, c.want)
			assert.Equal(t, c.can, canWait(&c.have, &c.want))
		})
	}
}

func TestStatusChange(t *testing.T) {
	have := agents.SandboxStatus{Service: "s", ServiceFQDN: "f", LabelSelector: "l", PodIPs: []string{"1.1.1.1"}, NodeName: "n"}
	assert.Empty(t, diff(&have, have.DeepCopy()))
	assert.Equal(t, fields{"service": nil, "serviceFQDN": nil, "selector": nil, "podIPs": nil, "nodeName": nil},
		diff(&have, &agents.SandboxStatus{}))
	assert.Equal(t, fields{"service": "s", "serviceFQDN": "f", "selector": "l", "podIPs": []string{"1.1.1.1"}, "nodeName": "n"},
		diff(&agents.SandboxStatus{}, &have))

	a := agents.SandboxStatus{Conditions: []metav1.Condition{{Type: "A", Status: "True"}}}
	b := *a.DeepCopy()
	meta.SetStatusCondition(&b.Conditions, metav1.Condition{Type: "B", Status: "True"})
	assert.Equal(t, fields{"conditions": b.Conditions}, diff(&a, &b), "the whole list")
}

func TestNodeNameAloneIsNotWritten(t *testing.T) {
	f := newFixture(t, newSandbox("s"))
	f.settle("s")
	f.run("s", notReady, noIPs)
	f.settle("s")
	edit(f, f.pod("s"), func(p *corev1.Pod) { p.Spec.NodeName = "node-2" })
	f.settle("s")
	assert.Empty(t, f.wrote(), "it rides along with the next write")

	f.run("s", func(p *corev1.Pod) { p.Spec.NodeName = "node-2" })
	f.settle("s")
	assert.NotEmpty(t, f.sandbox("s").Status.NodeName)
	f.wrote()
	edit(f, f.pod("s"), func(p *corev1.Pod) { p.Spec.NodeName = "node-3" })
	f.settle("s")
	assert.Contains(t, f.wrote(), "status Sandbox", "unless the Sandbox is Ready")
	assert.Equal(t, "node-3", f.sandbox("s").Status.NodeName)
}

func TestMembersOfPoolsWaitLonger(t *testing.T) {
	f := newFixture(t, newSandbox("s", ownedByKind("SandboxWarmPool", "p")))
	for range 3 {
		_, err := f.reconcile("s")
		require.NoError(t, err)
		f.now = f.now.Add(statusDelay)
	}
	assert.NotContains(t, f.wrote(), "status Sandbox")
	f.now = f.now.Add(memberStatusDelay)
	_, err := f.reconcile("s")
	require.NoError(t, err)
	assert.Equal(t, []string{"status Sandbox"}, f.wrote())
}

func TestUpkeepGivesWay(t *testing.T) {
	claimed := controlledByClaim(newClaim("c"))
	for name, c := range map[string]struct {
		sandbox    *agents.Sandbox
		background []string
	}{
		"a member of a pool":            {newPoolMember("s"), []string{"create Pod", "patch Sandbox"}},
		"claimed and served":            {newPoolMember("s", claimed, readyAt("10.128.0.9")), []string{"create Pod", "patch Sandbox", "status Sandbox"}},
		"claimed, somebody waits":       {newPoolMember("s", claimed, starting("10.128.0.9")), nil},
		"claimed, somebody suspends it": {newPoolMember("s", claimed, readyAt("10.128.0.9"), suspended), nil},
		"nobody's but a user's":         {newSandbox("s", readyAt("10.128.0.9")), nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, c.sandbox)
			_, err := f.reconcile("s")
			require.NoError(t, err)
			assert.Equal(t, c.background, f.background)
			assert.NotEmpty(t, f.writes)
		})
	}
}
