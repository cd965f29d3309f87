// Package priority lets the requests that somebody waits for go first. The API server is the bottleneck of everything that
// the controller does: while claims are on their way, each write that could as well be made a moment later makes them late.
package priority

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	parallel = 16              // background requests in flight
	patience = 2 * time.Second // longest time that one gives way

	crowded = 4       // so many times as long as the quickest, requests wait for each other
	recent  = 8       // requests that tell how long they take now
	ever    = 1 << 16 // requests after which the quickest is hardly known any more
)

// Gate holds background requests back while there is urgent work and the API server is busy, which is when requests take
// much longer than they may: one that has room to spare takes everything at once. The zero Gate is open. Safe for
// concurrent use.
type Gate struct {
	mu      sync.Mutex
	urgent  int
	running int
	waiting []*waiter // in order of arrival

	now, quickest float64 // seconds that a write takes, as averages over the recent ones and over the quickest ever
}

type waiter struct {
	turn chan struct{} // closed when it may go
	due  bool          // it has waited long enough
}

// Urgent says that somebody waits for what the caller does until done is called.
func (g *Gate) Urgent() (done func()) {
	g.update(func() { g.urgent++ })
	return func() { g.update(func() { g.urgent-- }) }
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
	if req.Method == http.MethodGet {
		return t.next.RoundTrip(req)
	}
	if givesWay(req) {
		if err := t.gate.enter(req.Context()); err != nil {
			return nil, err
		}
		defer t.gate.update(func() { t.gate.running-- })
	}
	sent := time.Now()
	resp, err := t.next.RoundTrip(req)
	if err == nil && resp.StatusCode < http.StatusBadRequest {
		t.gate.update(func() { t.gate.observe(time.Since(sent).Seconds()) })
	}
	return resp, err
}

// WrappedRoundTripper lets client-go find what it put beneath.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// IsBackground reports whether writes that are made with the context give way to others.
func IsBackground(ctx context.Context) bool {
	background, _ := ctx.Value(backgroundKey{}).(bool)
	return background
}

func givesWay(req *http.Request) bool {
	return IsBackground(req.Context()) || strings.HasSuffix(req.URL.Path, "/events")
}

// enter waits until a background request may go.
func (g *Gate) enter(ctx context.Context) error {
	w := &waiter{turn: make(chan struct{})}
	g.update(func() { g.waiting = append(g.waiting, w) })
	enough := time.NewTimer(patience)
	defer enough.Stop()
	for {
		select {
		case <-w.turn:
			return nil
		case <-enough.C:
			g.update(func() { w.due = true })
		case <-ctx.Done():
			g.update(func() {
				if at := slices.Index(g.waiting, w); at >= 0 {
					g.waiting = slices.Delete(g.waiting, at, at+1)
				} else {
					g.running-- // its turn came at the same time
				}
			})
			return ctx.Err()
		}
	}
}

// observe takes note of how long a write took. The caller holds the lock.
func (g *Gate) observe(seconds float64) {
	if g.quickest == 0 {
		g.now, g.quickest = seconds, seconds
	}
	g.now += (seconds - g.now) / recent
	g.quickest = min(seconds, g.quickest+(seconds-g.quickest)/ever)
}

// update changes the state of the gate and lets go whoever may go then.
func (g *Gate) update(change func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change()
	open := g.urgent == 0 || g.now <= crowded*g.quickest
	for len(g.waiting) > 0 && g.running < parallel && (open || g.waiting[0].due) {
		close(g.waiting[0].turn)
		g.waiting = g.waiting[1:]
		g.running++
	}
}
