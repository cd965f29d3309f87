package reconcile

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/dovakiin0/agent-sandbox/proto"
	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
	ext "github.com/dovakiin0/agent-sandbox/proto/extensions/v1beta1"
)

func TestMembership(t *testing.T) {
	const active, incomplete, stale, terminating, ignored = "active", "incomplete", "stale", "terminating", "ignored"
	orphan := func(sb *agents.Sandbox) { sb.OwnerReferences = nil }
	deleting := func(sb *agents.Sandbox) { sb.DeletionTimestamp = new(metav1.Now()) }
	cold := func(sb *agents.Sandbox) { sb.Labels[proto.LabelLaunchType] = "cold" }
	old := func(sb *agents.Sandbox) {
		sb.Spec.PodTemplate.Spec.Containers[0].Image = "runtime:0"
		sb.Labels[proto.LabelTemplateHash] = "old"
	}
	none := (*ext.SandboxTemplate)(nil)

	for name, c := range map[string]struct {
		pool     *ext.SandboxWarmPool
		template *ext.SandboxTemplate
		sandbox  *agents.Sandbox
		want     string
	}{
		"member":                              {newPool(), newTemplate(), newPoolMember("m"), active},
		"terminating":                         {newPool(), newTemplate(), newPoolMember("m", deleting), terminating},
		"terminating, not ours":               {newPool(), newTemplate(), newPoolMember("m", deleting, orphan), ignored},
		"somebody else's":                     {newPool(), newTemplate(), newPoolMember("m", controlledByClaim(newClaim("c"))), ignored},
		"another pool of the same name":       {newPool(func(p *ext.SandboxWarmPool) { p.UID = "new" }), newTemplate(), newPoolMember("m"), ignored},
		"stale, replenish":                    {newPool(), newTemplate(), newPoolMember("m", old), active},
		"stale, unknown strategy":             {newPool(func(p *ext.SandboxWarmPool) { p.Spec.UpdateStrategy = &ext.UpdateStrategy{Type: "Other"} }), newTemplate(), newPoolMember("m", old), active},
		"stale, recreate":                     {newPool(recreate), newTemplate(), newPoolMember("m", old), stale},
		"stale, recreate, no template":        {newPool(recreate), none, newPoolMember("m", old), active},
		"identical template of another name":  {newPool(recreate), newTemplate(func(x *ext.SandboxTemplate) { x.Name = "twin" }), newPoolMember("m"), stale},
		"launch type is wrong":                {newPool(), newTemplate(), newPoolMember("m", cold), incomplete},
		"orphan":                              {newPool(), newTemplate(), newPoolMember("m", orphan), incomplete},
		"orphan, stale, any strategy":         {newPool(), newTemplate(), newPoolMember("m", orphan, old), stale},
		"orphan, no template to compare with": {newPool(), none, newPoolMember("m", orphan), ignored},
	} {
		t.Run(name, func(t *testing.T) {
			var current *revision
			if c.template != nil {
				current = newRevision(c.template)
			}
			m := &poolMembers{}
			m.sort(c.pool, c.sandbox, current)
			got := ignored
			switch {
			case len(m.active) > 0:
				got = active
			case len(m.incomplete) > 0:
				got = incomplete
			case len(m.stale) > 0:
				got = stale
			case m.terminating > 0:
				got = terminating
			}
			assert.Equal(t, c.want, got)
		})
	}
}

