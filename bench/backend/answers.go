//go:build linux

package backend

import (
	"bytes"
	"net/http"
	"strconv"
	"time"

	"github.com/dovakiin0/agent-sandbox/bench/fleet"
)

// prepared is an answer as it goes on the wire.
type prepared struct {
	bytes []byte
	date  int // where its date is
	mark  int // where its body begins
}

// answers keeps one prepared answer for each path that was asked for, with the date of this second.
type answers struct {
	byPath map[answer]*prepared
	latest struct {
		answer
		*prepared
	}
	second int64
	date   []byte
}

func newAnswers() answers { return answers{byPath: map[answer]*prepared{}} }

func (a *answers) setTime(now time.Time) {
	if a.second == now.Unix() {
		return
	}
	a.second = now.Unix()
	a.date = now.UTC().AppendFormat(nil, http.TimeFormat)
	for _, p := range a.byPath {
		copy(p.bytes[p.date:], a.date) // dates all have one length
	}
}

// of returns the answer for what a path asked for.
func (a *answers) of(what answer) *prepared {
	if a.latest.prepared != nil && a.latest.answer == what {
		return a.latest.prepared
	}
	p := a.byPath[what]
	if p == nil {
		p = a.prepare(what)
		a.byPath[what] = p
	}
	a.latest.answer, a.latest.prepared = what, p
	return p
}

func (a *answers) prepare(what answer) *prepared {
	var b []byte
	mark := 0
	switch what.mode {
	case chunked:
		b = a.appendStart(nil, "application/octet-stream")
		b = append(b, "Transfer-Encoding: chunked\r\n\r\n"...)
		chunk := filling(max(fleet.MarkSize, what.b))
		for range max(1, what.a) {
			b = appendChunk(b, chunk)
		}
		b = append(b, "0\r\n\r\n"...)
		mark = bytes.Index(b, chunk)
	case closing:
		b = a.appendStart(nil, "application/octet-stream")
		b = append(b, "Content-Length: 64\r\nConnection: close\r\n\r\n"...)
		mark = len(b)
		b = append(b, filling(64)...)
	default:
		size := 64
		if what.mode == fixed {
			size = max(fleet.MarkSize, what.a)
		}
		b = a.appendHead(nil, size)
		mark = len(b)
		b = append(b, filling(size)...)
	}
	return &prepared{bytes: b, date: bytes.Index(b, a.date), mark: mark}
}

func (a *answers) appendStart(b []byte, contentType string) []byte {
	b = append(b, "HTTP/1.1 200 OK\r\nServer: sandbox\r\nDate: "...)
	b = append(b, a.date...)
	return append(append(append(b, "\r\nContent-Type: "...), contentType...), "\r\n"...)
}

func (a *answers) appendHead(b []byte, length int) []byte {
	b = a.appendStart(b, "application/octet-stream")
	b = strconv.AppendInt(append(b, "Content-Length: "...), int64(length), 10)
	return append(b, "\r\n\r\n"...)
}

// eventHead is the head of an event stream. X-Accel-Buffering asks nginx to pass events on as they come.
func (a *answers) eventHead() []byte {
	b := a.appendStart(nil, "text/event-stream")
	return append(b, "Cache-Control: no-store\r\nX-Accel-Buffering: no\r\nTransfer-Encoding: chunked\r\n\r\n"...)
}

func filling(n int) []byte { return bytes.Repeat([]byte{'x'}, n) }

func appendChunk(b, data []byte) []byte {
	b = strconv.AppendInt(b, int64(len(data)), 16)
	b = append(append(append(b, "\r\n"...), data...), "\r\n"...)
	return b
}
