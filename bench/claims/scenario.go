//go:build linux

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/dovakiin0/agent-sandbox/bench/proc"
)

// scenario is a kind of work. Sizes are those of the measurements that its figures compare with.
type scenario struct {
	name, title, unit string
	pool              int  // members of the pool before the work begins
	runtime           bool // sandboxes are processes of the runtime, else stand-ins
	arrives           bool // at a rate, which is searched for
	run               func(context.Context, *world, *Run) error
}

var scenarios = []scenario{
	{name: "singles", title: "40 claims, one at a time, of a pool of 10 runtimes; the first answer is that of /execute", unit: claimUnit, pool: 10, runtime: true, run: singles},
	{name: "burst", title: "100 claims by 20 workers, pool of 200", unit: claimUnit, pool: 200, run: burst(100)},
	{name: "poisson", title: "claims arrive at random, pool of 200", unit: claimUnit, pool: 200, arrives: true, run: poisson},
	{name: "cold", title: "50 claims by 20 workers, empty pool", unit: claimUnit, run: burst(50)},
	{name: "fill", title: "a pool grows from 0 to 500", unit: sandboxUnit, run: fill},
	{name: "idle", title: "2,000 sandboxes at rest", unit: sandboxUnit, pool: 2000, run: idle},
}

const (
	claimUnit   = "claim"
	sandboxUnit = "sandbox"

	sustained = 500 // ms: more at p99 is no rate that is sustained
	workers   = 20
)

// measure does some work, waits until everything that it set off is done, and adds to the run what it took.
func (w *world) measure(ctx context.Context, r *Run, work func() error) error {
	w.audit.take()
	before, err := w.usage()
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := work(); err != nil {
		return err
	}
	end, err := w.settle(ctx)
	if err != nil {
		return err
	}
	r.cpu.add(before, w.clock)
	r.events = append(r.events, w.audit.take()...)
	r.settled += end.Sub(begin)
	return nil
}

func singles(ctx context.Context, w *world, r *Run) error {
	one := func(name string) (*claim, error) {
		c, err := w.create(ctx, name, time.Now(), true)
		if err != nil {
			return nil, err
		}
		return c, w.wait(ctx, c)
	}
	for i := range 2 { // they make the connections
		if _, err := one(fmt.Sprint("first-", i)); err != nil {
			return err
		}
		if _, err := w.settle(ctx); err != nil {
			return err
		}
	}
	for i := range w.settings.size(40) {
		if err := w.measure(ctx, r, func() error {
			c, err := one(fmt.Sprint("claim-", i))
			r.claims = append(r.claims, c)
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// burst has workers create n claims as fast as they can. They do not wait for the claims to be Ready.
func burst(n int) func(context.Context, *world, *Run) error {
	return func(ctx context.Context, w *world, r *Run) error {
		r.burst = true
		r.claims = make([]*claim, w.settings.size(n))
		return w.measure(ctx, r, func() error {
			var all sync.WaitGroup
			for worker := range workers {
				all.Go(func() {
					for i := worker; i < len(r.claims) && ctx.Err() == nil; i += workers {
						w.createInto(ctx, r, i, time.Now())
					}
				})
			}
			all.Wait()
			return w.wait(ctx, r.claims...)
		})
	}
}

// poisson has claims arrive independently of each other, and of how long earlier ones take.
func poisson(ctx context.Context, w *world, r *Run) error {
	due := arrivals(r.Rate, w.settings.arrivals)
	r.claims = make([]*claim, len(due))
	return w.measure(ctx, r, func() error {
		var all sync.WaitGroup
		begin := time.Now()
		for i := range due {
			time.Sleep(time.Until(begin.Add(due[i])))
			if ctx.Err() != nil {
				break
			}
			all.Go(func() { w.createInto(ctx, r, i, begin.Add(due[i])) })
		}
		all.Wait()
		return w.wait(ctx, r.claims...)
	})
}

// createInto creates claim i of a run. If that fails, the whole run does.
func (w *world) createInto(ctx context.Context, r *Run, i int, due time.Time) {
	var err error
	if r.claims[i], err = w.create(ctx, fmt.Sprint("claim-", i), due, false); err != nil {
		w.fail(err)
	}
}

// arrivals returns when events of a Poisson process happen; for equal arguments, the same each time.
func arrivals(rate float64, duration time.Duration) (all []time.Duration) {
	random := rand.New(rand.NewPCG(1, 1))
	for at := time.Duration(0); ; {
		at += time.Duration(random.ExpFloat64() / rate * float64(time.Second))
		if at > duration {
			return all
		}
		all = append(all, at)
	}
}

func fill(ctx context.Context, w *world, r *Run) error {
	n := w.settings.size(500)
	r.sandboxes = n
	return w.measure(ctx, r, func() error {
		begin := time.Now()
		if err := w.resize(ctx, n); err != nil {
			return err
		}
		err := w.eventually(ctx, "the pool to be full", func() (bool, error) { return w.ready.Load() == w.want, nil })
		r.Values[Filled] = time.Since(begin).Seconds()
		return err
	})
}

func idle(ctx context.Context, w *world, r *Run) error {
	r.sandboxes = w.settings.size(2000)
	before, err := w.usage()
	if err != nil {
		return err
	}
	w.audit.take()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(w.settings.window):
	}
	after, err := w.usage()
	if err != nil {
		return err
	}
	if _, err := w.audit.read(); err != nil {
		return err
	}
	var used cpu
	used.add(before, after)
	r.Values[ControllerIdle] = ms(used.controller) / w.settings.window.Seconds()
	r.Values[APIServerIdle] = ms(used.apiServer) / w.settings.window.Seconds()
	r.Values[IdleRequests] = float64(len(w.audit.take())) / w.settings.window.Minutes()
	r.Values[EmptyRSS] = float64(w.emptyRSS)
	r.Values[ControllerRSS] = float64(proc.Resident(proc.Group(w.controller.PID())))
	return nil
}
