package reconcile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
	ext "github.com/dovakiin0/agent-sandbox/proto/extensions/v1beta1"
)

// world is an API server in memory, a cache that lags behind it, and the claim and pool controllers on top, in which a
// test decides what happens next: an event reaches the cache, a pass starts, a write goes through, fails, or goes
// through and looks as if it had failed, or the controllers die. It lives in a synctest bubble: when every goroutine
// waits, it is the test's turn.
type world struct {
	t   *testing.T
	rng *rand.Rand
	api client.WithWatch // for the test itself; reads are live

	changing sync.Mutex // held while the API server changes an object

	mu     sync.Mutex
	events []change                 // not yet in the cache, oldest first
	stored map[string]client.Object // what the API server has, by kind and name
	cached map[string]client.Object // what the cache has
	frozen map[string]string        // what the cached objects looked like when they came
	parked []*parkedWrite
	done   []*running
	serial int

	life *life

	checks    func() // invariants, after each write
	strict    bool   // no write may leave its object as it is
	hasty     bool   // nobody waits for anything: what is to be done later may be done at once
	staleness bool   // new controllers start with the cache that the last ones had, rather than with a full one

	writes    []string // "verb Kind name" of all writes of the controllers that reached the API server
	conflicts int
}

type change struct{ old, new client.Object } // old is set for deletions only

// life is one run of the controllers, from their start to their death.
type life struct {
	dead   bool
	ctx    context.Context
	cancel context.CancelFunc
	claims *claimReconciler
	pools  *warmPoolReconciler
	hasty  bool
	queue  map[work]time.Time // what is to be reconciled, and when
	busy   map[work]bool
}

type work struct {
	pool bool
	name string
}

type running struct {
	life   *life
	work   work
	result ctrl.Result
	err    error
}

type parkedWrite struct {
	life *life
	what string
	fate chan fate
}

type fate int

const (
	proceed    fate = iota
	failBefore      // the API server refuses
	failAfter       // the API server does it, and the answer is lost
	die             // the controllers die before the write
	dieAfter        // the controllers die before the answer
)

// idle is how far away the next pass is when all is done.
const idle = 3 * ownWriteTTL

type lifeKey struct{}

func newWorld(t *testing.T, seed uint64, objects ...client.Object) *world {
	w := &world{
		t: t, rng: rand.New(rand.NewPCG(seed, 1)),
		stored: map[string]client.Object{}, cached: map[string]client.Object{}, frozen: map[string]string{},
	}
	scheme := newScheme(t)
	// A tracker without managed fields, which nobody reads here and which cost most of the time.
	tracker := clienttesting.NewObjectTracker(scheme, serializer.NewCodecFactory(scheme).UniversalDecoder())
	w.api = fake.NewClientBuilder().WithScheme(scheme).WithObjectTracker(tracker).WithGlobalResourceVersionCounter().
		WithStatusSubresource(&agents.Sandbox{}, &ext.SandboxWarmPool{}, &ext.SandboxClaim{}, &corev1.Pod{}).
		WithInterceptorFuncs(w.interceptor()).Build()
	for _, o := range objects {
		require.NoError(t, w.api.Create(t.Context(), o))
	}
	w.start()
	w.deliverAll()
	return w
}

// start starts the controllers. They see what is in the cache.
func (w *world) start() {
	l := &life{hasty: w.hasty, queue: map[work]time.Time{}, busy: map[work]bool{}}
	l.ctx, l.cancel = context.WithCancel(context.WithValue(w.t.Context(), lifeKey{}, l))
	s := newShared(&cachedClient{Client: w.api, world: w}, w.api, events.NewFakeRecorder(10000), time.Now)
	l.claims = newClaimReconciler(s, DefaultOptions())
	l.pools = newWarmPoolReconciler(s, DefaultOptions())
	w.life = l
	for _, o := range w.cached {
		l.see(nil, o)
	}
}

// kill makes every pass end at its next write, and starts new controllers.
func (w *world) kill() {
	w.mu.Lock()
	w.life.dead = true
	parked := w.parked
	w.parked = nil
	w.mu.Unlock()
	w.life.cancel()
	for _, p := range parked {
		p.fate <- die
	}
	synctest.Wait()
	if !w.staleness {
		w.deliverAll()
	}
	w.start()
}

