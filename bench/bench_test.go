//go:build linux

package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/dovakiin0/agent-sandbox/bench/peers"
	"github.com/dovakiin0/agent-sandbox/bench/report"
)

// TestMain lets this binary be the processes that bench run starts from itself.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == "proxy" || os.Args[1] == "backend" || os.Args[1] == "awake") {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

// builds the router as users do.
func router(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "router")
	out, err := exec.Command("go", "build", "-o", path, "../router").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return path
}

func TestRunMeasuresTheRouter(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds the router")
	}
	out := t.TempDir()
	err := run(context.Background(), []string{
		"--router=" + router(t), "--contestants=ours,fasthttp,limit", "--scenarios=s1,rate,churn,drain", "--rounds=2",
		"--duration=100ms", "--warmup=10ms", "--out=" + out,
	})
	require.NoError(t, err)
	r, err := report.Read(filepath.Join(out, "report.json"))
	require.NoError(t, err)
	assert.Empty(t, r.Skipped)
	assert.Equal(t, 2, r.Settings.Rounds)
	for _, name := range []string{"ours", "fasthttp", "limit"} {
		sum := r.Summary("s1", name)
		require.NotNil(t, sum, name)
		assert.Empty(t, sum.Errors, name)
		for _, m := range []report.Metric{report.CPU, report.Rate, report.P99, report.Resident, report.Files, report.Busy, report.Ready, report.Calibration} {
			assert.Positive(t, sum.Values[m].Min, "%s %s", name, m)
		}
		assert.Greater(t, sum.Values[report.Reuse].Min, 0.5, "the warm-up makes the connections")
	}
	assert.Contains(t, r.Summary("s1", "ours").Values, report.Allocs)
	assert.Equal(t, 2, r.Summary("s1", "ours").Ratios[report.CPU]["fasthttp"].Rounds)

	churn := r.Summary("churn", "ours")
	require.NotNil(t, churn)
	assert.Positive(t, churn.Values[report.Updates].Min)
	assert.Zero(t, churn.Values[report.Stale].Max)
	assert.Nil(t, r.Summary("churn", "fasthttp"), "it does not follow the routes file")

	assert.Positive(t, r.Summary("drain", "ours").Values[report.Drained].Min)
	assert.Nil(t, r.Summary("drain", "limit"), "it cannot drain")
	for _, name := range []string{"report.md", "cpu.svg"} {
		assert.FileExists(t, filepath.Join(out, name))
	}

	require.NoError(t, sizing(context.Background(), []string{"--rps=1000", "--report=" + filepath.Join(out, "report.json")}))

	ranges := filepath.Join(out, "ranges.yaml")
	bounds := func(most string) {
		require.NoError(t, os.WriteFile(ranges, []byte("schema: agent-sandbox-bench-ranges/1\nbounds:\n- {scenario: s1, contestant: ours, metric: cpu_us, against: fasthttp, at_most: "+most+", margin: 0.5}\n"), 0o644))
	}
	args := []string{"--report=" + filepath.Join(out, "report.json"), "--ranges=" + ranges}
	bounds("1000")
	assert.NoError(t, checkReport(context.Background(), args))
	bounds("0.0001")
	assert.Error(t, checkReport(context.Background(), args))
	require.NoError(t, bound(context.Background(), []string{"--ranges=" + ranges, filepath.Join(out, "report.json")}))
	assert.NoError(t, checkReport(context.Background(), args), "the renewed bound leaves room")
}

func TestAContestantThatFailsIsLeftOut(t *testing.T) {
	out := t.TempDir()
	err := run(context.Background(), []string{
		"--contestants=fasthttp", "--peer=broken=false {http}", "--peer=absent=no-such-program", "--scenarios=s1-n1-c64", "--rounds=2",
		"--duration=20ms", "--warmup=1ms", "--out=" + out,
	})
	require.NoError(t, err)
	r, err := report.Read(filepath.Join(out, "report.json"))
	require.NoError(t, err)
	require.Len(t, r.Skipped, 2)
	assert.Contains(t, r.Skipped[0], "no-such-program is not installed")
	assert.Contains(t, r.Skipped[1], "broken at s1-n1-c64")
	assert.Len(t, r.Scenarios[0].Samples, 2)
}

func TestBudgetEndsTheSession(t *testing.T) {
	out := t.TempDir()
	err := run(context.Background(), []string{
		"--contestants=fasthttp", "--scenarios=s1-n1-c64", "--rounds=100", "--budget=1ms", "--duration=20ms", "--warmup=1ms", "--out=" + out,
	})
	require.NoError(t, err)
	r, err := report.Read(filepath.Join(out, "report.json"))
	require.NoError(t, err)
	assert.Equal(t, 1, r.Settings.Rounds, "the first round is always run")
}

func TestWrongFlags(t *testing.T) {
	for _, args := range [][]string{
		{"--scenarios=nothing"}, {"--contestants=nobody"}, {"--contestants=ours", "--router=no-such-router"}, {"--peer=x"}, {"--no-such-flag"},
	} {
		assert.Error(t, run(context.Background(), args), args)
	}
}

func TestRotation(t *testing.T) {
	var all []*peers.Contestant
	for _, name := range []string{"a", "b", "c"} {
		all = append(all, &peers.Contestant{Name: name})
	}
	var orders []string
	for round := range 6 {
		var order bytes.Buffer
		for _, c := range rotated(all, round) {
			order.WriteString(c.Name)
		}
		orders = append(orders, order.String())
	}
	assert.Equal(t, []string{"abc", "acb", "cab", "cba", "bca", "bac"}, orders)
	assert.Empty(t, rotated(nil, 3))
}

func TestMachinesAreToldApart(t *testing.T) {
	out := t.TempDir()
	begin := time.Now().Add(-time.Second)
	require.NoError(t, run(context.Background(), []string{
		"--contestants=fasthttp", "--scenarios=s1-n1-c64", "--rounds=1", "--duration=20ms", "--warmup=1ms", "--out=" + out,
	}))
	r, err := report.Read(filepath.Join(out, "report.json"))
	require.NoError(t, err)
	assert.Equal(t, runtime.Version(), r.Machine.Go)
	assert.NotEmpty(t, r.Machine.CPU)
	assert.True(t, r.Date.After(begin))
}
