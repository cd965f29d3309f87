//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sample is a burst of n claims: claim i was due after i ms, Ready 10·(i+1) ms later, and answered 5 ms after that.
func sample(n, round int) *Run {
	r := newRun(&scenario{name: "burst", unit: claimUnit}, round, 0)
	r.burst = true
	begin := time.Now()
	for i := range n {
		c := &claim{due: begin.Add(time.Duration(i) * time.Millisecond)}
		c.ready = c.due.Add(time.Duration(i+1) * 10 * time.Millisecond)
		c.answered = c.ready.Add(5 * time.Millisecond)
		c.cold, c.refused = i == 0, i%2
		r.claims = append(r.claims, c)
	}
	for range 3 * n {
		r.events = append(r.events, event{"patch", "sandboxes", 200, 2 * time.Millisecond})
	}
	r.events = append(r.events, event{"patch", "sandboxclaims/status", 409, time.Millisecond})
	r.settled = 3 * time.Second
	r.cpu = cpu{controller: time.Second, apiServer: 2 * time.Second, router: 100 * time.Millisecond}
	r.finish()
	return r
}

func TestFinish(t *testing.T) {
	r := sample(100, 0)
	for metric, want := range map[Metric]float64{
		ReadyP50: 500, ReadyP90: 900, ReadyP99: 990, ReadyMax: 1000, AnswerP50: 505, AnswerMax: 1005,
		AllReady: 1.099, AllAnswered: 1.104, Settled: 3, Cold: 1, Refused: 50,
		Writes: 3.01, FailedWrites: 0.01, ServerTime: 6.01, ControllerCPU: 10, APIServerCPU: 20, RouterCPU: 1,
	} {
		assert.InDelta(t, want, r.Values[metric], want/200, metric) // the histogram keeps three digits
	}
	assert.Equal(t, 100, r.Units)
	assert.Equal(t, 300, r.Writes["patch sandboxes"].Count)
}

func TestFinishWithoutARouter(t *testing.T) {
	r := newRun(&scenario{name: "singles", unit: claimUnit}, 0, 0)
	due := time.Now()
	r.claims = []*claim{{due: due, ready: due.Add(time.Millisecond)}}
	r.settled = time.Second
	r.finish()
	assert.InDelta(t, 1, r.Values[ReadyP50], 0.01)
	assert.NotContains(t, r.Values, AnswerP50)
	assert.NotContains(t, r.Values, AllReady, "claims one at a time are no burst")
}

func TestFinishAtRest(t *testing.T) {
	r := newRun(&scenario{name: "idle", unit: sandboxUnit}, 0, 0)
	r.sandboxes = 2000
	r.finish()
	assert.Equal(t, 2000, r.Units)
	assert.NotContains(t, r.Values, Writes)
}

func TestTableShowsMedians(t *testing.T) {
	idle := newRun(&scenario{name: "idle", unit: sandboxUnit}, 0, 0)
	idle.Values[ControllerRSS] = 123.4e6
	at20 := newRun(&scenario{name: "poisson", unit: claimUnit}, 0, 20)
	at20.Values[ReadyP99] = 321
	r := &Report{
		Commit: "abc", Modified: true, Controller: ours, Router: ours, Rates: []float64{20, 40}, Sustained: []float64{20, 30, 25},
		Runs: []*Run{sample(100, 0), sample(300, 1), sample(200, 2), at20, idle},
	}
	var out bytes.Buffer
	r.writeTable(&out)
	text := out.String()
	for _, want := range []string{
		"commit abc with changes", "controller: ours", "1000.4" /* median of the three p50 */, "poisson 20/s", "321.0", "123",
		"below 500 ms: 25/s", "burst, writes for each claim: patch sandboxes 3.00, patch sandboxclaims/status 0.01",
	} {
		assert.Contains(t, text, want)
	}
	assert.NotContains(t, text, "filled", "no run has the figure")
	assert.NotContains(t, text, "not tried")

	r.Sustained = []float64{40}
	out.Reset()
	r.writeTable(&out)
	assert.Contains(t, out.String(), "below 500 ms: 40/s, higher ones were not tried")
}

func TestJSON(t *testing.T) {
	s, err := parse(nil, &bytes.Buffer{})
	require.NoError(t, err)
	r := newReport(s)
	r.Runs = []*Run{sample(10, 0)}
	path := filepath.Join(t.TempDir(), "report.json")
	require.NoError(t, r.write(path))
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	var got struct {
		Schema  string
		Machine struct{ Cores int }
		Runs    []struct {
			Scenario string
			Values   map[string]float64
			Writes   map[string]struct {
				Count    int
				ServerMS float64 `json:"server_ms"`
			}
		}
	}
	require.NoError(t, json.Unmarshal(content, &got))
	assert.Equal(t, "agent-sandbox-claims/1", got.Schema)
	assert.Positive(t, got.Machine.Cores)
	assert.Equal(t, "burst", got.Runs[0].Scenario)
	assert.Positive(t, got.Runs[0].Values["ready_p99_ms"])
	assert.Equal(t, 30, got.Runs[0].Writes["patch sandboxes"].Count)
	assert.InDelta(t, 2, got.Runs[0].Writes["patch sandboxes"].ServerMS, 1e-9)
}