// interceptor gives objects what the API server would, holds the writes of the controllers until the test lets them
// through, and turns every change into an event.
func (w *world) interceptor() interceptor.Funcs {
	return interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return w.write(ctx, "create", o, func() error {
				w.mu.Lock()
				w.serial++
				o.SetUID(types.UID(fmt.Sprintf("uid-%d", w.serial)))
				w.mu.Unlock()
				o.SetCreationTimestamp(metav1.Now())
				o.SetGeneration(1)
				return c.Create(ctx, o, opts...)
			})
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return w.write(ctx, "update", o, func() error { return c.Update(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return w.write(ctx, "patch", o, func() error { return c.Patch(ctx, o, p, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return w.write(ctx, "delete", o, func() error {
				options := (&client.DeleteOptions{}).ApplyOptions(opts)
				if p := options.Preconditions; p != nil && p.UID != nil {
					live := blank(w.t, w.api, o)
					if c.Get(ctx, client.ObjectKeyFromObject(o), live) == nil && live.GetUID() != *p.UID {
						return apierrors.NewConflict(schema.GroupResource{}, o.GetName(), errors.New("another UID"))
					}
				}
				return c.Delete(ctx, o, opts...)
			})
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			return w.write(ctx, "status", o, func() error { return c.SubResource(sub).Patch(ctx, o, p, opts...) })
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			return w.write(ctx, "status", o, func() error { return c.SubResource(sub).Update(ctx, o, opts...) })
		},
	}
}

func (w *world) write(ctx context.Context, verb string, o client.Object, do func() error) error {
	l, _ := ctx.Value(lifeKey{}).(*life)
	if l == nil {
		return w.effect(verb, o, do)
	}
	what := verb + " " + kindOf(o) + " " + o.GetName() + o.GetGenerateName()
	decided := proceed
	// A route is written under the publisher's lock, and whoever waits for a lock does not count as waiting.
	if _, route := o.(*discoveryv1.EndpointSlice); !route {
		decided = w.park(l, what)
	}
	if decided == failBefore {
		return apierrors.NewInternalError(errors.New("refused"))
	}
	if decided == die || l.ctx.Err() != nil {
		return context.Canceled
	}
	err := w.effect(verb, o, do)
	w.mu.Lock()
	w.writes = append(w.writes, what)
	if apierrors.IsConflict(err) {
		w.conflicts++
	}
	w.mu.Unlock()
	if w.checks != nil {
		w.checks()
	}
	switch decided {
	case failAfter:
		return apierrors.NewTimeoutError("the answer was lost", 1)
	case dieAfter:
		return context.Canceled
	}
	return err
}

func (w *world) park(l *life, what string) fate {
	p := &parkedWrite{life: l, what: what, fate: make(chan fate)}
	w.mu.Lock()
	dead := l.dead
	if !dead {
		w.parked = append(w.parked, p)
	}
	w.mu.Unlock()
	if dead {
		return die
	}
	return <-p.fate
}

// effect makes a change and its event, one at a time: no other may come between the change and the look at its result.
func (w *world) effect(verb string, o client.Object, do func() error) error {
	w.changing.Lock()
	defer w.changing.Unlock()
	w.mu.Lock()
	before := w.stored[cacheKey(o)]
	w.mu.Unlock()
	if err := do(); err != nil {
		return err
	}
	after := blank(w.t, w.api, o)
	if verb != "delete" {
		require.NoError(w.t, w.api.Get(context.Background(), client.ObjectKeyFromObject(o), after))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if verb == "delete" {
		delete(w.stored, cacheKey(o))
		w.events = append(w.events, change{old: before})
		return nil
	}
	if w.strict && before != nil {
		require.NotEqual(w.t, essence(before), essence(after), "a write that changes nothing: %s %s", verb, cacheKey(o))
	}
	w.stored[cacheKey(o)] = after
	w.events = append(w.events, change{new: after})
	return nil
}

// deliver brings the oldest event to the cache and from there to the controllers.
func (w *world) deliver() {
	w.mu.Lock()
	e := w.events[0]
	w.events = w.events[1:]
	w.mu.Unlock()
	if e.new == nil {
		key := cacheKey(e.old)
		last := w.cached[key]
		w.checkFrozen(key)
		delete(w.cached, key)
		w.life.see(last, nil)
		return
	}
	key := cacheKey(e.new)
	last := w.cached[key]
	w.checkFrozen(key)
	w.cached[key], w.frozen[key] = e.new, essence(e.new)
	w.life.see(last, e.new)
}

func (w *world) deliverAll() {
	for len(w.events) > 0 {
		w.deliver()
	}
}

// checkFrozen fails the test if somebody changed an object of the cache.
func (w *world) checkFrozen(key string) {
	if o := w.cached[key]; o != nil {
		require.Equal(w.t, w.frozen[key], essence(o), "an object of the cache was changed in place")
	}
}

// see passes an event on as the watches of the two controllers would.
func (l *life) see(was, is client.Object) {
	q := &recordedQueue{life: l}
	some := is
	if some == nil {
		some = was
		l.pools.client.forgetDeleted(l.pools.poolDeleted).Delete(event.DeleteEvent{Object: was}) // the filter of every controller
	}
	switch some.(type) {
	case *ext.SandboxClaim:
		if passes(l.claims.claimEvents(), was, is) {
			l.enqueue(work{name: some.GetName()}, 0)
		}
	case *agents.Sandbox:
		switch h := l.pools.memberEvents(); {
		case was == nil:
			h.Create(l.ctx, event.CreateEvent{Object: is}, q)
		case is == nil:
			h.Delete(l.ctx, event.DeleteEvent{Object: was}, q)
		default:
			h.Update(l.ctx, event.UpdateEvent{ObjectOld: was, ObjectNew: is}, q)
		}
		if passes(predicate.Funcs{UpdateFunc: ownedSandboxChanged}, was, is) {
			for _, o := range []client.Object{was, is} {
				if o != nil && claimOf(o.(*agents.Sandbox)) != "" {
					l.enqueue(work{name: claimOf(o.(*agents.Sandbox))}, 0)
				}
			}
		}
	case *ext.SandboxWarmPool:
		if passes(predicate.GenerationChangedPredicate{}, was, is) {
			l.enqueue(work{pool: true, name: some.GetName()}, 0)
		}
		if passes(predicate.GenerationChangedPredicate{}, was, is) {
			for _, r := range l.claims.unboundClaims(l.ctx, some) {
				l.enqueue(work{name: r.Name}, 0)
			}
		}
	}
}

func passes(p predicate.Predicate, was, is client.Object) bool {
	switch {
	case was == nil:
		return p.Create(event.CreateEvent{Object: is})
	case is == nil:
		return p.Delete(event.DeleteEvent{Object: was})
	}
	return p.Update(event.UpdateEvent{ObjectOld: was, ObjectNew: is})
}

func (l *life) enqueue(key work, after time.Duration) {
	due := time.Now()
	if !l.hasty || after >= ownWriteTTL {
		due = due.Add(after)
	}
	if at, queued := l.queue[key]; !queued || due.Before(at) {
		l.queue[key] = due
	}
}

// recordedQueue is the pool's work queue, as event handlers see it.
type recordedQueue struct {
	workqueue.TypedRateLimitingInterface[ctrl.Request]
	life *life
}

func (q *recordedQueue) AddAfter(r ctrl.Request, after time.Duration) {
	q.life.enqueue(work{pool: true, name: r.Name}, after)
}

// step makes one thing happen, and reports false when nothing can. Now and then a write meets the fate that mishap
// picks for it.
func (w *world) step(mishap func() fate) bool {
	synctest.Wait()
	w.finishPasses()
	l := w.life
	var choices []func()
	if len(w.events) > 0 {
		choices = append(choices, w.deliver)
	}
	for i := range w.parked {
		choices = append(choices, func() { w.release(i, mishap()) })
	}
	var ready []work
	var next time.Time
	for key, due := range l.queue {
		if l.busy[key] {
			continue
		}
		if !due.After(time.Now()) {
			ready = append(ready, key)
		} else if next.IsZero() || due.Before(next) {
			next = due
		}
	}
	slices.SortFunc(ready, func(a, b work) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	for _, key := range ready {
		choices = append(choices, func() { w.run(key) })
	}
	if len(choices) == 0 {
		// A pool or a claim looks again in a minute or so, for ever: that is no progress.
		if next.IsZero() || time.Until(next) > idle {
			return false
		}
		time.Sleep(time.Until(next))
		return true
	}
	choices[w.rng.IntN(len(choices))]()
	return true
}

func (w *world) release(i int, f fate) {
	p := w.parked[i]
	w.parked = slices.Delete(w.parked, i, i+1)
	p.fate <- f
	if f == die || f == dieAfter {
		synctest.Wait()
		w.kill()
	}
}

// run starts a pass.
func (w *world) run(key work) {
	l := w.life
	delete(l.queue, key)
	l.busy[key] = true
	go func() {
		r := &running{life: l, work: key}
		request := ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: key.name}}
		if key.pool {
			r.result, r.err = l.pools.Reconcile(l.ctx, request)
		} else {
			r.result, r.err = l.claims.Reconcile(l.ctx, request)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.done = append(w.done, r)
	}()
}

// finishPasses does what the work queue does after a pass.
func (w *world) finishPasses() {
	w.mu.Lock()
	done := w.done
	w.done = nil
	w.mu.Unlock()
	for _, r := range done {
		delete(r.life.busy, r.work)
		switch {
		case r.err != nil:
			r.life.enqueue(r.work, 5*time.Millisecond)
		case r.result.RequeueAfter > 0:
			r.life.enqueue(r.work, r.result.RequeueAfter)
		}
	}
}

// settle lets everything happen until nothing is left to do, with the pods of all sandboxes turning Ready and garbage
// being collected.
func (w *world) settle(mishap func() fate) {
	w.t.Helper()
	for range 20_000 {
		if w.rng.IntN(4) == 0 && w.nudge() {
			continue
		}
		if !w.step(mishap) && !w.nudge() {
			return
		}
	}
	w.t.Fatalf("no end: queue %v, %d events, last writes %v", w.life.queue, len(w.events), w.writes[max(0, len(w.writes)-20):])
}

// nudge does one thing that the rest of the cluster would, and reports false when it has nothing to do.
func (w *world) nudge() bool {
	synctest.Wait()
	for _, sb := range all[*agents.Sandbox](w) {
		if owner := controllerOf(sb); owner != nil && !w.exists(owner) {
			require.NoError(w.t, w.api.Delete(w.t.Context(), sb))
			return true
		}
		if isReady(sb) {
			continue
		}
		sb = sb.DeepCopy()
		pod := ownedBy(sb, runningPod())
		pod.Name = sb.Name
		pod.Status.PodIP = fmt.Sprintf("10.128.0.%d", len(w.cached)%250+1)
		pod.Status.PodIPs = []corev1.PodIP{{IP: pod.Status.PodIP}}
		if err := w.api.Create(w.t.Context(), pod); err != nil {
			require.True(w.t, apierrors.IsAlreadyExists(err), "%v", err)
		}
		readyAt(pod.Status.PodIP)(sb)
		require.NoError(w.t, w.api.Status().Update(w.t.Context(), sb))
		return true
	}
	return false
}

func (w *world) exists(owner *metav1.OwnerReference) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	o := w.stored[owner.Kind+"/"+owner.Name]
	return o != nil && o.GetUID() == owner.UID
}

// all returns the objects of a type that the API server has, by name.
func all[T client.Object](w *world) (found []T) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(w.stored)) {
		if o, ok := w.stored[key].(T); ok {
			found = append(found, o)
		}
	}
	return found
}

// stop ends all passes, as a bubble must not end with goroutines in it.
func (w *world) stop() {
	w.mu.Lock()
	w.life.dead = true
	parked := w.parked
	w.parked = nil
	w.mu.Unlock()
	w.life.cancel()
	for _, p := range parked {
		p.fate <- die
	}
	synctest.Wait()
}

// cachedClient reads from the world's cache and writes to its API server.
type cachedClient struct {
	client.Client
	world *world
}

// Get implements client.Reader.
func (c *cachedClient) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	obj.SetNamespace(key.Namespace)
	obj.SetName(key.Name)
	cached, ok := c.world.cached[cacheKey(obj)]
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{Resource: kindOf(obj)}, key.Name)
	}
	reflect.ValueOf(obj).Elem().Set(reflect.ValueOf(cached).Elem())
	return nil
}

