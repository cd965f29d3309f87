//go:build linux

// Command churn measures how soon the router knows what changed: the time from a write to a real API server to the
// first answer from the pod that was written, while sandboxes come, change and go at a fixed rate.
//
// The EndpointSlices are written by the command itself, as Kubernetes writes those of Services, so no controller is
// needed. Requests for a sandbox that was just created are held by the router until it knows the sandbox; a sandbox
// whose pod was replaced is asked again and again until the new pod answers. Both times hold one request through
// the router.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/dovakiin0/agent-sandbox/bench/proc"
	"github.com/dovakiin0/agent-sandbox/test/stack"
)

func main() {
	log.SetLogger(logr.Discard()) // of the client that installs the CRDs
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "churn:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	fs := flag.NewFlagSet("churn", flag.ContinueOnError)
	sandboxes := fs.Int("sandboxes", 5000, "sandboxes that exist all the time")
	rate := fs.Int("rate", 200, "changes per second")
	duration := fs.Duration("duration", 30*time.Second, "how long to measure")
	if err := fs.Parse(os.Args[1:]); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "churn-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s, err := stack.Start(ctx, stack.Options{Dir: dir, Progress: os.Stderr})
	if err != nil {
		return err
	}
	defer s.Stop()
	pods, err := servePods()
	if err != nil {
		return err
	}
	defer pods.close()
	fleet, err := newFleet(s.Config)
	if err != nil {
		return err
	}
	if err := fleet.fill(ctx, *sandboxes, pods.addresses[0]); err != nil {
		return err
	}
	router, err := s.StartRouter(ctx, "--unknown-wait=10s")
	if err != nil {
		return err
	}
	c := &churn{fleet: fleet, pods: pods.addresses[1:], router: router.HTTP, size: *sandboxes}
	before, err := proc.UsageOf([]int{router.PID()})
	if err != nil {
		return err
	}
	if err := c.run(ctx, *rate, *duration); err != nil {
		return err
	}
	after, err := proc.UsageOf([]int{router.PID()})
	if err != nil {
		return err
	}
	m := proc.ThisMachine()
	fmt.Printf("%s, %d cores, %s, all parts on them\n", m.CPU, m.Cores, m.Go)
	fmt.Printf("%d sandboxes, %d changes/s asked for, %.0f done, for %s\n\n", *sandboxes, *rate, c.done(*duration), *duration)
	c.report()
	fmt.Printf("\nCPU of the router for each change: %.0f µs, requests of this measurement included\n",
		after.Sub(before).CPU.Seconds()*1e6/float64(c.changes()))
	return nil
}
