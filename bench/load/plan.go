//go:build linux

// Package load sends requests to a proxy and measures the answers. One thread with its own epoll loop drives all
// connections, so that it costs little beside what it measures.
//
// In a closed loop each connection sends its next request when an answer is whole. In an open loop requests start at a fixed
// rate, whatever the answers do, and latency counts from the time at which a request should have started: a proxy that
// stalls is charged for every request that it kept from being sent.
package load

import (
	"errors"
	"net/netip"
	"time"
)

// Plan says what to send, and how fast.
type Plan struct {
	Proxy       netip.AddrPort
	Requests    []Request // taken in one random order, over and over
	Connections int

	// Rate is how many requests start per second, evenly; 0: a closed loop.
	Rate float64
	// Duration is the time that is measured, after the time of Warmup. If Warmup is not 0, it lasts until WarmupAnswers
	// have come, too: until the proxy has its connections, however slow the machine is.
	Warmup, Duration time.Duration
	WarmupAnswers    int
	// Count, if not 0, ends the measurement when so many requests have been answered, instead of Duration. Warmup must be 0.
	Count int
	// PerConnection is how many requests a connection carries; 0: no limit.
	PerConnection int
	// Timeout ends a request without a whole answer; 0: 10 seconds.
	Timeout time.Duration
	// Leave means that a connection that the proxy ends, or refuses, is not replaced: its client goes to another replica.
	Leave bool

	// Message, if not nil, makes each connection a WebSocket: Requests are handshakes, and what is sent and measured are
	// messages with this content, each of which must come back as it was.
	Message []byte
	// Events says that answers are event streams of the backend: Result.Events gets the age of each event.
	Events bool

	// Started and Ended are called when the measured time begins and ends, between two requests: nothing moves meanwhile.
	Started, Ended func()
}

// Request is what is sent for one sandbox, and what must come back.
type Request struct {
	Bytes []byte // the head, and the body or its beginning
	Rest  []byte // rest of the body; many requests may share it
	Want  Want
}

// Want is the right answer, whose status is 200.
type Want struct {
	Begin  []byte // of the body
	Length int64  // of the body; below 0: any
}

func (p *Plan) check() error {
	switch {
	case len(p.Requests) == 0:
		return errors.New("no requests")
	case p.Connections < 1:
		return errors.New("no connections")
	case p.Count == 0 && p.Duration <= 0:
		return errors.New("neither a duration nor a count")
	case p.Count > 0 && (p.Warmup > 0 || p.Rate > 0):
		return errors.New("a count goes with a closed loop without warm-up")
	case p.Rate < 0:
		return errors.New("the rate is below 0")
	}
	return nil
}

// retryAfter is how long a connection that failed waits, so that a proxy that is gone does not cost a whole core.
const retryAfter = 5 * time.Millisecond

// sweepEvery is how often requests are looked at for their timeout.
const sweepEvery = 100 * time.Millisecond
