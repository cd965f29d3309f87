package reconcile

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovakiin0/agent-sandbox/proto"
	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
	ext "github.com/dovakiin0/agent-sandbox/proto/extensions/v1beta1"
)

func expiringClaim(at time.Time, policy ext.ClaimShutdownPolicy) func(*ext.SandboxClaim) {
	return func(c *ext.SandboxClaim) {
		c.Spec.Lifecycle = &ext.ClaimLifecycle{ShutdownTime: &metav1.Time{Time: at}, ShutdownPolicy: policy}
	}
}

// adoptedFixture has a claim "c" that has adopted the Ready sandbox "m".
func adoptedFixture(t *testing.T, change ...func(*ext.SandboxClaim)) *claimFixture {
	member := newPoolMember("m", readyAt("10.128.0.9"))
	f := newClaimFixture(t, newTemplate(), newPool(), member, podOf(member), newClaim("c", change...))
	f.must("c")
	require.Equal(t, "True DependenciesReady Pod is Ready", f.ready("c"))
	f.nextEvent()
	f.wrote()
	return f
}

func TestExpiryIsScheduled(t *testing.T) {
	at := time.Date(2026, 8, 22, 11, 0, 0, 0, time.UTC)
	f := adoptedFixture(t, expiringClaim(at, ext.ClaimShutdownRetain))
	assert.Equal(t, time.Hour, f.must("c"))
	f.now = at.Add(-time.Nanosecond)
	assert.Equal(t, expiryStep, f.must("c"), "never zero, which would be never")
	assert.Equal(t, "True DependenciesReady Pod is Ready", f.ready("c"))
	assert.Nil(t, f.sandbox("m").Spec.ShutdownTime, "the sandbox does not expire by itself")
}

func TestExpiry(t *testing.T) {
	at := time.Date(2026, 8, 22, 11, 0, 0, 0, time.UTC)

	t.Run("retain", func(t *testing.T) {
		f := adoptedFixture(t, expiringClaim(at, ext.ClaimShutdownRetain))
		f.now = at
		assert.Equal(t, expiryStep, f.must("c"))
		assert.Equal(t, "False ClaimExpired Claim expired. Sandbox cleanup initiated.", f.ready("c"))
		assert.Equal(t, "m", f.claim("c").Status.Sandbox.Name)
		assert.Equal(t, []string{"status SandboxClaim"}, f.wrote(), "first say so, then act")
		assert.Equal(t, "Normal ClaimExpired Claim expired", f.nextEvent())

		f.must("c")
		assert.False(t, f.get(&agents.Sandbox{}, "m"))
		f.must("c")
		assert.Equal(t, ext.ClaimedSandbox{}, f.claim("c").Status.Sandbox)
		assert.Equal(t, "False ClaimExpired Claim expired. Sandbox cleanup initiated.", f.ready("c"))
		f.wrote()
		f.must("c")
		assert.Empty(t, f.wrote())
		assert.Empty(t, f.nextEvent())
	})
	t.Run("retain finds the sandbox without a name in the status", func(t *testing.T) {
		f := adoptedFixture(t, expiringClaim(at, ext.ClaimShutdownRetain))
		claim := f.claim("c")
		claim.Status.Sandbox = ext.ClaimedSandbox{}
		require.NoError(t, f.fixture.client.Status().Update(t.Context(), claim))
		f.shared.client.forget(claim)
		f.now = at
		f.must("c")
		f.must("c")
		assert.False(t, f.get(&agents.Sandbox{}, "m"))
	})
	t.Run("retain spares somebody else's sandbox", func(t *testing.T) {
		f := adoptedFixture(t, expiringClaim(at, ext.ClaimShutdownRetain))
		giveTo(f, "m", newClaim("x"))
		f.shared.client.forget(f.sandbox("m"))
		f.now = at
		f.must("c")
		f.must("c")
		assert.True(t, f.get(&agents.Sandbox{}, "m"))
		assert.Equal(t, "False ClaimExpired Claim expired. Sandbox is not controlled by this claim; deletion skipped.", f.ready("c"))
		assert.Equal(t, ext.ClaimedSandbox{}, f.claim("c").Status.Sandbox)
	})
	t.Run("a member that was never adopted is free again", func(t *testing.T) {
		claim := newClaim("c", expiringClaim(at, ext.ClaimShutdownRetain), func(c *ext.SandboxClaim) {
			c.Annotations = map[string]string{proto.AnnotationAssignedSandboxName: "m"}
		})
		f := newClaimFixture(t, newTemplate(), newPool(), newPoolMember("m"), claim)
		f.r.candidates.dropPool(poolKey)
		f.now = at
		f.must("c")
		f.must("c")
		assert.True(t, f.get(&agents.Sandbox{}, "m"))
		assert.True(t, contains(f.r.candidates, "m"))
	})
	t.Run("a failing deletion does not take the expiry back", func(t *testing.T) {
		f := adoptedFixture(t, expiringClaim(at, ext.ClaimShutdownRetain))
		f.now = at
		f.must("c")
		f.fail = func(verb string, _ client.Object) error {
			if verb == "delete" {
				return errors.New("boom")
			}
			return nil
		}
		_, err := f.reconcile("c")
		require.Error(t, err)
		assert.Equal(t, "False ClaimExpired Claim expired. Sandbox cleanup initiated.", f.ready("c"))
	})
	t.Run("nothing is torn down before the status says why", func(t *testing.T) {
		f := adoptedFixture(t, expiringClaim(at, ext.ClaimShutdownDelete))
		f.now = at
		f.fail = func(verb string, _ client.Object) error {
			if verb == "status" {
				return errors.New("boom")
			}
			return nil
		}
		_, err := f.reconcile("c")
		require.Error(t, err)
		assert.True(t, f.get(&agents.Sandbox{}, "m"))
		assert.True(t, f.get(&ext.SandboxClaim{}, "c"))
	})
	for _, policy := range []ext.ClaimShutdownPolicy{ext.ClaimShutdownDelete, ext.ClaimShutdownDeleteForeground} {
		t.Run(string(policy), func(t *testing.T) {
			f := adoptedFixture(t, expiringClaim(at, policy))
			f.now = at
			f.must("c")
			f.nextEvent()
			f.must("c")
			assert.False(t, f.get(&ext.SandboxClaim{}, "c"))
			assert.True(t, f.get(&agents.Sandbox{}, "m"), "the garbage collector's")
			assert.Equal(t, "Normal ClaimExpired Deleting Claim (ShutdownPolicy="+string(policy)+")", f.nextEvent())
		})
	}
	t.Run("a claim that is being deleted is left alone", func(t *testing.T) {
		f := adoptedFixture(t, expiringClaim(at, ext.ClaimShutdownDelete), func(c *ext.SandboxClaim) { c.Finalizers = []string{"example.com/x"} })
		require.NoError(t, f.fixture.client.Delete(t.Context(), f.claim("c")))
		f.shared.client.forget(f.claim("c"))
		f.now = at
		f.wrote()
		f.must("c")
		assert.Empty(t, f.wrote())
	})
	t.Run("a later shutdown time revives the claim", func(t *testing.T) {
		f := adoptedFixture(t, expiringClaim(at, ext.ClaimShutdownRetain))
		f.now = at
		f.must("c")
		claim := f.claim("c")
		claim.Spec.Lifecycle.ShutdownTime = &metav1.Time{Time: at.Add(time.Hour)}
		require.NoError(t, f.fixture.client.Update(t.Context(), claim))
		assert.Equal(t, time.Hour, f.must("c"))
		assert.Equal(t, "True DependenciesReady Pod is Ready", f.ready("c"))
	})
}