func TestPoolFillsAndReports(t *testing.T) {
	f := newPoolFixture(t, newTemplate(), newPool(replicas(3)))
	f.settle()
	assert.Equal(t, []string{"create Sandbox", "create Sandbox", "create Sandbox", "status SandboxWarmPool"}, f.wrote())
	assert.Equal(t, ext.SandboxWarmPoolStatus{
		Selector: "agents.x-k8s.io/warm-pool-sandbox=" + proto.NameHash("pool"), ObservedGeneration: 1,
	}, f.pool().Status, "as it saw itself before")
	for _, sb := range f.sandboxes() {
		assert.Regexp(t, `^pool-[a-z0-9]{5}$`, sb.Name)
		assert.Equal(t, sb.Name, sb.Annotations[proto.AnnotationPodName])
	}

	sb := f.sandboxes()[0]
	readyAt("10.128.0.9")(&sb)
	require.NoError(t, f.fixture.client.Status().Update(t.Context(), &sb))
	f.wrote()
	assert.Equal(t, statusGap, f.settle().RequeueAfter, "counts on the move wait for more")
	assert.Empty(t, f.wrote())
	f.now = f.now.Add(statusGap)
	f.settle()
	assert.Equal(t, []string{"status SandboxWarmPool"}, f.wrote())
	assert.EqualValues(t, 3, f.pool().Status.Replicas)
	assert.EqualValues(t, 1, f.pool().Status.ReadyReplicas)

	for _, sb := range f.sandboxes() {
		readyAt("10.128.0.9")(&sb)
		require.NoError(t, f.fixture.client.Status().Update(t.Context(), &sb))
	}
	f.wrote()
	f.settle()
	assert.Equal(t, []string{"status SandboxWarmPool"}, f.wrote(), "the end of a burst is told at once")
	assert.EqualValues(t, 3, f.pool().Status.ReadyReplicas)
	f.settle()
	assert.Empty(t, f.wrote())

	gone := f.sandboxes()[0]
	require.NoError(t, f.fixture.client.Delete(t.Context(), &gone))
	f.wrote()
	f.settle()
	for _, sb := range f.sandboxes() {
		readyAt("10.128.0.9")(&sb)
		require.NoError(t, f.fixture.client.Status().Update(t.Context(), &sb))
	}
	assert.Equal(t, "create Sandbox", f.wrote()[0])
	f.settle()
	assert.Empty(t, f.wrote(), "a member that is replaced soon is no news")
	assert.EqualValues(t, 3, f.pool().Status.ReadyReplicas)
}

func TestPoolStatusPatchOmitsZeros(t *testing.T) {
	pool := newPool(replicas(0), func(p *ext.SandboxWarmPool) { p.Status.Replicas, p.Status.ReadyReplicas = 2, 1 })
	f := newPoolFixture(t, newTemplate(), pool)
	f.settle()
	assert.Equal(t, ext.SandboxWarmPoolStatus{
		Selector: "agents.x-k8s.io/warm-pool-sandbox=" + proto.NameHash("pool"), ObservedGeneration: 1,
	}, f.pool().Status)
}

func TestPoolScaling(t *testing.T) {
	members := func(n int, change ...func(*agents.Sandbox)) (list []client.Object) {
		for i := range n {
			list = append(list, newPoolMember(fmt.Sprintf("m%d", i), change...))
		}
		return list
	}
	leaving := func(sb *agents.Sandbox) {
		sb.DeletionTimestamp, sb.Finalizers = new(metav1.Now()), []string{"example.com/x"}
	}
	for name, c := range map[string]struct {
		objects []client.Object
		change  func(*poolFixture)
		creates int
		deletes int
		after   time.Duration
	}{
		"from nothing":               {[]client.Object{newTemplate(), newPool(replicas(4))}, nil, 4, 0, 0},
		"replicas unset is one":      {[]client.Object{newTemplate(), newPool(func(p *ext.SandboxWarmPool) { p.Spec.Replicas = nil })}, nil, 1, 0, 0},
		"replicas zero":              {[]client.Object{newTemplate(), newPool(replicas(0))}, nil, 0, 0, 0},
		"full":                       {append(members(2, readyAt("10.0.0.1")), newTemplate(), newPool()), nil, 0, 0, 0},
		"terminating ones take room": {append(members(2, leaving), newTemplate(), newPool()), nil, 0, 0, 0},
		"no template":                {[]client.Object{newPool()}, nil, 0, 0, 0},
		"at most a batch":            {[]client.Object{newTemplate(), newPool(replicas(400))}, func(f *poolFixture) { f.r.options.WarmPoolMaxBatch = 7 }, 7, 0, 0},
		"too many":                   {append(members(5, readyAt("10.0.0.1")), newTemplate(), newPool()), nil, 0, 3, 0},
		"too many, at most a batch":  {append(members(5, readyAt("10.0.0.1")), newTemplate(), newPool()), func(f *poolFixture) { f.r.options.WarmPoolMaxBatch = 2 }, 0, 2, 0},
		"refill rate":                {[]client.Object{newTemplate(), newPool(replicas(9))}, func(f *poolFixture) { f.r.options.WarmPoolMaxRefillRate = 4 }, 4, 0, 250*time.Millisecond + time.Millisecond},
		"deletes stale ones of all":  {append(members(3, func(sb *agents.Sandbox) { sb.Labels[proto.LabelTemplateRefHash] = "x" }), newTemplate(), newPool(recreate, replicas(3))), nil, 0, 3, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := newPoolFixture(t, c.objects...)
			if c.change != nil {
				c.change(f)
			}
			result, err := f.reconcile()
			require.NoError(t, err)
			creates, deletes := 0, 0
			for _, w := range f.wrote() {
				switch w {
				case "create Sandbox":
					creates++
				case "delete Sandbox":
					deletes++
				}
			}
			assert.Equal(t, c.creates, creates, "creations")
			assert.Equal(t, c.deletes, deletes, "deletions")
			if c.after > 0 {
				assert.Equal(t, c.after, result.RequeueAfter)
			}
		})
	}
}

