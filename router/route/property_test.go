package route

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// life counts what happened to one payload.
type life struct{ made, retired atomic.Int32 }

// TestTableAgainstModel writes at random and compares with a map after every write, while readers check that whatever
// they find belongs to what they asked for and is theirs alone.
func TestTableAgainstModel(t *testing.T) {
	const names, claims, uids = 40, 10, 200
	var lives sync.Map
	table := New(Options[*life]{
		Make: func(*Endpoint[*life]) *life {
			l := &life{}
			l.made.Add(1)
			lives.Store(l, true)
			return l
		},
		Retire:  func(l *life) { l.retired.Add(1) },
		MaxGone: 5,
	})
	table.SetZone("a")
	table.SetSynced()

	var owners sync.Map // *Endpoint → the sandbox and UID it was first seen with
	check := func(q *Query, r Result[*life]) bool {
		s := r.Sandbox
		if s == nil {
			return true
		}
		if (len(q.Name) > 0 && s.Name != string(q.Name)) || (len(q.Name) == 0 && len(q.Claim) > 0 && s.Claim != string(q.Claim)) ||
			(len(q.UID) > 0 && s.UID != string(q.UID)) {
			return false
		}
		if r.Endpoint == nil {
			return true
		}
		owner, _ := owners.LoadOrStore(r.Endpoint, s.Name+"/"+s.UID)
		return owner == s.Name+"/"+s.UID && r.Endpoint.Payload.made.Load() == 1
	}

	done := make(chan struct{})
	var readers sync.WaitGroup
	for seed := range uint64(4) {
		readers.Go(func() {
			random := rand.New(rand.NewPCG(seed, 1))
			for {
				select {
				case <-done:
					return
				default:
				}
				q := randomQuery(random, names, claims, uids)
				if !assert.True(t, check(q, table.Find(q)), "%s %s %s", q.Name, q.Claim, q.UID) {
					return
				}
			}
		})
	}

	model := map[string]*Record{}
	random := rand.New(rand.NewPCG(1, 2))
	writes := 20_000
	if testing.Short() {
		writes = 2_000
	}
	for i := range writes {
		name := fmt.Sprint("s", random.IntN(names))
		switch random.IntN(10) {
		case 0:
			table.Remove("default", name)
			delete(model, name)
		case 1:
			table.Forget("default", name)
			delete(model, name)
		default:
			r := randomRecord(random, name, claims, uids)
			r.Since = int64(i)
			table.Publish(r)
			model[name] = r
		}
		for range 3 {
			q := randomQuery(random, names, claims, uids)
			compare(t, table, model, q)
		}
		if i%1000 == 0 {
			for n := range names {
				compare(t, table, model, byNameQuery(fmt.Sprint("s", n)))
			}
		}
		if t.Failed() {
			break
		}
	}
	close(done)
	readers.Wait()

	require.Equal(t, len(model), table.Len())
	inTable := map[*life]bool{}
	table.Walk(func(s *Sandbox[*life]) bool {
		for _, m := range s.Members() {
			require.False(t, inTable[m.Endpoint.Payload], "one payload, one endpoint")
			inTable[m.Endpoint.Payload] = true
		}
		return true
	})
	lives.Range(func(k, _ any) bool {
		l := k.(*life)
		want := int32(1)
		if inTable[l] {
			want = 0
		}
		assert.Equal(t, want, l.retired.Load(), "retired once, when it left the table")
		return true
	})
}

func randomQuery(random *rand.Rand, names, claims, uids int) *Query {
	q := &Query{Namespace: []byte("default")}
	switch random.IntN(3) {
	case 0:
		q.Name = fmt.Append(nil, "s", random.IntN(names))
	case 1:
		q.Claim = fmt.Append(nil, "c", random.IntN(claims))
	}
	if q.Name == nil && q.Claim == nil || random.IntN(3) == 0 {
		q.UID = fmt.Append(nil, "u", random.IntN(uids))
	}
	return q
}

