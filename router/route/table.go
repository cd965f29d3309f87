package route

import (
	"hash/maphash"
	"sync/atomic"
	"time"
)

// Options configures a Table. Only Make may not be nil.
type Options[P any] struct {
	// Make returns the payload of a new endpoint, before any reader sees it.
	Make func(*Endpoint[P]) P
	// Retire is called once for the payload of every endpoint that left the table, after no new query can find it.
	// A reader that found it before may still be about to use it.
	Retire func(P)

	GoneFor  time.Duration // how long a removed sandbox is remembered; 0 means 5 minutes
	MaxGone  int           // how many removed sandboxes are remembered; 0 means 10,000
	MaxHeld  int           // how many Wait calls may block at once; 0 means 10,000, and one sandbox may have a quarter
	MaxBytes int64         // how many bytes their requests may hold, see Hold.Bytes; 0 means 256 MiB
}

// Table maps sandboxes to their endpoints. Find, Wait and the counts are for any goroutine; the methods that change
// it (Publish, Remove, Forget, SetZone, SetSynced) for one at a time, the writer.
type Table[P any] struct {
	make    func(*Endpoint[P]) P
	retire  func(P)
	goneFor time.Duration
	maxGone int

	seeds [kinds]maphash.Seed
	by    [kinds]index[Sandbox[P]] // tombstones are in the first two; who has no UID or claim is not under it

	zone   string        // the router's own; read by the writer only
	graves []*Sandbox[P] // tombstones, oldest first; read by the writer only
	synced atomic.Bool   // whether what is not in the table does not exist
	counts [States]atomic.Int64
	ready  atomic.Int64 // endpoints
	held   waiters
}

// New returns an empty table that is not synced.
func New[P any](o Options[P]) *Table[P] {
	t := &Table[P]{
		make:    o.Make,
		retire:  o.Retire,
		goneFor: orDefault(o.GoneFor, 5*time.Minute),
		maxGone: orDefault(o.MaxGone, 10_000),
	}
	for kind := range t.by {
		t.seeds[kind] = maphash.MakeSeed()
		t.by[kind].init()
	}
	if t.retire == nil {
		t.retire = func(P) {}
	}
	t.held.init(orDefault(o.MaxHeld, 10_000), orDefault(o.MaxBytes, 256<<20))
	return t
}

func orDefault[T int | int64 | time.Duration](v, standard T) T {
	if v == 0 {
		return standard
	}
	return v
}

// Find answers q from what is known now. It takes no lock and allocates nothing.
func (t *Table[P]) Find(q *Query) Result[P] {
	s := t.lookup(q)
	switch {
	case s != nil && s.verdict == Routable:
		m := s.pick(q.Hint)
		return Result[P]{Verdict: Routable, Sandbox: s, Endpoint: m.Endpoint, Zone: m.zone}
	case s != nil && s.verdict != Gone:
		return Result[P]{Verdict: s.verdict, Sandbox: s}
	case s != nil && !t.forgotten(s):
		return Result[P]{Verdict: Gone}
	case t.synced.Load():
		return Result[P]{Verdict: Unknown}
	}
	return Result[P]{Verdict: Unsynced}
}

func (t *Table[P]) lookup(q *Query) *Sandbox[P] {
	switch {
	case len(q.Name) > 0:
		return t.named(q)
	case len(q.Claim) > 0:
		return t.claimed(q)
	case len(q.UID) > 0:
		return t.identified(q)
	}
	return nil
}

func (t *Table[P]) named(q *Query) *Sandbox[P] {
	c := t.by[byName].find(t.hash(byName, q.Namespace, q.Name))
	for s := c.next(); s != nil; s = c.next() {
		if s.Name == string(q.Name) && s.Namespace == string(q.Namespace) {
			if len(q.UID) > 0 && s.UID != string(q.UID) {
				return nil
			}
			return s
		}
	}
	return nil
}

func (t *Table[P]) identified(q *Query) (found *Sandbox[P]) {
	c := t.by[byUID].find(t.hash(byUID, nil, q.UID))
	for s := c.next(); s != nil; s = c.next() {
		if s.UID != string(q.UID) || len(q.Namespace) > 0 && s.Namespace != string(q.Namespace) {
			continue
		}
		if found = s; s.verdict != Gone {
			break
		}
	}
	return found
}

// claimed finds the sandbox that serves the claim. While a claim of the same name is deleted and made anew two may
// say that they do: the younger route is the new claim's.
func (t *Table[P]) claimed(q *Query) (best *Sandbox[P]) {
	c := t.by[byClaim].find(t.hash(byClaim, q.Namespace, q.Claim))
	for s := c.next(); s != nil; s = c.next() {
		if s.Claim != string(q.Claim) || s.Namespace != string(q.Namespace) || len(q.UID) > 0 && s.UID != string(q.UID) {
			continue
		}
		if best == nil || s.since > best.since {
			best = s
		}
	}
	return best
}

// Synced reports whether SetSynced was called: a sandbox that is not in the table does not exist.
func (t *Table[P]) Synced() bool { return t.synced.Load() }

// Len is the number of sandboxes.
func (t *Table[P]) Len() int {
	n := 0
	for s := range State(States) {
		n += t.Count(s)
	}
	return n
}

// Count is the number of sandboxes in state s.
func (t *Table[P]) Count(s State) int { return int(t.counts[s].Load()) }

// ReadyEndpoints is the number of endpoints in condition Ready, over all sandboxes.
func (t *Table[P]) ReadyEndpoints() int { return int(t.ready.Load()) }

// Waiting is the number of Wait calls that block now.
func (t *Table[P]) Waiting() int { return t.held.len() }

// Walk calls fn for every sandbox until it returns false, in no order and without a copy of the table. Sandboxes
// that come or go meanwhile may be seen or not.
func (t *Table[P]) Walk(fn func(*Sandbox[P]) bool) {
	t.by[byName].each(func(s *Sandbox[P]) bool { return s.verdict == Gone || fn(s) })
}
