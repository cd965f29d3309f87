package check

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"sigs.k8s.io/yaml"

	"github.com/dovakiin0/agent-sandbox/bench/report"
)

// Renew computes every bound that has a margin anew from all rounds of the reports, and notes where it comes from. Bounds
// set by hand get the provenance only. What the reports do not hold stays as it was.
func (r *Ranges) Renew(reports []*report.Report) error {
	if len(reports) == 0 {
		return errors.New("no reports")
	}
	latest := reports[0]
	for _, rep := range reports {
		if rep.Machine.CPU != latest.Machine.CPU || rep.Machine.Cores != latest.Machine.Cores {
			return errors.New("the reports are of different machines")
		}
		if rep.Date.After(latest.Date) {
			latest = rep
		}
	}
	for i := range r.Bounds {
		b := &r.Bounds[i]
		stat, n := b.pooled(reports)
		if n == 0 {
			continue
		}
		b.Provenance = &Provenance{
			Reports: n, Stat: stat, Commit: latest.Commit, Date: latest.Date.Format("2006-01-02"),
			Machine: fmt.Sprintf("%d cores of %s, Linux %s", latest.Machine.Cores, latest.Machine.CPU, latest.Machine.Kernel),
		}
		if b.Margin == 0 {
			continue
		}
		if b.AtMost != nil {
			*b.AtMost = round(stat.Median * (1 + b.Margin))
		}
		if b.AtLeast != nil {
			*b.AtLeast = round(stat.Median * (1 - b.Margin))
		}
	}
	return nil
}

// pooled sums up the rounds of all reports. n is how many reports have any.
func (b *Bound) pooled(reports []*report.Report) (stat report.Stat, n int) {
	whole := &report.Scenario{Name: b.Scenario}
	for k, rep := range reports {
		s := rep.Scenario(b.Scenario)
		if _, missing := b.measured(rep); missing != "" {
			continue
		}
		n++
		for _, sample := range s.Samples {
			sample.Round += k << 16 // rounds of different reports are different rounds
			whole.Samples = append(whole.Samples, sample)
		}
	}
	if b.Against != "" {
		return whole.Ratio(b.Metric, b.Contestant, b.Against), n
	}
	var values []float64
	for _, sample := range whole.Samples {
		if v, ok := sample.Values[b.Metric]; ok && sample.Contestant == b.Contestant {
			values = append(values, v)
		}
	}
	return report.StatOf(slices.Clip(values)), n
}

func round(v float64) float64 {
	var short float64
	fmt.Sscanf(fmt.Sprintf("%.3g", v), "%g", &short)
	return short
}

// heading is what a file of ranges begins with: writing it anew would lose comments.
const heading = `# Ranges for "bench check". Bounds with a margin are computed by "bench bound" from reports; the others are promises,
# set by hand. A bound holds for the median over rounds; with "against" it bounds the ratio within a round.
`

// Write writes the file.
func (r *Ranges) Write(path string) error {
	content, err := yaml.Marshal(r)
	if err != nil {
		return err
	}
	return os.WriteFile(path, append([]byte(heading), content...), 0o644)
}
