//go:build linux

package load

import (
	"bytes"
	"slices"
	"strconv"
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

// receive takes what came. b is valid until it returns.
func (l *loop) receive(c *conn, b []byte) {
	for len(b) > 0 && c.state != gone {
		if !c.waiting {
			l.fail(c, Unexpected)
			return
		}
		c.any = true
		used := 0
		switch c.state {
		case atHead:
			used = l.head(c, b)
		case inBody:
			used = len(b)
			if c.left >= 0 {
				used = int(min(c.left, int64(used)))
				c.left -= int64(used)
			}
			l.content(c, b[:used])
			if c.left == 0 {
				l.answered(c)
			}
		case inChunks:
			data, n, err := c.chunks.Next(b)
			if err != nil {
				l.fail(c, Malformed)
				return
			}
			l.content(c, data)
			if used = n; c.chunks.Done() {
				l.answered(c)
			}
		case inTunnel:
			used = l.frame(c, b)
		}
		if used == 0 {
			if c.state != gone {
				c.kept = append(c.kept, b...)
			}
			return
		}
		b = b[used:]
	}
}

// head returns 0 if the head's end is still to come, or if the connection has failed.
func (l *loop) head(c *conn, b []byte) (used int) {
	h, ok := wire.ParseHead(b)
	if !ok {
		if len(b) > 64<<10 {
			l.fail(c, Malformed)
		}
		return 0
	}
	status := h.Status()
	switch {
	case status == 101 && l.plan.Message != nil:
		c.state, c.waiting, c.request, c.since = inTunnel, false, nil, l.now()
		l.next(c, c.since)
		return h.Size
	case status >= 100 && status < 200:
		return h.Size // an interim response
	case status != 200:
		l.fail(c, "status "+strconv.Itoa(status))
		return 0
	}
	c.closing = h.Close
	switch {
	case h.Chunked:
		c.state, c.chunks = inChunks, wire.Chunks{}
	case h.Length == 0:
		l.answered(c)
	default:
		c.state, c.left = inBody, h.Length // below 0: until the connection ends
	}
	return h.Size
}

// content takes a piece of a body.
func (l *loop) content(c *conn, b []byte) {
	if want := c.request.Want.Begin; c.got < int64(len(want)) {
		want = want[c.got:]
		n := min(len(want), len(b))
		c.wrong = c.wrong || !bytes.Equal(want[:n], b[:n])
	}
	if l.plan.Events {
		l.events(b)
	}
	c.got += int64(len(b))
	l.recv += int64(len(b))
}

// answered is called when an answer is whole.
func (l *loop) answered(c *conn) {
	want := &c.request.Want
	if c.wrong || c.got < int64(len(want.Begin)) || want.Length >= 0 && c.got != want.Length {
		l.fail(c, WrongBody)
		return
	}
	c.state, c.request = atHead, nil
	c.answered++
	now := l.done(c)
	if c.closing || c.answered == l.plan.PerConnection {
		l.replace(c)
		return
	}
	l.next(c, now)
}

// done counts a right answer.
func (l *loop) done(c *conn) time.Duration {
	now := l.now()
	l.busy--
	c.waiting, c.since = false, now
	switch l.phase {
	case warming:
		l.warm++
	case measuring:
		l.result.Answered++
	}
	if l.phase != warming && c.due >= l.begin {
		l.result.Latency.record(now - c.due)
	}
	return now
}

// frame returns 0 if the frame's end is still to come, or if the connection has failed.
func (l *loop) frame(c *conn, b []byte) (used int) {
	f, ok := wire.ParseFrame(b)
	switch {
	case !ok:
		return 0
	case f.First != wire.Binary || f.Masked:
		l.fail(c, Malformed)
		return 0
	case !bytes.Equal(f.Payload, l.plan.Message):
		l.fail(c, WrongBody)
		return 0
	}
	l.recv += int64(len(f.Payload))
	l.next(c, l.done(c))
	return f.Size
}

// events records the age of the events in a piece of an event stream.
func (l *loop) events(b []byte) {
	if l.phase != measuring {
		return
	}
	var ts unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	for len(b) > 0 {
		at := bytes.Index(b, []byte("data: "))
		if at < 0 {
			return
		}
		b = b[at+len("data: "):]
		end := bytes.IndexByte(b, '\n')
		if end < 0 {
			return
		}
		if sent, err := strconv.ParseInt(string(b[:end]), 10, 64); err == nil {
			l.result.Events.record(time.Duration(ts.Nano() - sent))
		}
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
	case l.phase != finishing:
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
