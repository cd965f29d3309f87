//go:build linux

package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dovakiin0/agent-sandbox/bench/fleet"
	"github.com/dovakiin0/agent-sandbox/bench/load"
	"github.com/dovakiin0/agent-sandbox/bench/peers"
	"github.com/dovakiin0/agent-sandbox/bench/report"
)

// beside is what happens to a proxy beside its load. It is called when the measured time begins, and ends soon after ctx,
// which ends with the measured time.
type beside func(ctx context.Context, p *peers.Process) (map[report.Metric]float64, error)

// slowClients are on bad lines: it takes each of them seconds to send a request and to read the answer.
func slowClients(ctx context.Context, p *peers.Process) (map[report.Metric]float64, error) {
	s := load.Slow{
		Proxy: p.Addr(), Clients: 200, Pace: 20 * time.Millisecond,
		Requests: request{path: "/fixed/65536"}.build(p.Sandboxes, p.Backend, p.RequestFields, first),
	}
	r := s.Run(ctx)
	return map[report.Metric]float64{report.SlowDone: float64(r.Answered), report.SlowFailed: float64(r.Failed)}, nil
}

// Of moveSandboxes.
const (
	moveEvery = 100 * time.Millisecond
	moved     = 20 // sandboxes at a time
)

// moveSandboxes gives some sandboxes other pods, again and again, by rewriting the routes file. When the load has ended,
// every sandbox must be answered by its last pod.
func moveSandboxes(ctx context.Context, p *peers.Process) (map[report.Metric]float64, error) {
	generations := make([]int, p.Sandboxes)
	pod := func(i int) int { return generations[i] }
	updates, next := 0, 0
	tick := time.NewTicker(moveEvery)
	defer tick.Stop()
	for ; ctx.Err() == nil; updates++ {
		for range moved {
			generations[next]++
			next = (next + 1) % p.Sandboxes
		}
		if err := fleet.WriteFile(p.Routes(), fleet.Routes(p.Sandboxes, pod)); err != nil {
			return nil, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	stale, err := staleRoutes(p, generations)
	return map[report.Metric]float64{report.Updates: float64(updates), report.Stale: float64(stale)}, err
}

// newsTimeout is how long the last version of the routes file may take to be followed.
const newsTimeout = 10 * time.Second

// staleRoutes counts the sandboxes that are not answered by their pod although the routes file has been followed, which
// the sandbox that moved last shows.
func staleRoutes(p *peers.Process, generations []int) (stale int64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), newsTimeout)
	defer cancel()
	pod := func(i int) int { return generations[i] }
	requests := small.build(p.Sandboxes, p.Backend, p.RequestFields, pod)
	last := 0
	for i, g := range generations {
		if g >= generations[last] {
			last = i
		}
	}
	for {
		r, err := load.Run(ctx, load.Plan{Proxy: p.Addr(), Requests: requests[last : last+1], Connections: 1, Count: 1, Timeout: time.Second})
		switch {
		case ctx.Err() != nil:
			return 0, errors.New("the last routes file was not followed in time")
		case err != nil:
			return 0, err
		case r.Failed() == 0:
			r, err = load.Run(ctx, load.Plan{Proxy: p.Addr(), Requests: requests, Connections: 8, Count: len(requests), Timeout: time.Second})
			if err != nil {
				return 0, err
			}
			return r.Failed(), ctx.Err()
		}
	}
}

// drainAfter is how long the load flows before the proxy is told to end.
const drainAfter = 200 * time.Millisecond

// drainTimeout is how long the proxy may take to end.
const drainTimeout = 40 * time.Second

// drain tells the proxy to end and waits until it has.
func drain(ctx context.Context, p *peers.Process) (map[report.Metric]float64, error) {
	select {
	case <-time.After(drainAfter):
	case <-ctx.Done():
	}
	begin := time.Now()
	if err := p.DrainNow(); err != nil {
		return nil, err
	}
	select {
	case <-p.Exited():
		return map[report.Metric]float64{report.Drained: float64(time.Since(begin)) / float64(time.Millisecond)}, nil
	case <-time.After(drainTimeout):
		return nil, fmt.Errorf("it had not ended %s after it was told to", drainTimeout)
	}
}
