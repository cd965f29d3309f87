package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/dovakiin0/agent-sandbox/test/wire"
)

const (
	generation  = 2000     // sandboxes that are there at a time
	warmUp      = 20_000   // sandboxes before memory is looked at; more than the router remembers after they were deleted
	memorySlack = 32 << 20 // what memory may differ by chance
)

// manySandboxes is the scenario of sandboxes that come, get a request and go. They share an address: connections belong to
// the identity of an endpoint, so each has connections of its own.
func (s *scenario) manySandboxes() error {
	listener, err := net.Listen("tcp4", "127.79.255.1:0")
	if err != nil {
		return err
	}
	server := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "here") })}
	go func() { _ = server.Serve(listener) }() // until it is closed
	defer server.Close()
	ip, port, _ := net.SplitHostPort(listener.Addr().String())

	if err := wire.WriteRoutes(s.routesFile, nil); err != nil {
		return err
	}
	router, before, err := s.start()
	if err != nil {
		return err
	}
	began := time.Now()
	warm := before
	for first := 0; first < s.sandboxes; first += generation {
		routes := make([]wire.Route, min(generation, s.sandboxes-first))
		for i := range routes {
			name := fmt.Sprintf("s%d", first+i)
			routes[i] = wire.Route{ID: name, UID: name, Endpoints: []wire.Endpoint{{Address: ip, Ready: true, UID: name}}}
		}
		if err := wire.WriteRoutes(s.routesFile, routes); err != nil {
			return err
		}
		if err := visitAll(router.Proxy, port, routes); err != nil {
			return errors.Join(err, router.Kill())
		}
		if first+generation == warmUp {
			if warm, err = measure(router); err != nil {
				return err
			}
		}
	}
	if err := wire.WriteRoutes(s.routesFile, nil); err != nil {
		return err
	}
	took := time.Since(began)
	after, err := settled(router, before)
	fmt.Printf("%d sandboxes came and went in %v\nrouter: %s before, %s warm, %s after\n", s.sandboxes, took.Round(time.Millisecond), before, warm, after)
	if err == nil && s.sandboxes > warmUp && after.memory > warm.memory+memorySlack {
		err = fmt.Errorf("the router kept %d MiB more than after %d sandboxes", (after.memory-warm.memory)>>20, warmUp)
	}
	return errors.Join(err, router.Kill())
}

// visitAll sends a request to each sandbox, once the router knows them.
func visitAll(proxy, port string, routes []wire.Route) error {
	const visitors = 16
	errs := make([]error, visitors)
	var all sync.WaitGroup
	for v := range visitors {
		all.Go(func() {
			c, err := dial(proxy)
			if err != nil {
				errs[v] = err
				return
			}
			defer c.Close()
			in := bufio.NewReader(c)
			for i := v; i < len(routes) && errs[v] == nil; i += visitors {
				errs[v] = greet(c, in, routes[i].ID, port)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// greet asks a sandbox until it answers. The router is told of all at once, so only the first may have to be waited for.
func greet(c net.Conn, in *bufio.Reader, sandbox, port string) error {
	request := "GET / HTTP/1.1\r\nHost: soak\r\nX-Sandbox-ID: " + sandbox + "\r\nX-Sandbox-Port: " + port + "\r\n\r\n"
	for deadline := time.Now().Add(patience); ; {
		_ = c.SetDeadline(deadline)
		if _, err := c.Write([]byte(request)); err != nil {
			return err
		}
		r, err := http.ReadResponse(in, &http.Request{Method: http.MethodGet})
		if err != nil {
			return err
		}
		body := make([]byte, r.ContentLength)
		_, err = io.ReadFull(r.Body, body)
		switch {
		case err != nil:
			return err
		case r.StatusCode == http.StatusOK && string(body) == "here":
			return nil
		case r.StatusCode != http.StatusNotFound || time.Now().After(deadline):
			return fmt.Errorf("%s: %d %s", sandbox, r.StatusCode, body)
		}
	}
}
