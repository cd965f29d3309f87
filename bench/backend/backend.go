//go:build linux

// Package backend is every sandbox of a run in one process: a server on all addresses of 127.0.0.0/8 that spends as little
// as it can. What it answers is chosen by the path:
//
//	/fixed/N        N bytes, the sandbox's mark first
//	/echo           the request's body, up to 64 KiB
//	/sink           64 bytes after the whole body came, whatever its length
//	/chunked/N/S    N chunks of S bytes, the mark first
//	/sse/N/MS       N events, one every MS milliseconds, each with the time it was sent
//	/slow/MS        64 bytes after MS milliseconds
//	/close          64 bytes, then the connection ends
//	/ws             a WebSocket that echoes messages
//	/stats          Stats as JSON
package backend

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dovakiin0/agent-sandbox/bench/epoll"
	"github.com/dovakiin0/agent-sandbox/bench/fleet"
)

// Stats is what /stats answers. The request that asks is not counted.
type Stats struct {
	Connections int64 `json:"connections"` // accepted since the start
	Requests    int64 `json:"requests"`    // heads read; WebSocket messages are not requests
}

// scratchSize is what one read may take: a large upload costs few of them.
const scratchSize = 256 << 10

// Server is the backend. One goroutine serves.
type Server struct {
	Port uint16

	poll     *epoll.Poller
	listener int
	stop     chan struct{}
	start    time.Time

	conns   []*conn // by descriptor
	waiting schedule
	answers answers
	stats   Stats
	in, out []byte
}

// Listen makes a Server on a port of every loopback address; 0: a free one.
func Listen(port uint16) (*Server, error) {
	poll, err := epoll.New()
	if err != nil {
		return nil, err
	}
	listener, bound, err := epoll.Listen(port)
	if err != nil {
		poll.Close()
		return nil, err
	}
	if err := poll.Add(listener); err != nil {
		poll.Close()
		unix.Close(listener)
		return nil, err
	}
	return &Server{
		Port: bound, poll: poll, listener: listener, stop: make(chan struct{}), start: time.Now(),
		in: make([]byte, scratchSize), answers: newAnswers(),
	}, nil
}

// Close makes Serve return. It may be called once, from any goroutine, while Serve runs.
func (s *Server) Close() {
	close(s.stop)
	s.poll.Wake()
}

// Serve answers until Close.
func (s *Server) Serve() error {
	defer s.end()
	for {
		events, err := s.poll.Wait(s.waiting.next(s.now()))
		if err != nil {
			return err
		}
		select {
		case <-s.stop:
			return nil
		default:
		}
		s.answers.setTime(time.Now())
		for _, e := range events {
			if int(e.Fd) == s.listener {
				if err := s.accept(); err != nil {
					return err
				}
			} else if c := s.conns[e.Fd]; c != nil {
				s.serve(c, e.Events)
			}
		}
		for c := s.waiting.due(s.now()); c != nil; c = s.waiting.due(s.now()) {
			if !c.closed {
				s.resume(c)
			}
		}
	}
}

func (s *Server) now() time.Duration { return time.Since(s.start) }

func (s *Server) end() {
	for _, c := range s.conns {
		if c != nil {
			s.close(c)
		}
	}
	unix.Close(s.listener)
	s.poll.Close()
}

func (s *Server) accept() error {
	for {
		fd, local, err := epoll.Accept(s.listener)
		switch err {
		case nil:
		case unix.EAGAIN:
			return nil
		case unix.ECONNABORTED, unix.EINTR, unix.ENOTCONN:
			continue
		default:
			return fmt.Errorf("accept: %w", err)
		}
		if fd >= len(s.conns) {
			s.conns = append(s.conns, make([]*conn, fd+256-len(s.conns))...)
		}
		if err := s.poll.Add(fd); err != nil {
			unix.Close(fd)
			return err
		}
		s.conns[fd] = &conn{fd: fd, mark: fleet.Mark(local)}
		s.stats.Connections++
	}
}

// serve is called with what the kernel says of a connection.
func (s *Server) serve(c *conn, events uint32) {
	if events&epoll.Writable != 0 && len(c.out) > 0 {
		s.send(c, nil, 0)
	}
	for !c.closed && events&epoll.Readable != 0 {
		kept := copy(s.in, c.kept)
		n, errno := epoll.Read(c.fd, s.in[kept:])
		switch {
		case errno == unix.EAGAIN:
			return
		case errno != 0 || n == 0:
			s.close(c)
			return
		}
		c.kept = c.kept[:0]
		s.receive(c, s.in[:kept+n])
		// A read that did not fill its room has emptied the socket, unless the end of the stream came with it.
		if kept+n < len(s.in) && events&epoll.Ended == 0 {
			return
		}
	}
}

func (s *Server) close(c *conn) {
	c.closed = true
	s.conns[c.fd] = nil
	unix.Close(c.fd)
}

// maxUnsent bounds what a connection that does not read may pile up.
const maxUnsent = 16 << 20

// send sends b after what the connection has still to send. The first bytes of b, changing of them, are somebody else's
// after it returns: what is left of them is copied.
func (s *Server) send(c *conn, b []byte, changing int) {
	if c.closed {
		return
	}
	if len(c.out) > 0 {
		if len(c.out)+len(b) > maxUnsent {
			s.close(c)
			return
		}
		b, changing = append(c.out, b...), 0
	}
	n, errno := epoll.Send(c.fd, b)
	if errno != 0 {
		s.close(c)
		return
	}
	switch rest := b[n:]; {
	case len(rest) == 0:
		c.out = nil
		if c.last {
			s.close(c)
		}
	case n < changing:
		c.out = append([]byte(nil), rest...)
	default:
		c.out = rest[:len(rest):len(rest)] // appending to it must not write into b
	}
}
