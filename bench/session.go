//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/dovakiin0/agent-sandbox/bench/check"
	"github.com/dovakiin0/agent-sandbox/bench/peers"
	"github.com/dovakiin0/agent-sandbox/bench/proc"
	"github.com/dovakiin0/agent-sandbox/bench/report"
	"github.com/dovakiin0/agent-sandbox/bench/scenario"
)

// session is one call of bench run.
type session struct {
	*settings
	scenarios   []scenario.Scenario
	contestants []peers.Contestant
	ranges      *check.Ranges // nil: measure everything
	report      *report.Report
	out         map[[2]string]bool // scenario and contestant that failed at it
	runs, done  int
}

func newSession(s *settings) (*session, error) {
	all, err := contestants(s)
	if err != nil {
		return nil, err
	}
	commit, modified := proc.Commit()
	x := &session{settings: s, out: map[[2]string]bool{}, report: &report.Report{
		Schema: report.Schema, Date: time.Now().UTC(), Commit: commit, Modified: modified, Machine: proc.ThisMachine(),
		Settings: report.Settings{
			Duration: s.duration.Seconds(), Warmup: s.warmup.Seconds(),
			ProxyCore: s.proxyCore, LoadCore: s.loadCore, BackendCore: s.backendCore,
		},
	}}
	if s.checked != "" {
		if x.ranges, err = check.Read(s.checked); err != nil {
			return nil, err
		}
	}
	names := strings.Split(s.scenarios, ",")
	if s.scenarios == "all" {
		names = nil
		for _, sc := range scenario.All() {
			names = append(names, sc.Name)
		}
	}
	var unknown []string
	if x.scenarios, unknown = scenario.Find(names); len(unknown) > 0 {
		return nil, fmt.Errorf("--scenarios: unknown: %s", strings.Join(unknown, ", "))
	}
	for i := range all {
		c := &all[i]
		if why := c.Missing(); why != "" {
			if c.Own {
				return nil, fmt.Errorf("%s: %s; build it with: go build -o %s ./router", c.Name, why, s.router)
			}
			x.report.Skipped = append(x.report.Skipped, fmt.Sprintf("%s: %s (make bench-peers installs nginx and haproxy)", c.Name, why))
			fmt.Fprintln(os.Stderr, "skipped:", x.report.Skipped[len(x.report.Skipped)-1])
			continue
		}
		x.contestants = append(x.contestants, *c)
		x.report.Contestants = append(x.report.Contestants, report.Contestant{Name: c.Name, Version: c.Version(), Command: c.Describe()})
	}
	for i := range x.scenarios {
		x.runs += len(x.taking(&x.scenarios[i])) * s.rounds
	}
	return x, nil
}

// contestants returns those that were asked for.
func contestants(s *settings) ([]peers.Contestant, error) {
	known, err := peers.All(s.router)
	if err != nil {
		return nil, err
	}
	var chosen []peers.Contestant
	if s.contestants == "all" {
		chosen = known
	} else {
		for name := range strings.SplitSeq(s.contestants, ",") {
			i := slices.IndexFunc(known, func(c peers.Contestant) bool { return c.Name == name })
			if i < 0 {
				return nil, fmt.Errorf("--contestants: unknown: %s", name)
			}
			chosen = append(chosen, known[i])
		}
	}
	for _, p := range s.peers {
		c, err := peers.Parse(p)
		if err != nil {
			return nil, fmt.Errorf("--peer: %w", err)
		}
		chosen = append(chosen, c)
	}
	return chosen, nil
}

// taking are the contestants that take part in a scenario.
func (x *session) taking(s *scenario.Scenario) (all []*peers.Contestant) {
	for i := range x.contestants {
		if c := &x.contestants[i]; x.takes(s, c) {
			all = append(all, c)
		}
	}
	return all
}