// List implements client.Reader.
func (c *cachedClient) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	options := (&client.ListOptions{}).ApplyOptions(opts)
	requirement := options.FieldSelector.Requirements()[0]
	gvk, err := apiutil.GVKForObject(list, c.Scheme())
	if err != nil {
		return err
	}
	kind := strings.TrimSuffix(gvk.Kind, "List")
	var found []runtime.Object
	for _, index := range indexes {
		if index.field != requirement.Field || kindOf(index.object) != kind {
			continue
		}
		for _, o := range c.world.cached {
			if kindOf(o) == kind && slices.Contains(index.values(o), requirement.Value) {
				found = append(found, o)
			}
		}
	}
	slices.SortFunc(found, func(a, b runtime.Object) int {
		return strings.Compare(a.(client.Object).GetName(), b.(client.Object).GetName())
	})
	return meta.SetList(list, found)
}

func kindOf(o client.Object) string {
	if p, ok := o.(*metav1.PartialObjectMetadata); ok {
		return p.Kind
	}
	return reflect.TypeOf(o).Elem().Name()
}

func cacheKey(o client.Object) string { return kindOf(o) + "/" + o.GetName() }

// essence is an object without its version, as text.
func essence(o client.Object) string {
	o = o.DeepCopyObject().(client.Object)
	o.SetResourceVersion("")
	text, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	return string(text)
}
