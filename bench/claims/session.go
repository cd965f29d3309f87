//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/dovakiin0/agent-sandbox/bench/proc"
)

// session is one call of the command.
type session struct {
	*settings
	dir      string // of the data and logs of all runs
	progress io.Writer
	report   *Report
	trials   int
}

// run runs all scenarios in each round. What fails is left out of the report.
func (x *session) run(ctx context.Context) (failed error) {
	for round := range x.rounds {
		for i := range x.scenarios {
			sc := &x.scenarios[i]
			var err error
			if sc.arrives {
				err = x.search(ctx, sc, round)
			} else {
				_, err = x.trial(ctx, sc, round, 0)
			}
			if ctx.Err() != nil {
				return errors.Join(failed, ctx.Err())
			}
			failed = errors.Join(failed, err)
		}
	}
	return failed
}

// search finds the highest rate that the scenario sustains.
func (x *session) search(ctx context.Context, sc *scenario, round int) error {
	highest, err := search(x.rates, func(rate float64) (bool, error) {
		r, err := x.trial(ctx, sc, round, rate)
		return err == nil && r.Values[ReadyP99] < sustained, err
	})
	if err == nil {
		x.report.Sustained = append(x.report.Sustained, highest)
		fmt.Fprintf(x.progress, "%s: %g/s sustained\n", sc.name, highest)
	}
	return err
}

// trial runs a scenario once, on a control plane of its own.
func (x *session) trial(ctx context.Context, sc *scenario, round int, rate float64) (r *Run, err error) {
	x.trials++
	r = newRun(sc, round, rate)
	title := r.Title()
	fmt.Fprintf(x.progress, "%s, round %d: ", title, round+1)
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: %w", title, err)
			fmt.Fprintln(x.progress, "failed")
		}
	}()
	dir := filepath.Join(x.dir, fmt.Sprintf("%02d-%s", x.trials, sc.name))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if x.logs == "" {
		defer os.RemoveAll(dir)
	}
	before, err := proc.Calibrate(0)
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	if err := inWorld(ctx, x.settings, dir, func(ctx context.Context, w *world) error {
		if err := w.prepare(ctx, sc); err != nil {
			return err
		}
		return sc.run(ctx, w, r)
	}); err != nil {
		return nil, err
	}
	after, err := proc.Calibrate(0)
	if err != nil {
		return nil, err
	}
	r.Values[Calibration] = float64((before + after).Nanoseconds()) / 2
	r.finish()
	x.report.Runs = append(x.report.Runs, r)
	fmt.Fprintf(x.progress, "%s (%s)\n", r.brief(), time.Since(begin).Round(time.Second))
	return r, nil
}

// search returns the highest rate that is good. It tries those of the list in turn until one is not, and then halves what
// is left between until that is 1 or less. 0: no rate is good.
func search(rates []float64, good func(float64) (bool, error)) (highest float64, err error) {
	bad := 0.0
	for _, rate := range rates {
		if ok, err := good(rate); err != nil {
			return 0, err
		} else if !ok {
			bad = rate
			break
		}
		highest = rate
	}
	for bad-highest > 1 {
		middle := math.Floor((highest + bad) / 2)
		if middle <= highest {
			break
		}
		if ok, err := good(middle); err != nil {
			return 0, err
		} else if ok {
			highest = middle
		} else {
			bad = middle
		}
	}
	return highest, nil
}
