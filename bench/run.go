//go:build linux

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/dovakiin0/agent-sandbox/bench/peers"
	"github.com/dovakiin0/agent-sandbox/bench/report"
	"github.com/dovakiin0/agent-sandbox/bench/scenario"
)

// What is run unless flags say otherwise.
const (
	quick      = "s1,s2,rate,s3,s4,s5,s6,churn,drain"
	contenders = "ours,haproxy,nginx,fasthttp"
)

// settings are the flags of bench run.
type settings struct {
	scenarios, contestants, router, out string
	checked                             string
	peers                               stringList
	rounds                              int
	budget, duration, warmup            time.Duration
	proxyCore, loadCore, backendCore    int
}

// stringList is a flag that may be given more than once.
type stringList []string

func (l *stringList) String() string     { return strings.Join(*l, ", ") }
func (l *stringList) Set(s string) error { *l = append(*l, s); return nil }

func run(ctx context.Context, args []string) error {
	var s settings
	fs := flag.NewFlagSet("bench run", flag.ContinueOnError)
	fs.StringVar(&s.scenarios, "scenarios", quick, "names of scenarios, or all; bench list shows them")
	fs.StringVar(&s.contestants, "contestants", contenders, "names of contestants, or all; bench list shows them")
	fs.Var(&s.peers, "peer", "one more contestant as name=command, with {http} for its port and {routes} for its routes file; may be repeated")
	fs.StringVar(&s.router, "router", "bin/router", "the router's binary")
	fs.StringVar(&s.checked, "checked", "", "measure only what the bounds of this file are about, and the contestants of --peer")
	fs.StringVar(&s.out, "out", "bin/bench", "folder for the report, its tables and its plots")
	fs.IntVar(&s.rounds, "rounds", 9, "rounds; each runs every contestant at every scenario once")
	fs.DurationVar(&s.budget, "budget", 0, "no further round begins if it would not end within this time; 0: no limit")
	fs.DurationVar(&s.duration, "duration", time.Second, "measured time of a run")
	fs.DurationVar(&s.warmup, "warmup", 300*time.Millisecond, "least time before it")
	fs.IntVar(&s.proxyCore, "proxy-core", 0, "core of the proxy")
	fs.IntVar(&s.loadCore, "load-core", 1%runtime.NumCPU(), "core of the load generator")
	fs.IntVar(&s.backendCore, "backend-core", 1%runtime.NumCPU(), "core of the backend")
	if err := fs.Parse(args); err != nil {
		return err
	}
	session, err := newSession(&s)
	if err != nil {
		return err
	}
	failed := session.run(ctx)
	session.report.Summarize()
	session.report.WriteTable(os.Stdout)
	return errors.Join(failed, writeAll(session.report, s.out), ctx.Err())
}

// writeAll writes the report in all its forms.
func writeAll(r *report.Report, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	md, err := os.Create(filepath.Join(dir, "report.md"))
	if err != nil {
		return err
	}
	r.WriteMarkdown(md)
	return errors.Join(md.Close(), r.Write(filepath.Join(dir, "report.json")), r.WritePlots(dir))
}

// list shows what there is to choose from.
func list(context.Context, []string) error {
	fmt.Println("scenarios:")
	for _, s := range scenario.All() {
		fmt.Printf("  %-16s %s\n", s.Name, s.Title)
	}
	fmt.Println("contestants:")
	all, err := peers.All("bin/router")
	for i := range all {
		why := all[i].Missing()
		if why != "" {
			why = " (" + why + ")"
		}
		fmt.Printf("  %s%s\n", all[i].Name, why)
	}
	return err
}
