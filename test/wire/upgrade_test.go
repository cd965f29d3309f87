package wire

import (
	"crypto/sha1"
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The handshake of RFC 6455, section 1.3, with the answer that belongs to its key.
const (
	webSocketKey   = "dGhlIHNhbXBsZSBub25jZQ=="
	handshakeLines = "Connection: Upgrade⏎Upgrade: websocket⏎Sec-WebSocket-Version: 13⏎Sec-WebSocket-Key: " + webSocketKey + "⏎"
)

// switching is the 101 answer to handshakeLines with more field lines.
func switching(lines string) string {
	return "HTTP/1.1 101 Switching Protocols⏎Upgrade: websocket⏎Connection: Upgrade⏎Sec-WebSocket-Accept: " + acceptOf(webSocketKey) + "⏎" + lines + "⏎"
}

// acceptOf computes Sec-WebSocket-Accept (RFC 6455, section 4.2.2).
func acceptOf(key string) string {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// handshake is an upgrade request to the sandbox with more header lines.
func (s *sandbox) handshake(lines ...string) string {
	return "GET /ws HTTP/1.1⏎Host: app⏎" + s.route() + handshakeLines + strings.Join(append(lines, ""), "⏎") + "⏎"
}

// tunnel opens a WebSocket through the router and returns both ends.
func (r *router) tunnel(t testing.TB, s *sandbox) (c, u *conn) {
	t.Helper()
	c = r.dial(t)
	c.send(s.handshake())
	u = s.accept()
	u.request()
	u.send(switching(""))
	require.Equal(t, http.StatusSwitchingProtocols, c.response("GET").status)
	return c, u
}

// echoes wants bytes to pass both ways.
func echoes(c, u *conn, text string) {
	c.t.Helper()
	c.send(">" + text)
	u.expect(">" + text)
	u.send("<" + text)
	c.expect("<" + text)
}

// TestWebSocket: the handshake passes with its own fields untouched, then bytes pass both ways until both sides end.
func TestWebSocket(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		s := r.sandbox(t)
		c := r.dial(t)
		c.send(s.handshake("Sec-WebSocket-Protocol: a, b", "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits",
			"Origin: http://o", "Cookie: a=1", "Cookie: b=2", "Authorization: Bearer app", "X-Custom: 1", "X-Sandbox-Token: t"))
		u := s.accept()
		request := u.request()
		require.Equal(t, "GET /ws HTTP/1.1", request.line)
		requireNoRouting(t, request.fields)
		require.Equal(t, "upgrade", strings.ToLower(request.fields.get("Connection")))
		require.Equal(t, "websocket", request.fields.get("Upgrade"))
		require.Equal(t, []string{
			"Host: app", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: " + webSocketKey, "Sec-WebSocket-Protocol: a, b",
			"Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits", "Origin: http://o", "Cookie: a=1", "Cookie: b=2",
			"Authorization: Bearer app", "X-Custom: 1",
		}, request.fields.lines(append(routerOwned, "Connection", "Upgrade")...))

		u.send(switching("Sec-WebSocket-Protocol: b⏎Sec-WebSocket-Extensions: permessage-deflate⏎Set-Cookie: c=3⏎Keep-Alive: x⏎"))
		resp := c.response("GET")
		require.Equal(t, 101, resp.status)
		require.Equal(t, "upgrade", strings.ToLower(resp.fields.get("Connection")))
		require.Equal(t, "websocket", resp.fields.get("Upgrade"))
		require.Equal(t, []string{
			"Sec-WebSocket-Accept: " + acceptOf(webSocketKey), "Sec-WebSocket-Protocol: b",
			"Sec-WebSocket-Extensions: permessage-deflate", "Set-Cookie: c=3",
		}, resp.fields.lines("Connection", "Upgrade"))
		echoes(c, u, "hello")
		c.close()
		u.eof()
	})
}

