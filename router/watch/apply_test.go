package watch

import (
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dovakiin0/agent-sandbox/router/route"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// fixture is a table and the applier that writes it. The payload of an endpoint counts how often it was retired.
type fixture struct {
	*applier
	table *route.Table[*int]
}

func newFixture() *fixture {
	table := route.New(route.Options[*int]{
		Make:   func(*route.Endpoint[*int]) *int { return new(int) },
		Retire: func(n *int) { *n++ },
	})
	return &fixture{newApplier(table, &Stats{}), table}
}

func (f *fixture) find(name string) route.Result[*int] {
	return f.table.Find(&route.Query{Namespace: []byte("default"), Name: []byte(name)})
}

// pod is the UID of the pod that a query for the sandbox leads to, or the verdict.
func (f *fixture) pod(name string) string {
	if r := f.find(name); r.Endpoint != nil {
		return r.Endpoint.PodUID
	} else {
		return r.Verdict.String()
	}
}

// at is the slice as of a resourceVersion.
func at(version int, s *discoveryv1.EndpointSlice) *part {
	s.ResourceVersion = strconv.Itoa(version)
	return read(s)
}

func created(second int64, s *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	s.CreationTimestamp = metav1.Unix(second, 0)
	return s
}

func TestLateEventsOfAnOldPod(t *testing.T) {
	f := newFixture()
	require.NoError(t, f.replace(nil, "1"))
	old := func(ready bool) *discoveryv1.EndpointSlice {
		return slice("s1", "u1", conditions(endpoint("10.0.0.1", "p1"), ready, ready, false))
	}
	f.set(at(5, old(true)))
	f.set(at(7, slice("s1", "u1", endpoint("10.0.0.2", "p2"))))
	require.Equal(t, "p2", f.pod("s1"))
	f.set(at(6, old(false)))
	f.drop(at(6, old(true)))
	require.Equal(t, "p2", f.pod("s1"))
	require.EqualValues(t, 2, f.stats.Stale())
	f.drop(at(9, slice("s1", "u1", endpoint("10.0.0.2", "p2"))))
	require.Equal(t, "Gone", f.pod("s1"))
}

func TestLateEventsOfAnOldPodAsPods(t *testing.T) {
	f := newFixture()
	require.NoError(t, f.replace(nil, "1"))
	podAt := func(version, uid string, ip string) *part {
		o := pod("s1", "u1", uid, ip)
		o.ResourceVersion = version
		p, _ := fromPod(o, false)
		return p
	}
	f.set(podAt("5", "p1", "10.0.0.1"))
	f.set(podAt("8", "p2", "10.0.0.2"))
	f.drop(podAt("6", "p1", "10.0.0.1"))
	f.set(podAt("5", "p1", "10.0.0.1"))
	require.Equal(t, "p2", f.pod("s1"))
	f.drop(podAt("9", "p2", "10.0.0.2"))
	require.Equal(t, "Unknown", f.pod("s1"), "a Pod that ends does not prove that its Sandbox did")
}

func TestDeletedRouteStaysDeleted(t *testing.T) {
	f := newFixture()
	require.NoError(t, f.replace(nil, "1"))
	s := slice("s1", "u1", endpoint("10.0.0.1", "p1"))
	f.set(at(8, s))
	f.drop(at(10, s))
	f.set(at(9, s))
	require.Equal(t, "Gone", f.pod("s1"))
	f.set(at(11, s))
	require.Equal(t, "p1", f.pod("s1"))
	f.drop(at(10, s))
	require.Equal(t, "p1", f.pod("s1"), "a late delete is late too")
}

func TestDeleteBeforeAdd(t *testing.T) {
	f := newFixture()
	require.NoError(t, f.replace(nil, "1"))
	s := slice("s1", "u1", endpoint("10.0.0.1", "p1"))
	f.drop(at(10, s))
	f.set(at(9, s))
	require.Equal(t, "Unknown", f.pod("s1"))
}

func TestSameNameNewUID(t *testing.T) {
	old := func() *discoveryv1.EndpointSlice {
		return created(10, named(slice("s1", "u1", endpoint("10.0.0.1", "p1")), "s1-old", "5"))
	}
	young := func() *discoveryv1.EndpointSlice {
		return created(20, named(slice("s1", "u2", endpoint("10.0.0.2", "p2")), "s1-new", "8"))
	}
	for name, order := range map[string][]*discoveryv1.EndpointSlice{
		"in order": {old(), young()}, "out of order": {young(), old()},
	} {
		f := newFixture()
		require.NoError(t, f.replace(nil, "1"))
		for _, s := range order {
			f.set(read(s))
		}
		require.Equal(t, "p2", f.pod("s1"), name)
		f.set(at(9, old()))
		require.Equal(t, "p2", f.pod("s1"), name)
		f.drop(at(10, young()))
		require.Equal(t, "Gone", f.pod("s1"), name+": the old Sandbox does not come back though its slice lingers")
		f.drop(at(11, old()))
		require.Equal(t, "Gone", f.pod("s1"), name)
		f.set(read(created(30, named(slice("s1", "u3", endpoint("10.0.0.3", "p3")), "s1-next", "12"))))
		require.Equal(t, "p3", f.pod("s1"), name)
		require.Len(t, f.sandboxes, 1)
	}
}

func TestOwnSlicesBeforeNativeOnes(t *testing.T) {
	f := newFixture()
	require.NoError(t, f.replace(nil, "1"))
	f.set(at(2, native("s1", endpoint("10.0.0.9", "p9"))))
	require.Equal(t, "p9", f.pod("s1"))
	f.set(at(3, slice("s1", "u1", endpoint("10.0.0.1", "p1"))))
	require.Equal(t, "p1", f.pod("s1"))
	require.Equal(t, "u1", f.find("s1").Sandbox.UID)
	suspended := slice("s1", "u1")
	suspended.Annotations["agents.x-k8s.io/route-state"] = "Suspended"
	f.set(at(4, suspended))
	require.Equal(t, "Suspended", f.pod("s1"), "whatever the Service says")
	f.drop(at(5, suspended))
	require.Equal(t, "Gone", f.pod("s1"))
	f.drop(at(6, native("s1")))
	require.Equal(t, "Gone", f.pod("s1"))

	f.set(at(7, native("s2", endpoint("10.0.0.9", "p9"))))
	f.drop(at(8, native("s2")))
	require.Equal(t, "Unknown", f.pod("s2"), "a Service that ends does not prove that the Sandbox did")
}

func TestSliceOfAnotherService(t *testing.T) {
	f := newFixture()
	require.NoError(t, f.replace(nil, "1"))
	s := native("s1", endpoint("10.0.0.1", "p1"))
	f.set(at(2, s))
	s.Labels[discoveryv1.LabelServiceName] = "s2"
	f.set(at(3, s))
	require.Equal(t, "Unknown", f.pod("s1"))
	require.Equal(t, "p1", f.pod("s2"))
	delete(s.Labels, discoveryv1.LabelServiceName)
	f.set(at(4, s))
	require.Equal(t, "Unknown", f.pod("s2"))
	require.Empty(t, f.sandboxes)
}

func TestWarmSandboxIsRoutableOnlyOnceClaimed(t *testing.T) {
	f := newFixture()
	require.NoError(t, f.replace(nil, "1"))
	o := pod("warm-1", "u1", "p1", "10.0.0.1")
	o.Labels["agents.x-k8s.io/warm-pool-sandbox"] = "abc"
	p, _ := fromPod(o, false)
	f.set(p)
	for name, q := range map[string]route.Query{
		"name": {Namespace: []byte("default"), Name: []byte("warm-1")}, "uid": {UID: []byte("u1")},
		"name and ip": {Namespace: []byte("default"), Name: []byte("warm-1"), Hint: addr("10.0.0.1")},
	} {
		require.Equal(t, route.Unknown, f.table.Find(&q).Verdict, name)
	}
	require.Zero(t, f.table.Len())
	delete(o.Labels, "agents.x-k8s.io/warm-pool-sandbox")
	o.ResourceVersion = "6"
	p, _ = fromPod(o, false)
	f.set(p)
	require.Equal(t, "p1", f.pod("warm-1"))
}

func TestListIsTheTruth(t *testing.T) {
	f := newFixture()
	a, b, c := slice("a", "u-a", endpoint("10.0.0.1", "pa")), slice("b", "u-b", endpoint("10.0.0.2", "pb")), slice("c", "u-c", endpoint("10.0.0.3", "pc"))
	require.False(t, f.table.Synced())
	require.NoError(t, f.replace([]*part{at(1, a), at(2, b)}, "5"))
	require.True(t, f.table.Synced())
	require.NotZero(t, f.stats.LastSync())
	f.set(at(12, c))
	b.Endpoints[0] = endpoint("10.0.0.4", "pb2")
	require.NoError(t, f.replace([]*part{at(11, b), at(12, c)}, "12"))
	require.Equal(t, "Gone", f.pod("a"), "deleted while nobody watched")
	require.Equal(t, "pb2", f.pod("b"))
	require.Equal(t, "pc", f.pod("c"))
	f.set(at(3, a))
	require.Equal(t, "Gone", f.pod("a"))
}

func TestRelistRetiresNothingThatStays(t *testing.T) {
	f := newFixture()
	list := func() (parts []*part) {
		for i := range 100 {
			name := fmt.Sprint("s", i)
			parts = append(parts, at(5, slice(name, "u-"+name, endpoint("10.0.0.1", "p-"+name))))
		}
		return parts
	}
	require.NoError(t, f.replace(list(), "10"))
	before := f.find("s7").Endpoint
	require.NoError(t, f.replace(list(), "20"))
	require.Same(t, before, f.find("s7").Endpoint)
	require.Zero(t, *before.Payload)
}

func TestListThatIsNotBelieved(t *testing.T) {
	a := func() *discoveryv1.EndpointSlice { return slice("a", "u-a", endpoint("10.0.0.1", "pa")) }
	for name, list := range map[string]func() ([]*part, string){
		"empty":            func() ([]*part, string) { return nil, "20" },
		"older":            func() ([]*part, string) { return []*part{at(3, a())}, "4" },
		"older, and empty": func() ([]*part, string) { return nil, "4" },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture()
				require.NoError(t, f.replace([]*part{at(9, a())}, "10"))
				before := f.find("a").Endpoint
				dubious := func() error { parts, version := list(); return f.replace(parts, version) }

				require.ErrorIs(t, dubious(), errDoubt)
				time.Sleep(doubtFor / 2)
				require.ErrorIs(t, dubious(), errDoubt, "too soon to be another opinion")
				require.Same(t, before, f.find("a").Endpoint)
				require.Zero(t, *before.Payload, "no connection was closed")
				require.EqualValues(t, 1, f.stats.Doubts())

				require.NoError(t, f.replace([]*part{at(9, a())}, "21"))
				time.Sleep(doubtFor)
				require.ErrorIs(t, dubious(), errDoubt, "a good list in between ends the doubt")
				require.Same(t, before, f.find("a").Endpoint)

				time.Sleep(doubtFor)
				require.NoError(t, dubious(), "confirmed")
				if parts, _ := list(); len(parts) == 0 {
					require.Equal(t, "Gone", f.pod("a"))
					require.Equal(t, 1, *before.Payload)
				} else {
					require.Equal(t, "pa", f.pod("a"))
				}
			})
		})
	}
}

