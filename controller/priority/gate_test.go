package priority

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// server holds every request until it is let go, in a synctest bubble.
type server struct {
	t       *testing.T
	through http.RoundTripper
	arrived []string
	hold    chan struct{}
}

func newServer(t *testing.T, g *Gate) *server {
	s := &server{t: t, hold: make(chan struct{})}
	s.through = g.Wrap(roundTripFunc(func(req *http.Request) (*http.Response, error) {
		s.arrived = append(s.arrived, req.URL.Path)
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

func (s *server) expect(paths ...string) {
	s.t.Helper()
	assert.Equal(s.t, paths, s.arrived)
	s.arrived = nil
}

func TestBackgroundGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &Gate{}
		s := newServer(t, g)
		calm := Background(t.Context())
		done := g.Urgent()
		s.send(calm, "PATCH", "/1")
		s.send(calm, "POST", "/2")
		s.send(calm, "DELETE", "/3")
		s.expect("/1")

		s.send(calm, "GET", "/read")
		s.send(t.Context(), "PATCH", "/write")
		s.send(Foreground(calm), "PATCH", "/of-a-route")
		s.expect("/read", "/write", "/of-a-route")
		s.send(t.Context(), "POST", "/apis/events.k8s.io/v1/namespaces/ns/events")
		s.expect()

		s.answer(4)
		s.expect("/2")
		done()
		synctest.Wait()
		assert.ElementsMatch(t, []string{"/3", "/apis/events.k8s.io/v1/namespaces/ns/events"}, s.arrived)
		s.answer(3)
	})
}

func TestBackgroundAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, &Gate{})
		for range alone + 1 {
			s.send(Background(t.Context()), "PATCH", "/")
		}
		assert.Len(t, s.arrived, alone)
		s.answer(1)
		assert.Len(t, s.arrived, alone+1)
		s.answer(alone)
	})
}

func TestALongQueueIsLetThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &Gate{}
		s := newServer(t, g)
		defer g.Urgent()()
		const sent = 4*queued + 4
		for range sent {
			s.send(Background(t.Context()), "PATCH", "/")
		}
		assert.Len(t, s.arrived, 4)
		for left := sent; left > 0; left-- {
			s.answer(1)
		}
		assert.Len(t, s.arrived, sent)
	})
}

func TestWhoGivesUpLeavesTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &Gate{}
		s := newServer(t, g)
		defer g.Urgent()()
		ctx, cancel := context.WithCancel(Background(t.Context()))
		s.send(Background(t.Context()), "PATCH", "/1")
		gone := s.send(ctx, "PATCH", "/2")
		s.send(Background(t.Context()), "PATCH", "/3")
		cancel()
		require.ErrorIs(t, <-gone, context.Canceled)
		s.answer(1)
		s.expect("/1", "/3")
		s.answer(1)
	})
}
