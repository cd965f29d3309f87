package reconcile

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovakiin0/agent-sandbox/proto"
	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
)

// expiring returns a fixture with a running Sandbox that has a Service, a volume and an hour to live.
func expiring(t *testing.T, policy *agents.ShutdownPolicy) *fixture {
	f := newFixture(t)
	sb := newSandbox("s", withService(new(true)), withVolume("data"))
	sb.Spec.ShutdownTime = new(metav1.NewTime(f.now.Add(time.Hour)))
	sb.Spec.ShutdownPolicy = policy
	require.NoError(t, f.client.Create(t.Context(), sb))
	f.settle("s")
	f.run("s")
	f.settle("s")
	require.Equal(t, metav1.ConditionTrue, f.ready("s").Status)
	f.wrote()
	return f
}

func TestExpiryRetain(t *testing.T) {
	f := expiring(t, new(agents.ShutdownPolicyRetain))
	f.run("s", phase(corev1.PodSucceeded))
	f.settle("s")
	f.wrote()
	f.now = f.now.Add(time.Hour)

	result, err := f.reconcile("s")
	require.NoError(t, err)
	assert.Equal(t, soon, result.RequeueAfter)
	assert.Equal(t, []string{"status Sandbox"}, f.wrote(), "the first pass only says so")
	sb := f.sandbox("s")
	assert.Equal(t, "Sandbox has expired", find(sb, agents.ConditionReady).Message)
	assert.Nil(t, find(sb, agents.ConditionPodScheduled))
	assert.Equal(t, "s", sb.Status.Service)

	_, err = f.reconcile("s")
	require.NoError(t, err)
	assert.Equal(t, []string{"patch EndpointSlice", "delete Pod", "delete Service", "status Sandbox"}, f.wrote())
	sb = f.sandbox("s")
	assert.Equal(t, agents.SandboxStatus{Conditions: sb.Status.Conditions}, sb.Status)
	assert.Equal(t, reasonPodSucceeded, find(sb, agents.ConditionFinished).Reason)
	assert.Equal(t, reasonNotSuspended, find(sb, agents.ConditionSuspended).Reason)
	assert.Equal(t, reasonSandboxExpired, find(sb, agents.ConditionReady).Reason)
	assert.True(t, f.get(&corev1.PersistentVolumeClaim{}, "data-s"), "volumes stay")
	assert.Equal(t, string(proto.RouteExpired), f.slice("s").Annotations[proto.AnnotationRouteState])
	assert.Empty(t, f.slice("s").Endpoints)

	f.settle("s")
	assert.Empty(t, f.wrote())

	edit(f, sb, func(sb *agents.Sandbox) { sb.Spec.ShutdownTime = new(metav1.NewTime(f.now.Add(time.Hour))) })
	f.settle("s")
	f.run("s")
	f.settle("s")
	assert.Equal(t, "Pod is Ready; Service Exists", f.ready("s").Message, "a later shutdown time brings it back")
	assert.Len(t, f.slice("s").Endpoints, 1)
}

func TestExpiryDelete(t *testing.T) {
	f := expiring(t, new(agents.ShutdownPolicyDelete))
	f.now = f.now.Add(time.Hour)
	f.settle("s")
	assert.Equal(t, []string{"status Sandbox", "patch EndpointSlice", "delete Pod", "delete Service", "delete Sandbox"}, f.wrote())
}

func TestExpiryTouchesNothingForeign(t *testing.T) {
	f := expiring(t, nil)
	edit(f, f.pod("s"), func(p *corev1.Pod) { p.OwnerReferences = []metav1.OwnerReference{foreignRef} })
	svc := &corev1.Service{}
	require.True(t, f.get(svc, "s"))
	edit(f, svc, func(s *corev1.Service) { s.OwnerReferences = nil })
	f.now = f.now.Add(time.Hour)
	f.settle("s")
	assert.NotContains(t, f.wrote(), "delete")
	f.pod("s")
	assert.True(t, f.get(svc, "s"))
}

func TestExpiryTearsNothingDownBeforeItIsToldSo(t *testing.T) {
	f := expiring(t, nil)
	f.now = f.now.Add(time.Hour)
	boom := errors.New("boom")
	f.fail = func(verb string, o client.Object) error {
		if verb == "status" {
			return boom
		}
		return nil
	}
	for range 3 {
		_, err := f.reconcile("s")
		require.ErrorIs(t, err, boom)
	}
	assert.Empty(t, f.wrote())
}

func TestExpiryDuringASlowPass(t *testing.T) {
	f := expiring(t, nil)
	f.now = f.now.Add(time.Hour - statusDelay*6 - time.Second)
	require.False(t, expired(f.sandbox("s"), f.now))
	edit(f, f.pod("s"), func(p *corev1.Pod) { p.Labels = nil })
	f.fail = func(verb string, o client.Object) error {
		f.now = f.now.Add(time.Hour)
		return nil
	}
	result, err := f.reconcile("s")
	require.NoError(t, err)
	assert.Equal(t, soon, result.RequeueAfter)
	assert.Equal(t, reasonSandboxExpired, f.ready("s").Reason)
}

func TestRequeueForExpiry(t *testing.T) {
	f := expiring(t, nil)
	shutdown := f.sandbox("s").Spec.ShutdownTime.Time
	for remaining, want := range map[time.Duration]time.Duration{
		time.Minute: time.Minute, time.Second: minExpiryWait, time.Millisecond: minExpiryWait,
	} {
		f.now = shutdown.Add(-remaining)
		result, err := f.reconcile("s")
		require.NoError(t, err)
		assert.Equal(t, want, result.RequeueAfter, "%s before", remaining)
	}
}