func TestPoolErrors(t *testing.T) {
	t.Run("a failing creation leaves the status", func(t *testing.T) {
		f := newPoolFixture(t, newTemplate(), newPool(replicas(10)))
		f.fail = func(verb string, obj client.Object) error {
			if verb == "create" {
				return errors.New("boom")
			}
			return nil
		}
		_, err := f.reconcile()
		require.Error(t, err)
		assert.Empty(t, f.wrote(), "one attempt, and no status")
		assert.Empty(t, f.shared.client.own)
	})
	t.Run("a deletion of what is gone", func(t *testing.T) {
		f := newPoolFixture(t, newTemplate(), newPool(replicas(0)), newPoolMember("m"))
		f.fail = func(verb string, obj client.Object) error {
			if verb == "delete" {
				return apierrors.NewNotFound(schema.GroupResource{}, "m")
			}
			return nil
		}
		_, err := f.reconcile()
		require.NoError(t, err)
	})
	t.Run("a deletion of what a claim has adopted meanwhile", func(t *testing.T) {
		f := newPoolFixture(t, newTemplate(), newPool(replicas(0)), newPoolMember("m", readyAt("10.0.0.1")))
		f.fail = func(verb string, obj client.Object) error {
			if verb == "delete" {
				f.fail = nil
				sb := f.sandbox("m")
				controlledByClaim(newClaim("c"))(sb)
				require.NoError(t, f.fixture.client.Update(t.Context(), sb))
			}
			return nil
		}
		_, err := f.reconcile()
		require.NoError(t, err)
		assert.True(t, f.get(&agents.Sandbox{}, "m"))
		assert.False(t, f.shared.client.pending(f.sandbox("m")), "it is not taken for deleted")
	})
}

// Whatever the cache lacks, a pool knows what it has created and deleted.
func TestPoolUnderALaggingCache(t *testing.T) {
	frozen := func(f *poolFixture) {
		before := &agents.SandboxList{}
		require.NoError(t, f.client.List(t.Context(), before))
		f.shared.client.Client = interceptor.NewClient(f.client, interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				if into, ok := list.(*agents.SandboxList); ok {
					before.DeepCopyInto(into)
					return nil
				}
				return c.List(ctx, list, opts...)
			},
		})
	}
	t.Run("creations", func(t *testing.T) {
		f := newPoolFixture(t, newTemplate(), newPool(replicas(3)))
		frozen(f)
		for range 3 {
			f.settle()
			assert.Len(t, f.sandboxes(), 3)
			f.now = f.now.Add(statusGap)
		}
		assert.EqualValues(t, 3, f.pool().Status.Replicas)
		f.now = f.now.Add(ownWriteTTL)
		assert.Equal(t, ownWriteTTL, f.settle().RequeueAfter, "and asks again, in case no event ever comes")
		assert.Len(t, f.sandboxes(), 3, "even if the lag is long")

		gone := f.sandboxes()[0]
		require.NoError(t, f.client.Delete(t.Context(), &gone))
		f.settle()
		assert.Len(t, f.sandboxes(), 2)
		f.now = f.now.Add(ownWriteTTL)
		f.settle()
		assert.Len(t, f.sandboxes(), 3, "one that never shows was deleted")
	})
	t.Run("a creation whose answer is lost", func(t *testing.T) {
		f := newPoolFixture(t, newTemplate(), newPool(replicas(1)))
		frozen(f)
		f.fail = func(verb string, obj client.Object) error {
			if verb == "create" {
				f.fail = nil
				require.NoError(t, f.client.Create(t.Context(), obj.DeepCopyObject().(client.Object)))
				return apierrors.NewTimeoutError("lost", 1)
			}
			return nil
		}
		_, err := f.reconcile()
		require.Error(t, err)
		f.settle()
		assert.Len(t, f.sandboxes(), 1)
	})
	t.Run("deletions", func(t *testing.T) {
		f := newPoolFixture(t, newTemplate(), newPool(replicas(1)), newPoolMember("a", readyAt("10.0.0.1")), newPoolMember("b", readyAt("10.0.0.2")))
		frozen(f)
		for range 3 {
			f.settle()
			assert.Len(t, f.sandboxes(), 1)
			f.now = f.now.Add(ownWriteTTL)
		}
		edit(f.fixture, f.pool(), func(p *ext.SandboxWarmPool) { p.Spec.Replicas = new(int32(2)) })
		f.settle()
		assert.Len(t, f.sandboxes(), 1, "what is being deleted takes room until it is seen to be gone")
	})
}