func TestClusterThatWasRestoredFromABackup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		s := func(pod string) *discoveryv1.EndpointSlice { return slice("a", "u-a", endpoint("10.0.0.1", pod)) }
		old := func(name string) *discoveryv1.EndpointSlice {
			return created(500, slice(name, "u-old", endpoint("10.0.0.2", "p-old")))
		}
		require.NoError(t, f.replace([]*part{at(90, s("p2")), at(91, slice("b", "u-b")), at(92, old("c"))}, "93"))
		f.drop(at(94, old("c")))
		restored := func() []*part { return []*part{at(30, s("p1")), at(31, old("b")), at(32, old("c"))} }
		require.ErrorIs(t, f.replace(restored(), "40"), errDoubt)
		time.Sleep(doubtFor)
		require.NoError(t, f.replace(restored(), "41"))
		require.Equal(t, "p1", f.pod("a"), "the past is the truth now")
		require.Equal(t, "p-old", f.pod("b"), "an older Sandbox of the name is the youngest again")
		require.Equal(t, "p-old", f.pod("c"), "what was deleted is there")
		f.set(at(42, s("p3")))
		require.Equal(t, "p3", f.pod("a"), "and time goes on from there")
		f.drop(at(43, s("p3")))
		require.Equal(t, "Gone", f.pod("a"))
	})
}

func TestGravesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		s := slice("s", "u", endpoint("10.0.0.1", "p"))
		for i := range maxGraves + 10 {
			f.drop(at(i+1, named(s, fmt.Sprint("x", i), "")))
		}
		require.Len(t, f.graves, maxGraves)
		require.Len(t, f.buried, maxGraves)
		for i := range 1000 { // one object that comes and goes
			f.set(at(20_000+2*i, s))
			f.drop(at(20_001+2*i, s))
		}
		require.LessOrEqual(t, len(f.buried), maxGraves)
		time.Sleep(graveAge + 1)
		f.drop(at(30_000, named(s, "last", "")))
		require.Len(t, f.graves, 1)
		require.Len(t, f.buried, 1)
	})
}

func TestWorkIsProportionalToTheChange(t *testing.T) {
	f := newFixture()
	var parts []*part
	for i := range 2000 {
		name := fmt.Sprint("s", i)
		parts = append(parts, at(5, slice(name, "u-"+name, endpoint("10.0.0.1", "p-"+name))))
	}
	require.NoError(t, f.replace(parts, "10"))
	published := &countingTable{Table: f.table}
	f.applier.table = published
	f.set(at(11, slice("s7", "u-s7", endpoint("10.0.0.2", "p"))))
	assert.Equal(t, 1, published.n)
	require.NoError(t, f.replace(append(parts[:7:7], parts[8:]...), "12"))
	assert.Equal(t, 2, published.n, "a list publishes what it changes")
}

type countingTable struct {
	Table
	n int
}

func (c *countingTable) Publish(r *route.Record)       { c.n++; c.Table.Publish(r) }
func (c *countingTable) Remove(namespace, name string) { c.n++; c.Table.Remove(namespace, name) }
