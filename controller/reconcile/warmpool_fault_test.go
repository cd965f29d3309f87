package reconcile

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
	ext "github.com/dovakiin0/agent-sandbox/proto/extensions/v1beta1"
)

// A pool that is filled, loses members, rolls to another template, shrinks and grows, with a cache that lags at random
// and now and then a mishap, never has more members than it may, and in the end exactly those it should.
func TestPoolUnderFire(t *testing.T) {
	for seed := range uint64(100) {
		inBubble(t, seed, func(t *testing.T) {
			w := newWorld(t, seed, newTemplate(), newPool(replicas(5), recreate))
			defer w.stop()
			most := 5
			w.hasty = seed%2 == 0
			w.life.hasty = w.hasty
			w.checks = func() {
				require.LessOrEqual(t, len(all[*agents.Sandbox](w)), most, "the pool overshoots; writes %v", w.writes)
			}
			left := 10
			mishap := func() fate {
				if left == 0 || w.rng.IntN(6) > 0 {
					return proceed
				}
				left--
				return []fate{failBefore, failAfter, die, dieAfter}[w.rng.IntN(4)]
			}
			someSteps := func() {
				for range w.rng.IntN(60) {
					w.step(mishap)
				}
			}

			someSteps()
			for _, sb := range all[*agents.Sandbox](w)[:min(2, len(all[*agents.Sandbox](w)))] {
				require.NoError(t, w.api.Delete(t.Context(), sb))
			}
			someSteps()
			editLive(w, "tmpl", func(template *ext.SandboxTemplate) {
				template.Spec.PodTemplate.Spec.Containers[0].Image = "runtime:2"
			})
			w.life.enqueue(work{pool: true, name: "pool"}, 0) // what the watch of templates does
			someSteps()
			editLive(w, "pool", func(pool *ext.SandboxWarmPool) { *pool.Spec.Replicas = 2 })
			someSteps()
			synctest.Wait()
			most = 6
			editLive(w, "pool", func(pool *ext.SandboxWarmPool) { *pool.Spec.Replicas = 6 })
			w.settle(mishap)
			w.life.enqueue(work{pool: true, name: "pool"}, 0) // a template that a new life read from a stale cache
			w.settle(always(proceed))

			members := all[*agents.Sandbox](w)
			assert.Len(t, members, 6)
			for _, sb := range members {
				assert.Equal(t, "runtime:2", sb.Spec.PodTemplate.Spec.Containers[0].Image)
			}
			pool := &ext.SandboxWarmPool{}
			require.NoError(t, w.api.Get(t.Context(), types.NamespacedName{Namespace: "ns", Name: "pool"}, pool))
			assert.EqualValues(t, 6, pool.Status.Replicas)
			assert.EqualValues(t, 6, pool.Status.ReadyReplicas)
			assert.Equal(t, pool.Generation, pool.Status.ObservedGeneration)
		})
	}
}

// editLive changes the specification of an object the way a user would.
func editLive[T client.Object](w *world, name string, change func(T)) {
	synctest.Wait()
	for _, o := range all[T](w) {
		if o.GetName() == name {
			o = o.DeepCopyObject().(T)
			change(o)
			o.SetGeneration(o.GetGeneration() + 1)
			require.NoError(w.t, w.api.Update(w.t.Context(), o))
		}
	}
}
