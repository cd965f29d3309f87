//go:build linux

package load

import (
	"bytes"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dovakiin0/agent-sandbox/bench/wire"
)

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
		l.result.Latency.Record(now - c.due)
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
			l.result.Events.Record(time.Duration(ts.Nano() - sent))
		}
	}
}
