//go:build linux

// Command table measures the route table: lookups, updates and memory by the benchmarks of its packages, and with the
// router as it ships how long it takes from its start until it is ready, and how much memory it has then.
//
// The EndpointSlices come from a server that only knows how to list and watch, so the time is the router's and not
// that of etcd.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/dovakiin0/agent-sandbox/bench/proc"
	"github.com/dovakiin0/agent-sandbox/test/stack"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "table:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	fs := flag.NewFlagSet("table", flag.ContinueOnError)
	sandboxes := fs.String("sandboxes", "1000,10000,100000", "how many sandboxes to start the router with, as a list")
	rounds := fs.Int("rounds", 1, "how often; the medians are reported")
	lookups := fs.Bool("lookups", true, "run the benchmarks of the packages too")
	if err := fs.Parse(os.Args[1:]); err != nil {
		return err
	}
	root, err := stack.Root()
	if err != nil {
		return err
	}
	router, err := stack.Build(ctx, root, stack.Router, false, os.Stderr)
	if err != nil {
		return err
	}
	m := proc.ThisMachine()
	fmt.Printf("%s, %d cores, %s\n\n", m.CPU, m.Cores, m.Go)
	if *lookups {
		if err := benchmarks(ctx, root); err != nil {
			return err
		}
	}
	fmt.Println("| sandboxes | ready after | CPU until then | RSS at ready | RSS later | per sandbox later |")
	fmt.Println("|---|---|---|---|---|---|")
	sizes := []int{0}
	for field := range strings.SplitSeq(*sandboxes, ",") {
		n, err := strconv.Atoi(field)
		if err != nil {
			return fmt.Errorf("--sandboxes: %w", err)
		}
		sizes = append(sizes, n)
	}
	var empty int64
	for _, n := range sizes {
		s, err := median(ctx, router, n, *rounds)
		if err != nil {
			return err
		}
		perSandbox := "-"
		if n == 0 {
			empty = s.later
		} else {
			perSandbox = fmt.Sprintf("%d B", (s.later-empty)/int64(n))
		}
		fmt.Printf("| %d | %s | %s | %d MB | %d MB | %s |\n", n, s.ready.Round(time.Millisecond), s.cpu.Round(time.Millisecond),
			s.atReady>>20, s.later>>20, perSandbox)
	}
	return nil
}

// benchmarks runs those of the two packages.
func benchmarks(ctx context.Context, root string) error {
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", ".", "./router/route", "./router/watch")
	cmd.Dir, cmd.Stdout, cmd.Stderr = root, os.Stdout, os.Stderr
	return cmd.Run()
}

func median(ctx context.Context, router string, n, rounds int) (start, error) {
	var all []start
	for range rounds {
		s, err := measure(ctx, router, n)
		if err != nil {
			return s, err
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b start) int { return int(a.ready - b.ready) })
	return all[len(all)/2], nil
}
