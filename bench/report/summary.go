package report

import (
	"maps"
	"slices"
)

// Stat sums up rounds.
type Stat struct {
	Rounds int     `json:"rounds"`
	Min    float64 `json:"min"`
	Median float64 `json:"median"`
	Max    float64 `json:"max"`
}

// Summary is all runs of one contestant in one scenario.
type Summary struct {
	Scenario   string           `json:"scenario"`
	Contestant string           `json:"contestant"`
	Values     map[Metric]Stat  `json:"values"`
	Errors     map[string]int64 `json:"errors,omitempty"` // of all rounds
	Limited    int              `json:"limited"`          // rounds in which the load side was the bottleneck
	// Ratios are this contestant's figures by another's, taken within each round: what disturbs a round disturbs both.
	Ratios map[Metric]map[string]Stat `json:"ratios"`
}

// StatOf sums up some figures.
func StatOf(values []float64) Stat {
	if len(values) == 0 {
		return Stat{}
	}
	v := slices.Sorted(slices.Values(values))
	middle := v[len(v)/2]
	if len(v)%2 == 0 {
		middle = (v[len(v)/2-1] + middle) / 2
	}
	return Stat{len(v), v[0], middle, v[len(v)-1]}
}

// Summarize fills in the summaries.
func (r *Report) Summarize() {
	r.Summaries = nil
	for i := range r.Scenarios {
		s := &r.Scenarios[i]
		for _, name := range s.Contestants() {
			r.Summaries = append(r.Summaries, s.summary(name))
		}
	}
}

func (s *Scenario) summary(name string) Summary {
	sum := Summary{Scenario: s.Name, Contestant: name, Values: map[Metric]Stat{}, Ratios: map[Metric]map[string]Stat{}}
	values := map[Metric][]float64{}
	for i := range s.Samples {
		sample := &s.Samples[i]
		if sample.Contestant != name {
			continue
		}
		for m, v := range sample.Values {
			values[m] = append(values[m], v)
		}
		for kind, n := range sample.Errors {
			if sum.Errors == nil {
				sum.Errors = map[string]int64{}
			}
			sum.Errors[kind] += n
		}
		if sample.Limited != "" {
			sum.Limited++
		}
	}
	for m, v := range values {
		sum.Values[m] = StatOf(v)
		if m.Compared() {
			sum.Ratios[m] = s.ratios(name, m)
		}
	}
	return sum
}

func (s *Scenario) ratios(name string, m Metric) map[string]Stat {
	all := map[string]Stat{}
	for _, other := range s.Contestants() {
		if stat := s.Ratio(m, name, other); other != name && stat.Rounds > 0 {
			all[other] = stat
		}
	}
	return all
}

// Ratio is one contestant's figure by another's, taken within each round.
func (s *Scenario) Ratio(m Metric, of, against string) Stat {
	byRound := func(name string) map[int]float64 {
		values := map[int]float64{}
		for i := range s.Samples {
			if v, ok := s.Samples[i].Values[m]; ok && s.Samples[i].Contestant == name {
				values[s.Samples[i].Round] = v
			}
		}
		return values
	}
	ours, theirs := byRound(of), byRound(against)
	var ratios []float64
	for round := range maps.Keys(ours) {
		if theirs[round] > 0 {
			ratios = append(ratios, ours[round]/theirs[round])
		}
	}
	return StatOf(ratios)
}

// Summary returns the summary of a contestant in a scenario, or nil.
func (r *Report) Summary(scenario, contestant string) *Summary {
	for i := range r.Summaries {
		if s := &r.Summaries[i]; s.Scenario == scenario && s.Contestant == contestant {
			return s
		}
	}
	return nil
}
