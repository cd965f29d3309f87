package route

import (
	"math/rand/v2"
	"net/netip"
)

// spillLoad is the number of exchanges in flight at a preferred endpoint below which the others are not considered.
// From there on a request goes to another zone when the endpoint there has less than half the load.
const spillLoad = 8

// pick chooses among the usable members, of which there is at least one.
func (s *Sandbox[P]) pick(hint netip.Addr) *Member[P] {
	usable := s.members[:s.usable]
	if len(usable) == 1 {
		return &usable[0]
	}
	if hint.IsValid() {
		for i := range usable {
			if usable[i].Endpoint.Address == hint {
				return &usable[i]
			}
		}
	}
	near := lessLoaded(usable[:s.near])
	if load := near.Endpoint.Inflight(); load >= spillLoad && s.near < s.usable {
		if far := lessLoaded(usable[s.near:]); far.Endpoint.Inflight() < load/2 {
			return far
		}
	}
	return near
}

// lessLoaded looks at two random members: nearly as even as looking at all of them, without the herd that follows
// every minimum.
func lessLoaded[P any](m []Member[P]) *Member[P] {
	n := uint32(len(m))
	if n == 1 {
		return &m[0]
	}
	i := rand.Uint32N(n)
	j := (i + 1 + rand.Uint32N(n-1)) % n
	if m[j].Endpoint.Inflight() < m[i].Endpoint.Inflight() {
		i = j
	}
	return &m[i]
}
