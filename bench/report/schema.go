// Package report keeps what was measured, sums it up, and shows it: as JSON for programs, as tables and plots for people.
package report

import (
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// Schema names the form of the JSON. A change that could mislead a reader of an older form gets another number; new
// fields and new metrics do not.
const Schema = "agent-sandbox-bench/1"

// Report is one session.
type Report struct {
	Schema      string       `json:"schema"`
	Date        time.Time    `json:"date"`
	Commit      string       `json:"commit"`
	Modified    bool         `json:"modified"` // the source differed from the commit
	Machine     Machine      `json:"machine"`
	Settings    Settings     `json:"settings"`
	Contestants []Contestant `json:"contestants"`
	Skipped     []string     `json:"skipped,omitempty"` // what did not take part, and why
	Scenarios   []Scenario   `json:"scenarios"`
	Summaries   []Summary    `json:"summaries"` // one for each scenario and contestant
}

// Machine is where figures come from.
type Machine struct {
	CPU     string `json:"cpu"`
	Cores   int    `json:"cores"`
	Memory  int64  `json:"memory_bytes"`
	Kernel  string `json:"kernel"`
	OS      string `json:"os"`
	Go      string `json:"go"`
	Files   uint64 `json:"open_files_limit"`
	Virtual bool   `json:"virtual"` // the processor says that it is a guest's
}

// Settings are how the session measured.
type Settings struct {
	Rounds      int     `json:"rounds"`
	Duration    float64 `json:"duration_seconds"`
	Warmup      float64 `json:"warmup_seconds"`
	ProxyCore   int     `json:"proxy_core"`
	LoadCore    int     `json:"load_core"`
	BackendCore int     `json:"backend_core"`
}

// Contestant is one that took part.
type Contestant struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	Command string `json:"command"`
}

// Scenario is one kind of work and every run of it.
type Scenario struct {
	Name        string   `json:"name"`
	Title       string   `json:"title"`
	Family      string   `json:"family,omitempty"` // the scenario that this one differs from in size only
	Unit        string   `json:"unit"`             // what CPU is divided by: request, message or event
	Sandboxes   int      `json:"sandboxes"`
	Connections int      `json:"connections"`
	Rate        float64  `json:"rate,omitempty"` // 0: closed loop
	Shows       []Metric `json:"shows"`          // metrics that matter here
	Samples     []Sample `json:"samples"`
}

// Sample is one run of one contestant.
type Sample struct {
	Contestant string             `json:"contestant"`
	Round      int                `json:"round"`
	Values     map[Metric]float64 `json:"values"`
	Errors     map[string]int64   `json:"errors,omitempty"` // by kind
	Limited    string             `json:"limited,omitempty"`
}

// Write writes the report to a file.
func (r *Report) Write(path string) error {
	content, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(content, '\n'), 0o644)
}

// Read reads a report from a file.
func Read(path string) (*Report, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var r Report
	if err := json.Unmarshal(content, &r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if r.Schema != Schema {
		return nil, fmt.Errorf("%s: schema is %q, not %q", path, r.Schema, Schema)
	}
	return &r, nil
}

// Scenario returns the scenario of a name, or nil.
func (r *Report) Scenario(name string) *Scenario {
	for i := range r.Scenarios {
		if r.Scenarios[i].Name == name {
			return &r.Scenarios[i]
		}
	}
	return nil
}

// Contestants returns who took part in the scenario, in the order of the first round.
func (s *Scenario) Contestants() (names []string) {
	seen := map[string]bool{}
	for i := range s.Samples {
		if name := s.Samples[i].Contestant; !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	return names
}
