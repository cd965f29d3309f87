//go:build linux

package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/dovakiin0/agent-sandbox/bench/report"
)

// column is a figure as tables show it.
type column struct {
	metric Metric
	title  string
	digits int
	scale  float64 // the figure is divided by it
}

var columns = []column{
	{ReadyP50, "ready p50 ms", 1, 1},
	{ReadyP90, "p90", 1, 1},
	{ReadyP99, "p99", 1, 1},
	{ReadyMax, "max", 1, 1},
	{AnswerP50, "answer p50 ms", 1, 1},
	{AnswerP99, "p99", 1, 1},
	{AllReady, "all ready s", 2, 1},
	{Filled, "filled s", 2, 1},
	{Cold, "cold", 0, 1},
	{Writes, "writes", 1, 1},
	{FailedWrites, "failed", 2, 1},
	{ServerTime, "server ms", 1, 1},
	{ControllerCPU, "controller CPU ms", 1, 1},
	{APIServerCPU, "API server", 1, 1},
	{RouterCPU, "router", 2, 1},
}

var idleColumns = []column{
	{ControllerRSS, "controller RSS MB", 0, 1e6},
	{EmptyRSS, "empty", 0, 1e6},
	{ControllerIdle, "controller CPU ms/s", 2, 1},
	{APIServerIdle, "API server", 1, 1},
	{IdleRequests, "requests/min", 1, 1},
}

// writeTable shows medians over rounds on a terminal.
func (r *Report) writeTable(w io.Writer) {
	commit := r.Commit
	if r.Modified {
		commit += " with changes"
	}
	var calibrations []float64
	for _, run := range r.Runs {
		calibrations = append(calibrations, run.Values[Calibration])
	}
	noise := report.StatOf(calibrations)
	fmt.Fprintf(w, "commit %s · %s · %d cores of %s, all parts on them · Linux %s · %s · calibration %.0f ns (%.0f–%.0f)\n", commit,
		r.Date.Format("2006-01-02 15:04"), r.Machine.Cores, r.Machine.CPU, r.Machine.Kernel, r.Machine.Go, noise.Median, noise.Min, noise.Max)
	fmt.Fprintf(w, "controller: %s; router: %s; writes and CPU are for each claim or sandbox, refill included\n\n", r.Controller, r.Router)

	titles, groups := r.groups()
	writeColumns(w, columns, titles, groups)
	writeColumns(w, idleColumns, titles, groups)
	if len(r.Sustained) > 0 {
		highest, beyond := report.StatOf(r.Sustained).Median, ""
		if highest == slices.Max(r.Rates) {
			beyond = ", higher ones were not tried"
		}
		fmt.Fprintf(w, "\nhighest rate with a p99 below %d ms: %g/s%s\n", sustained, highest, beyond)
	}
	for _, title := range titles {
		if kinds := writesOf(groups[title]); kinds != "" {
			fmt.Fprintf(w, "\n%s, writes for each %s: %s\n", title, groups[title][0].Unit, kinds)
		}
	}
}

// groups returns the runs of equal titles, in the order of the titles' first runs.
func (r *Report) groups() (titles []string, groups map[string][]*Run) {
	groups = map[string][]*Run{}
	for _, run := range r.Runs {
		title := run.Title()
		if groups[title] == nil {
			titles = append(titles, title)
		}
		groups[title] = append(groups[title], run)
	}
	return titles, groups
}

// writeColumns leaves out rows that have none of the figures, and columns that no row has a figure for.
func writeColumns(w io.Writer, columns []column, titles []string, groups map[string][]*Run) {
	has := func(title string, c column) bool { _, ok := groups[title][0].Values[c.metric]; return ok }
	columns = slices.DeleteFunc(slices.Clone(columns), func(c column) bool {
		return !slices.ContainsFunc(titles, func(title string) bool { return has(title, c) })
	})
	if len(columns) == 0 {
		return
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "\t")
	for _, c := range columns {
		fmt.Fprint(t, c.title, "\t")
	}
	fmt.Fprintln(t)
	for _, title := range titles {
		if !slices.ContainsFunc(columns, func(c column) bool { return has(title, c) }) {
			continue
		}
		fmt.Fprint(t, title, "\t")
		for _, c := range columns {
			cell := "-"
			if has(title, c) {
				cell = fmt.Sprintf("%.*f", c.digits, median(groups[title], c.metric)/c.scale)
			}
			fmt.Fprint(t, cell, "\t")
		}
		fmt.Fprintln(t)
	}
	t.Flush()
}

func median(runs []*Run, m Metric) float64 {
	var all []float64
	for _, r := range runs {
		all = append(all, r.Values[m])
	}
	return report.StatOf(all).Median
}

// writesOf lists writes by kind, the most frequent first, as means over runs.
func writesOf(runs []*Run) string {
	counts := map[string]float64{}
	units := 0
	for _, r := range runs {
		units += r.Units
		for kind, w := range r.Writes {
			counts[kind] += float64(w.Count)
		}
	}
	kinds := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		if counts[a] != counts[b] {
			return int(counts[b] - counts[a])
		}
		return strings.Compare(a, b)
	})
	for i, kind := range kinds {
		kinds[i] = fmt.Sprintf("%s %.2f", kind, counts[kind]/float64(units))
	}
	return strings.Join(kinds, ", ")
}

// brief is a run in a line of progress.
func (r *Run) brief() string {
	var parts []string
	for _, c := range slices.Concat(columns, idleColumns) {
		if v, ok := r.Values[c.metric]; ok && slices.Contains(briefly, c.metric) {
			parts = append(parts, fmt.Sprintf("%s %.*f", c.title, c.digits, v/c.scale))
		}
	}
	return strings.Join(parts, ", ")
}

var briefly = []Metric{ReadyP50, ReadyP99, AllReady, Filled, Writes, ControllerRSS, ControllerIdle}
