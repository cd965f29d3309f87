//go:build linux

package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/dovakiin0/agent-sandbox/bench/check"
	"github.com/dovakiin0/agent-sandbox/bench/report"
	"github.com/dovakiin0/agent-sandbox/bench/size"
)

const (
	defaultReport = "bin/bench/report.json"
	defaultRanges = "bench/ranges/quick.yaml"
)

// checkReport fails when a bound is broken.
func checkReport(_ context.Context, args []string) error {
	fs := flag.NewFlagSet("bench check", flag.ContinueOnError)
	path := fs.String("report", defaultReport, "the report to check")
	ranges := fs.String("ranges", defaultRanges, "what it is checked against")
	if err := fs.Parse(args); err != nil {
		return err
	}
	rep, err := report.Read(*path)
	if err != nil {
		return err
	}
	r, err := check.Read(*ranges)
	if err != nil {
		return err
	}
	findings, ok := r.Check(rep)
	for _, f := range findings {
		fmt.Println(f)
	}
	if !ok {
		return fmt.Errorf("%s does not keep to %s", *path, *ranges)
	}
	return nil
}

// bound renews a file of ranges from reports.
func bound(_ context.Context, args []string) error {
	fs := flag.NewFlagSet("bench bound", flag.ContinueOnError)
	ranges := fs.String("ranges", defaultRanges, "the file to renew")
	fs.Usage = func() {
		fmt.Fprintln(fs.Output(), "usage: bench bound [--ranges FILE] REPORT...")
		fs.PrintDefaults()
	}
	if err := fs.Parse(args); err != nil {
		return err
	}
	r, err := check.Read(*ranges)
	if err != nil {
		return err
	}
	var reports []*report.Report
	for _, path := range fs.Args() {
		rep, err := report.Read(path)
		if err != nil {
			return err
		}
		reports = append(reports, rep)
	}
	if err := r.Renew(reports); err != nil {
		return err
	}
	return r.Write(*ranges)
}

// sizing answers how many replicas a load needs.
func sizing(_ context.Context, args []string) error {
	fs := flag.NewFlagSet("bench size", flag.ContinueOnError)
	var l size.Load
	var limits size.Limits
	fs.Float64Var(&l.Requests, "rps", 1000, "requests per second, of all replicas together")
	fs.Float64Var(&l.Messages, "messages", 0, "WebSocket messages per second, an echo counted once")
	fs.IntVar(&l.Connections, "connections", 0, "open client connections")
	fs.IntVar(&l.Tunnels, "tunnels", 0, "open WebSockets")
	fs.Float64Var(&limits.Cores, "cpu", 1, "cores of a replica")
	fs.Float64Var(&limits.Utilization, "utilization", 0.6, "share of its cores that a replica may use")
	fs.IntVar(&limits.Spare, "spare", 1, "replicas that may be missing")
	path := fs.String("report", defaultReport, "the report with the costs")
	if err := fs.Parse(args); err != nil {
		return err
	}
	rep, err := report.Read(*path)
	if err != nil {
		return err
	}
	cost, err := size.CostOf(rep, "ours")
	if err != nil {
		return err
	}
	plan, err := cost.For(l, limits)
	if err != nil {
		return err
	}
	plan.Write(os.Stdout, cost, l, limits, rep)
	return nil
}
