package route

import (
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// payload is what the tests hang on an endpoint.
type payload struct {
	addr    netip.Addr
	retired int
}

func newTable(o Options[*payload]) *Table[*payload] {
	if o.Make == nil {
		o.Make = func(e *Endpoint[*payload]) *payload { return &payload{addr: e.Address} }
	}
	if o.Retire == nil {
		o.Retire = func(p *payload) { p.retired++ }
	}
	return New(o)
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func ready(ip, pod string) Address { return Address{Addr: addr(ip), PodUID: pod} }

func record(name, uid string, endpoints ...Address) *Record {
	return &Record{Namespace: "default", Name: name, UID: uid, Endpoints: endpoints}
}

func byNameQuery(name string) *Query { return &Query{Namespace: []byte("default"), Name: []byte(name)} }

func TestFindByNameUIDAndClaim(t *testing.T) {
	table := newTable(Options[*payload]{})
	r := record("s1", "u1", ready("10.0.0.1", "p1"))
	r.Claim = "c1"
	table.Publish(r)
	table.SetSynced()

	for name, c := range map[string]struct {
		q    Query
		want Verdict
	}{
		"name":                      {Query{Namespace: []byte("default"), Name: []byte("s1")}, Routable},
		"name and uid":              {Query{Namespace: []byte("default"), Name: []byte("s1"), UID: []byte("u1")}, Routable},
		"name and another uid":      {Query{Namespace: []byte("default"), Name: []byte("s1"), UID: []byte("u2")}, Unknown},
		"name in another namespace": {Query{Namespace: []byte("other"), Name: []byte("s1")}, Unknown},
		"another name":              {Query{Namespace: []byte("default"), Name: []byte("s2")}, Unknown},
		"claim":                     {Query{Namespace: []byte("default"), Claim: []byte("c1")}, Routable},
		"claim and another uid":     {Query{Namespace: []byte("default"), Claim: []byte("c1"), UID: []byte("u2")}, Unknown},
		"claim elsewhere":           {Query{Namespace: []byte("other"), Claim: []byte("c1")}, Unknown},
		"claim by the name":         {Query{Namespace: []byte("default"), Claim: []byte("s1")}, Unknown},
		"uid":                       {Query{UID: []byte("u1")}, Routable},
		"uid in its namespace":      {Query{Namespace: []byte("default"), UID: []byte("u1")}, Routable},
		"uid in another namespace":  {Query{Namespace: []byte("other"), UID: []byte("u1")}, Unknown},
		"another uid":               {Query{UID: []byte("u2")}, Unknown},
		"nothing":                   {Query{Namespace: []byte("default")}, Unknown},
	} {
		got := table.Find(&c.q)
		assert.Equal(t, c.want, got.Verdict, name)
		if c.want == Routable && assert.NotNil(t, got.Endpoint, name) {
			assert.Equal(t, addr("10.0.0.1"), got.Endpoint.Address, name)
			assert.Equal(t, "s1", got.Sandbox.Name, name)
		}
	}
}

func TestVerdictOfStateAndReadiness(t *testing.T) {
	notReady := Address{Addr: addr("10.0.0.1"), Condition: NotReady}
	draining := Address{Addr: addr("10.0.0.2"), Condition: Terminating}
	for name, c := range map[string]struct {
		state     State
		endpoints []Address
		want      Verdict
	}{
		"running and ready":             {StateRunning, []Address{ready("10.0.0.1", "")}, Routable},
		"running and not ready":         {StateRunning, []Address{notReady}, Unready},
		"running without endpoint":      {StateRunning, nil, Unready},
		"running and only terminating":  {StateRunning, []Address{notReady, draining}, Routable},
		"starting":                      {StateStarting, nil, Unready},
		"starting with a ready pod":     {StateStarting, []Address{ready("10.0.0.1", "")}, Unready},
		"suspending":                    {StateSuspending, []Address{ready("10.0.0.1", "")}, Unready},
		"suspended":                     {StateSuspended, nil, Suspended},
		"suspended, its pod lingers on": {StateSuspended, []Address{ready("10.0.0.1", "")}, Suspended},
		"finished":                      {StateFinished, nil, Finished},
		"expired":                       {StateExpired, nil, Expired},
	} {
		table := newTable(Options[*payload]{})
		r := record("s1", "u1", c.endpoints...)
		r.State = c.state
		table.Publish(r)
		got := table.Find(byNameQuery("s1"))
		assert.Equal(t, c.want, got.Verdict, name)
		assert.Equal(t, c.want == Routable, got.Endpoint != nil, name)
		assert.Equal(t, c.state, got.Sandbox.State, name)
	}
}

func TestUnsyncedUntilComplete(t *testing.T) {
	table := newTable(Options[*payload]{})
	table.Publish(record("s1", "u1", ready("10.0.0.1", "p1")))
	assert.Equal(t, Routable, table.Find(byNameQuery("s1")).Verdict)
	assert.Equal(t, Unsynced, table.Find(byNameQuery("s2")).Verdict)
	assert.False(t, table.Synced())
	table.SetSynced()
	assert.Equal(t, Unknown, table.Find(byNameQuery("s2")).Verdict)
	assert.True(t, table.Synced())
}

func TestEndpointLivesAsLongAsItsIdentity(t *testing.T) {
	table := newTable(Options[*payload]{})
	find := func() *Endpoint[*payload] {
		t.Helper()
		r := table.Find(byNameQuery("s1"))
		require.Equal(t, Routable, r.Verdict)
		return r.Endpoint
	}
	table.Publish(record("s1", "u1", ready("10.0.0.1", "p1")))
	first := find()
	first.Acquire()

	changed := record("s1", "u1", Address{Addr: addr("10.0.0.1"), PodUID: "p1", Zone: "b"})
	changed.Claim = "c1"
	table.Publish(changed)
	require.Same(t, first, find(), "a new zone and claim are the same pod")
	require.EqualValues(t, 1, find().Inflight())
	require.Zero(t, first.Payload.retired)

	for what, r := range map[string]*Record{
		"another pod":     record("s1", "u1", ready("10.0.0.1", "p2")),
		"another address": record("s1", "u1", ready("10.0.0.2", "p1")),
		"another sandbox": record("s1", "u2", ready("10.0.0.1", "p1")),
	} {
		table.Publish(changed)
		before := find()
		table.Publish(r)
		require.NotSame(t, before, find(), what)
		require.Equal(t, 1, before.Payload.retired, what)
	}

	last := find()
	suspended := record("s1", "u1")
	suspended.State = StateSuspended
	table.Publish(suspended)
	require.Equal(t, 1, last.Payload.retired)
	table.Publish(suspended)
	table.Remove("default", "s1")
	require.Equal(t, 1, last.Payload.retired, "retired once")
}

func TestAddressThatMovesBetweenSandboxes(t *testing.T) {
	table := newTable(Options[*payload]{})
	table.Publish(record("a", "u-a", ready("10.0.0.1", "p-a")))
	a := table.Find(byNameQuery("a")).Endpoint
	table.Publish(record("b", "u-b", ready("10.0.0.1", "p-b")))
	b := table.Find(byNameQuery("b")).Endpoint
	require.NotSame(t, a, b)
	require.NotSame(t, a.Payload, b.Payload, "what belongs to a is never b's, whatever the address")

	table.Remove("default", "a")
	require.Equal(t, 1, a.Payload.retired)
	require.Zero(t, b.Payload.retired)
	require.Equal(t, Gone, table.Find(byNameQuery("a")).Verdict)
}

func TestUnchangedRecordIsNotPublished(t *testing.T) {
	table := newTable(Options[*payload]{})
	table.SetZone("a")
	r := record("s1", "u1", Address{Addr: addr("10.0.0.2"), HintZones: []string{"a"}}, ready("10.0.0.1", "p1"))
	table.Publish(r)
	before := table.Find(byNameQuery("s1")).Sandbox
	table.Publish(r)
	require.Same(t, before, table.Find(byNameQuery("s1")).Sandbox)
	r.Endpoints[0].HintZones = nil
	table.Publish(r)
	require.NotSame(t, before, table.Find(byNameQuery("s1")).Sandbox)
}

func TestYoungestRouteHasTheClaim(t *testing.T) {
	claim := func(name string, since int64) *Record {
		r := record(name, "u-"+name, ready("10.0.0.1", "p-"+name))
		r.Claim, r.Since = "c1", since
		return r
	}
	q := &Query{Namespace: []byte("default"), Claim: []byte("c1")}
	for _, order := range [][]*Record{{claim("old", 1), claim("new", 2)}, {claim("new", 2), claim("old", 1)}} {
		table := newTable(Options[*payload]{})
		table.Publish(order[0])
		table.Publish(order[1])
		require.Equal(t, "new", table.Find(q).Sandbox.Name)
		q := *q
		q.UID = []byte("u-old")
		require.Equal(t, "old", table.Find(&q).Sandbox.Name, "the UID decides")
	}
}

func TestClaimLeavesWithItsSandbox(t *testing.T) {
	table := newTable(Options[*payload]{})
	table.SetSynced()
	r := record("s1", "u1", ready("10.0.0.1", "p1"))
	r.Claim = "c1"
	table.Publish(r)
	table.Remove("default", "s1")
	q := &Query{Namespace: []byte("default"), Claim: []byte("c1")}
	require.Equal(t, Unknown, table.Find(q).Verdict, "the claim may be bound again at any time")
	require.Equal(t, Gone, table.Find(&Query{UID: []byte("u1")}).Verdict)
}

func TestGoneIsBoundedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newTable(Options[*payload]{GoneFor: time.Minute})
		table.SetSynced()
		table.Publish(record("s1", "u1"))
		table.Remove("default", "s1")
		require.Equal(t, Gone, table.Find(byNameQuery("s1")).Verdict)
		require.Zero(t, table.Len())
		time.Sleep(time.Minute)
		require.Equal(t, Gone, table.Find(byNameQuery("s1")).Verdict)
		time.Sleep(time.Nanosecond)
		require.Equal(t, Unknown, table.Find(byNameQuery("s1")).Verdict, "without any write")
		table.Remove("default", "s1")
		require.Equal(t, Unknown, table.Find(byNameQuery("s1")).Verdict, "gone once is not gone anew")
		table.Publish(record("s2", "u2"))
		require.Equal(t, 1, table.by[byName].live, "the next write drops the tombstone")
		require.Equal(t, 1, table.by[byUID].live)
	})
}

