package watch

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/dovakiin0/agent-sandbox/proto"
	"github.com/dovakiin0/agent-sandbox/router/route"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// world is a cluster as its API server sees it: objects that come, change and go, one version after the other.
type world struct {
	random  *rand.Rand
	version int
	objects map[string]*discoveryv1.EndpointSlice
	history []event
	facts   sync.Map // "sandbox/sandbox UID/pod/address" of all that ever was true, for the readers
}

// event is one change, or with list set all objects as of a version.
type event struct {
	object  *discoveryv1.EndpointSlice
	deleted bool
	list    []*discoveryv1.EndpointSlice
	version int
	at      float64 // when it is delivered
}

func (w *world) write(s *discoveryv1.EndpointSlice) {
	w.version++
	s = s.DeepCopy()
	s.ResourceVersion = strconv.Itoa(w.version)
	w.objects[s.Name] = s
	p := read(s)
	for _, a := range p.endpoints {
		w.facts.Store(fmt.Sprintf("%s/%s/%s/%s", p.sandbox, p.sandboxUID, a.PodUID, a.Addr), true)
	}
	w.history = append(w.history, event{object: s, version: w.version})
}

func (w *world) delete(name string) {
	w.version++
	s := w.objects[name].DeepCopy()
	s.ResourceVersion = strconv.Itoa(w.version)
	delete(w.objects, name)
	w.history = append(w.history, event{object: s, deleted: true, version: w.version})
}

// endpoints are up to two pods with addresses out of a few, so that sandboxes inherit those of others.
func (w *world) endpoints() (all []discoveryv1.Endpoint) {
	for i := range w.random.IntN(3) {
		e := endpoint(fmt.Sprintf("10.0.%d.%d", i, 1+w.random.IntN(6)), fmt.Sprint("p", w.random.IntN(1000)))
		if w.random.IntN(4) == 0 {
			e = conditions(e, false, w.random.IntN(2) == 0, w.random.IntN(2) == 0)
		}
		all = append(all, e)
	}
	return all
}

// step lets one thing happen to one of a few names. Sandboxes of one name follow each other; the slice of the last one
// may linger for a while after the next one came. Names beyond the tenth are Services.
func (w *world) step() {
	n := w.random.IntN(14)
	name := fmt.Sprint("s", n)
	if n >= 10 {
		if object := name + "-x7k2p"; w.objects[object] != nil && w.random.IntN(3) == 0 {
			w.delete(object)
		} else {
			w.write(native(name, w.endpoints()...))
		}
		return
	}
	young, lingering := w.incarnations(name)
	switch chance := w.random.IntN(10); {
	case lingering != "" && chance < 2:
		w.delete(lingering)
	case young == "" || lingering == "" && chance == 2:
		s := created(int64(w.version), slice(name, fmt.Sprint("u", w.version), w.endpoints()...))
		if young == name {
			s.Name = name + "-b"
		}
		w.write(s)
	case lingering == "" && chance == 3:
		w.delete(young)
	default:
		s := w.objects[young].DeepCopy()
		s.Endpoints = w.endpoints()
		s.Annotations[proto.AnnotationRouteState] = route.State(w.random.IntN(route.States)).String()
		s.Annotations[proto.AnnotationRouteClaim] = fmt.Sprint("c", w.random.IntN(5))
		w.write(s)
	}
}

// incarnations returns the names of the slices of a sandbox, of which there are two at most.
func (w *world) incarnations(name string) (young, lingering string) {
	for _, object := range []string{name, name + "-b"} {
		s := w.objects[object]
		switch {
		case s == nil:
		case young == "":
			young = object
		case s.CreationTimestamp.After(w.objects[young].CreationTimestamp.Time):
			young, lingering = object, young
		default:
			lingering = object
		}
	}
	return young, lingering
}

