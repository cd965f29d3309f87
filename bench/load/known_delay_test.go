//go:build linux

package load

import (
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// The tests of this file prove the generator's figures against servers whose delays are known. What is measured can be
// later than what the server does, never earlier: lower bounds are exact, upper bounds leave room for a busy machine.

const room = 150 * time.Millisecond

func near(t *testing.T, want, got time.Duration, what string) {
	t.Helper()
	assert.GreaterOrEqual(t, got, want-want/200, what) // the histogram keeps three digits
	assert.Less(t, got, want+room, what)
}

func TestPercentilesOfKnownDelays(t *testing.T) {
	var n atomic.Int64
	proxy := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		delay := 20 * time.Millisecond
		if n.Add(1)%10 == 0 {
			delay = 200 * time.Millisecond
		}
		time.Sleep(delay)
		io.WriteString(w, "ok")
	})
	for _, rate := range []float64{0, 200} {
		res := run(t, Plan{Proxy: proxy, Requests: get("/", Want{Length: 2}), Connections: 60, Rate: rate, Count: counted(rate), Duration: time.Second})
		assert.Empty(t, res.Errors)
		near(t, 20*time.Millisecond, res.Latency.Percentile(50), "p50")
		near(t, 200*time.Millisecond, res.Latency.Percentile(95), "p95")
		near(t, 200*time.Millisecond, res.Latency.Max(), "max")
	}
}

func counted(rate float64) int {
	if rate > 0 {
		return 0
	}
	return 300
}

// A server that stops for a while keeps an open loop from sending. Each request that should have been sent meanwhile was
// late; a generator that waits politely would have seen one.
func TestStallChargesEveryRequestThatWasDue(t *testing.T) {
	const stall = 400 * time.Millisecond
	var stalled atomic.Bool
	proxy := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		if stalled.CompareAndSwap(false, true) {
			time.Sleep(stall)
		}
		io.WriteString(w, "ok")
	})
	plan := Plan{Proxy: proxy, Requests: get("/", Want{Length: 2}), Connections: 1, Rate: 100, Duration: time.Second}
	res := run(t, plan)
	assert.Empty(t, res.Errors)
	assert.EqualValues(t, 100, res.Latency.Count(), "all that were due, those that ended after the time included")
	// 40 of 100 requests were due during the stall; they waited for 400, 390, 380 ... milliseconds.
	near(t, stall, res.Latency.Max(), "max")
	near(t, 200*time.Millisecond, res.Latency.Percentile(80), "half of those that were late")

	stalled.Store(false)
	plan.Rate = 0
	res = run(t, plan)
	assert.Less(t, res.Latency.Percentile(90), 200*time.Millisecond, "a closed loop sees the stall once")
}

func TestRateIsKept(t *testing.T) {
	res := run(t, Plan{Proxy: serveBackend(t), Requests: get("/fixed/64", Want{Length: 64}), Connections: 64, Rate: 300, Warmup: 50 * time.Millisecond, Duration: time.Second})
	assert.Empty(t, res.Errors)
	assert.InDelta(t, 300, res.Latency.Count(), 1)
}

func TestGeneratorSaysWhenItIsTheBottleneck(t *testing.T) {
	l := &loop{
		plan: Plan{Requests: get("/", Want{}), Rate: 100}, phase: measuring, base: time.Now(),
		order:  []int32{0},
		result: Result{Lag: newHistogram(), Offered: 100},
	}
	assert.Empty(t, l.result.Limited())
	// Six requests are due, the first of them 50 ms ago, and connections were free all the time.
	for range 6 {
		l.free = append(l.free, &conn{fd: -1})
	}
	l.arrive(50 * time.Millisecond)
	assert.EqualValues(t, 6, l.result.Lag.Count())
	assert.Contains(t, l.result.Limited(), "50ms late")

	busy := Result{Lag: newHistogram(), Busy: 0.97}
	assert.Contains(t, busy.Limited(), "97 % of its core")
}

func TestWaitingForAConnectionIsNotTheGeneratorsDelay(t *testing.T) {
	proxy := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(20 * time.Millisecond)
		io.WriteString(w, "ok")
	})
	res := run(t, Plan{Proxy: proxy, Requests: get("/", Want{Length: 2}), Connections: 1, Rate: 200, Duration: 500 * time.Millisecond, Timeout: time.Minute})
	assert.Greater(t, res.Latency.Percentile(50), 200*time.Millisecond, "requests queue for the only connection")
	assert.Less(t, res.Lag.Percentile(50), 20*time.Millisecond)
}