func TestGoneIsBoundedInNumber(t *testing.T) {
	table := newTable(Options[*payload]{MaxGone: 3})
	table.SetSynced()
	for i := range 10 {
		name := fmt.Sprint("s", i)
		table.Publish(record(name, "u-"+name))
		table.Remove("default", name)
	}
	require.Len(t, table.graves, 3)
	require.Equal(t, 3, table.by[byName].live)
	require.Equal(t, Unknown, table.Find(byNameQuery("s6")).Verdict)
	require.Equal(t, Gone, table.Find(byNameQuery("s7")).Verdict)
}

func TestSandboxComesBackFromTheGrave(t *testing.T) {
	table := newTable(Options[*payload]{MaxGone: 1})
	table.Publish(record("s1", "u1", ready("10.0.0.1", "p1")))
	table.Remove("default", "s1")
	table.Publish(record("s1", "u2", ready("10.0.0.1", "p2")))
	require.Equal(t, Routable, table.Find(byNameQuery("s1")).Verdict)
	for _, other := range []string{"s2", "s3"} {
		table.Publish(record(other, ""))
		table.Remove("default", other)
	}
	require.Equal(t, Routable, table.Find(byNameQuery("s1")).Verdict, "its old tombstone takes nothing with it")
}

func TestForgottenIsUnknown(t *testing.T) {
	table := newTable(Options[*payload]{})
	table.SetSynced()
	table.Publish(record("s1", "u1", ready("10.0.0.1", "p1")))
	e := table.Find(byNameQuery("s1")).Endpoint
	table.Forget("default", "s1")
	require.Equal(t, Unknown, table.Find(byNameQuery("s1")).Verdict)
	require.Equal(t, 1, e.Payload.retired)
	table.Forget("default", "s1")
	table.Remove("default", "s1")
	require.Equal(t, Unknown, table.Find(byNameQuery("s1")).Verdict)
}

