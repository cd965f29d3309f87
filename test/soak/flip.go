package main

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dovakiin0/agent-sandbox/test/wire"
)

// patience bounds every wait for the router. What takes longer is a failure.
const patience = 10 * time.Second

// slack is the part of the flips that may be missing in the end, because the machine is busy with other things.
const slack = 0.1

// changingHands is the scenario of addresses that pass from one sandbox to another under load.
func (s *scenario) changingHands() error {
	t := &tally{}
	server := newSandboxes(t)
	defer server.server.Close()
	h, err := newNeighbourhood(s.addresses, s.routesFile, server)
	if err != nil {
		return err
	}
	router, before, err := s.start()
	if err != nil {
		return err
	}
	for _, a := range h.addresses {
		a.owner.Load().live.Store(true)
	}

	stop := make(chan struct{})
	var running sync.WaitGroup
	for range s.clients {
		running.Go(func() { client(router.Proxy, h, stop) })
	}
	running.Go(func() { h.churn(router.Proxy, s.flips, stop) })
	select {
	case <-time.After(s.duration):
	case <-router.Done():
		t.failure("the router ended")
	}
	close(stop)
	rate := float64(t.flips.Load()) / s.duration.Seconds()
	running.Wait()
	if rate < (1-slack)*float64(s.flips) {
		t.failure(fmt.Sprintf("%.0f flips a second of %d", rate, s.flips))
	}

	after, err := settled(router, before)
	if err != nil {
		t.failure(err.Error())
	}
	fmt.Printf("%v: %s, %.0f flips a second\nrouter: %s before, %s after\n", s.duration, t, rate, before, after)
	if err := router.Kill(); err != nil {
		return err
	}
	return t.verdict()
}

// neighbourhood is all addresses and who owns them, and the routes file that tells the router.
type neighbourhood struct {
	addresses []*address
	file      string
	server    *sandboxes
	tally     *tally
	tenancies atomic.Int64

	mu      sync.Mutex // guards routed and changes
	routed  map[*address]*tenancy
	changes int // of routed

	writing sync.Mutex // guards the file and written
	written int        // changes that are in the file
}

// newNeighbourhood listens on n addresses and gives each to the first of its two sandboxes.
func newNeighbourhood(n int, file string, server *sandboxes) (*neighbourhood, error) {
	h := &neighbourhood{file: file, server: server, tally: server.tally, routed: map[*address]*tenancy{}}
	for i := range n {
		a := &address{ip: fmt.Sprintf("127.79.%d.%d", i>>8, i&0xff), port: "0", names: [2]string{fmt.Sprintf("a%d", i), fmt.Sprintf("b%d", i)}}
		t, err := h.moveIn(a, a.names[0])
		if err != nil {
			return nil, err
		}
		_, a.port, _ = net.SplitHostPort(t.Addr().String())
		h.addresses = append(h.addresses, a)
		h.routed[a] = t
	}
	return h, h.publish(0)
}

// moveIn opens the server of a sandbox at a.
func (h *neighbourhood) moveIn(a *address, sandbox string) (*tenancy, error) {
	t, err := a.moveIn(sandbox, h.tenancies.Add(1))
	if err == nil {
		go func() { _ = h.server.server.Serve(t) }() // until the listener is closed
	}
	return t, err
}

// writeEvery is the least time between two writes of the routes file.
const writeEvery = 5 * time.Millisecond

// publish writes the routes file, unless somebody has written it since the change that the caller made: flips at the same time
// share a file, or writing it would bound their number.
func (h *neighbourhood) publish(change int) error {
	h.writing.Lock()
	defer h.writing.Unlock()
	if h.written > change {
		return nil
	}
	time.Sleep(writeEvery)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.written = h.changes + 1
	routes := []wire.Route{}
	for a, t := range h.routed {
		routes = append(routes, wire.Route{ID: t.sandbox, UID: t.pod, Endpoints: []wire.Endpoint{{Address: a.ip, Ready: true, UID: t.pod}}})
	}
	return wire.WriteRoutes(h.file, routes)
}

// route tells the router who owns a, nobody if t is nil.
func (h *neighbourhood) route(a *address, t *tenancy) error {
	h.mu.Lock()
	if t == nil {
		delete(h.routed, a)
	} else {
		h.routed[a] = t
	}
	h.changes++
	change := h.changes
	h.mu.Unlock()
	return h.publish(change)
}

// flip gives a to its other sandbox in the order in which a cluster does it: the endpoint goes, the router ends what it
// has with the old pod, the new pod gets the address, the new endpoint comes.
func (h *neighbourhood) flip(a *address, proxy string) error {
	old := a.owner.Load()
	next := a.names[0]
	if next == old.sandbox {
		next = a.names[1]
	}
	old.live.Store(false)
	if err := h.route(a, nil); err != nil {
		return err
	}
	if err := h.until(proxy, a, old.sandbox, func(status int) bool { return status == http.StatusNotFound || status == http.StatusGone }); err != nil {
		return err
	}
	if !old.abandoned(patience) {
		return fmt.Errorf("connections to %s outlived its endpoint by %v", old.pod, patience)
	}
	old.Close() // connections that nobody accepted yet are reset
	tenant, err := h.moveIn(a, next)
	if err != nil {
		return err
	}
	if err := h.route(a, tenant); err != nil {
		return err
	}
	if err := h.until(proxy, a, next, func(status int) bool { return status == http.StatusOK }); err != nil {
		return err
	}
	tenant.live.Store(true)
	return nil
}

// lookEvery is how often a flip asks the router whether it knows. Asking all the time would be most of the load.
const lookEvery = 20 * time.Millisecond

// until asks for the sandbox at a until the router answers as wanted.
func (h *neighbourhood) until(proxy string, a *address, sandbox string, wanted func(status int) bool) error {
	var c net.Conn
	status := 0
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(lookEvery) {
		if c == nil {
			var err error
			if c, err = dial(proxy); err != nil {
				return err
			}
		}
		e := exchange{conn: c, address: a, sandbox: sandbox, tally: h.tally}
		var err error
		if status, err = e.probe(); err == nil && wanted(status) {
			return c.Close()
		}
		if err != nil { // the router may end a connection whose exchange it had to end
			c.Close()
			c = nil
		}
	}
	return fmt.Errorf("the router still answers %d for %s after %v", status, sandbox, patience)
}

// churn flips addresses at random, rate times a second, until stop is closed.
func (h *neighbourhood) churn(proxy string, rate int, stop <-chan struct{}) {
	var flips sync.WaitGroup
	defer flips.Wait()
	free := make(chan *address, len(h.addresses))
	for _, i := range rand.Perm(len(h.addresses)) {
		free <- h.addresses[i]
	}
	for due := time.Now(); ; due = due.Add(time.Second / time.Duration(rate)) { // on a busy machine a ticker would skip some
		select {
		case <-stop:
			return
		case <-time.After(time.Until(due)):
		}
		var a *address
		select {
		case a = <-free:
		case <-stop:
			return
		}
		flips.Go(func() {
			if err := h.flip(a, proxy); err != nil {
				h.tally.failure(err.Error())
			} else {
				h.tally.flips.Add(1)
			}
			free <- a
		})
	}
}
