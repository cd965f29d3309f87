package parse

import (
	"bufio"
	"bytes"
	"net/http"
	"strings"
	"testing"

	"github.com/dovakiin0/agent-sandbox/router/record"
)

var benchRequest = []byte(notation.Replace("POST /execute HTTP/1.1⏎Host: a.example:8080⏎User-Agent: u/1⏎Accept: */*⏎Connection: keep-alive⏎X-Sandbox-ID: " +
	label63 + "⏎X-Sandbox-Port: 8888⏎X-Sandbox-Timeout: 60⏎X-Request-ID: r⏎Content-Type: application/json⏎Content-Length: 40⏎⏎"))

var benchResponse = []byte(notation.Replace("HTTP/1.1 200 OK⏎Date: Mon, 30 Nov 2026 14:00:00 GMT⏎Server: s⏎Content-Type: application/json⏎Content-Length: 120⏎⏎"))

func BenchmarkRequest(b *testing.B) {
	var r Request
	var to Address
	out := make([]byte, 0, 4096)
	addressing, forwarding := &Addressing{}, &Forwarding{Peer: []byte("10.0.0.1"), Proto: "http"}
	b.Run("parse, address and forward", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if r.Parse(benchRequest[:HeadEnd(benchRequest)]) != record.OK || addressing.Read(&r, &to) != record.OK {
				b.Fatal("refused")
			}
			out = r.AppendTo(out[:0], forwarding)
		}
	})
	b.Run("net/http", func(b *testing.B) {
		b.ReportAllocs()
		in, buffered := bytes.NewReader(nil), bufio.NewReader(nil)
		for b.Loop() {
			in.Reset(benchRequest)
			buffered.Reset(in)
			if _, err := http.ReadRequest(buffered); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkResponse(b *testing.B) {
	var r Response
	out := make([]byte, 0, 4096)
	b.ReportAllocs()
	for b.Loop() {
		if !r.Parse(benchResponse[:HeadEnd(benchResponse)], false) {
			b.Fatal("refused")
		}
		out = r.AppendTo(out[:0], false, false)
	}
}

func BenchmarkChunks(b *testing.B) {
	body := []byte(strings.Repeat("1000\r\n"+strings.Repeat("x", 4096)+"\r\n", 16) + "0\r\n\r\n")
	out := make([]byte, 0, len(body))
	b.SetBytes(int64(len(body)))
	b.Run("next", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var c Chunks
			for rest, complete := body, false; !complete; {
				var n int
				_, n, complete, _ = c.Next(rest)
				rest = rest[n:]
			}
		}
	})
	b.Run("strip", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var c Chunks
			out, _, _, _, _ = c.Strip(out[:0], body)
		}
	})
}

func BenchmarkFrames(b *testing.B) {
	var all []byte
	for range 64 {
		all = append(all, frame(1, 100, true)...)
	}
	b.SetBytes(int64(len(all)))
	for b.Loop() {
		var f Frames
		if f.Follow(all) != len(all) {
			b.Fatal("no boundary")
		}
	}
}
