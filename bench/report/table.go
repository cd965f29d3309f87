package report

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// yardsticks are the contestants that others are compared with in tables, the most telling first. The router is one for its
// own variants.
var yardsticks = []string{"haproxy", "nginx", "fasthttp", "nethttp", "ours"}

// WriteTable shows the summaries on a terminal.
func (r *Report) WriteTable(w io.Writer) {
	fmt.Fprintln(w, r.heading())
	for i := range r.Scenarios {
		s := &r.Scenarios[i]
		fmt.Fprintf(w, "\n%s  %s\n", s.Name, s.Title)
		header, rows := r.table(s)
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintln(t, strings.Join(header, "\t")+"\t")
		for _, row := range rows {
			fmt.Fprintln(t, strings.Join(row, "\t")+"\t")
		}
		t.Flush()
	}
	for _, s := range r.Skipped {
		fmt.Fprintf(w, "\nskipped: %s\n", s)
	}
}

// WriteMarkdown shows the summaries as a page.
func (r *Report) WriteMarkdown(w io.Writer) {
	fmt.Fprintf(w, "# Benchmark of %s\n\n%s\n", r.Date.Format("2006-01-02"), r.heading())
	fmt.Fprintf(w, "\nMedians of %d rounds. A ratio is a contestant's figure by another's within a round: median (least–greatest).\n", r.Settings.Rounds)
	for i := range r.Scenarios {
		s := &r.Scenarios[i]
		fmt.Fprintf(w, "\n## %s: %s\n\n", s.Name, s.Title)
		header, rows := r.table(s)
		fmt.Fprintf(w, "| %s |\n|%s\n", strings.Join(header, " | "), strings.Repeat("---|", len(header)))
		for _, row := range rows {
			fmt.Fprintf(w, "| %s |\n", strings.Join(row, " | "))
		}
	}
	if len(r.Skipped) > 0 {
		fmt.Fprint(w, "\n## Skipped\n\n")
		for _, s := range r.Skipped {
			fmt.Fprintf(w, "- %s\n", s)
		}
	}
	fmt.Fprint(w, "\n## Contestants\n\n")
	for _, c := range r.Contestants {
		fmt.Fprintf(w, "- **%s** %s: `%s`\n", c.Name, c.Version, c.Command)
	}
}

func (r *Report) heading() string {
	commit := r.Commit
	if r.Modified {
		commit += " with changes"
	}
	m := &r.Machine
	calibration := r.calibration()
	return fmt.Sprintf("commit %s · %s · %d cores of %s · Linux %s · %s · %d rounds of %gs · calibration %.0f ns (%.0f–%.0f)",
		commit, r.Date.Format("2006-01-02 15:04"), m.Cores, m.CPU, m.Kernel, m.Go, r.Settings.Rounds, r.Settings.Duration,
		calibration.Median, calibration.Min, calibration.Max)
}

// calibration sums up the calibrations of all runs: its spread is the machine's noise.
func (r *Report) calibration() Stat {
	var all []float64
	for i := range r.Scenarios {
		for j := range r.Scenarios[i].Samples {
			if v, ok := r.Scenarios[i].Samples[j].Values[Calibration]; ok {
				all = append(all, v)
			}
		}
	}
	return StatOf(all)
}

// table lays out one scenario: what matters in it, then ratios of the first of those, then errors.
func (r *Report) table(s *Scenario) (header []string, rows [][]string) {
	names := s.Contestants()
	var against []string
	for _, y := range yardsticks {
		if slices.Contains(names, y) && len(names) > 1 && len(against) < 2 {
			against = append(against, y)
		}
	}
	var main Metric
	for _, m := range s.Shows {
		if m.Compared() {
			main = m
			break
		}
	}
	header = []string{"contestant"}
	for _, m := range s.Shows {
		header = append(header, m.Title())
	}
	if main == "" {
		against = nil
	}
	for _, a := range against {
		header = append(header, fmt.Sprintf("%s / %s", main.Title(), a))
	}
	header = append(header, "errors")
	for _, name := range names {
		sum := r.Summary(s.Name, name)
		row := []string{name}
		for _, m := range s.Shows {
			cell := "-"
			if v, ok := sum.Values[m]; ok {
				cell = m.Format(v.Median)
			}
			row = append(row, cell)
		}
		for _, a := range against {
			cell := "-"
			if ratio, ok := sum.Ratios[main][a]; ok {
				cell = ratio.String()
			} else if a == name {
				cell = "1"
			}
			row = append(row, cell)
		}
		rows = append(rows, append(row, errorCell(sum, r.Settings.Rounds)))
	}
	return header, rows
}

// String shows a ratio.
func (s Stat) String() string {
	if s.Rounds == 1 {
		return fmt.Sprintf("%.2f", s.Median)
	}
	return fmt.Sprintf("%.2f (%.2f–%.2f)", s.Median, s.Min, s.Max)
}

func errorCell(s *Summary, rounds int) string {
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(s.Errors)) {
		parts = append(parts, fmt.Sprintf("%d %s", s.Errors[kind], kind))
	}
	if s.Limited > 0 {
		parts = append(parts, fmt.Sprintf("load-limited %d/%d", s.Limited, rounds))
	}
	if len(parts) == 0 {
		return "0"
	}
	return strings.Join(parts, ", ")
}
