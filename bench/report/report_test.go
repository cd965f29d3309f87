package report

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sample is a report in which ours is faster than haproxy in each round, although the second round disturbed both.
func sample() *Report {
	add := func(s *Scenario, name string, round int, cpu float64) {
		s.Samples = append(s.Samples, Sample{Contestant: name, Round: round, Values: map[Metric]float64{
			CPU: cpu, P50: cpu * 10, P90: cpu * 11, P99: cpu * 20, P999: cpu * 30, Max: cpu * 40, Rate: 1e6 / cpu, Calibration: 9000,
		}})
	}
	r := &Report{
		Schema: Schema, Date: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC), Commit: "abc",
		Machine: Machine{CPU: "some cpu", Cores: 2}, Settings: Settings{Rounds: 3, Duration: 1},
		Contestants: []Contestant{{Name: "ours", Command: "bin/router"}, {Name: "haproxy"}},
		Scenarios: []Scenario{
			{Name: "s1", Title: "GET", Sandboxes: 1000, Connections: 64, Shows: []Metric{CPU, P99}},
			{Name: "s1-n1-c64", Family: "s1", Sandboxes: 1, Connections: 64, Shows: []Metric{CPU}},
			{Name: "s1-n1000-c1", Family: "s1", Sandboxes: 1000, Connections: 1, Shows: []Metric{CPU}},
			{Name: "rate", Rate: 3000, Shows: []Metric{CPU, P99}},
		},
		Skipped: []string{"nginx: nginx is not installed"},
	}
	for i := range r.Scenarios {
		for round, noise := range []float64{1, 10, 1.1} {
			add(&r.Scenarios[i], "ours", round, 20*noise)
			add(&r.Scenarios[i], "haproxy", round, 25*noise)
		}
	}
	r.Summarize()
	return r
}

func TestStatOf(t *testing.T) {
	assert.Equal(t, Stat{}, StatOf(nil))
	assert.Equal(t, Stat{1, 5, 5, 5}, StatOf([]float64{5}))
	assert.Equal(t, Stat{3, 1, 2, 9}, StatOf([]float64{9, 1, 2}))
	assert.Equal(t, Stat{4, 1, 2.5, 9}, StatOf([]float64{9, 1, 3, 2}))
}

func TestRatiosAreTakenWithinRounds(t *testing.T) {
	r := sample()
	ratio := r.Scenario("s1").Ratio(CPU, "ours", "haproxy")
	assert.Equal(t, 3, ratio.Rounds)
	assert.InDelta(t, 0.8, ratio.Min, 1e-9)
	assert.InDelta(t, 0.8, ratio.Max, 1e-9)
	assert.Equal(t, ratio, r.Summary("s1", "ours").Ratios[CPU]["haproxy"])

	s := r.Scenario("s1")
	s.Samples = s.Samples[:5] // the last round of haproxy is missing
	assert.Equal(t, 2, s.Ratio(CPU, "ours", "haproxy").Rounds)
	assert.Zero(t, s.Ratio(CPU, "ours", "nobody").Rounds)
}

func TestSummaryAddsUp(t *testing.T) {
	r := sample()
	s := r.Scenario("s1")
	s.Samples[0].Errors = map[string]int64{"reset": 2}
	s.Samples[2].Errors = map[string]int64{"reset": 3}
	s.Samples[2].Limited = "busy"
	r.Summarize()
	sum := r.Summary("s1", "ours")
	assert.Equal(t, map[string]int64{"reset": 5}, sum.Errors)
	assert.Equal(t, 1, sum.Limited)
	assert.Equal(t, Stat{3, 20, 22, 200}, sum.Values[CPU])
	assert.Nil(t, r.Summary("s1", "nobody"))
}

func TestTablesSayWhatMatters(t *testing.T) {
	r := sample()
	var text, page bytes.Buffer
	r.WriteTable(&text)
	r.WriteMarkdown(&page)
	for _, out := range []string{text.String(), page.String()} {
		for _, want := range []string{"commit abc", "2 cores of some cpu", "CPU µs / haproxy", "0.80 (0.80–0.80)", "nginx is not installed", "calibration 9000"} {
			assert.Contains(t, out, want)
		}
	}
	assert.Contains(t, page.String(), "`bin/router`")
}

func TestJSONComesBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.json")
	r := sample()
	require.NoError(t, r.Write(path))
	got, err := Read(path)
	require.NoError(t, err)
	assert.Equal(t, r, got)

	r.Schema = "agent-sandbox-bench/0"
	require.NoError(t, r.Write(path))
	_, err = Read(path)
	assert.ErrorContains(t, err, "agent-sandbox-bench/0")
}

func TestPlots(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, sample().WritePlots(dir))
	for _, name := range []string{"cpu.svg", "latency.svg", "sandboxes.svg", "connections.svg"} {
		content, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		assert.True(t, strings.HasPrefix(string(content), "<?xml"), name)
		assert.Contains(t, string(content), "haproxy", name)
	}
}

func TestNothingToPlot(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, (&Report{}).WritePlots(dir))
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, files)
}