// A claim with a time to live of zero expires in the very pass that sees its sandbox finished, and keeps that on record.
func TestTimeToLiveZero(t *testing.T) {
	f := adoptedFixture(t, func(c *ext.SandboxClaim) {
		c.Spec.Lifecycle = &ext.ClaimLifecycle{TTLSecondsAfterFinished: new(int32(0)), ShutdownPolicy: ext.ClaimShutdownRetain}
	})
	sb := f.sandbox("m")
	meta.SetStatusCondition(&sb.Status.Conditions, metav1.Condition{
		Type: "Finished", Status: "True", Reason: reasonPodSucceeded, Message: "Pod completed successfully",
		LastTransitionTime: metav1.NewTime(f.now),
	})
	require.NoError(t, f.fixture.client.Status().Update(t.Context(), sb))
	f.wrote()
	assert.Equal(t, expiryStep, f.must("c"))
	assert.Equal(t, []string{"status SandboxClaim"}, f.wrote())
	f.must("c")
	f.must("c")
	assert.False(t, f.get(&agents.Sandbox{}, "m"))
	claim := f.claim("c")
	assert.Equal(t, "False ClaimExpired Claim expired. Sandbox cleanup initiated.", f.ready("c"))
	finished := meta.FindStatusCondition(claim.Status.Conditions, "Finished")
	require.NotNil(t, finished)
	assert.Equal(t, "True PodSucceeded Pod completed successfully", conditionText(finished))
}

func TestSandboxThatExpiresByItself(t *testing.T) {
	f := adoptedFixture(t)
	sb := f.sandbox("m")
	meta.SetStatusCondition(&sb.Status.Conditions, metav1.Condition{Type: "Ready", Status: "False", Reason: reasonSandboxExpired, Message: messageSandboxExpired})
	require.NoError(t, f.fixture.client.Status().Update(t.Context(), sb))
	f.must("c")
	assert.Equal(t, "False SandboxExpired Underlying Sandbox resource has expired independently of the Claim.", f.ready("c"))
}

// A claim whose pod goes is no longer Ready, and Ready again with the next pod.
func TestClaimFollowsItsSandbox(t *testing.T) {
	f := adoptedFixture(t)
	sb := f.sandbox("m")
	starting("10.128.0.9")(sb)
	sb.Status.PodIPs = nil
	require.NoError(t, f.fixture.client.Status().Update(t.Context(), sb))
	f.must("c")
	assert.Equal(t, "False DependenciesNotReady Pod is Running but not Ready", f.ready("c"))
	assert.Empty(t, f.claim("c").Status.Sandbox.PodIPs)

	first := f.claim("c").Annotations
	readyAt("10.128.0.10")(sb)
	require.NoError(t, f.fixture.client.Status().Update(t.Context(), sb))
	f.must("c")
	assert.Equal(t, "True DependenciesReady Pod is Ready", f.ready("c"))
	assert.Equal(t, []string{"10.128.0.10"}, f.claim("c").Status.Sandbox.PodIPs)
	assert.Equal(t, first, f.claim("c").Annotations, "the first Ready stays the first")
}