// TestWebSocketSeesTheSameHeadersAsHTTP: an application cannot tell from Host, forwarding or its own fields how it was
// called.
func TestWebSocketSeesTheSameHeadersAsHTTP(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		s := r.sandbox(t)
		own := []string{"X-App-Token: 1", "Cookie: a=1; b", "Authorization: Basic eDp5", "Accept-Language: en", "X-Forwarded-For: 1.2.3.4"}
		var seen [][]string
		for _, request := range []string{s.get("/ws?a=%2F", own...), strings.Replace(s.handshake(own...), "/ws", "/ws?a=%2F", 1)} {
			c := r.dial(t)
			c.send(request)
			u := s.accept()
			got := u.request()
			require.Equal(t, "/ws?a=%2F", got.target)
			lines := got.fields.lines("Connection", "Upgrade", "Sec-WebSocket-Key", "Sec-WebSocket-Version")
			slices.Sort(lines)
			seen = append(seen, lines)
			u.send("HTTP/1.1 200 OK⏎Connection: close⏎Content-Length: 0⏎⏎")
			c.response("GET").text()
		}
		require.Equal(t, seen[0], seen[1])
	})
}

// TestSubprotocolIsTheSandboxsChoice: the router selects nothing (RFC 6455, section 4.2.2).
func TestSubprotocolIsTheSandboxsChoice(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		for _, row := range []struct{ name, answer, want string }{
			{"second offer", "Sec-WebSocket-Protocol: b⏎", "b"},
			{"none", "", ""},
		} {
			t.Run(row.name, func(t *testing.T) {
				t.Parallel()
				s := r.sandbox(t)
				c := r.dial(t)
				c.send(s.handshake("Sec-WebSocket-Protocol: a, b"))
				u := s.accept()
				u.request()
				u.send(switching(row.answer))
				resp := c.response("GET")
				require.Equal(t, 101, resp.status)
				require.Equal(t, row.want, resp.fields.get("Sec-WebSocket-Protocol"))
			})
		}
	})
}

// TestWebSocketAskedInOtherSpellings: tokens compare without case and stand in lists (RFC 9110, sections 5.6.1 and 7.8).
func TestWebSocketAskedInOtherSpellings(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		for _, row := range []struct{ name, lines string }{
			{"keep-alive, Upgrade", "Connection: keep-alive, Upgrade⏎Upgrade: websocket⏎"},
			{"lower case", "connection: upgrade⏎upgrade: websocket⏎"},
			{"upper case", "CONNECTION: UPGRADE⏎UPGRADE: WEBSOCKET⏎"},
			{"two Connection lines", "Connection: keep-alive⏎Connection: Upgrade⏎Upgrade: websocket⏎"},
			{"first Connection line empty", "Connection:⏎Connection: Upgrade⏎Upgrade: websocket⏎"},
			{"list with empty elements", "Connection: ,Upgrade,⏎Upgrade: websocket⏎"},
		} {
			t.Run(row.name, func(t *testing.T) {
				t.Parallel()
				s := r.sandbox(t)
				c := r.dial(t)
				c.send("GET /ws HTTP/1.1⏎Host: app⏎" + s.route() + row.lines + "Sec-WebSocket-Version: 13⏎Sec-WebSocket-Key: " + webSocketKey + "⏎⏎")
				u := s.accept()
				request := u.request()
				require.Equal(t, "upgrade", strings.ToLower(request.fields.get("Connection")))
				require.Equal(t, "websocket", strings.ToLower(request.fields.get("Upgrade")))
				u.send(strings.Replace(strings.Replace(switching(""), "Connection: Upgrade", "connection: keep-alive, UPGRADE", 1), "websocket", "WebSocket", 1))
				require.Equal(t, 101, c.response("GET").status)
				echoes(c, u, "hello")
			})
		}
	})
}

