//go:build linux

// Command bench measures the router beside other proxies.
//
//	bench run      puts scenarios on contestants and writes a report
//	bench check    compares a report with a file of ranges
//	bench bound    computes the ranges of a file anew from reports
//	bench size     computes replicas and limits from a report
//	bench list     shows the scenarios and the contestants
//
// bench -h and bench COMMAND -h say more. README.md tells how it measures.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/dovakiin0/agent-sandbox/bench/backend"
	"github.com/dovakiin0/agent-sandbox/bench/peers"
	"github.com/dovakiin0/agent-sandbox/bench/proc"
)

// commands are what the first argument may be. backend, proxy and awake are for the processes that run starts.
var commands = map[string]func(ctx context.Context, args []string) error{
	"run": run, "check": checkReport, "bound": bound, "size": sizing, "list": list, "backend": serveBackend, "proxy": serveProxy, "awake": stayAwake,
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	name := "-h"
	if len(os.Args) > 1 {
		name = os.Args[1]
	}
	command := commands[name]
	if command == nil {
		fmt.Fprintln(os.Stderr, "usage: bench run|check|bound|size|list [flags]; bench COMMAND -h shows the flags")
		os.Exit(2)
	}
	if err := command(ctx, os.Args[2:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// serveBackend says its port in one line and serves until it is killed.
func serveBackend(context.Context, []string) error {
	s, err := backend.Listen(0)
	if err != nil {
		return err
	}
	fmt.Println(s.Port)
	return s.Serve()
}

// serveProxy takes the name of a built-in proxy, its port, that of the backend, and the number of sandboxes.
func serveProxy(ctx context.Context, args []string) error {
	if len(args) != 4 {
		return errors.New("usage: bench proxy NAME PORT BACKEND SANDBOXES")
	}
	port, err := strconv.ParseUint(args[1], 10, 16)
	backendPort, berr := strconv.ParseUint(args[2], 10, 16)
	sandboxes, serr := strconv.Atoi(args[3])
	if err := errors.Join(err, berr, serr); err != nil {
		return err
	}
	return peers.ServeBuiltin(ctx, args[0], uint16(port), uint16(backendPort), sandboxes)
}

// stayAwake takes a core.
func stayAwake(_ context.Context, args []string) error {
	if len(args) != 1 {
		return errors.New("usage: bench awake CORE")
	}
	core, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	return proc.StayAwake(core, os.Stdout)
}
