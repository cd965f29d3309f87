package reconcile

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovakiin0/agent-sandbox/proto"
	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
	ext "github.com/dovakiin0/agent-sandbox/proto/extensions/v1beta1"
)

const (
	faultClaims  = 4 // more than the pool has, so that some start cold
	faultMembers = 2
)

// faultWorld has a pool whose members are there, and claims that nobody has seen yet.
func faultWorld(t *testing.T, seed uint64) *world {
	w := newWorld(t, seed, newTemplate(), newPool(replicas(faultMembers)))
	w.checks = w.checkInvariants
	w.settle(always(proceed))
	for i := range faultClaims {
		require.NoError(t, w.api.Create(t.Context(), newClaim(fmt.Sprintf("claim-%d", i))))
	}
	w.hasty = seed%3 == 0
	w.life.hasty = w.hasty
	return w
}

func inBubble(t *testing.T, name any, run func(*testing.T)) {
	t.Run(fmt.Sprint(name), func(t *testing.T) { synctest.Test(t, run) })
}

func always(f fate) func() fate { return func() fate { return f } }

// checkInvariants holds at every moment, not only in the end.
func (w *world) checkInvariants() {
	members := 0
	byClaim := map[types.UID]string{}
	for _, sb := range all[*agents.Sandbox](w) {
		owner := controllerOf(sb)
		require.NotNil(w.t, owner, "Sandbox %s has no owner", sb.Name)
		if controllerKind(sb, warmPoolGVK.Group, warmPoolGVK.Kind) {
			members++
			continue
		}
		require.Empty(w.t, byClaim[owner.UID], "claim %s has two sandboxes; writes %v", owner.Name, w.writes)
		byClaim[owner.UID] = sb.Name
	}
	if !w.staleness { // a pool that is born with a stale view counts what it sees
		require.LessOrEqual(w.t, members, faultMembers, "the pool overshoots; writes %v", w.writes)
	}
}

// checkServed holds when all is done.
func (w *world) checkServed() {
	t := w.t
	t.Helper()
	w.checkInvariants()
	owned := map[types.UID]string{}
	members := 0
	for _, sb := range all[*agents.Sandbox](w) {
		if controllerKind(sb, claimGVK.Group, claimGVK.Kind) {
			owned[controllerOf(sb).UID] = sb.Name
			route := &discoveryv1.EndpointSlice{}
			require.NoError(t, w.api.Get(t.Context(), types.NamespacedName{Namespace: "ns", Name: routeName(sb.Name)}, route))
			assert.Empty(t, sb.Labels[proto.LabelWarmPool])
		} else {
			members++
		}
	}
	assert.Equal(t, faultMembers, members, "the pool is full again")
	claims := all[*ext.SandboxClaim](w)
	assert.Len(t, owned, len(claims), "no sandbox is left of no claim")
	for _, claim := range claims {
		require.NotEmpty(t, claim.Status.Sandbox.Name, "%s", claim.Name)
		assert.Equal(t, owned[claim.UID], claim.Status.Sandbox.Name)
		assert.True(t, claimIsReady(claim), "%s: %v", claim.Name, claim.Status.Conditions)
		assert.NotEmpty(t, claim.Status.Sandbox.PodIPs)
		assert.NotEmpty(t, claim.Annotations[proto.AnnotationClaimFirstReady])
	}
	pool := &ext.SandboxWarmPool{}
	require.NoError(t, w.api.Get(t.Context(), types.NamespacedName{Namespace: "ns", Name: "pool"}, pool))
	assert.EqualValues(t, faultMembers, pool.Status.Replicas)
	assert.EqualValues(t, faultMembers, pool.Status.ReadyReplicas)
	// Every member can be had, also those that a claim wanted and did not get.
	for _, sb := range all[*agents.Sandbox](w) {
		if adoptable(sb) {
			assert.True(t, contains(w.life.claims.candidates, sb.Name), "in the queue")
		}
	}
}

// Without mishaps, but with a cache that lags at random and passes that overlap at random.
func TestClaimsUnderLag(t *testing.T) {
	for seed := range uint64(150) {
		inBubble(t, seed, func(t *testing.T) {
			w := faultWorld(t, seed)
			defer w.stop()
			w.strict, w.writes, w.conflicts = true, nil, 0
			w.settle(always(proceed))
			w.checkServed()
			assert.LessOrEqual(t, w.conflicts, faultClaims, "%v", w.writes)
		})
	}
}

// Every write of a run meets a mishap once: refused, its answer lost, the controllers killed before it, and after it.
func TestClaimsSurviveEveryMishap(t *testing.T) {
	for _, mishap := range []fate{failBefore, failAfter, die, dieAfter} {
		for nth := 0; ; nth++ {
			hit := false
			inBubble(t, fmt.Sprintf("mishap %d at write %d", mishap, nth), func(t *testing.T) {
				w := faultWorld(t, uint64(nth))
				defer w.stop()
				count := 0
				w.settle(func() fate {
					count++
					if count-1 == nth {
						hit = true
						return mishap
					}
					return proceed
				})
				w.checkServed()
			})
			if !hit {
				break
			}
		}
	}
}

// One write in five meets a mishap, whichever. Half of the runs go on after a death with what the cache showed before it,
// which is worse than what happens.
func TestClaimsUnderFire(t *testing.T) {
	for seed := range uint64(150) {
		inBubble(t, seed, func(t *testing.T) {
			w := faultWorld(t, seed)
			defer w.stop()
			w.staleness = seed%2 == 0
			left := 30
			w.settle(func() fate {
				if left == 0 || w.rng.IntN(5) > 0 {
					return proceed
				}
				left--
				return []fate{failBefore, failAfter, die, dieAfter}[w.rng.IntN(4)]
			})
			w.checkServed()
		})
	}
}

// Claims come and go while all this happens, and take their sandboxes with them.
func TestClaimsThatLeave(t *testing.T) {
	for seed := range uint64(100) {
		inBubble(t, seed, func(t *testing.T) {
			w := faultWorld(t, seed)
			defer w.stop()
			for i := range faultClaims {
				for range w.rng.IntN(30) {
					w.step(func() fate {
						if w.rng.IntN(6) == 0 {
							return []fate{failBefore, failAfter, dieAfter}[w.rng.IntN(3)]
						}
						return proceed
					})
				}
				if i%2 == 0 {
					claim := newClaim(fmt.Sprintf("claim-%d", i))
					require.NoError(t, client.IgnoreNotFound(w.api.Delete(t.Context(), claim)))
				}
			}
			w.settle(always(proceed))
			w.checkServed()
		})
	}
}
