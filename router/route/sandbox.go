package route

import (
	"cmp"
	"slices"
)

// Sandbox is an immutable snapshot of one route.
type Sandbox[P any] struct {
	Namespace, Name string
	UID             string // empty when the source does not know it
	Claim           string // empty when no claim holds the sandbox
	State           State

	verdict Verdict
	near    uint16 // the first members, equally preferred
	usable  uint16 // the first members, those that pick may choose
	since   int64  // Record.Since; of a tombstone the time of the removal, Unix nanoseconds
	members []Member[P]
	single  [1]Member[P] // room for members when there is one, as nearly always: it saves a lookup a cache miss
}

// Members returns the endpoints, the preferred ones first. The slice must not be changed.
func (s *Sandbox[P]) Members() []Member[P] { return s.members }

// Verdict is what a query that finds this snapshot gets.
func (s *Sandbox[P]) Verdict() Verdict { return s.verdict }

// maxMembers bounds the endpoints of one sandbox, which has one or a few, so that none can keep the writer busy.
const maxMembers = 1024

// snapshot builds the next Sandbox from what the writer knows, with the endpoints of old that are still the same.
func (t *Table[P]) snapshot(r *Record, old *Sandbox[P]) *Sandbox[P] {
	s := &Sandbox[P]{
		Namespace: r.Namespace, Name: r.Name, UID: r.UID, Claim: r.Claim, State: r.State, since: r.Since,
	}
	addresses := r.Endpoints[:min(len(r.Endpoints), maxMembers)]
	s.members = s.single[:0]
	if len(addresses) > 1 {
		s.members = make([]Member[P], 0, len(addresses))
	}
	for i := range addresses {
		a := &addresses[i]
		if s.member(a) != nil {
			continue
		}
		m := Member[P]{Endpoint: t.endpoint(old, r, a), Zone: a.Zone, Condition: a.Condition}
		m.zone, m.rank = t.nearness(a)
		s.members = append(s.members, m)
	}
	s.settle()
	return s
}

// endpoint returns the endpoint with the identity of a in the sandbox with the given UID: that of old, or a new one.
func (t *Table[P]) endpoint(old *Sandbox[P], r *Record, a *Address) *Endpoint[P] {
	if old != nil && old.UID == r.UID {
		if m := old.member(a); m != nil {
			return m.Endpoint
		}
	}
	e := &Endpoint[P]{Address: a.Addr, Namespace: r.Namespace, PodUID: a.PodUID}
	e.Payload = t.make(e)
	return e
}

// settle orders the members and derives what readers need.
func (s *Sandbox[P]) settle() {
	slices.SortStableFunc(s.members, func(a, b Member[P]) int {
		return cmp.Or(cmp.Compare(a.Condition, b.Condition), cmp.Compare(a.rank, b.rank))
	})
	for i := range s.members {
		first, m := &s.members[0], &s.members[i]
		if m.Condition == NotReady || m.Condition != first.Condition {
			break
		}
		s.usable++
		if m.rank == first.rank {
			s.near++
		}
	}
	switch s.State {
	case StateRunning:
		s.verdict = Unready
		if s.usable > 0 {
			s.verdict = Routable
		}
	case StateSuspended:
		s.verdict = Suspended
	case StateFinished:
		s.verdict = Finished
	case StateExpired:
		s.verdict = Expired
	default:
		s.verdict = Unready
	}
}

// member finds the member with the identity of a, or nil.
func (s *Sandbox[P]) member(a *Address) *Member[P] {
	for i := range s.members {
		if e := s.members[i].Endpoint; e.Address == a.Addr && e.PodUID == a.PodUID {
			return &s.members[i]
		}
	}
	return nil
}

// same reports whether r says nothing new.
func (t *Table[P]) same(s *Sandbox[P], r *Record) bool {
	if s.UID != r.UID || s.Claim != r.Claim || s.State != r.State || s.since != r.Since ||
		len(s.members) != len(r.Endpoints) {
		return false
	}
	for i := range r.Endpoints {
		a := &r.Endpoints[i]
		m := s.member(a)
		_, rank := t.nearness(a)
		if m == nil || m.Zone != a.Zone || m.Condition != a.Condition || m.rank != rank {
			return false
		}
	}
	return true
}

// has reports whether e is among the members.
func (s *Sandbox[P]) has(e *Endpoint[P]) bool {
	for i := range s.members {
		if s.members[i].Endpoint == e {
			return true
		}
	}
	return false
}

// nearness places an endpoint relative to the router.
func (t *Table[P]) nearness(a *Address) (Zone, rank) {
	switch {
	case t.zone == "":
		return ZoneUnknown, rankRemote
	case slices.Contains(a.HintZones, t.zone):
		return t.compare(a.Zone), rankHinted
	case a.Zone == t.zone:
		return ZoneSame, rankLocal
	}
	return t.compare(a.Zone), rankRemote
}

func (t *Table[P]) compare(zone string) Zone {
	switch zone {
	case "":
		return ZoneUnknown
	case t.zone:
		return ZoneSame
	}
	return ZoneCross
}
