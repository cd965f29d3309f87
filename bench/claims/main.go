//go:build linux

// Command claims measures how fast claims are served: by our controller and router as they ship, or by any other
// controller of the same API, on a real API server with nodes that this machine plays.
//
//	go run ./bench/claims
//	go run ./bench/claims --scenarios=burst,fill --rounds=3
//	go run ./bench/claims --crds=their/crds --router= \
//	    --controller='their/controller --extensions --leader-elect=false --health-probe-bind-address={health}'
//
// Each run has a control plane of its own. bench/README.md tells what is measured and how.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

func main() {
	log.SetLogger(logr.Discard()) // of the client that installs the CRDs
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "claims:", err)
		os.Exit(1)
	}
}

// ours stands for the program of this repository.
const ours = "ours"

// settings are the flags.
type settings struct {
	scenarios          []scenario
	rounds             int
	rates              rateList
	arrivals, window   time.Duration
	scale              float64
	controller, router string
	crds               string
	out, logs          string
}

func parse(args []string, output io.Writer) (*settings, error) {
	s := &settings{rates: rateList{5, 10, 15, 20, 30, 40, 60}}
	fs := flag.NewFlagSet("claims", flag.ContinueOnError)
	fs.SetOutput(output)
	var all, help []string
	for i := range scenarios {
		all = append(all, scenarios[i].name)
		help = append(help, fmt.Sprintf("%-8s %s", scenarios[i].name, scenarios[i].title))
	}
	names := fs.String("scenarios", strings.Join(all, ","), "what to measure, as a list of\n"+strings.Join(help, "\n")+"\n")
	fs.IntVar(&s.rounds, "rounds", 1, "how often; tables show medians")
	fs.Var(&s.rates, "rates", "arrivals a second that poisson tries, ascending, before it tries some between")
	fs.DurationVar(&s.arrivals, "arrivals", 20*time.Second, "how long claims arrive in each run of poisson")
	fs.DurationVar(&s.window, "window", 30*time.Second, "how long idle looks at sandboxes at rest")
	fs.Float64Var(&s.scale, "scale", 1, "size of all scenarios; only the figures of size 1 compare with those of others")
	fs.StringVar(&s.controller, "controller", ours, "the command of another controller; {metrics} and {health} stand for addresses, {kubeconfig} for what KUBECONFIG holds too")
	fs.StringVar(&s.router, "router", ours, "the command of another router, with {http} for its address; empty for none")
	fs.StringVar(&s.crds, "crds", "", "folder of the CRDs; those of the chart when empty")
	fs.StringVar(&s.out, "out", "bin/bench/claims.json", "file for the report")
	fs.StringVar(&s.logs, "logs", "", "folder that keeps the logs of all parts, the audit log among them")
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	for name := range strings.SplitSeq(*names, ",") {
		i := slices.IndexFunc(scenarios, func(sc scenario) bool { return sc.name == name })
		if i < 0 {
			return nil, fmt.Errorf("--scenarios: unknown: %s", name)
		}
		s.scenarios = append(s.scenarios, scenarios[i])
	}
	switch {
	case fs.NArg() > 0:
		return nil, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	case s.rounds < 1:
		return nil, errors.New("--rounds must be at least 1")
	case s.scale <= 0:
		return nil, errors.New("--scale must be positive")
	case s.controller == "":
		return nil, errors.New("--controller must not be empty")
	}
	return s, nil
}

// size is a number of the issue, scaled.
func (s *settings) size(n int) int { return max(1, int(float64(n)*s.scale)) }

// rateList is a flag of numbers.
type rateList []float64

func (l *rateList) String() string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(*l), " ", ","), "[]")
}

func (l *rateList) Set(text string) error {
	*l = nil
	for field := range strings.SplitSeq(text, ",") {
		rate, err := strconv.ParseFloat(field, 64)
		if err != nil || rate <= 0 || len(*l) > 0 && rate <= (*l)[len(*l)-1] {
			return fmt.Errorf("%q is no ascending list of rates", text)
		}
		*l = append(*l, rate)
	}
	return nil
}

func run(ctx context.Context, args []string, table, progress io.Writer) error {
	s, err := parse(args, progress)
	if err != nil {
		return err
	}
	dir := s.logs
	if dir == "" {
		if dir, err = os.MkdirTemp("", "claims-"); err != nil {
			return err
		}
		defer os.RemoveAll(dir)
	}
	x := &session{settings: s, dir: dir, progress: progress, report: newReport(s)}
	failed := x.run(ctx)
	x.report.writeTable(table)
	if err := os.MkdirAll(filepath.Dir(s.out), 0o755); err != nil {
		return errors.Join(failed, err)
	}
	return errors.Join(failed, x.report.write(s.out))
}
