//go:build !race

package relay

import (
	"bytes"
	"math"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dovakiin0/agent-sandbox/proto"
	"github.com/dovakiin0/agent-sandbox/proto/token"
	"github.com/dovakiin0/agent-sandbox/router/auth"
	"github.com/dovakiin0/agent-sandbox/router/record"
)

// TestTrafficDoesNotAllocate plays each scene through the whole router, with metrics, the default access log and ids of 63 bytes.
func TestTrafficDoesNotAllocate(t *testing.T) {
	for _, s := range scenes() {
		t.Run(s.name, func(t *testing.T) {
			r := start(t)
			assert.Zero(t, r.allocations(t, &s), "allocations in %d rounds", allocRounds)
			if s.begin == "" {
				var metrics strings.Builder
				r.meter.Write(&metrics)
				assert.Regexp(t, `sandbox_router_requests_total\{method="(GET|POST)",code="200",sandbox_namespace="default"\} \d{3}`, metrics.String())
			}
		})
	}
}

// TestOptionsDoNotAllocate plays requests through routers that have more to do for each.
func TestOptionsDoNotAllocate(t *testing.T) {
	secret := []byte("a secret that only this test may have")
	static, err := auth.NewStaticToken(string(secret))
	require.NoError(t, err)
	scoped, err := auth.NewScopedToken(secret)
	require.NoError(t, err)
	key, err := token.NewKey(secret)
	require.NoError(t, err)
	minted, err := key.Mint(token.Scope{Namespace: proto.DefaultNamespace, Name: id, Expires: time.Now().Add(time.Hour).Unix()})
	require.NoError(t, err)
	var logged lineCount
	access, err := record.NewAccessLog(&logged, "all")
	require.NoError(t, err)

	agent := "User-Agent: " + strings.Repeat("a", 63) + "\r\n"
	log := func(s *setup) { s.access = access }
	limits := func(s *setup) {
		s.MaxInflight, s.MaxConns, s.MaxBody, s.ClientMinRate = 4, 4, 1<<20, 1
	}
	for _, o := range []struct {
		name  string
		lines string // of each request's head
		with  func(*setup)
	}{
		{"access log", agent, log},
		{"static token", "Authorization: Bearer " + string(secret) + "\r\n", func(s *setup) { s.gate = static }},
		{"scoped token", proto.HeaderToken + ": " + minted + "\r\n", func(s *setup) { s.gate = scoped }},
		{"limits", "", limits},
		{"all", agent + "Authorization: Bearer " + minted + "\r\n", func(s *setup) { log(s); limits(s); s.gate = scoped }},
	} {
		t.Run(o.name, func(t *testing.T) {
			for _, s := range scenes()[:3] { // a request each round
				t.Run(s.name, func(t *testing.T) {
					before := logged.Load()
					r := start(t, o.with)
					s.request = strings.Replace(s.request, "\r\n", "\r\n"+o.lines, 1)
					assert.Zero(t, r.allocations(t, &s), "allocations in %d rounds", allocRounds)
					if r.log == access {
						assert.GreaterOrEqual(t, logged.Load()-before, int64(allocRounds))
					}
				})
			}
		})
	}
}

// lineCount counts the lines that are written to it.
type lineCount struct{ atomic.Int64 }

func (n *lineCount) Write(b []byte) (int, error) {
	n.Add(int64(bytes.Count(b, []byte("\n"))))
	return len(b), nil
}

// allocRounds are counted together, so that less than one allocation a round shows too.
const allocRounds = 50

// allocations plays s through r and counts the allocations of the whole process. What others of the process do in between may
// come in, so the best of some counts is taken.
func (r *router) allocations(t *testing.T, s *scene) uint64 {
	t.Helper()
	r.publish("127.0.0.1", "pod")
	s.sandbox(t)
	p := s.player(t, r.addr)
	play := func() {
		for range allocRounds {
			if err := p.round(); err != nil {
				t.Fatal(err)
			}
		}
	}
	play()
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // a collection empties the pools
	least := uint64(math.MaxUint64)
	for range 10 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		play()
		runtime.ReadMemStats(&after)
		if least = min(least, after.Mallocs-before.Mallocs); least == 0 {
			break
		}
	}
	return least
}
