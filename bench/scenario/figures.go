//go:build linux

package scenario

import (
	"bufio"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/dovakiin0/agent-sandbox/bench/load"
	"github.com/dovakiin0/agent-sandbox/bench/proc"
	"github.com/dovakiin0/agent-sandbox/bench/report"
)

// latencies takes over what clients saw.
func (r *run) latencies(res *load.Result) {
	v := r.sample.Values
	v[report.Rate] = float64(r.units(res)) / res.Elapsed.Seconds()
	for _, p := range []struct {
		metric     report.Metric
		percentile float64
	}{{report.P50, 50}, {report.P90, 90}, {report.P99, 99}, {report.P999, 99.9}, {report.Max, 100}} {
		v[p.metric] = us(res.Latency.Percentile(p.percentile))
	}
	if r.Request.events {
		v[report.EventP50] = us(res.Events.Percentile(50))
		v[report.EventP99] = us(res.Events.Percentile(99))
	}
}

// units counts what CPU is divided by.
func (r *run) units(res *load.Result) int64 {
	if r.Request.events {
		return res.Events.Count()
	}
	return res.Answered
}

// errors counts what went wrong. A proxy that was told to drain may refuse connections.
func (r *run) errors(res *load.Result, idleEnded int) {
	r.sample.Errors = res.Errors
	if r.Ends {
		delete(r.sample.Errors, load.Refused)
	}
	if idleEnded > 0 {
		r.sample.Errors["idle connection ended"] = int64(idleEnded)
	}
	n := int64(idleEnded)
	for _, count := range r.sample.Errors {
		n += count
	}
	r.sample.Values[report.Errors] = float64(n)
}

// saturated is the share of its core from which on the load side is taken for the bottleneck, unless the proxy is as busy.
const saturated = 0.95

// costs works out what the answers cost.
func (r *run) costs(res *load.Result) {
	v := r.sample.Values
	elapsed := r.after.at.Sub(r.before.at)
	used := r.after.proxy.Sub(r.before.proxy)
	if n := float64(r.units(res)); n > 0 {
		v[report.CPU] = us(used.CPU) / n
		v[report.User] = us(used.User) / n
		v[report.System] = us(used.System) / n
		if r.proxy.GoMetrics {
			v[report.Allocs] = max(0, r.after.mallocs-r.before.mallocs) / n
		}
	}
	if requests := r.after.stats.Requests - r.before.stats.Requests; requests > 0 {
		v[report.Reuse] = 1 - float64(r.after.stats.Connections-r.before.stats.Connections)/float64(requests)
	}
	if used.CPU > 0 {
		v[report.Throughput] = float64(res.Received+res.Sent) / 1e6 / used.CPU.Seconds()
	}
	v[report.Resident] = float64(proc.Resident(r.proxy.Pids))
	v[report.Files] = float64(proc.Descriptors(r.proxy.Pids))
	v[report.Busy] = float64(used.CPU) / float64(elapsed)
	backend := float64(r.after.backend.Sub(r.before.backend).CPU) / float64(elapsed)
	v[report.LoadBusy] = max(res.Busy, backend)
	if r.SharedCore {
		v[report.LoadBusy] = res.Busy + backend
	}
	r.sample.Limited = res.Limited()
	if r.sample.Limited == "" && v[report.LoadBusy] > saturated && v[report.Busy] < saturated {
		r.sample.Limited = fmt.Sprintf("the load side used %.0f %% of its core", 100*v[report.LoadBusy])
	}
}

// mallocs reads how many objects a process has allocated. The question itself allocates: at the beginning it is asked
// twice, and what the second time added is taken to be what the question at the end will add.
func mallocs(url string, beginning bool) (float64, error) {
	n, err := readMallocs(url)
	if err != nil || !beginning {
		return n, err
	}
	again, err := readMallocs(url)
	return again + (again - n), err
}

func readMallocs(url string) (float64, error) {
	resp, err := admin.Get(url + "/metrics")
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), "go_memstats_mallocs_total "); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, errors.New("the metrics have no go_memstats_mallocs_total")
}
