package priority

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// server holds every request until it is let go, in a synctest bubble.
type server struct {
	t       *testing.T
	through http.RoundTripper
	hold    chan struct{}

	mu      sync.Mutex
	arrived []string
}

func newServer(t *testing.T, g *Gate) *server {
	s := &server{t: t, hold: make(chan struct{})}
	g.now, g.quickest = 1, 0.01 // it is busy
	s.through = g.Wrap(roundTripFunc(func(req *http.Request) (*http.Response, error) {
		s.mu.Lock()
		s.arrived = append(s.arrived, req.URL.Path)
		s.mu.Unlock()
		<-s.hold
		return httptest.NewRecorder().Result(), nil
	}))
	return s
}

type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// send sends a request, and comes back when it has arrived or waits at the gate.
func (s *server) send(ctx context.Context, method, path string) <-chan error {
	req := httptest.NewRequestWithContext(ctx, method, path, nil)
	result := make(chan error, 1)
	go func() {
		_, err := s.through.RoundTrip(req)
		result <- err
	}()
	synctest.Wait()
	return result
}

// answer lets n requests go, and comes back when those behind them have moved up.
func (s *server) answer(n int) {
	for range n {
		s.hold <- struct{}{}
	}
	synctest.Wait()
}

// came returns the requests that have arrived since the last call.
func (s *server) came() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	paths := s.arrived
	s.arrived = nil
	return paths
}

func (s *server) expect(paths ...string) {
	s.t.Helper()
	assert.Equal(s.t, paths, s.came())
}

func TestBackgroundGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &Gate{}
		s := newServer(t, g)
		calm := Background(t.Context())
		first, second := g.Urgent(), g.Urgent()
		s.send(calm, "PATCH", "/1")
		s.send(t.Context(), "POST", "/apis/events.k8s.io/v1/namespaces/ns/events")
		s.expect()

		s.send(calm, "GET", "/read")
		s.send(t.Context(), "PATCH", "/write")
		s.send(Foreground(calm), "PATCH", "/of-a-route")
		s.expect("/read", "/write", "/of-a-route")

		first()
		synctest.Wait()
		s.expect()
		second()
		synctest.Wait()
		assert.ElementsMatch(t, []string{"/1", "/apis/events.k8s.io/v1/namespaces/ns/events"}, s.came())
		s.answer(5)
	})
}

func TestBackgroundGivesWayNotForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &Gate{}
		s := newServer(t, g)
		defer g.Urgent()()
		s.send(Background(t.Context()), "PATCH", "/1")
		time.Sleep(patience / 2)
		s.send(Background(t.Context()), "PATCH", "/2")
		time.Sleep(patience / 2)
		synctest.Wait()
		s.expect("/1")
		time.Sleep(patience / 2)
		synctest.Wait()
		s.expect("/2")
		s.answer(2)
	})
}

func TestBackgroundIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, &Gate{})
		for range parallel + 1 {
			s.send(Background(t.Context()), "PATCH", "/")
		}
		assert.Len(t, s.came(), parallel)
		s.answer(1)
		assert.Len(t, s.came(), 1)
		s.answer(parallel)
	})
}

func TestWhoGivesUpLeavesTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &Gate{}
		s := newServer(t, g)
		done := g.Urgent()
		ctx, cancel := context.WithCancel(Background(t.Context()))
		gone := s.send(ctx, "PATCH", "/1")
		s.send(Background(t.Context()), "PATCH", "/2")
		cancel()
		require.ErrorIs(t, <-gone, context.Canceled)
		done()
		synctest.Wait()
		s.expect("/2")
		s.answer(1)
		assert.Zero(t, g.running)
	})
}

func TestAnAPIServerWithRoomTakesAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &Gate{}
		var takes time.Duration
		through := g.Wrap(roundTripFunc(func(*http.Request) (*http.Response, error) {
			time.Sleep(takes)
			return httptest.NewRecorder().Result(), nil
		}))
		write := func(ctx context.Context) time.Duration {
			sent := time.Now()
			_, err := through.RoundTrip(httptest.NewRequestWithContext(ctx, "PATCH", "/", nil))
			require.NoError(t, err)
			return time.Since(sent)
		}
		defer g.Urgent()()
		for _, step := range []struct{ takes, held time.Duration }{
			{5 * time.Millisecond, 0},
			{15 * time.Millisecond, 0},
			{100 * time.Millisecond, patience},
			{6 * time.Millisecond, 0},
		} {
			takes = step.takes
			for range 4 * recent {
				write(t.Context())
			}
			assert.Equal(t, step.held+step.takes, write(Background(t.Context())), step.takes)
		}
	})
}
