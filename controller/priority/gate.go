// Package priority lets the requests that somebody waits for go first. The API server is the bottleneck of everything that
// the controller does: while claims are on their way, each write that could as well be made a moment later makes them late.
package priority

import (
	"context"
	"net/http"
	"strings"
	"sync"
)

// Background requests in flight: while nobody waits for anything, and beside urgent work. The longer their queue, the more
// of them go beside urgent work, so that they neither starve nor hold all workers of a controller.
const (
	alone  = 16
	beside = 1
	queued = 32 // one goes for each so many in the queue
)

// Gate holds background requests back. The zero Gate is open. Safe for concurrent use.
type Gate struct {
	mu      sync.Mutex
	urgent  int
	running int
	waiting []chan struct{} // in order of arrival
}

// Urgent says that somebody waits for what the caller does until done is called.
func (g *Gate) Urgent() (done func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.urgent++
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.urgent--
		g.admit()
	}
}

type backgroundKey struct{}

// Background marks the writes that are made with the context as ones that nobody waits for.
func Background(ctx context.Context) context.Context {
	return context.WithValue(ctx, backgroundKey{}, true)
}

// Foreground undoes Background.
func Foreground(ctx context.Context) context.Context {
	return context.WithValue(ctx, backgroundKey{}, false)
}

// Wrap returns a transport whose background requests pass the gate: writes with a context from Background, and events.
func (g *Gate) Wrap(next http.RoundTripper) http.RoundTripper {
	return &transport{gate: g, next: next}
}

type transport struct {
	gate *Gate
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if givesWay(req) {
		if err := t.gate.enter(req.Context()); err != nil {
			return nil, err
		}
		defer t.gate.leave()
	}
	return t.next.RoundTrip(req)
}

// WrappedRoundTripper lets client-go find what it put beneath.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// IsBackground reports whether writes that are made with the context give way to others.
func IsBackground(ctx context.Context) bool {
	background, _ := ctx.Value(backgroundKey{}).(bool)
	return background
}

func givesWay(req *http.Request) bool {
	event := req.Method == http.MethodPost && strings.HasSuffix(req.URL.Path, "/events")
	return event || req.Method != http.MethodGet && IsBackground(req.Context())
}

// enter waits until a background request may go.
func (g *Gate) enter(ctx context.Context) error {
	turn := make(chan struct{})
	g.mu.Lock()
	g.waiting = append(g.waiting, turn)
	g.admit()
	g.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, other := range g.waiting {
		if other == turn {
			g.waiting = append(g.waiting[:i], g.waiting[i+1:]...)
			return ctx.Err()
		}
	}
	return nil // its turn came at the same time
}

func (g *Gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running--
	g.admit()
}

// admit lets go as many as may. The caller holds the lock.
func (g *Gate) admit() {
	for len(g.waiting) > 0 && g.running < g.limit() {
		close(g.waiting[0])
		g.waiting = g.waiting[1:]
		g.running++
	}
}

func (g *Gate) limit() int {
	if g.urgent == 0 {
		return alone
	}
	return min(max(beside, len(g.waiting)/queued), alone)
}
