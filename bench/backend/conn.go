//go:build linux

package backend

import (
	"bytes"
	"encoding/json"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dovakiin0/agent-sandbox/bench/fleet"
	"github.com/dovakiin0/agent-sandbox/bench/wire"
)

// conn is one connection to one sandbox.
type conn struct {
	fd   int
	mark [fleet.MarkSize]byte

	state  state
	answer answer
	left   int64 // bytes of the request's body still to come
	chunks wire.Chunks
	body   []byte // of an echo
	kept   []byte // a head or a frame whose end is still to come
	out    []byte // what the kernel did not take yet
	events int    // still to send
	at     time.Duration
	last   bool // the connection ends after its answer
	closed bool
}

type state uint8

const (
	atHead state = iota
	inBody
	inChunks
	waiting // for the time of an answer
	inTunnel
)

// answer is what a path asks for.
type answer struct {
	mode mode
	a, b int
}

type mode uint8

const (
	fixed mode = iota
	echo
	sink
	chunked
	events
	slow
	closing
	webSocket
	statistics
)

var modes = map[string]mode{
	"fixed": fixed, "echo": echo, "sink": sink, "chunked": chunked, "sse": events, "slow": slow, "close": closing,
	"ws": webSocket, "stats": statistics,
}

// parseTarget reads a path; anything unknown is /fixed/64.
func parseTarget(target []byte) answer {
	path, _, _ := bytes.Cut(bytes.TrimPrefix(target, []byte{'/'}), []byte{'?'})
	name, rest, _ := bytes.Cut(path, []byte{'/'})
	m, known := modes[string(name)]
	if !known {
		return answer{fixed, 64, 0}
	}
	a, b, _ := bytes.Cut(rest, []byte{'/'})
	first, _ := strconv.Atoi(string(a))
	second, _ := strconv.Atoi(string(b))
	return answer{m, first, second}
}

// receive takes what came. b is valid until it returns.
func (s *Server) receive(c *conn, b []byte) {
	for len(b) > 0 && !c.closed {
		var used int
		switch c.state {
		case atHead:
			used = s.head(c, b)
		case inBody:
			used = int(min(c.left, int64(len(b))))
			s.body(c, b[:used])
			if c.left -= int64(used); c.left == 0 {
				s.answer(c)
			}
		case inChunks:
			data, n, err := c.chunks.Next(b)
			if err != nil {
				s.close(c)
				return
			}
			s.body(c, data)
			if used = n; c.chunks.Done() {
				s.answer(c)
			}
		case inTunnel:
			used = s.frame(c, b)
		}
		if used == 0 { // the rest is still to come, or its turn is
			if len(b) >= len(s.in) {
				s.close(c)
				return
			}
			c.kept = append(c.kept, b...)
			return
		}
		b = b[used:]
	}
}

func (s *Server) head(c *conn, b []byte) (used int) {
	h, ok := wire.ParseHead(b)
	if !ok {
		return 0
	}
	c.answer = parseTarget(h.Target())
	c.last = h.Close || c.answer.mode == closing
	if c.answer.mode != statistics {
		s.stats.Requests++
	}
	switch {
	case len(h.Key) > 0:
		c.state = inTunnel
		s.out = append(s.out[:0], "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "...)
		s.out = append(append(s.out, wire.Accept(h.Key)...), "\r\n\r\n"...)
		s.send(c, s.out, len(s.out))
	case h.Chunked:
		c.state, c.chunks = inChunks, wire.Chunks{}
	case h.Length > 0 && h.Length <= int64(len(b)-h.Size) && c.answer.mode == echo:
		// The usual echo: all of it is here.
		s.echo(c, b[h.Size:h.Size+int(h.Length)])
		return h.Size + int(h.Length)
	case h.Length > 0:
		c.state, c.left = inBody, h.Length
	default:
		s.answer(c)
	}
	return h.Size
}

// maxEcho is the longest body that is echoed.
const maxEcho = 64 << 10

func (s *Server) body(c *conn, b []byte) {
	if c.answer.mode != echo {
		return
	}
	if len(c.body)+len(b) > maxEcho {
		s.close(c)
		return
	}
	c.body = append(c.body, b...)
}

// answer is called when the request has been read.
func (s *Server) answer(c *conn) {
	if c.closed {
		return
	}
	c.state = atHead
	switch c.answer.mode {
	case echo:
		s.echo(c, c.body)
		c.body = c.body[:0]
	case slow:
		c.state = waiting
		s.waiting.add(s.now()+time.Duration(c.answer.a)*time.Millisecond, c)
	case events:
		c.state, c.events, c.at = waiting, c.answer.a, s.now()
		s.send(c, s.answers.eventHead(), 0)
		s.resume(c)
	case statistics:
		content, _ := json.Marshal(s.stats)
		s.echo(c, content)
	default:
		s.reply(c)
	}
}

// reply sends the prepared answer.
func (s *Server) reply(c *conn) {
	p := s.answers.of(c.answer)
	copy(p.bytes[p.mark:], c.mark[:])
	s.send(c, p.bytes, p.mark+fleet.MarkSize)
}

// resume goes on when a connection's time has come.
func (s *Server) resume(c *conn) {
	if c.answer.mode == slow {
		c.state = atHead
		s.reply(c)
	} else {
		s.event(c)
	}
	if c.state == atHead && len(c.kept) > 0 {
		b := c.kept
		c.kept = nil
		s.receive(c, b)
	}
}

// event sends the next event, with the time on the clock that all processes of a machine share.
func (s *Server) event(c *conn) {
	var now unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
	data := strconv.AppendInt([]byte("data: "), now.Nano(), 10)
	data = append(data, "\n\n"...)
	s.out = appendChunk(s.out[:0], data)
	if c.events--; c.events <= 0 {
		s.out = append(s.out, "0\r\n\r\n"...)
		c.state = atHead
	} else {
		c.at += time.Duration(c.answer.b) * time.Millisecond
		s.waiting.add(c.at, c)
	}
	s.send(c, s.out, len(s.out))
}

func (s *Server) echo(c *conn, body []byte) {
	s.out = s.answers.appendHead(s.out[:0], len(body))
	s.out = append(s.out, body...)
	s.send(c, s.out, len(s.out))
}

func (s *Server) frame(c *conn, b []byte) (used int) {
	f, ok := wire.ParseFrame(b)
	if !ok {
		return 0
	}
	if f.Masked {
		wire.MaskBytes(f.Payload, f.Mask)
	}
	first := f.First
	switch first {
	case wire.Ping:
		first = wire.Pong
	case wire.Pong:
		return f.Size
	case wire.Close:
		c.last = true
	}
	s.out = wire.AppendFrame(s.out[:0], first, f.Payload, nil)
	s.send(c, s.out, len(s.out))
	return f.Size
}
