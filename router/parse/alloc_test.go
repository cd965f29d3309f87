//go:build !race

package parse

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dovakiin0/agent-sandbox/router/record"
)

// requestHead and responseHead are as large as common ones, with ids as long as they may be.
var (
	requestHead = []byte(notation.Replace("POST /v1/files/a%2Fb?x=1 HTTP/1.1⏎Host: sandbox-router-svc.agent-sandbox-system:8080⏎User-Agent: python-requests/2.32⏎" +
		"Accept-Encoding: gzip, deflate⏎Accept: */*⏎Connection: keep-alive, X-Hop⏎X-Hop: 1⏎X-Sandbox-ID: " + label63 + "⏎X-Sandbox-Namespace: " + label63 +
		"⏎X-Sandbox-Port: 8888⏎X-Sandbox-Pod-IP: 10.128.3.7⏎X-Sandbox-Timeout: 59.998⏎X-Sandbox-UID: " + label63 + "⏎X-Request-ID: " + label63 +
		"⏎traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01⏎Content-Type: application/json⏎Content-Length: 40⏎⏎"))
	responseHead = []byte(notation.Replace("HTTP/1.1 200 OK⏎date: Mon, 30 Nov 2026 14:00:00 GMT⏎server: uvicorn⏎content-type: application/json⏎Content-Length: 120⏎" +
		"Connection: keep-alive⏎Keep-Alive: timeout=5⏎X-Request-ID: " + label63 + "⏎⏎"))
)

func TestParsingDoesNotAllocate(t *testing.T) {
	var q Request
	var p Response
	var to Address
	addressing := &Addressing{Domain: "example.com"}
	forwarding := &Forwarding{Peer: []byte("10.0.0.1"), Proto: "http"}
	out := make([]byte, 0, 4096)
	body := []byte(notation.Replace("5;x=y⏎hello⏎0⏎A: 1⏎⏎"))
	var accept [28]byte
	require.Equal(t, record.OK, q.Parse(requestHead))
	require.Equal(t, record.OK, addressing.Read(&q, &to))
	require.True(t, p.Parse(responseHead, false))
	for what, step := range map[string]func(){
		"request":  func() { q.Parse(requestHead[:HeadEnd(requestHead)]) },
		"address":  func() { addressing.Names(&q); addressing.Read(&q, &to) },
		"forward":  func() { out = q.AppendTo(out[:0], forwarding) },
		"response": func() { p.Parse(responseHead, false); out = p.AppendTo(out[:0], false, true) },
		"accept":   func() { AcceptOf([]byte("dGhlIHNhbXBsZSBub25jZQ=="), &accept) },
		"chunks":   func() { var c Chunks; out, _, _, _, _ = c.Strip(out[:0], body) },
	} {
		assert.Zero(t, testing.AllocsPerRun(100, step), what)
	}
}