func TestPoolTakesIn(t *testing.T) {
	t.Run("an orphan", func(t *testing.T) {
		f := newPoolFixture(t, newTemplate(), newPool(replicas(1)), newPoolMember("m", func(sb *agents.Sandbox) {
			sb.OwnerReferences = nil
			delete(sb.Labels, proto.LabelLaunchType)
		}))
		f.settle()
		sb := f.sandbox("m")
		assert.True(t, controlledBy(sb, "uid-of-pool"))
		assert.Equal(t, "warm", sb.Labels[proto.LabelLaunchType])
		assert.EqualValues(t, 1, f.pool().Status.Replicas)
	})
	t.Run("a member without a launch type", func(t *testing.T) {
		f := newPoolFixture(t, newTemplate(), newPool(replicas(1)), newPoolMember("m", func(sb *agents.Sandbox) {
			delete(sb.Labels, proto.LabelLaunchType)
		}))
		f.settle()
		assert.Equal(t, "warm", f.sandbox("m").Labels[proto.LabelLaunchType])
		assert.Len(t, f.sandbox("m").OwnerReferences, 1)
		assert.Len(t, f.sandboxes(), 1)
	})
}

func TestPoolHealth(t *testing.T) {
	grace := DefaultOptions().WarmPoolReadinessGrace
	pending := func(reason string) *corev1.Pod {
		pod := podOf(newPoolMember("m"))
		pod.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: reason},
		}}
		return pod
	}
	for name, c := range map[string]struct {
		member *agents.Sandbox
		pod    *corev1.Pod
		age    time.Duration
		gone   bool
		held   bool
	}{
		"young":              {newPoolMember("m"), pending("X"), grace, false, false},
		"old":                {newPoolMember("m"), pending("X"), grace + time.Nanosecond, true, false},
		"old, no pod":        {newPoolMember("m"), nil, grace + time.Nanosecond, true, false},
		"old, ready":         {newPoolMember("m", readyAt("10.0.0.1")), pending(corev1.PodReasonUnschedulable), 10 * grace, false, false},
		"old, unschedulable": {newPoolMember("m"), pending(corev1.PodReasonUnschedulable), 10 * grace, false, true},
		"old, unschedulable and deleting": {newPoolMember("m"), func() *corev1.Pod {
			pod := pending(corev1.PodReasonUnschedulable)
			pod.DeletionTimestamp, pod.Finalizers = new(metav1.Now()), []string{"example.com/x"}
			return pod
		}(), 10 * grace, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			objects := []client.Object{newTemplate(), newPool(replicas(1)), c.member}
			if c.pod != nil {
				objects = append(objects, c.pod)
			}
			f := newPoolFixture(t, objects...)
			f.now = c.member.CreationTimestamp.Add(c.age)
			result, err := f.reconcile()
			require.NoError(t, err)
			assert.Equal(t, c.gone, !f.get(&agents.Sandbox{}, "m"))
			if c.gone {
				assert.Len(t, f.sandboxes(), 0, "its replacement waits until it is seen to be gone")
			}
			switch {
			case c.held:
				assert.Equal(t, "Warning WarmPoolNotProgressing 1/1 sandboxes are unschedulable past the 5m0s readiness grace period; holding them instead of replacing (replacements would be equally unschedulable)", f.nextEvent())
				assert.Equal(t, time.Minute, result.RequeueAfter)
				f.settle()
				assert.Empty(t, f.nextEvent(), "once")
				sb := f.sandbox("m")
				readyAt("10.0.0.1")(sb)
				require.NoError(t, f.fixture.client.Status().Update(t.Context(), sb))
				f.settle()
				assert.Equal(t, "Normal WarmPoolProgressing Warm pool is progressing again", f.nextEvent())
			case !c.gone && !isReady(c.member):
				assert.GreaterOrEqual(t, result.RequeueAfter, grace-c.age+graceSlack)
				assert.LessOrEqual(t, result.RequeueAfter, (grace-c.age+graceSlack)*3/2)
			}
		})
	}
}

