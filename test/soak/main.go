// Command soak runs a router for a long time or with much in it, and fails if one byte went astray, if an exchange failed
// without a reason, or if the router kept what it should have given back. By default clients come and go, with uploads,
// downloads and WebSockets of random size, while addresses pass from one sandbox to another; every kibibyte on the wire
// says whose it is. With --sandboxes so many come and go, each with a request; with --big bodies of many gibibytes pass.
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/dovakiin0/agent-sandbox/test/wire"
)

func main() {
	s := scenario{}
	flag.DurationVar(&s.duration, "duration", time.Minute, "how long")
	flag.IntVar(&s.clients, "clients", 64, "clients at a time")
	flag.IntVar(&s.flips, "flips", 200, "addresses that change hands each second")
	flag.IntVar(&s.addresses, "addresses", 256, "addresses, each of two sandboxes in turn")
	flag.IntVar(&s.sandboxes, "sandboxes", 0, "instead: so many sandboxes that come and go")
	flag.BoolVar(&s.big, "big", false, "instead: bodies of --size, --streams up and as many down at once, with slow readers")
	flag.IntVar(&s.size, "size", 8<<30, "bytes of a big body")
	flag.IntVar(&s.streams, "streams", 4, "big bodies at a time in each direction")
	race := flag.Bool("race", false, "build the router with the race detector")
	flag.Parse()
	if err := s.run(*race); err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

// scenario is what the router has to stand, and the files that it is made from.
type scenario struct {
	duration                  time.Duration
	clients, flips, addresses int
	sandboxes                 int
	big                       bool
	size, streams             int
	binary, routesFile        string
}

func (s *scenario) run(race bool) error {
	dir, err := os.MkdirTemp("", "soak")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if s.binary, err = wire.Build(dir, race); err != nil {
		return err
	}
	s.routesFile = filepath.Join(dir, "routes.yaml")
	switch {
	case s.big:
		return s.bigBodies()
	case s.sandboxes > 0:
		return s.manySandboxes()
	}
	return s.changingHands()
}

// start runs a router on the routes that are in the file, and measures what it has before anything happens.
func (s *scenario) start() (*wire.Router, footprint, error) {
	router, err := wire.Start(s.binary, []string{
		"--discovery=file", "--routes-file=" + s.routesFile, "--allow-loopback-pod-ip", "--access-log=off", "--unknown-wait=20ms",
	}, nil)
	if err != nil {
		return nil, footprint{}, err
	}
	before, err := measure(router)
	if err != nil {
		return nil, before, errors.Join(err, router.Kill())
	}
	return router, before, nil
}

// footprint is what a router must give back.
type footprint struct{ goroutines, descriptors, memory int }

func (f footprint) String() string {
	return fmt.Sprintf("%d goroutines, %d descriptors and %d MiB", f.goroutines, f.descriptors, f.memory>>20)
}

func measure(r *wire.Router) (footprint, error) {
	var f footprint
	response, err := http.Get("http://" + r.Admin + "/metrics")
	if err != nil {
		return f, err
	}
	defer response.Body.Close()
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), "go_goroutines "); ok {
			if f.goroutines, err = strconv.Atoi(value); err != nil {
				return f, err
			}
		}
	}
	if f.goroutines == 0 {
		return f, fmt.Errorf("no go_goroutines on %s/metrics", r.Admin)
	}
	descriptors, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", r.PID()))
	if err != nil {
		return f, err
	}
	f.descriptors = len(descriptors)
	f.memory, err = r.Memory()
	return f, err
}

// settled waits until the router holds no more goroutines and descriptors than before, or for longer than its idle
// connections live.
func settled(r *wire.Router, before footprint) (after footprint, err error) {
	for deadline := time.Now().Add(3 * patience); ; time.Sleep(100 * time.Millisecond) {
		if after, err = measure(r); err != nil {
			return after, err
		}
		if after.goroutines <= before.goroutines && after.descriptors <= before.descriptors {
			return after, nil
		}
		if time.Now().After(deadline) {
			return after, fmt.Errorf("the router kept %s of %s", after, before)
		}
	}
}
