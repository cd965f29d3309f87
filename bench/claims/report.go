//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/dovakiin0/agent-sandbox/bench/load"
	"github.com/dovakiin0/agent-sandbox/bench/proc"
	"github.com/dovakiin0/agent-sandbox/bench/report"
)

// schema names the form of the JSON. A change that could mislead a reader of an older form gets another number; new fields
// and new metrics do not.
const schema = "agent-sandbox-claims/1"

// Report is one session.
type Report struct {
	Schema     string         `json:"schema"`
	Date       time.Time      `json:"date"`
	Commit     string         `json:"commit"`
	Modified   bool           `json:"modified"` // the source differed from the commit
	Machine    report.Machine `json:"machine"`
	Controller string         `json:"controller"` // ours, or its command
	Router     string         `json:"router,omitempty"`
	Scale      float64        `json:"scale"`
	Arrivals   float64        `json:"arrivals_seconds"`
	Rates      []float64      `json:"rates_per_s"` // that were tried first
	Runs       []*Run         `json:"runs"`
	// Sustained is the highest rate that poisson found in each round, in claims a second. If it is the last of Rates, there may
	// be higher ones.
	Sustained []float64 `json:"sustained_per_s,omitempty"`
}

func newReport(s *settings) *Report {
	commit, modified := proc.Commit()
	return &Report{
		Schema: schema, Date: time.Now().UTC(), Commit: commit, Modified: modified, Machine: proc.ThisMachine(),
		Controller: s.controller, Router: s.router, Scale: s.scale, Arrivals: s.arrivals.Seconds(), Rates: s.rates,
	}
}

func (r *Report) write(path string) error {
	content, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(content, '\n'), 0o644)
}

// Metric names a figure of a run. The name ends with the unit.
type Metric string

// Metrics. Times count from the moment at which a claim was due. CPU and writes include what follows when all claims are
// Ready, the refill of the pool above all, and are divided by the claims or sandboxes.
const (
	ReadyP50       Metric = "ready_p50_ms" // until the client saw the claim Ready
	ReadyP90       Metric = "ready_p90_ms"
	ReadyP99       Metric = "ready_p99_ms"
	ReadyMax       Metric = "ready_max_ms"
	AnswerP50      Metric = "answer_p50_ms" // until the first answer of its sandbox through the router
	AnswerP90      Metric = "answer_p90_ms"
	AnswerP99      Metric = "answer_p99_ms"
	AnswerMax      Metric = "answer_max_ms"
	AllReady       Metric = "all_ready_s"    // until the last claim of a burst was Ready
	AllAnswered    Metric = "all_answered_s" // and answered
	Filled         Metric = "filled_s"       // until the pool's status said that all members are Ready
	Settled        Metric = "settled_s"      // until the controller came to rest, over all pieces of work
	Cold           Metric = "cold_claims"    // that got no sandbox of the pool
	Refused        Metric = "refused"        // answers of the router that a Ready claim's sandbox cannot be reached
	Writes         Metric = "writes_per_unit"
	FailedWrites   Metric = "failed_writes_per_unit"
	ServerTime     Metric = "server_ms_per_unit" // time in the API server, of the controller's writes
	ControllerCPU  Metric = "controller_cpu_ms_per_unit"
	APIServerCPU   Metric = "apiserver_cpu_ms_per_unit" // with etcd and the cluster's own controllers, which share its process
	RouterCPU      Metric = "router_cpu_ms_per_unit"
	ControllerRSS  Metric = "controller_rss_bytes"
	EmptyRSS       Metric = "controller_rss_empty_bytes" // before there were sandboxes
	ControllerIdle Metric = "controller_cpu_ms_per_s"    // at rest
	APIServerIdle  Metric = "apiserver_cpu_ms_per_s"
	IdleRequests   Metric = "controller_requests_per_min" // at rest, reads included
	Calibration    Metric = "calibration_ns"              // a fixed piece of work, mean of before and after
)

// Run is a scenario that was run once.
type Run struct {
	Scenario string             `json:"scenario"`
	Round    int                `json:"round"`
	Rate     float64            `json:"rate_per_s,omitempty"` // of arrivals
	Unit     string             `json:"unit"`                 // what figures are divided by: claim or sandbox
	Units    int                `json:"units"`
	Values   map[Metric]float64 `json:"values"`
	Writes   map[string]*Write  `json:"writes,omitempty"` // of the controller, by verb and resource

	claims    []*claim
	sandboxes int
	burst     bool
	events    []event
	cpu       cpu
	settled   time.Duration
}

func newRun(sc *scenario, round int, rate float64) *Run {
	return &Run{Scenario: sc.name, Round: round, Rate: rate, Unit: sc.unit, Values: map[Metric]float64{}}
}

// Title is the scenario and its rate.
func (r *Run) Title() string {
	if r.Rate == 0 {
		return r.Scenario
	}
	return fmt.Sprintf("%s %g/s", r.Scenario, r.Rate)
}

// finish computes the figures from what was noted.
func (r *Run) finish() {
	r.Units = r.sandboxes
	if len(r.claims) > 0 {
		r.Units = len(r.claims)
		r.finishClaims()
	}
	if r.settled == 0 {
		return // nothing was set off
	}
	per := func(n float64) float64 { return n / float64(r.Units) }
	r.Values[Settled] = r.settled.Seconds()
	r.Values[ControllerCPU] = per(ms(r.cpu.controller))
	r.Values[APIServerCPU] = per(ms(r.cpu.apiServer))
	r.Values[RouterCPU] = per(ms(r.cpu.router))
	r.Writes = count(r.events)
	var all, failed, took float64
	for _, w := range r.Writes {
		all += float64(w.Count)
		took += w.ServerMS * float64(w.Count)
		for _, n := range w.Failed {
			failed += float64(n)
		}
	}
	r.Values[Writes], r.Values[FailedWrites], r.Values[ServerTime] = per(all), per(failed), per(took)
}

func (r *Run) finishClaims() {
	ready, answer := load.NewHistogram(), load.NewHistogram()
	begin := r.claims[0].due
	var lastReady, lastAnswer time.Time
	for _, c := range r.claims {
		if c.due.Before(begin) {
			begin = c.due
		}
		ready.Record(c.ready.Sub(c.due))
		lastReady = later(lastReady, c.ready)
		if c.cold {
			r.Values[Cold]++
		}
		if !c.answered.IsZero() {
			answer.Record(c.answered.Sub(c.due))
			lastAnswer = later(lastAnswer, c.answered)
			r.Values[Refused] += float64(c.refused)
		}
	}
	r.percentiles(ready, ReadyP50, ReadyP90, ReadyP99, ReadyMax)
	if r.burst {
		r.Values[AllReady] = lastReady.Sub(begin).Seconds()
	}
	if answer.Count() == 0 {
		return
	}
	r.percentiles(answer, AnswerP50, AnswerP90, AnswerP99, AnswerMax)
	if r.burst {
		r.Values[AllAnswered] = lastAnswer.Sub(begin).Seconds()
	}
}

func (r *Run) percentiles(h *load.Histogram, p50, p90, p99, most Metric) {
	r.Values[p50], r.Values[p90], r.Values[p99], r.Values[most] = ms(h.Percentile(50)), ms(h.Percentile(90)), ms(h.Percentile(99)), ms(h.Max())
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