func TestExcessOrder(t *testing.T) {
	at := func(seconds int64) func(*agents.Sandbox) {
		return func(sb *agents.Sandbox) { sb.CreationTimestamp = metav1.Unix(seconds, 0) }
	}
	m := &poolMembers{active: []*agents.Sandbox{
		newPoolMember("old", readyAt("10.0.0.1"), at(1)), newPoolMember("new", readyAt("10.0.0.2"), at(9)),
		newPoolMember("old-unready", at(2)), newPoolMember("new-unready", at(8)),
	}}
	var names []string
	for _, sb := range m.excess(4) {
		names = append(names, sb.Name)
	}
	assert.Equal(t, []string{"new-unready", "old-unready", "new", "old"}, names)
	assert.Equal(t, "old", m.active[0].Name, "the order of the members stays")
}

func TestPoolMakesWayForClaims(t *testing.T) {
	const wanted = 3
	f := newPoolFixture(t, newTemplate(), newPool(replicas(wanted)))
	f.settle()
	assert.Len(t, f.writes, wanted+1, "members and status")
	assert.ElementsMatch(t, f.writes, f.background)
}

func TestReplenishHold(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	const delay = 10 * time.Second
	m := &poolMemory{members: -1}
	assert.Zero(t, m.replenishHold(3, 5, delay, now), "the first look")
	assert.Equal(t, delay, m.replenishHold(2, 5, delay, now), "a drop")
	now = now.Add(4 * time.Second)
	assert.Equal(t, 6*time.Second, m.replenishHold(2, 5, delay, now))
	assert.Equal(t, delay, m.replenishHold(1, 5, delay, now), "another one")
	now = now.Add(delay)
	assert.Zero(t, m.replenishHold(1, 5, delay, now))
	assert.Zero(t, m.replenishHold(5, 5, delay, now), "full")
	assert.Zero(t, m.replenishHold(5, 9, delay, now), "a higher target is no drop")
	assert.Zero(t, m.replenishHold(4, 9, 0, now), "without a delay")
}

func TestRefillTokens(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	take := func(m *poolMemory, n int, rate float64) int {
		granted, wait := m.takeTokens(n, rate, now)
		assert.Equal(t, granted < n, wait > 0)
		return granted
	}
	t.Run("no limit", func(t *testing.T) { assert.Equal(t, 1000, take(&poolMemory{}, 1000, 0)) })
	t.Run("starts full, fills at the rate", func(t *testing.T) {
		m := &poolMemory{}
		assert.Equal(t, 2, take(m, 5, 2))
		assert.Equal(t, 0, take(m, 5, 2))
		now = now.Add(500 * time.Millisecond)
		assert.Equal(t, 1, take(m, 5, 2))
		now = now.Add(time.Hour)
		assert.Equal(t, 2, take(m, 5, 2), "never more than it holds")
	})
	t.Run("holds at least one", func(t *testing.T) {
		m := &poolMemory{}
		assert.Equal(t, 1, take(m, 5, 0.1))
		granted, wait := m.takeTokens(1, 0.1, now)
		assert.Zero(t, granted)
		assert.InDelta(t, 10*time.Second, wait, float64(time.Second))
		now = now.Add(wait)
		assert.Equal(t, 1, take(m, 1, 0.1))
	})
	t.Run("a huge rate", func(t *testing.T) {
		assert.Equal(t, 300, take(&poolMemory{}, 300, math.MaxFloat64))
	})
}

