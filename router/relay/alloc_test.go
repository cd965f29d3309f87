//go:build !race

package relay

import (
	"math"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestTrafficDoesNotAllocate plays each scene through the whole router, with metrics, the default access log, ids of 63 bytes, and
// counts the allocations of the whole process. What others of the process do in between may come in, so the best of some runs counts.
func TestTrafficDoesNotAllocate(t *testing.T) {
	const rounds = 50
	for _, s := range scenes() {
		t.Run(s.name, func(t *testing.T) {
			r := start(t)
			r.publish("127.0.0.1", "pod")
			s.sandbox(t)
			p := s.player(t, r.addr)
			play := func() {
				for range rounds {
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
			assert.Zero(t, least, "allocations in %d rounds", rounds)

			if s.begin == "" {
				var metrics strings.Builder
				r.meter.Write(&metrics)
				assert.Regexp(t, `sandbox_router_requests_total\{method="(GET|POST)",code="200",sandbox_namespace="default"\} \d{3}`, metrics.String())
			}
		})
	}
}
