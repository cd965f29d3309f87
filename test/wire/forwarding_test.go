package wire

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestNominatingRouterOwnedFields: the router adds its own fields after it obeyed Connection, so a client can remove
// only its own.
func TestNominatingRouterOwnedFields(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		s := r.sandbox(t)
		c := r.dial(t)
		c.send(s.get("/", "Connection:", "Connection: X-Forwarded-For, x-forwarded-host, X-Forwarded-Proto, x-sandbox-id, keep-alive",
			"X-Forwarded-For: 1.2.3.4", "Keep-Alive: timeout=5", "Proxy-Connection: x", "TE: trailers", "Upgrade: h2c"))
		u := s.accept()
		require.Equal(t, []string{"Host: app", "X-Forwarded-For: 127.0.0.1", "X-Forwarded-Host: app", "X-Forwarded-Proto: " + r.scheme()},
			u.request().fields.lines())
		u.ok("")
		c.response("GET").text()
	})
}

// TestForwardingFieldsOfStrangers: a caller outside --trusted-proxy-cidrs says nothing about who it is.
func TestForwardingFieldsOfStrangers(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		s := r.sandbox(t)
		c := r.dialFrom(t, "127.66.7.8")
		c.send(s.get("/", "X-Forwarded-For: 10.0.0.1", "X-Forwarded-For: 10.0.0.2", "X-Forwarded-Proto: https", "X-Forwarded-Host: evil",
			"X-Forwarded-Port: 443", "X-Forwarded-Server: evil", "X-Forwarded-Prefix: /evil", "Forwarded: for=x", "X-Real-IP: 10.0.0.3"))
		u := s.accept()
		require.ElementsMatch(t, []string{"Host: app", "X-Forwarded-For: 127.66.7.8", "X-Forwarded-Host: app", "X-Forwarded-Proto: " + r.scheme()},
			u.request().fields.lines())
		u.ok("")
		c.response("GET").text()
	})
}

// TestForwardingFieldsOfTrustedProxies: one list, appended to; host and scheme as the first proxy saw them.
func TestForwardingFieldsOfTrustedProxies(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.routerWith(t, "--trusted-proxy-cidrs=127.55.0.0/16,127.56.1.1/32")
		for _, row := range []struct{ name, peer, send, want string }{
			{"appended, kept", "127.55.1.2", "X-Forwarded-For: 10.0.0.1⏎X-Forwarded-Proto: https⏎X-Forwarded-Host: public⏎",
				"X-Forwarded-For: 10.0.0.1, 127.55.1.2⏎X-Forwarded-Host: public⏎X-Forwarded-Proto: https⏎"},
			{"two lines become one list", "127.55.1.2", "X-Forwarded-For: 10.0.0.1, 10.0.0.2⏎X-Forwarded-For: 10.0.0.3⏎",
				"X-Forwarded-For: 10.0.0.1, 10.0.0.2, 10.0.0.3, 127.55.1.2⏎X-Forwarded-Host: app⏎X-Forwarded-Proto: {scheme}⏎"},
			{"absent ones set", "127.56.1.1", "", "X-Forwarded-For: 127.56.1.1⏎X-Forwarded-Host: app⏎X-Forwarded-Proto: {scheme}⏎"},
			{"empty one ignored", "127.56.1.1", "X-Forwarded-For:⏎", "X-Forwarded-For: 127.56.1.1⏎X-Forwarded-Host: app⏎X-Forwarded-Proto: {scheme}⏎"},
			{"neighbour is a stranger", "127.56.1.2", "X-Forwarded-For: 10.0.0.1⏎X-Forwarded-Proto: https⏎",
				"X-Forwarded-For: 127.56.1.2⏎X-Forwarded-Host: app⏎X-Forwarded-Proto: {scheme}⏎"},
		} {
			t.Run(row.name, func(t *testing.T) {
				t.Parallel()
				s := r.sandbox(t)
				c := r.dialFrom(t, row.peer)
				c.send("GET / HTTP/1.1⏎Host: app⏎" + s.route() + row.send + "⏎")
				u := s.accept()
				require.ElementsMatch(t, append([]string{"Host: app"}, linesOf(strings.ReplaceAll(row.want, "{scheme}", r.scheme()))...), u.request().fields.lines())
				u.ok("")
				c.response("GET").text()
			})
		}
	})
}

// TestHostPreserved: the sandbox sees the Host that the client sent, byte for byte (RFC 9110, section 7.2).
func TestHostPreserved(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		for _, host := range []string{"app", "App.Example:8080", "127.0.0.1", "[::1]:80", "a_b.example", "localhost", "xn--bcher-kva.example"} {
			t.Run(host, func(t *testing.T) {
				t.Parallel()
				s := r.sandbox(t)
				c := r.dial(t)
				c.send("GET / HTTP/1.1⏎Host: " + host + "⏎" + s.route() + "⏎")
				u := s.accept()
				fs := u.request().fields
				assert.Equal(t, []string{host}, fs.all("Host"))
				assert.Equal(t, []string{host}, fs.all("X-Forwarded-Host"))
				u.ok("")
				c.response("GET").text()
			})
		}
	})
}

// TestUpstreamHostAddress: with --upstream-host=address the sandbox sees its own address, for HTTP and WebSocket alike.
func TestUpstreamHostAddress(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.routerWith(t, "--upstream-host=address")
		for _, row := range []struct{ name, lines string }{
			{"HTTP", ""},
			{"WebSocket", handshakeLines},
		} {
			t.Run(row.name, func(t *testing.T) {
				t.Parallel()
				s := r.sandbox(t)
				c := r.dial(t)
				c.send("GET / HTTP/1.1⏎Host: app⏎" + s.route() + row.lines + "⏎")
				u := s.accept()
				fs := u.request().fields
				assert.Equal(t, []string{s.address + ":" + s.port}, fs.all("Host"))
				assert.Equal(t, []string{"app"}, fs.all("X-Forwarded-Host"))
				u.ok("")
				c.response("GET").text()
			})
		}
	})
}