func (x *session) takes(s *scenario.Scenario, c *peers.Contestant) bool {
	able := (!s.Follows || c.Follows) && (!s.Ends || c.Drain != 0)
	shown := !c.Extra || s.Options || x.settings.contestants != "all"
	return able && shown && (x.ranges == nil || c.Peer || x.ranges.Concerns(s.Name, c.Name))
}

// run runs rounds. The rounds of a scenario are spread over the session, so that no phase of the machine hits all of them.
func (x *session) run(ctx context.Context) (failed error) {
	files, err := proc.RaiseFiles()
	if err != nil {
		return err
	}
	if err := proc.Stay(x.loadCore); err != nil {
		return err
	}
	back, err := peers.StartBackend(x.backendCore)
	if err != nil {
		return err
	}
	defer back.Stop()
	b := &scenario.Bench{
		Backend: back.Port, BackendPid: back.Pid, ProxyCore: x.proxyCore, SharedCore: x.loadCore == x.backendCore,
		Files: int(files), Duration: x.duration, Warmup: x.warmup,
		Cores: slices.Compact(slices.Sorted(slices.Values([]int{x.proxyCore, x.loadCore, x.backendCore}))),
	}
	for i := range x.scenarios {
		x.report.Scenarios = append(x.report.Scenarios, x.scenarios[i].Describe())
	}
	begin := time.Now()
	var longest time.Duration
	for round := range x.rounds {
		if x.budget > 0 && round > 0 && time.Since(begin)+longest > x.budget {
			fmt.Fprintf(os.Stderr, "the budget of %s allows for %d rounds\n", x.budget, round)
			break
		}
		start := time.Now()
		failed = errors.Join(failed, x.round(ctx, b, round))
		if ctx.Err() != nil {
			break
		}
		longest = max(longest, time.Since(start))
		x.report.Settings.Rounds = round + 1
	}
	return failed
}

// round runs every contestant at every scenario. One that fails is left out of later rounds of the scenario; that the
// router fails is an error.
func (x *session) round(ctx context.Context, b *scenario.Bench, round int) (failed error) {
	for i := range x.scenarios {
		s := &x.scenarios[i]
		for _, c := range rotated(x.taking(s), round) {
			run := [2]string{s.Name, c.Name}
			if ctx.Err() != nil || x.out[run] {
				continue
			}
			sample, err := b.Run(ctx, s, c, round)
			x.progress(s, &sample, err)
			switch {
			case err == nil:
				x.report.Scenarios[i].Samples = append(x.report.Scenarios[i].Samples, sample)
			case ctx.Err() == nil:
				x.out[run] = true
				x.report.Skipped = append(x.report.Skipped, fmt.Sprintf("%s at %s: %v", c.Name, s.Name, err))
				if c.Own {
					failed = errors.Join(failed, err)
				}
			}
		}
	}
	return failed
}

// rotated begins with another contestant in each round, and turns every second round around, so that none always runs
// after the same one.
func rotated(all []*peers.Contestant, round int) []*peers.Contestant {
	n := len(all)
	if n == 0 {
		return nil
	}
	k := round % n
	order := slices.Concat(all[k:], all[:k])
	if round%2 == 1 {
		slices.Reverse(order)
	}
	return order
}

func (x *session) progress(s *scenario.Scenario, sample *report.Sample, err error) {
	x.done++
	line := fmt.Sprintf("[%d/%d] %s %s, round %d: ", x.done, x.runs, s.Name, sample.Contestant, sample.Round+1)
	switch {
	case err != nil:
		line += err.Error()
	default:
		var parts []string
		for _, m := range s.Shows[:min(4, len(s.Shows))] {
			if v, ok := sample.Values[m]; ok {
				parts = append(parts, m.Title()+" "+m.Format(v))
			}
		}
		line += strings.Join(parts, ", ")
		if sample.Values[report.Errors] > 0 {
			line += fmt.Sprintf(", errors %v", sample.Errors)
		}
		if sample.Limited != "" {
			line += "; " + sample.Limited
		}
	}
	fmt.Fprintln(os.Stderr, line)
}
