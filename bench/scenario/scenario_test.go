//go:build linux

package scenario

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/dovakiin0/agent-sandbox/bench/backend"
	"github.com/dovakiin0/agent-sandbox/bench/fleet"
	"github.com/dovakiin0/agent-sandbox/bench/load"
	"github.com/dovakiin0/agent-sandbox/bench/report"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestNamesDiffer(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range All() {
		assert.False(t, seen[s.Name], s.Name)
		seen[s.Name] = true
		assert.NotEmpty(t, s.Title)
		assert.NotEmpty(t, s.Shows)
	}
	found, unknown := Find([]string{"s6", "nothing", "s1"})
	assert.Equal(t, []string{"nothing"}, unknown)
	require.Len(t, found, 2)
	assert.Equal(t, "s6", found[0].Name)
}

// Each scenario's requests go to the backend itself: it must answer each as the load generator expects.
func TestRequestsGetTheAnswersTheyWant(t *testing.T) {
	s, err := backend.Listen(0)
	require.NoError(t, err)
	done := make(chan error)
	go func() { done <- s.Serve() }()
	defer func() {
		s.Close()
		require.NoError(t, <-done)
	}()
	for _, sc := range All() {
		t.Run(sc.Name, func(t *testing.T) {
			// Only one sandbox: there is no proxy to find others.
			p := load.Plan{
				Proxy: netip.AddrPortFrom(fleet.Addr(0, 0), s.Port), Requests: sc.Request.build(1, s.Port, nil, first),
				Connections: 2, Duration: 50 * time.Millisecond, Events: sc.Request.events,
			}
			if sc.Request.webSocket {
				p.Message = message
			}
			r, err := load.Run(context.Background(), p)
			require.NoError(t, err)
			assert.Empty(t, r.Errors)
			assert.NotZero(t, r.Latency.Count())
		})
	}
}

func TestRequestsAreWhatClientsSend(t *testing.T) {
	for _, sc := range All() {
		requests := sc.Request.build(3, 8888, func(int) string { return "X-Sandbox-Token: secret\r\n" }, first)
		require.Len(t, requests, 3)
		for i, r := range requests {
			req, err := http.ReadRequest(bufio.NewReader(io.MultiReader(bytes.NewReader(r.Bytes), bytes.NewReader(r.Rest))))
			require.NoError(t, err, sc.Name)
			assert.Equal(t, fleet.ID(i), req.Header.Get("X-Sandbox-ID"))
			assert.Equal(t, "8888", req.Header.Get("X-Sandbox-Port"))
			assert.Equal(t, "secret", req.Header.Get("X-Sandbox-Token"))
			body, err := io.ReadAll(req.Body)
			require.NoError(t, err)
			assert.Len(t, body, sc.Request.body, sc.Name)
		}
	}
}

func TestMallocs(t *testing.T) {
	n := 1000
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "/metrics", r.URL.Path)
		n += 7 // the question costs seven
		io.WriteString(w, "other 1\ngo_memstats_mallocs_total "+report.Metric("").Format(float64(n))+"\n")
	}))
	defer s.Close()
	before, err := mallocs(s.URL, true)
	require.NoError(t, err)
	n += 500
	after, err := mallocs(s.URL, false)
	require.NoError(t, err)
	assert.InDelta(t, 500, after-before, 0)

	empty := httptest.NewServer(http.NotFoundHandler())
	defer empty.Close()
	_, err = mallocs(empty.URL, false)
	assert.ErrorContains(t, err, "go_memstats_mallocs_total")
}