// randomRecord gives few addresses to many sandboxes, so that the same IP is found under several.
func randomRecord(random *rand.Rand, name string, claims, uids int) *Record {
	r := &Record{Namespace: "default", Name: name, State: State(random.IntN(States))}
	if random.IntN(3) > 0 {
		r.State = StateRunning
	}
	if random.IntN(10) > 0 {
		r.UID = fmt.Sprint("u", random.IntN(uids))
	}
	if random.IntN(2) == 0 {
		r.Claim = fmt.Sprint("c", random.IntN(claims))
	}
	for range random.IntN(4) {
		a := Address{
			Addr: addr(fmt.Sprint("10.0.0.", 1+random.IntN(5))), PodUID: fmt.Sprint("p", random.IntN(3)),
			Zone: []string{"", "a", "b"}[random.IntN(3)], Condition: Condition(random.IntN(3)),
		}
		if !slices.ContainsFunc(r.Endpoints, func(b Address) bool { return a.Addr == b.Addr && a.PodUID == b.PodUID }) {
			r.Endpoints = append(r.Endpoints, a)
		}
	}
	return r
}

// compare checks one lookup against the model.
func compare(t *testing.T, table *Table[*life], model map[string]*Record, q *Query) {
	t.Helper()
	var want *Record
	var uidTwice bool
	for _, r := range model {
		fits := r.Name == string(q.Name)
		if len(q.Name) == 0 {
			fits = len(q.Claim) == 0 || r.Claim == string(q.Claim)
		}
		if !fits || len(q.UID) > 0 && r.UID != string(q.UID) {
			continue
		}
		uidTwice = uidTwice || want != nil
		if want == nil || r.Since > want.Since {
			want = r
		}
	}
	got := table.Find(q)
	if want == nil {
		assert.Contains(t, []Verdict{Unknown, Gone}, got.Verdict, "%s %s %s", q.Name, q.Claim, q.UID)
		return
	}
	if uidTwice && len(q.Claim) == 0 {
		return // the same UID for two sandboxes: either will do
	}
	if !assert.NotNil(t, got.Sandbox, "%s %s %s", q.Name, q.Claim, q.UID) {
		return
	}
	assert.Equal(t, want.Name, got.Sandbox.Name)
	assert.Equal(t, want.UID, got.Sandbox.UID)
	assert.Equal(t, want.Claim, got.Sandbox.Claim)
	assert.Equal(t, want.State, got.Sandbox.State)
	if want.State != StateRunning {
		assert.Nil(t, got.Endpoint)
		return
	}
	best := NotReady
	for _, a := range want.Endpoints {
		best = min(best, a.Condition)
	}
	if best == NotReady {
		assert.Equal(t, Unready, got.Verdict)
		return
	}
	if assert.NotNil(t, got.Endpoint) {
		assert.True(t, slices.ContainsFunc(want.Endpoints, func(a Address) bool {
			return a.Addr == got.Endpoint.Address && a.PodUID == got.Endpoint.PodUID && a.Condition == best
		}), "%v is not in %v", got.Endpoint.Address, want.Endpoints)
	}
}

// TestIndexAgainstModel has many items with few hashes, so that they collide, come and go.
func TestIndexAgainstModel(t *testing.T) {
	type item struct{ hash uint64 }
	var x index[item]
	x.init()
	random := rand.New(rand.NewPCG(3, 4))
	model := map[*item]bool{}
	for range 50_000 {
		switch e := (&item{uint64(random.IntN(50))}); random.IntN(5) {
		case 0, 1:
			x.move(key{}, key{e.hash, true}, nil, e)
			model[e] = true
		case 2:
			for old := range model {
				x.move(key{old.hash, true}, key{e.hash, true}, old, e)
				delete(model, old)
				model[e] = true
				break
			}
		default:
			for old := range model {
				x.move(key{old.hash, true}, key{}, old, nil)
				delete(model, old)
				break
			}
		}
		require.Equal(t, len(model), x.live)
		require.LessOrEqual(t, 4*x.used, 3*len(*x.slots.Load()))
	}
	found := map[*item]bool{}
	for hash := range uint64(50) {
		for c := x.find(hash); ; {
			e := c.next()
			if e == nil {
				break
			}
			require.Equal(t, hash, e.hash)
			require.False(t, found[e])
			found[e] = true
		}
	}
	require.Equal(t, model, found)
	each := map[*item]bool{}
	x.each(func(e *item) bool { each[e] = true; return true })
	require.Equal(t, model, each)
}
