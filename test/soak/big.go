package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/dovakiin0/agent-sandbox/test/wire"
)

// memoryPerStream is what the router may need for a large body, however large it is.
const memoryPerStream = 4 << 20

// bigBodies is the scenario of uploads and downloads that no memory can hold, at the same time, with readers that are
// slower than the senders.
func (s *scenario) bigBodies() error {
	listener, err := net.Listen("tcp4", "127.79.255.2:0")
	if err != nil {
		return err
	}
	server := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			n, err := drain(r.Body, s.size)
			fmt.Fprintf(w, "%d %v", n, err)
			return
		}
		w.Header().Set("Content-Length", fmt.Sprint(s.size))
		_ = flood(w, s.size) // the other end notices what is missing
	})}
	go func() { _ = server.Serve(listener) }() // until it is closed
	defer server.Close()
	ip, port, _ := net.SplitHostPort(listener.Addr().String())
	route := wire.Route{ID: "big", UID: "big", Endpoints: []wire.Endpoint{{Address: ip, Ready: true, UID: "big"}}}
	if err := wire.WriteRoutes(s.routesFile, []wire.Route{route}); err != nil {
		return err
	}
	router, before, err := s.start()
	if err != nil {
		return err
	}

	began := time.Now()
	errs := make([]error, 2*s.streams)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() {
			if i%2 == 0 {
				errs[i] = s.upload(router.Proxy, port)
			} else {
				errs[i] = s.download(router.Proxy, port)
			}
		})
	}
	all.Wait()
	took := time.Since(began)
	peak, err := router.PeakMemory()
	errs = append(errs, err)
	grown := peak - before.memory
	moved := float64(s.size) * float64(2*s.streams)
	fmt.Printf("%d uploads and %d downloads of %.2f GiB in %v, %.2f GiB/s\nrouter: %s before, %d MiB at its peak\n",
		s.streams, s.streams, float64(s.size)/(1<<30), took.Round(time.Millisecond), moved/(1<<30)/took.Seconds(), before, peak>>20)
	if grown > 2*s.streams*memoryPerStream {
		errs = append(errs, fmt.Errorf("the router needed %d MiB more than before", grown>>20))
	}
	return errors.Join(append(errs, router.Kill())...)
}

func (s *scenario) upload(proxy, port string) error {
	r, err := s.exchange(proxy, port, "POST", fmt.Sprintf("Content-Length: %d\r\n", s.size))
	if err != nil {
		return err
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if want := fmt.Sprintf("%d <nil>", s.size); err == nil && string(text) != want {
		err = fmt.Errorf("the sandbox got %s", text)
	}
	return err
}

func (s *scenario) download(proxy, port string) error {
	r, err := s.exchange(proxy, port, "GET", "")
	if err != nil {
		return err
	}
	defer r.Body.Close()
	_, err = drain(r.Body, s.size)
	return err
}

// exchange sends a request, with a big body if it is a POST, and returns the answer. Closing its body ends the connection.
func (s *scenario) exchange(proxy, port, method, lines string) (*http.Response, error) {
	c, err := dial(proxy)
	if err != nil {
		return nil, err
	}
	_, err = io.WriteString(c, method+" / HTTP/1.1\r\nHost: soak\r\nX-Sandbox-ID: big\r\nX-Sandbox-Port: "+port+"\r\n"+lines+"\r\n")
	if err == nil && method == "POST" {
		err = flood(c, s.size)
	}
	var r *http.Response
	if err == nil {
		r, err = http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
	}
	if err == nil && r.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", method, r.Status)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	r.Body = struct {
		io.Reader
		io.Closer
	}{r.Body, c}
	return r, nil
}

// flood writes size bytes of the pattern.
func flood(w io.Writer, size int) error {
	for sent := 0; sent < size; {
		n, err := w.Write(wire.Pattern(sent, min(256<<10, size-sent)))
		if sent += n; err != nil {
			return err
		}
	}
	return nil
}

// drain reads size bytes of the pattern, with pauses in which everything on the way fills up.
func drain(r io.Reader, size int) (n int, err error) {
	const pauseEvery, pause = 256 << 20, 100 * time.Millisecond
	buf := make([]byte, 256<<10)
	for err == nil {
		var got int
		got, err = r.Read(buf)
		if !bytes.Equal(buf[:got], wire.Pattern(n, got)) {
			return n, fmt.Errorf("a wrong byte within %d behind %d", got, n)
		}
		if n/pauseEvery != (n+got)/pauseEvery {
			time.Sleep(pause)
		}
		n += got
	}
	if err == io.EOF && n == size {
		err = nil
	}
	return n, err
}
