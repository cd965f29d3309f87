package check

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dovakiin0/agent-sandbox/bench/report"
)

func measured(ours, haproxy float64) *report.Report {
	r := &report.Report{
		Schema: report.Schema, Date: time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC), Commit: "abc",
		Machine: report.Machine{CPU: "some cpu", Cores: 2, Kernel: "6"}, Scenarios: []report.Scenario{{Name: "s1"}},
	}
	for round, noise := range []float64{1, 2, 3} {
		for name, cpu := range map[string]float64{"ours": ours, "haproxy": haproxy} {
			if cpu > 0 {
				r.Scenarios[0].Samples = append(r.Scenarios[0].Samples, report.Sample{
					Contestant: name, Round: round, Values: map[report.Metric]float64{report.CPU: cpu * noise, report.Allocs: 0},
				})
			}
		}
	}
	r.Summarize()
	return r
}

func ranges(t *testing.T, bounds string) *Ranges {
	path := filepath.Join(t.TempDir(), "ranges.yaml")
	require.NoError(t, os.WriteFile(path, []byte("schema: "+Schema+"\nbounds:\n"+bounds), 0o644))
	r, err := Read(path)
	require.NoError(t, err)
	return r
}

const ratio = "- {scenario: s1, contestant: ours, metric: cpu_us, against: haproxy, at_most: 0.9, margin: 0.1, goal: 0.8}\n"

func TestBoundsAreKeptOrBroken(t *testing.T) {
	for name, c := range map[string]struct {
		bounds  string
		report  *report.Report
		outcome Outcome
		ok      bool
	}{
		"below":          {ratio, measured(20, 25), Kept, true},
		"above":          {ratio, measured(24, 25), Broken, false},
		"least kept":     {"- {scenario: s1, contestant: ours, metric: cpu_us, at_least: 30}", measured(20, 25), Kept, true},
		"least broken":   {"- {scenario: s1, contestant: ours, metric: cpu_us, at_least: 50}", measured(20, 25), Broken, false},
		"a zero is kept": {"- {scenario: s1, contestant: ours, metric: allocs_per_request, at_most: 0}", measured(20, 25), Kept, true},
		"no peer":        {ratio, measured(20, 0), Skipped, false},
		"no scenario":    {"- {scenario: s9, contestant: ours, metric: cpu_us, at_most: 1}", measured(20, 25), Skipped, false},
		"no metric":      {"- {scenario: s1, contestant: ours, metric: reuse, at_least: 1}", measured(20, 25), Skipped, false},
	} {
		t.Run(name, func(t *testing.T) {
			findings, ok := ranges(t, c.bounds).Check(c.report)
			require.Len(t, findings, 1)
			assert.Equal(t, c.outcome, findings[0].Outcome, findings[0].String())
			assert.Equal(t, c.ok, ok, "a check that checked nothing has not succeeded")
		})
	}
}

func TestFilesThatMeanNothing(t *testing.T) {
	for name, content := range map[string]string{
		"schema":        "schema: other\nbounds: []\n",
		"unknown field": "schema: " + Schema + "\nbounds:\n- {scenario: s1, contestant: ours, metric: cpu_us, at_mots: 1, at_least: 1}\n",
		"no bound":      "schema: " + Schema + "\nbounds:\n- {scenario: s1, contestant: ours, metric: cpu_us}\n",
	} {
		path := filepath.Join(t.TempDir(), "ranges.yaml")
		require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
		_, err := Read(path)
		assert.Error(t, err, name)
	}
}

func TestRenewComputesBoundsWithAMargin(t *testing.T) {
	r := ranges(t, ratio+"- {scenario: s1, contestant: ours, metric: allocs_per_request, at_most: 0.05}\n")
	require.NoError(t, r.Renew([]*report.Report{measured(20, 40), measured(10, 40)}))
	b := r.Bounds[0]
	assert.InDelta(t, 0.375*1.1, *b.AtMost, 0.001, "the median of three rounds of 0.5 and three of 0.25, and a tenth")
	assert.Equal(t, &Provenance{
		Reports: 2, Stat: report.Stat{Rounds: 6, Min: 0.25, Median: 0.375, Max: 0.5}, Commit: "abc", Date: "2026-11-30",
		Machine: "2 cores of some cpu, Linux 6",
	}, b.Provenance)
	assert.InDelta(t, 0.05, *r.Bounds[1].AtMost, 0, "a promise stays")
	assert.NotNil(t, r.Bounds[1].Provenance)

	path := filepath.Join(t.TempDir(), "again.yaml")
	require.NoError(t, r.Write(path))
	again, err := Read(path)
	require.NoError(t, err)
	assert.Equal(t, r, again)
}

func TestRenewDoesNotMixMachines(t *testing.T) {
	other := measured(20, 40)
	other.Machine.Cores = 64
	assert.Error(t, ranges(t, ratio).Renew([]*report.Report{measured(20, 40), other}))
	assert.Error(t, ranges(t, ratio).Renew(nil))
}

func TestRangesOfTheRepository(t *testing.T) {
	files, err := filepath.Glob("../ranges/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, f := range files {
		_, err := Read(f)
		assert.NoError(t, err)
	}
}
