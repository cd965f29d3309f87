// Command soak runs a router under clients that come and go, uploads, downloads and WebSockets of random size, while
// addresses pass from one sandbox to another. Every kibibyte on the wire says whose it is. It fails if one byte went
// astray, if an exchange failed without a reason, or if the router did not return to the goroutines and descriptors that
// it began with.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dovakiin0/agent-sandbox/test/wire"
)

func main() {
	duration := flag.Duration("duration", time.Minute, "how long")
	clients := flag.Int("clients", 64, "clients at a time")
	flips := flag.Int("flips", 200, "addresses that change hands each second")
	addresses := flag.Int("addresses", 128, "addresses, each of two sandboxes in turn")
	race := flag.Bool("race", false, "build the router with the race detector")
	flag.Parse()
	if err := run(*duration, *clients, *flips, *addresses, *race); err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

func run(duration time.Duration, clients, flips, addresses int, race bool) error {
	dir, err := os.MkdirTemp("", "soak")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	binary, err := wire.Build(dir, race)
	if err != nil {
		return err
	}

	t := &tally{}
	server := newSandboxes(t)
	defer server.server.Close()
	h, err := newNeighbourhood(addresses, filepath.Join(dir, "routes.yaml"), server)
	if err != nil {
		return err
	}
	router, err := wire.Start(binary, []string{
		"--discovery=file", "--routes-file=" + h.file, "--allow-loopback-pod-ip", "--access-log=off", "--unknown-wait=20ms",
	}, nil)
	if err != nil {
		return err
	}
	for _, a := range h.addresses {
		a.owner.Load().live.Store(true)
	}
	before, err := measure(router)
	if err != nil {
		return err
	}

	stop := make(chan struct{})
	var running sync.WaitGroup
	for range clients {
		running.Go(func() { client(router.Proxy, h, stop) })
	}
	running.Go(func() { h.churn(router.Proxy, flips, stop) })
	select {
	case <-time.After(duration):
	case <-router.Done():
		t.failure("the router ended")
	}
	close(stop)
	running.Wait()

	after, err := settled(router, before)
	if err != nil {
		t.failure(err.Error())
	}
	fmt.Printf("%v: %s\nrouter: %s before, %s after\n", duration, t, before, after)
	if err := router.Kill(); err != nil {
		return err
	}
	return t.verdict()
}

// footprint is what a router must give back.
type footprint struct{ goroutines, descriptors int }

func (f footprint) String() string {
	return fmt.Sprintf("%d goroutines and %d descriptors", f.goroutines, f.descriptors)
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
	f.descriptors = len(descriptors)
	return f, err
}

// settled waits until the router holds no more than before, or for longer than its idle connections live.
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

// tally counts how exchanges ended, and keeps what must not happen.
type tally struct {
	done        atomic.Int64 // whole exchanges
	sockets     atomic.Int64 // WebSockets that played all their rounds
	left        atomic.Int64 // ended by the client on purpose
	interrupted atomic.Int64 // ended because the sandbox went away or was not there
	flips       atomic.Int64

	mu         sync.Mutex
	mismatches []string
	failures   []string
}

// mismatch notes bytes that came to the wrong place.
func (t *tally) mismatch(what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mismatches = append(t.mismatches, what)
}

// failure notes anything else that must not happen.
func (t *tally) failure(what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failures = append(t.failures, what)
}

func (t *tally) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return fmt.Sprintf("%d exchanges, %d WebSockets, %d left, %d interrupted, %d flips, %d mismatches, %d failures",
		t.done.Load(), t.sockets.Load(), t.left.Load(), t.interrupted.Load(), t.flips.Load(), len(t.mismatches), len(t.failures))
}

// verdict is an error if anything happened that must not, or nothing that must.
func (t *tally) verdict() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var lines []string
	for _, list := range [][]string{t.mismatches, t.failures} {
		if len(list) > 0 {
			lines = append(lines, fmt.Sprintf("%d times, first:\n  %s", len(list), strings.Join(list[:min(len(list), 5)], "\n  ")))
		}
	}
	if t.done.Load() == 0 || t.sockets.Load() == 0 || t.flips.Load() == 0 {
		lines = append(lines, "nothing was tested")
	}
	if lines != nil {
		return fmt.Errorf("%s", strings.Join(lines, "\n"))
	}
	return nil
}