// deliveries is the history as an unreliable messenger tells it: events late, out of order and twice, with complete
// lists in between.
func (w *world) deliveries() []event {
	var out []event
	now := map[string]*discoveryv1.EndpointSlice{}
	for i, e := range w.history {
		for range 1 + w.random.IntN(2) {
			e.at = float64(i) + w.random.Float64()*w.random.Float64()*60
			out = append(out, e)
		}
		if now[e.object.Name] = e.object; e.deleted {
			delete(now, e.object.Name)
		}
		if w.random.IntN(100) == 0 {
			l := event{list: []*discoveryv1.EndpointSlice{}, version: e.version, at: float64(i) + w.random.Float64()*20}
			for _, s := range now {
				l.list = append(l.list, s)
			}
			out = append(out, l)
		}
	}
	slices.SortStableFunc(out, func(a, b event) int { return int(a.at - b.at) })
	return out
}

func (f *fixture) deliver(e event) {
	switch {
	case e.list != nil:
		parts := make([]*part, 0, len(e.list))
		for _, s := range e.list {
			parts = append(parts, read(s))
		}
		_ = f.replace(parts, strconv.Itoa(e.version)) // an older list is refused
	case e.deleted:
		f.drop(read(e.object))
	default:
		f.set(read(e.object))
	}
}

func TestEventsInAnyOrder(t *testing.T) {
	worlds, steps := 30, 1500
	if testing.Short() {
		worlds = 3
	}
	for seed := range worlds {
		if !t.Run(strconv.Itoa(seed), func(t *testing.T) { eventsInAnyOrder(t, uint64(seed), steps) }) {
			return
		}
	}
}

func eventsInAnyOrder(t *testing.T, seed uint64, steps int) {
	w := &world{random: rand.New(rand.NewPCG(seed, 1)), objects: map[string]*discoveryv1.EndpointSlice{}}
	for range steps {
		w.step()
	}
	for n := range 10 { // the garbage collector removes the predecessors in the end
		if _, lingering := w.incarnations(fmt.Sprint("s", n)); lingering != "" {
			w.delete(lingering)
		}
	}

	f := newFixture()
	require.NoError(t, f.replace(nil, "0"))
	done := make(chan struct{})
	var readers sync.WaitGroup
	for reader := range uint64(2) {
		readers.Go(func() {
			random := rand.New(rand.NewPCG(seed, reader))
			for {
				select {
				case <-done:
					return
				default:
				}
				name := fmt.Sprint("s", random.IntN(14))
				r := f.find(name)
				if r.Endpoint == nil {
					continue
				}
				fact := fmt.Sprintf("%s/%s/%s/%s", name, r.Sandbox.UID, r.Endpoint.PodUID, r.Endpoint.Address)
				if _, true := w.facts.Load(fact); !assert.True(t, true, fact) {
					return
				}
			}
		})
	}
	for _, e := range w.deliveries() {
		f.deliver(e)
	}
	close(done)
	readers.Wait()

	compare(t, f, w)
	published := &countingTable{Table: f.table}
	f.applier.table = published
	all := event{list: []*discoveryv1.EndpointSlice{}, version: w.version}
	for _, s := range w.objects {
		all.list = append(all.list, s)
	}
	f.deliver(all)
	compare(t, f, w)
	assert.Zero(t, published.n, "the list says what the events said")
}

// compare checks the table against the objects there are.
func compare(t *testing.T, f *fixture, w *world) {
	t.Helper()
	assert.Equal(t, len(w.objects), f.table.Len())
	for _, s := range w.objects {
		want := read(s)
		got := f.find(want.sandbox).Sandbox
		if !assert.NotNil(t, got, want.sandbox) {
			continue
		}
		assert.Equal(t, want.sandboxUID, got.UID)
		assert.Equal(t, want.claim, got.Claim)
		assert.Equal(t, want.state, got.State)
		var members []route.Address
		for _, m := range got.Members() {
			members = append(members, route.Address{
				Addr: m.Endpoint.Address, PodUID: m.Endpoint.PodUID, Zone: m.Zone, Condition: m.Condition,
			})
		}
		assert.ElementsMatch(t, want.endpoints, members, want.sandbox)
	}
	assert.Len(t, f.sandboxes, len(w.objects))
	assert.Len(t, f.objects, len(w.objects))
}
