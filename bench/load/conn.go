//go:build linux

package load

import (
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dovakiin0/agent-sandbox/bench/epoll"
	"github.com/dovakiin0/agent-sandbox/bench/wire"
)

// conn is one connection to the proxy.
type conn struct {
	fd       int
	state    state
	answered int // requests of this connection

	waiting bool          // an answer is due
	request *Request      // that it answers; nil: a message
	due     time.Duration // when the request should have started
	sent    time.Duration // when it did
	since   time.Duration // when the connection became free
	unsent  []byte        // what the kernel did not take yet
	rest    []byte        // what comes after it

	kept    []byte // a head or a frame whose end is still to come
	any     bool   // a byte of the answer came
	closing bool   // the connection ends with this answer
	left    int64  // bytes of the body still to come
	got     int64  // bytes of the body so far
	wrong   bool
	chunks  wire.Chunks
}

type state uint8

const (
	connecting state = iota
	atHead
	inBody
	inChunks
	inTunnel
	gone
)

// begins starts a request, or a message, that was due at a time.
func (l *loop) begins(c *conn, due time.Duration) {
	l.issued++
	l.busy++
	c.waiting, c.due, c.sent = true, due, l.now()
	c.any, c.wrong, c.got = false, false, 0
	if c.state == inTunnel {
		l.send(c, l.out, nil)
		return
	}
	c.request = l.pick()
	l.send(c, c.request.Bytes, c.request.Rest)
}

// opened is called when the connection stands.
func (l *loop) opened(c *conn) {
	c.state = atHead
	c.since = l.now()
	if l.plan.Message == nil {
		l.next(c, c.since)
		return
	}
	c.waiting, c.request, c.sent = true, l.pick(), c.since
	l.send(c, c.request.Bytes, nil)
}

func (l *loop) send(c *conn, b, rest []byte) {
	c.unsent, c.rest = b, rest
	l.flush(c)
}

func (l *loop) flush(c *conn) {
	for len(c.unsent) > 0 {
		n, errno := epoll.Send(c.fd, c.unsent)
		if errno != 0 {
			// The answer, if there is one, tells more than the failure to send. Reading comes to the end either way.
			c.unsent, c.rest = nil, nil
			return
		}
		l.sent += int64(n)
		if c.unsent = c.unsent[n:]; len(c.unsent) > 0 {
			return
		}
		c.unsent, c.rest = c.rest, nil
	}
}

// serve is called with what the kernel says of a connection.
func (l *loop) serve(c *conn, events uint32) {
	if c.state == connecting {
		if events&(epoll.Writable|epoll.Ended) == 0 {
			return
		}
		if epoll.ConnectError(c.fd) != nil {
			l.fail(c, Refused)
			return
		}
		l.opened(c)
	} else if events&epoll.Writable != 0 {
		l.flush(c)
	}
	for events&epoll.Readable != 0 && c.state != gone {
		kept := copy(l.scratch, c.kept)
		n, errno := epoll.Read(c.fd, l.scratch[kept:])
		switch {
		case errno == unix.EAGAIN:
			return
		case errno != 0 || n == 0:
			l.ended(c, errno)
			return
		}
		c.kept = c.kept[:0]
		l.receive(c, l.scratch[:kept+n])
		// A read that did not fill its room has emptied the socket, unless the end of the stream came with it.
		if kept+n < len(l.scratch) && events&epoll.Ended == 0 {
			return
		}
	}
}

// ended is called at the end of the stream.
func (l *loop) ended(c *conn, errno unix.Errno) {
	switch {
	case c.state == inBody && c.left < 0: // that is how this body ends
		c.closing = true
		l.answered(c)
	case !c.waiting:
		l.replace(c)
	case errno != 0:
		l.fail(c, Reset)
	case c.any:
		l.fail(c, Truncated)
	default:
		l.fail(c, Closed)
	}
}

// fail counts an error and replaces the connection after a while.
func (l *loop) fail(c *conn, kind string) {
	l.result.Errors[kind]++
	if c.waiting && !l.shakesHands(c) {
		l.busy--
	}
	l.shut(c)
	if l.plan.Leave {
		l.left++
		return
	}
	l.retries = append(l.retries, l.now()+retryAfter)
}

// shakesHands reports whether what is under way is the handshake of a WebSocket, which is not counted.
func (l *loop) shakesHands(c *conn) bool { return l.plan.Message != nil && c.state != inTunnel }

// replace puts a new connection in the place of one that ended as it may.
func (l *loop) replace(c *conn) {
	l.shut(c)
	switch {
	case l.plan.Leave:
		l.left++
	case l.wants():
		l.dial()
	}
}

func (l *loop) shut(c *conn) {
	if i := slices.Index(l.free, c); i >= 0 {
		l.free = slices.Delete(l.free, i, i+1)
	}
	if c.fd >= 0 && l.conns[c.fd] == c {
		l.conns[c.fd] = nil
		unix.Close(c.fd)
	}
	c.state, c.waiting = gone, false
}
