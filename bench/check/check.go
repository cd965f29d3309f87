// Package check compares a report with ranges. It compares ratios wherever it can: they hold on any machine, while
// microseconds are those of one.
package check

import (
	"fmt"
	"os"
	"slices"

	"sigs.k8s.io/yaml"

	"github.com/dovakiin0/agent-sandbox/bench/report"
)

// Schema names the form of a file of ranges.
const Schema = "agent-sandbox-bench-ranges/1"

// Ranges is such a file.
type Ranges struct {
	Schema string  `json:"schema"`
	Bounds []Bound `json:"bounds"`
}

// Bound is what the median over rounds of one figure may be.
type Bound struct {
	Scenario   string        `json:"scenario"`
	Contestant string        `json:"contestant"`
	Metric     report.Metric `json:"metric"`
	Against    string        `json:"against,omitempty"` // the figure is the ratio to this contestant's; "": the value itself
	AtMost     *float64      `json:"at_most,omitempty"`
	AtLeast    *float64      `json:"at_least,omitempty"`
	// Margin is how far the bound lies from the median of the runs that it comes from, as a share of it; 0: the bound was
	// set by hand, for it is a promise and no measurement.
	Margin     float64     `json:"margin,omitempty"`
	Goal       *float64    `json:"goal,omitempty"` // what the figure is meant to become; not checked
	Provenance *Provenance `json:"provenance,omitempty"`
}

// Concerns reports whether a bound is about what a contestant does in a scenario.
func (r *Ranges) Concerns(scenario, contestant string) bool {
	return slices.ContainsFunc(r.Bounds, func(b Bound) bool {
		return b.Scenario == scenario && (b.Contestant == contestant || b.Against == contestant)
	})
}

// Provenance is where a bound comes from.
type Provenance struct {
	Reports int         `json:"reports"`
	Stat    report.Stat `json:"rounds"`
	Commit  string      `json:"commit"`
	Date    string      `json:"date"`
	Machine string      `json:"machine"`
}

// Read reads a file of ranges.
func Read(path string) (*Ranges, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var r Ranges
	if err := yaml.UnmarshalStrict(content, &r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if r.Schema != Schema {
		return nil, fmt.Errorf("%s: schema is %q, not %q", path, r.Schema, Schema)
	}
	for i := range r.Bounds {
		if b := &r.Bounds[i]; b.AtMost == nil && b.AtLeast == nil {
			return nil, fmt.Errorf("%s: bounds[%d] (%s) bounds nothing", path, i, b)
		}
	}
	return &r, nil
}

// Outcome of a bound.
type Outcome int

// Outcomes.
const (
	Kept Outcome = iota
	Broken
	Skipped // what it is about was not measured
)

// Finding is a bound and what became of it.
type Finding struct {
	*Bound
	Outcome Outcome
	Stat    report.Stat
	Why     string // of Skipped and Broken
}

// Check compares a report with the ranges. ok says that no bound is broken and that some were kept.
func (r *Ranges) Check(rep *report.Report) (findings []Finding, ok bool) {
	kept, broken := 0, 0
	for i := range r.Bounds {
		f := r.Bounds[i].check(rep)
		switch f.Outcome {
		case Kept:
			kept++
		case Broken:
			broken++
		}
		findings = append(findings, f)
	}
	return findings, kept > 0 && broken == 0
}

func (b *Bound) check(rep *report.Report) Finding {
	f := Finding{Bound: b}
	stat, missing := b.measured(rep)
	switch {
	case missing != "":
		f.Outcome, f.Why = Skipped, missing
	case b.AtMost != nil && stat.Median > *b.AtMost:
		f.Outcome, f.Why = Broken, fmt.Sprintf("more than %.3g", *b.AtMost)
	case b.AtLeast != nil && stat.Median < *b.AtLeast:
		f.Outcome, f.Why = Broken, fmt.Sprintf("less than %.3g", *b.AtLeast)
	}
	f.Stat = stat
	return f
}

// measured finds the figure. missing says why there is none.
func (b *Bound) measured(rep *report.Report) (stat report.Stat, missing string) {
	s := rep.Scenario(b.Scenario)
	if s == nil {
		return stat, "the scenario was not run"
	}
	if b.Against != "" {
		stat = s.Ratio(b.Metric, b.Contestant, b.Against)
		if stat.Rounds == 0 {
			return stat, fmt.Sprintf("%s and %s have no round in common", b.Contestant, b.Against)
		}
		return stat, ""
	}
	if sum := rep.Summary(b.Scenario, b.Contestant); sum != nil {
		stat = sum.Values[b.Metric]
	}
	if stat.Rounds == 0 {
		return stat, fmt.Sprintf("%s has no %s", b.Contestant, b.Metric)
	}
	return stat, ""
}

// String names the bounded figure.
func (b *Bound) String() string {
	s := fmt.Sprintf("%s %s %s", b.Scenario, b.Contestant, b.Metric)
	if b.Against != "" {
		s += " / " + b.Against
	}
	return s
}

// String shows the finding in a line.
func (f Finding) String() string {
	switch f.Outcome {
	case Skipped:
		return fmt.Sprintf("skipped  %s: %s", f.Bound, f.Why)
	case Broken:
		return fmt.Sprintf("BROKEN   %s is %s, %s", f.Bound, f.Stat, f.Why)
	}
	goal := ""
	if f.Goal != nil {
		goal = fmt.Sprintf(" (goal %.3g)", *f.Goal)
	}
	return fmt.Sprintf("kept     %s is %s%s", f.Bound, f.Stat, goal)
}
