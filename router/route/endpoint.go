package route

import (
	"net/netip"
	"sync/atomic"
)

// Endpoint is one pod of a sandbox at one address. The same Endpoint stays in the table for as long as Sandbox UID,
// pod UID and address stay the same, so what hangs on it (connections, counters) outlives every other change.
type Endpoint[P any] struct {
	Address   netip.Addr
	Namespace string // of its sandbox
	PodUID    string // empty when the source does not know it
	Payload   P      // made by Options.Make

	inflight atomic.Int64
}

// Acquire counts one exchange in. The table spreads requests by this count.
func (e *Endpoint[P]) Acquire() { e.inflight.Add(1) }

// Release counts one exchange out.
func (e *Endpoint[P]) Release() { e.inflight.Add(-1) }

// Inflight is the number of exchanges that were acquired and not released.
func (e *Endpoint[P]) Inflight() int64 { return e.inflight.Load() }

// Member is an Endpoint as one Sandbox snapshot knows it.
type Member[P any] struct {
	Endpoint  *Endpoint[P]
	Zone      string // topology zone of its node, if known
	Condition Condition

	zone Zone
	rank rank
}

// rank orders members of equal condition by how much the router prefers them (design D8).
type rank uint8

const (
	rankHinted rank = iota // hinted for the router's zone
	rankLocal              // in the router's zone
	rankRemote
)
