package size

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dovakiin0/agent-sandbox/bench/report"
)

func one(scenario string, values map[report.Metric]float64) report.Scenario {
	return report.Scenario{Name: scenario, Samples: []report.Sample{{Contestant: "ours", Values: values}}}
}

func measured() *report.Report {
	r := &report.Report{Scenarios: []report.Scenario{
		one("s1", map[report.Metric]float64{report.CPU: 25, report.Resident: 20e6}),
		one("rate", map[report.Metric]float64{report.CPU: 50}),
		one("s3", map[report.Metric]float64{report.GrowPerIdle: 5e3}),
		one("s5", map[report.Metric]float64{report.CPU: 20}),
		one("tunnels", map[report.Metric]float64{report.GrowPerIdle: 10e3}),
	}}
	r.Summarize()
	return r
}

func TestCosts(t *testing.T) {
	c, err := CostOf(measured(), "ours")
	require.NoError(t, err)
	assert.Equal(t, Cost{Request: 50, Message: 20, Base: 20e6, Connection: 5e3, Tunnel: 10e3}, c)
	_, err = CostOf(measured(), "nobody")
	assert.Error(t, err)
}

func TestPlan(t *testing.T) {
	c := Cost{Request: 50, Message: 20, Base: 20e6, Connection: 5e3, Tunnel: 10e3}
	l := Load{Requests: 20_000, Messages: 10_000, Connections: 40_000, Tunnels: 10_000}
	p, err := c.For(l, Limits{Cores: 1, Utilization: 0.6, Spare: 1})
	require.NoError(t, err)
	assert.InDelta(t, 1.2, p.Cores, 1e-9, "20,000 × 50 µs and 10,000 × 20 µs")
	assert.Equal(t, 3, p.Replicas, "two that bear it and one spare")
	assert.InDelta(t, 20e6+20_000*5e3+5_000*10e3, p.Memory, 1)
	assert.InDelta(t, 256<<20, p.Limit, 1, "half as much again, in steps of 32 Mi")

	var out bytes.Buffer
	p.Write(&out, c, l, Limits{Cores: 1, Utilization: 0.6, Spare: 1}, measured())
	assert.Contains(t, out.String(), "replicas  3, 1 of them spare")
}

func TestALittleLoadNeedsAReplica(t *testing.T) {
	p, err := Cost{Request: 50, Base: 20e6}.For(Load{Requests: 1}, Limits{Cores: 1, Utilization: 0.6})
	require.NoError(t, err)
	assert.Equal(t, 1, p.Replicas)
}

func TestWhatWasNotMeasuredIsNotGuessed(t *testing.T) {
	limits := Limits{Cores: 1, Utilization: 0.6}
	for _, l := range []Load{{Messages: 1}, {Connections: 1}, {Tunnels: 1}} {
		_, err := Cost{Request: 50, Base: 20e6}.For(l, limits)
		assert.ErrorContains(t, err, "the report has no")
	}
	_, err := Cost{Request: 50}.For(Load{}, Limits{Cores: 1, Utilization: 2})
	assert.Error(t, err)
}
