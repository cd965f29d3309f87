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
// later than what the server does, never earlier: lower bounds are exact, upper bounds leave room for a busy machine and
// still tell the delays apart.

const room = 900 * time.Millisecond

func near(t *testing.T, want, got time.Duration, what string) {
	t.Helper()
	assert.GreaterOrEqual(t, got, want-want/200, what) // the histogram keeps three digits
	assert.Less(t, got, want+room, what)
}

func TestPercentilesOfKnownDelays(t *testing.T) {
	for _, rate := range []float64{0, 200} {
		var n atomic.Int64
		proxy := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			delay := 20 * time.Millisecond
			if n.Add(1)%10 == 0 {
				delay = time.Second
			}
			time.Sleep(delay)
			io.WriteString(w, "ok")
		})
		plan := Plan{Proxy: proxy, Requests: get("/", Want{Length: 2}), Connections: 100, Rate: rate, Duration: time.Second}
		if rate == 0 {
			plan.Count = 300
		}
		res := run(t, plan)
		assert.Empty(t, res.Errors)
		near(t, 20*time.Millisecond, res.Latency.Percentile(50), "p50")
		near(t, time.Second, res.Latency.Percentile(95), "p95")
	}
}

// A server that stops for a while keeps an open loop from sending. Each request that should have been sent meanwhile was
// late; a generator that waits politely would have seen one.
func TestStallChargesEveryRequestThatWasDue(t *testing.T) {
	const stall = 2 * time.Second
	var stalled atomic.Bool
	proxy := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		if stalled.CompareAndSwap(false, true) {
			time.Sleep(stall)
		}
		io.WriteString(w, "ok")
	})
	plan := Plan{Proxy: proxy, Requests: get("/", Want{Length: 2}), Connections: 1, Rate: 100, Duration: 3 * time.Second}
	res := run(t, plan)
	assert.Empty(t, res.Errors)
	assert.EqualValues(t, 300, res.Latency.Count(), "all that were due, those that ended after the time included")
	// 200 of 300 requests were due during the stall; they waited for 2000, 1990, 1980 ... milliseconds.
	assert.GreaterOrEqual(t, res.Latency.Max(), stall-stall/200)
	near(t, time.Second, res.Latency.Percentile(66.7), "half of those that were late")

	stalled.Store(false)
	plan.Rate = 0
	res = run(t, plan)
	assert.Less(t, res.Latency.Percentile(90), time.Second, "a closed loop sees the stall once")
}

// A proxy that answers nothing must not look better than one that answers late.
func TestRequestsThatWereNeverSentAreErrors(t *testing.T) {
	release := make(chan struct{})
	proxy := serve(t, func(http.ResponseWriter, *http.Request) { <-release })
	defer close(release)
	res := run(t, Plan{Proxy: proxy, Requests: get("/", Want{}), Connections: 1, Rate: 1000, Duration: 100 * time.Millisecond, Timeout: 300 * time.Millisecond})
	assert.Zero(t, res.Answered)
	assert.EqualValues(t, 100, res.Errors[Timeout])
}

func TestRateIsKept(t *testing.T) {
	res := run(t, Plan{Proxy: serveBackend(t), Requests: get("/fixed/64", Want{Length: 64}), Connections: 64, Rate: 300, Warmup: 50 * time.Millisecond, Duration: time.Second})
	assert.Empty(t, res.Errors)
	assert.EqualValues(t, 300, res.Latency.Count())
}

func TestGeneratorSaysWhenItIsTheBottleneck(t *testing.T) {
	l := &loop{
		plan: Plan{Requests: get("/", Want{}), Rate: 100}, phase: measuring, base: time.Now(),
		order:  []int32{0},
		result: Result{Lag: NewHistogram(), Offered: 100},
	}
	assert.Empty(t, l.result.Limited())
	// Six requests are due, the first of them 50 ms ago, and connections were free all the time.
	for range 6 {
		l.free = append(l.free, &conn{fd: -1})
	}
	l.arrive(50 * time.Millisecond)
	assert.EqualValues(t, 6, l.result.Lag.Count())
	assert.Contains(t, l.result.Limited(), "50ms late")

	busy := Result{Lag: NewHistogram(), Busy: 0.97}
	assert.Contains(t, busy.Limited(), "97 % of its core")
}

func TestWaitingForAConnectionIsNotTheGeneratorsDelay(t *testing.T) {
	proxy := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(20 * time.Millisecond)
		io.WriteString(w, "ok")
	})
	res := run(t, Plan{Proxy: proxy, Requests: get("/", Want{Length: 2}), Connections: 1, Rate: 200, Duration: 500 * time.Millisecond, Timeout: time.Minute})
	// 100 requests are due in half a second; one after another they take two.
	assert.EqualValues(t, 100, res.Latency.Count(), "those that found no connection in time are made up for")
	assert.Greater(t, res.Latency.Max(), 1400*time.Millisecond)
	assert.Greater(t, res.Latency.Percentile(50), 700*time.Millisecond, "requests queue for the only connection")
	assert.Less(t, res.Lag.Percentile(50), res.Latency.Percentile(50)/2)
}
