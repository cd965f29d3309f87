package report

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
)

// WritePlots draws what the report has figures for, as SVG files in a folder: cpu.svg, latency.svg, sandboxes.svg and
// connections.svg.
func (r *Report) WritePlots(dir string) error {
	return errors.Join(
		r.plotCPU(filepath.Join(dir, "cpu.svg")),
		r.plotLatency(filepath.Join(dir, "latency.svg")),
		r.plotScaling(filepath.Join(dir, "sandboxes.svg"), "sandboxes",
			func(s *Scenario) (x int, fits bool) { return s.Sandboxes, s.Connections == scaleConnections }),
		r.plotScaling(filepath.Join(dir, "connections.svg"), "connections",
			func(s *Scenario) (x int, fits bool) { return s.Connections, s.Sandboxes == scaleSandboxes }),
	)
}

// What stays fixed while the other number grows.
const (
	scaleConnections = 64
	scaleSandboxes   = 1000
)

const (
	width  = 9 * vg.Inch
	height = 4.5 * vg.Inch
)

func newPlot(title, y string) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.Y.Label.Text = title, y
	p.Title.Padding = vg.Points(6)
	p.Legend.Top = true
	p.Add(plotter.NewGrid())
	return p
}

// plotCPU draws a group of bars for each scenario, a bar for each contestant.
func (r *Report) plotCPU(path string) error {
	var scenarios []*Scenario
	for i := range r.Scenarios {
		if s := &r.Scenarios[i]; slices.Contains(s.Shows, CPU) && s.Family == "" && len(s.Samples) > 0 {
			scenarios = append(scenarios, s)
		}
	}
	if len(scenarios) == 0 {
		return nil
	}
	p := newPlot("CPU of the proxy for each request or message (median; less is better)", "µs")
	bar := width * 0.8 / vg.Length(len(scenarios)*(len(r.Contestants)+1))
	for k, c := range r.Contestants {
		values := make(plotter.Values, len(scenarios))
		any := false
		for i, s := range scenarios {
			if sum := r.Summary(s.Name, c.Name); sum != nil {
				values[i], any = sum.Values[CPU].Median, true
			}
		}
		if !any {
			continue
		}
		bars, err := plotter.NewBarChart(values, bar)
		if err != nil {
			return err
		}
		bars.Color, bars.LineStyle.Width = plotutil.Color(k), 0
		bars.Offset = bar * (vg.Length(k) - vg.Length(len(r.Contestants)-1)/2)
		p.Add(bars)
		p.Legend.Add(c.Name, bars)
	}
	var names []string
	for _, s := range scenarios {
		names = append(names, s.Name)
	}
	p.NominalX(names...)
	p.X.Min, p.X.Max = -0.6, float64(len(names))-0.4
	fromZero(p)
	return p.Save(width, height, path)
}

// plotLatency draws the latency percentiles of the first open loop without disturbance.
func (r *Report) plotLatency(path string) error {
	at := slices.IndexFunc(r.Scenarios, func(s Scenario) bool { return s.Rate > 0 && len(s.Samples) > 0 })
	if at < 0 {
		return nil
	}
	s := &r.Scenarios[at]
	percentiles := []Metric{P50, P90, P99, P999, Max}
	p := newPlot(fmt.Sprintf("Latency at a fixed %.0f requests/s (median of rounds)", s.Rate), "µs")
	p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	for k, name := range s.Contestants() {
		sum := r.Summary(s.Name, name)
		points := make(plotter.XYs, len(percentiles))
		for i, m := range percentiles {
			points[i].X, points[i].Y = float64(i), max(1, sum.Values[m].Median)
		}
		if err := addLine(p, k, name, points); err != nil {
			return err
		}
	}
	p.NominalX("p50", "p90", "p99", "p99.9", "max")
	p.X.Min, p.X.Max = -0.3, float64(len(percentiles))-0.7
	// Whole decades, so that the axis has labels.
	p.Y.Min, p.Y.Max = math.Pow10(int(math.Floor(math.Log10(p.Y.Min)))), math.Pow10(int(math.Ceil(math.Log10(p.Y.Max))))
	p.Legend.Left = true
	return p.Save(width, height, path)
}

// plotScaling draws CPU against a number that grows over the scenarios derived from s1, and s1 itself.
func (r *Report) plotScaling(path, what string, at func(*Scenario) (x int, fits bool)) error {
	lines := map[string]plotter.XYs{}
	xs := map[int]bool{}
	for i := range r.Scenarios {
		s := &r.Scenarios[i]
		x, fits := at(s)
		if !fits || s.Name != "s1" && s.Family != "s1" {
			continue
		}
		xs[x] = true
		for _, name := range s.Contestants() {
			lines[name] = append(lines[name], plotter.XY{X: float64(x), Y: r.Summary(s.Name, name).Values[CPU].Median})
		}
	}
	if len(xs) < 2 {
		return nil
	}
	p := newPlot("CPU of the proxy by number of "+what+" (GET, 64-byte answers)", "µs for each request")
	p.X.Label.Text = what
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	for k, c := range r.Contestants {
		points := lines[c.Name]
		if len(points) == 0 {
			continue
		}
		slices.SortFunc(points, func(a, b plotter.XY) int { return int(a.X - b.X) })
		if err := addLine(p, k, c.Name, points); err != nil {
			return err
		}
	}
	fromZero(p)
	return p.Save(width, height, path)
}

// fromZero begins the axis at 0 and leaves room for the legend.
func fromZero(p *plot.Plot) { p.Y.Min, p.Y.Max = 0, p.Y.Max*1.25 }

func addLine(p *plot.Plot, k int, name string, points plotter.XYs) error {
	line, marks, err := plotter.NewLinePoints(points)
	if err != nil {
		return err
	}
	line.Color, marks.Color, marks.Shape = plotutil.Color(k), plotutil.Color(k), plotutil.Shape(k)
	p.Add(line, marks)
	p.Legend.Add(name, line, marks)
	return nil
}