// TestOtherUpgradesAreNotForwarded: Upgrade is for one hop, and only WebSocket is understood here (RFC 9110, section
// 7.8). The request goes on as plain HTTP, or is refused; it never becomes a tunnel.
func TestOtherUpgradesAreNotForwarded(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		for _, row := range []struct{ name, request string }{
			{"h2c", "GET / HTTP/1.1⏎Host: app⏎{route}Connection: Upgrade, HTTP2-Settings⏎Upgrade: h2c⏎HTTP2-Settings: AAMAAABkAAQAAP__⏎⏎"},
			{"h2c, websocket", "GET / HTTP/1.1⏎Host: app⏎{route}Connection: Upgrade⏎Upgrade: h2c, websocket⏎⏎"},
			{"websocket, h2c", "GET / HTTP/1.1⏎Host: app⏎{route}Connection: Upgrade⏎Upgrade: websocket, h2c⏎⏎"},
			{"h2c and websocket on two lines", "GET / HTTP/1.1⏎Host: app⏎{route}Connection: Upgrade⏎Upgrade: h2c⏎Upgrade: websocket⏎⏎"},
			{"websocket with a version", "GET / HTTP/1.1⏎Host: app⏎{route}Connection: Upgrade⏎Upgrade: websocket/13⏎⏎"},
			{"xwebsocket", "GET / HTTP/1.1⏎Host: app⏎{route}Connection: Upgrade⏎Upgrade: xwebsocket⏎⏎"},
			{"TLS/1.0", "GET / HTTP/1.1⏎Host: app⏎{route}Connection: Upgrade⏎Upgrade: TLS/1.0⏎⏎"},
			{"foo", "GET / HTTP/1.1⏎Host: app⏎{route}Connection: Upgrade⏎Upgrade: foo⏎⏎"},
			{"empty Upgrade", "GET / HTTP/1.1⏎Host: app⏎{route}Connection: Upgrade⏎Upgrade:⏎⏎"},
			{"no Connection", "GET / HTTP/1.1⏎Host: app⏎{route}Upgrade: websocket⏎Sec-WebSocket-Key: " + webSocketKey + "⏎⏎"},
			{"Connection without the token", "GET / HTTP/1.1⏎Host: app⏎{route}Connection: keep-alive, xupgrade⏎Upgrade: websocket⏎Sec-WebSocket-Key: " + webSocketKey + "⏎⏎"},
			{"no Upgrade", "GET / HTTP/1.1⏎Host: app⏎{route}Connection: Upgrade⏎Sec-WebSocket-Key: " + webSocketKey + "⏎⏎"},
			{"HTTP/1.0", "GET / HTTP/1.0⏎Host: app⏎{route}" + handshakeLines + "⏎"},
			{"POST", "POST / HTTP/1.1⏎Host: app⏎{route}" + handshakeLines + "Content-Length: 2⏎⏎hi"},
		} {
			t.Run(row.name, func(t *testing.T) {
				t.Parallel()
				s := r.sandbox(t)
				c := r.dial(t)
				c.send(s.fill(row.request))
				eventually(t, "an answer or a connection", func() bool { return s.pending() || c.readable() })
				if !s.pending() {
					ownAnswer(t, c.response("GET"), 400, "invalid_request", false)
					return
				}
				u := s.accept()
				request := u.request()
				require.False(t, request.fields.has("Upgrade"))
				require.False(t, request.fields.has("Connection"))
				require.False(t, request.fields.has("HTTP2-Settings"))
				request.text()
				u.send("HTTP/1.1 101 Switching Protocols⏎Upgrade: websocket⏎Connection: Upgrade⏎Sec-WebSocket-Accept: " + acceptOf(webSocketKey) + "⏎⏎")
				ownAnswer(t, c.response("GET"), 502, "bad_response", true)
				u.gone()
			})
		}
	})
}