func TestSlowStart(t *testing.T) {
	var mu sync.Mutex
	var calls []int
	record := func(fail int) func(int) error {
		calls = nil
		return func(i int) error {
			mu.Lock()
			defer mu.Unlock()
			calls = append(calls, i)
			if i == fail {
				return errors.New("boom")
			}
			return nil
		}
	}
	err := slowStart(50, record(-1))
	require.NoError(t, err)
	assert.Len(t, calls, 50)
	slices.Sort(calls)
	for i, call := range calls {
		assert.Equal(t, i, call, "each once")
	}
	err = slowStart(50, record(0))
	require.Error(t, err)
	assert.Len(t, calls, 1, "the first batch is one")
	err = slowStart(50, record(4))
	require.Error(t, err)
	assert.Len(t, calls, 7, "1 + 2 + 4")
	err = slowStart(0, record(-1))
	require.NoError(t, err)
	assert.Empty(t, calls)
}

// pooled is a work queue that records what is added and after how long.
type pooled struct {
	workqueue.TypedRateLimitingInterface[ctrl.Request]
	added map[string]time.Duration
}

func (q *pooled) AddAfter(r ctrl.Request, after time.Duration) { q.added[r.Name] = after }

func TestPoolMemberEvents(t *testing.T) {
	member := func(change ...func(*agents.Sandbox)) *agents.Sandbox { return newPoolMember("m", change...) }
	claimed := member(controlledByClaim(newClaim("c")))
	for name, c := range map[string]struct {
		was, is *agents.Sandbox
		want    bool
	}{
		"created":               {nil, member(), true},
		"created, not ours":     {nil, newSandbox("s"), false},
		"deleted":               {member(), nil, true},
		"adopted by a claim":    {member(), claimed, true},
		"a claim's":             {claimed, member(controlledByClaim(newClaim("c")), readyAt("10.0.0.1")), false},
		"turns ready":           {member(), member(readyAt("10.0.0.1")), true},
		"gets an address only":  {member(), member(func(sb *agents.Sandbox) { sb.Status.PodIPs = []string{"10.0.0.1"} }), false},
		"gets an annotation":    {member(), member(func(sb *agents.Sandbox) { sb.Annotations["x"] = "y" }), false},
		"is being deleted":      {member(), member(func(sb *agents.Sandbox) { sb.DeletionTimestamp = new(metav1.Now()) }), true},
		"loses its launch type": {member(), member(func(sb *agents.Sandbox) { delete(sb.Labels, proto.LabelLaunchType) }), true},
		"its spec is edited":    {member(), member(func(sb *agents.Sandbox) { sb.Generation = 2 }), true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newPoolFixture(t)
			q := &pooled{added: map[string]time.Duration{}}
			h := f.r.memberEvents()
			switch {
			case c.was == nil:
				h.Create(t.Context(), event.CreateEvent{Object: c.is}, q)
			case c.is == nil:
				h.Delete(t.Context(), event.DeleteEvent{Object: c.was}, q)
			default:
				h.Update(t.Context(), event.UpdateEvent{ObjectOld: c.was, ObjectNew: c.is}, q)
			}
			want := map[string]time.Duration{}
			if c.want {
				want["pool"] = memberDelay // others may join
			}
			assert.Equal(t, want, q.added)
		})
	}
}

func TestPoolIsForgotten(t *testing.T) {
	f := newPoolFixture(t, newTemplate(), newPool())
	f.settle()
	f.r.memoryOf(f.pool()).stuck = true
	f.shared.candidates.add(poolKey, "m", "")
	pool := f.pool()
	require.NoError(t, f.fixture.client.Delete(t.Context(), pool))
	f.shared.client.forgetDeleted(f.r.poolDeleted).Delete(event.DeleteEvent{Object: pool})
	f.wrote()
	f.settle()
	assert.Empty(t, f.wrote())
	assert.Empty(t, f.shared.candidates.pools)
	assert.False(t, f.r.memoryOf(pool).stuck)
	for id := range f.shared.client.own {
		assert.NotEqual(t, "pool", id.Name)
	}
	another := f.r.memoryOf(newPool(func(p *ext.SandboxWarmPool) { p.UID = "another" }))
	another.stuck = true
	assert.False(t, f.r.memoryOf(newPool()).stuck, "a new pool of the same name starts afresh")
}

func TestPoolsOfTemplate(t *testing.T) {
	f := newPoolFixture(t, newTemplate(), newPool(), newPool(func(p *ext.SandboxWarmPool) {
		p.Name, p.UID, p.Spec.TemplateRef.Name = "other", "uid-2", "another"
	}))
	assert.Equal(t, []ctrl.Request{{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "pool"}}},
		f.shared.poolsOfTemplate(context.Background(), newTemplate()))
}