func TestCounts(t *testing.T) {
	table := newTable(Options[*payload]{})
	table.Publish(record("s1", "u1", ready("10.0.0.1", "p1"), Address{Addr: addr("10.0.0.2"), Condition: NotReady}))
	suspended := record("s2", "u2")
	suspended.State = StateSuspended
	table.Publish(suspended)
	assert.Equal(t, 2, table.Len())
	assert.Equal(t, 1, table.Count(StateRunning))
	assert.Equal(t, 1, table.Count(StateSuspended))
	assert.Equal(t, 1, table.ReadyEndpoints())

	seen := map[string]int{}
	table.Walk(func(s *Sandbox[*payload]) bool { seen[s.Name] = len(s.Members()); return true })
	assert.Equal(t, map[string]int{"s1": 2, "s2": 0}, seen)

	table.Remove("default", "s1")
	assert.Equal(t, 1, table.Len())
	assert.Zero(t, table.ReadyEndpoints())
	table.Walk(func(s *Sandbox[*payload]) bool { assert.Equal(t, "s2", s.Name); return true })
}

func TestNames(t *testing.T) {
	assert.Equal(t, "Suspending", StateSuspending.String())
	assert.Equal(t, "invalid", State(99).String())
	assert.Equal(t, "Unsynced", Unsynced.String())
	assert.Equal(t, "cross", ZoneCross.String())
	assert.Equal(t, "Terminating", Terminating.String())
	for s := range State(States) {
		parsed, ok := ParseState(s.String())
		assert.True(t, ok)
		assert.Equal(t, s, parsed)
	}
	_, ok := ParseState("running")
	assert.False(t, ok)
}

func TestTooManyEndpointsAreCut(t *testing.T) {
	table := newTable(Options[*payload]{})
	r := record("s1", "u1")
	a := addr("10.0.0.0")
	for range maxMembers + 10 {
		a = a.Next()
		r.Endpoints = append(r.Endpoints, Address{Addr: a})
	}
	table.Publish(r)
	require.Equal(t, maxMembers, table.ReadyEndpoints())
}
