package main

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
)

// tally counts how exchanges ended, and keeps what must not happen.
type tally struct {
	done        atomic.Int64 // whole exchanges
	sockets     atomic.Int64 // WebSockets that played all their rounds
	left        atomic.Int64 // ended by the client on purpose
	interrupted atomic.Int64 // ended because the sandbox went away or was not there
	flips       atomic.Int64

	mu         sync.Mutex
	mismatches []string
	failures   []string
}

// mismatch notes bytes that came to the wrong place.
func (t *tally) mismatch(what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mismatches = append(t.mismatches, what)
}

// failure notes anything else that must not happen.
func (t *tally) failure(what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failures = append(t.failures, what)
}

func (t *tally) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return fmt.Sprintf("%d exchanges, %d WebSockets, %d left, %d interrupted, %d flips, %d mismatches, %d failures",
		t.done.Load(), t.sockets.Load(), t.left.Load(), t.interrupted.Load(), t.flips.Load(), len(t.mismatches), len(t.failures))
}

// verdict is an error if anything happened that must not, or nothing that must.
func (t *tally) verdict() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var lines []string
	for _, list := range [][]string{t.mismatches, t.failures} {
		if len(list) > 0 {
			lines = append(lines, fmt.Sprintf("%d times, first:\n  %s", len(list), strings.Join(list[:min(len(list), 5)], "\n  ")))
		}
	}
	if t.done.Load() == 0 || t.sockets.Load() == 0 {
		lines = append(lines, "nothing was tested")
	}
	if lines != nil {
		return fmt.Errorf("%s", strings.Join(lines, "\n"))
	}
	return nil
}