// TestUpgradeRefusedBySandbox: any final answer but 101 is a normal response, and what the client sends behind its
// handshake is a normal request, with all checks.
func TestUpgradeRefusedBySandbox(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		for _, row := range []struct{ name, response, want string }{
			{"403 with length", "403 Forbidden⏎Content-Length: 2⏎⏎no", "no"},
			{"401 with challenge", "401 Unauthorized⏎WWW-Authenticate: Bearer⏎Content-Length: 2⏎⏎no", "no"},
			{"426", "426 Upgrade Required⏎Upgrade: websocket⏎Connection: Upgrade⏎Content-Length: 2⏎⏎no", "no"},
			{"200 chunked", "200 OK⏎Transfer-Encoding: chunked⏎⏎5⏎hello⏎0⏎⏎", "hello"},
			{"302", "302 Found⏎Location: /login⏎Content-Length: 0⏎⏎", ""},
			{"503", "503 Service Unavailable⏎Retry-After: 5⏎Content-Length: 0⏎⏎", ""},
		} {
			t.Run(row.name, func(t *testing.T) {
				t.Parallel()
				s := r.sandbox(t)
				c := r.dial(t)
				c.send(s.handshake() + "GET /admin HTTP/1.1⏎Host: app⏎⏎")
				u := s.accept()
				u.request()
				u.send("HTTP/1.1 " + row.response)
				resp := c.response("GET")
				require.Equal(t, row.response[:3], fmt.Sprint(resp.status))
				require.False(t, resp.fields.has("Upgrade"))
				require.Equal(t, row.want, resp.text())
				if resp.fields.get("Connection") == "close" {
					c.gone()
					return
				}
				a := ownAnswer(t, c.response("GET"), 400, "invalid_request", false)
				require.Equal(t, detailIDRequired, a.Detail)
			})
		}
		t.Run("connection ends before an answer", func(t *testing.T) {
			t.Parallel()
			s := r.sandbox(t)
			c := r.dial(t)
			c.send(s.handshake())
			u := s.accept()
			u.request()
			u.close()
			ownAnswer(t, c.response("GET"), 502, "upstream_closed", true)
			s.untouched()
		})
		t.Run("103 before 101", func(t *testing.T) {
			t.Parallel()
			s := r.sandbox(t)
			c := r.dial(t)
			c.send(s.handshake())
			u := s.accept()
			u.request()
			u.send("HTTP/1.1 103 Early Hints⏎A: 1⏎⏎" + switching(""))
			require.Equal(t, 103, c.response("GET").status)
			require.Equal(t, 101, c.response("GET").status)
			echoes(c, u, "hello")
		})
	})
}

// TestWrongSwitch: a 101 that does not answer the handshake opens no tunnel (RFC 6455, section 4.1).
func TestWrongSwitch(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		accept := "Sec-WebSocket-Accept: " + acceptOf(webSocketKey) + "⏎"
		for _, row := range []struct{ name, lines string }{
			{"no Upgrade", "Connection: Upgrade⏎" + accept},
			{"Upgrade to another protocol", "Connection: Upgrade⏎Upgrade: h2c⏎" + accept},
			{"Upgrade list", "Connection: Upgrade⏎Upgrade: websocket, h2c⏎" + accept},
			{"no Connection", "Upgrade: websocket⏎" + accept},
			{"Connection without the token", "Connection: keep-alive⏎Upgrade: websocket⏎" + accept},
			{"no Accept", "Connection: Upgrade⏎Upgrade: websocket⏎"},
			{"empty Accept", "Connection: Upgrade⏎Upgrade: websocket⏎Sec-WebSocket-Accept:⏎"},
			{"Accept of another key", "Connection: Upgrade⏎Upgrade: websocket⏎Sec-WebSocket-Accept: " + acceptOf("AAAAAAAAAAAAAAAAAAAAAA==") + "⏎"},
			{"Accept in other case", "Connection: Upgrade⏎Upgrade: websocket⏎Sec-WebSocket-Accept: " + strings.ToLower(acceptOf(webSocketKey)) + "⏎"},
			{"nothing at all", ""},
		} {
			t.Run(row.name, func(t *testing.T) {
				t.Parallel()
				s := r.sandbox(t)
				c := r.dial(t)
				c.send(s.handshake())
				u := s.accept()
				u.request()
				u.send("HTTP/1.1 101 Switching Protocols⏎" + row.lines + "⏎\x81\x02hi")
				ownAnswer(t, c.response("GET"), 502, "bad_response", true)
				u.gone()
			})
		}
	})
}
