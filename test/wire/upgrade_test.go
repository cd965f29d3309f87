package wire

import (
	"crypto/sha1"
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

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
	t.Parallel()
	r := shared(t)
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
}

// TestWebSocketSeesTheSameHeadersAsHTTP: an application cannot tell from Host, forwarding or its own fields how it was
// called.
func TestWebSocketSeesTheSameHeadersAsHTTP(t *testing.T) {
	t.Parallel()
	r := shared(t)
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
}

// TestSubprotocolIsTheSandboxsChoice: the router selects nothing (RFC 6455, section 4.2.2).
func TestSubprotocolIsTheSandboxsChoice(t *testing.T) {
	t.Parallel()
	r := shared(t)
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
}

// TestWebSocketAskedInOtherSpellings: tokens compare without case and stand in lists (RFC 9110, sections 5.6.1 and 7.8).
func TestWebSocketAskedInOtherSpellings(t *testing.T) {
	t.Parallel()
	r := shared(t)
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
}

// TestOtherUpgradesAreNotForwarded: Upgrade is for one hop, and only WebSocket is understood here (RFC 9110, section
// 7.8). The request goes on as plain HTTP, or is refused; it never becomes a tunnel.
func TestOtherUpgradesAreNotForwarded(t *testing.T) {
	t.Parallel()
	r := shared(t)
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
}

// TestUpgradeRefusedBySandbox: any final answer but 101 is a normal response, and what the client sends behind its
// handshake is a normal request, with all checks.
func TestUpgradeRefusedBySandbox(t *testing.T) {
	t.Parallel()
	r := shared(t)
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
}

// TestWrongSwitch: a 101 that does not answer the handshake opens no tunnel (RFC 6455, section 4.1).
func TestWrongSwitch(t *testing.T) {
	t.Parallel()
	r := shared(t)
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
}

// TestBytesBehindTheHandshake: frames that stand right behind the handshake on either side are delivered, wherever the
// network split the bytes.
func TestBytesBehindTheHandshake(t *testing.T) {
	t.Parallel()
	r := shared(t)
	const masked, plain = "\x81\x85\x01\x02\x03\x04igomn", "\x81\x05world"
	const parts = 8 // in which the offsets are tried at the same time
	for part := range parts {
		t.Run(fmt.Sprintf("of the client %d", part), func(t *testing.T) {
			t.Parallel()
			s := r.sandbox(t)
			whole := notation.Replace(s.handshake()) + masked
			for at := 1 + part; at <= len(whole); at += parts {
				c := r.dial(t)
				c.send(whole[:at], whole[at:])
				u := s.accept()
				u.request()
				u.send(switching(""))
				require.Equal(t, 101, c.response("GET").status)
				require.Equal(t, masked, string(u.take(len(masked))), "split at %d", at)
				echoes(c, u, "more")
				c.close()
				u.close()
			}
		})
		t.Run(fmt.Sprintf("of the sandbox %d", part), func(t *testing.T) {
			t.Parallel()
			s := r.sandbox(t)
			whole := notation.Replace(switching("")) + plain
			for at := 1 + part; at <= len(whole); at += parts {
				c := r.dial(t)
				c.send(s.handshake())
				u := s.accept()
				u.request()
				u.send(whole[:at], whole[at:])
				require.Equal(t, 101, c.response("GET").status)
				require.Equal(t, plain, string(c.take(len(plain))), "split at %d", at)
				echoes(c, u, "more")
				c.close()
				u.close()
			}
		})
	}
}

// TestTunnelPassesAnyBytes: the router splices; it neither assembles nor judges messages (RFC 6455, section 5.4).
func TestTunnelPassesAnyBytes(t *testing.T) {
	t.Parallel()
	r := shared(t)
	t.Run("no frames at all", func(t *testing.T) {
		t.Parallel()
		c, u := r.tunnel(t, r.sandbox(t))
		echoes(c, u, "GET / HTTP/1.1⏎Host: a⏎⏎␀\xff\xfe")
	})
	t.Run("control frames", func(t *testing.T) {
		t.Parallel()
		c, u := r.tunnel(t, r.sandbox(t))
		c.write([]byte("\x89\x84\x00\x00\x00\x00ping"))
		require.Equal(t, "\x89\x84\x00\x00\x00\x00ping", string(u.take(10)))
		u.write([]byte("\x8a\x04ping"))
		require.Equal(t, "\x8a\x04ping", string(c.take(6)))
	})
	t.Run("a large frame each way at once", func(t *testing.T) {
		t.Parallel()
		const size = 16 << 20
		c, u := r.tunnel(t, r.sandbox(t))
		c.write([]byte("\x82\xff\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00"))
		u.write([]byte("\x82\x7f\x00\x00\x00\x00\x01\x00\x00\x00"))
		errs := make(chan error, 2)
		for _, from := range []*conn{c, u} {
			go func() {
				_, err := from.flood(size, patience)
				errs <- err
			}()
		}
		u.take(14)
		c.take(10)
		for at := 0; at < size; at += 1 << 20 {
			require.Equal(t, patterned(at, 1<<20), u.take(1<<20))
			require.Equal(t, patterned(at, 1<<20), c.take(1<<20))
		}
		require.NoError(t, <-errs)
		require.NoError(t, <-errs)
	})
}

// TestTunnelHalfClose: the end of one direction is passed on and leaves the other one open.
func TestTunnelHalfClose(t *testing.T) {
	t.Parallel()
	r := shared(t)
	for _, who := range []string{"client", "sandbox"} {
		t.Run(who+" first", func(t *testing.T) {
			t.Parallel()
			one, other := r.tunnel(t, r.sandbox(t))
			if who == "sandbox" {
				one, other = other, one
			}
			one.send("last")
			one.closeWrite()
			other.expect("last")
			other.eof()
			for range 3 {
				other.send("still here")
				one.expect("still here")
			}
			other.closeWrite()
			one.eof()
		})
	}
}

// TestTunnelReset: a side that is gone takes the other one with it.
func TestTunnelReset(t *testing.T) {
	t.Parallel()
	r := shared(t)
	for _, who := range []string{"client", "sandbox"} {
		t.Run(who, func(t *testing.T) {
			t.Parallel()
			one, other := r.tunnel(t, r.sandbox(t))
			if who == "sandbox" {
				one, other = other, one
			}
			echoes(one, other, "x")
			one.reset()
			other.gone()
		})
	}
}

// TestTunnelSlowReader: a tunnel holds back a fast side for a slow one and loses nothing.
func TestTunnelSlowReader(t *testing.T) {
	t.Parallel()
	r := shared(t)
	c, u := r.tunnel(t, r.sandbox(t))
	sent, err := u.flood(largeBody, stall)
	require.Error(t, err, "the sandbox was never stopped")
	for at := 0; at < sent; {
		n := min(1<<20, sent-at)
		require.Equal(t, patterned(at, n), c.take(n))
		at += n
	}
	echoes(c, u, "still alive")
}

// TestTunnelEndsWithItsSandbox: when the endpoint leaves the table, so do its tunnels.
func TestTunnelEndsWithItsSandbox(t *testing.T) {
	t.Parallel()
	r := ownRouter(t, numberedRoutes(1))
	c, u := r.tunnel(t, r.sandbox(t))
	echoes(c, u, "x")
	r.setRoutes(t)
	c.rest() // a Close frame is welcome
	u.rest()
}

// TestTunnelOutlivesHeadDeadlines: the limits for heads end with the handshake.
func TestTunnelOutlivesHeadDeadlines(t *testing.T) {
	t.Parallel()
	r := routerWith(t, "--client-header-timeout=2s", "--client-idle-timeout=2s", "--response-header-timeout=2s", "--proxy-timeout=2s", "--stream-idle-timeout=2s")
	c, u := r.tunnel(t, r.sandbox(t))
	time.Sleep(3500 * time.Millisecond)
	echoes(c, u, "alive")
}

// TestWebSocketLimits: idle time, life time and number for each client are limited by flags.
func TestWebSocketLimits(t *testing.T) {
	t.Parallel()
	t.Run("idle", func(t *testing.T) {
		t.Parallel()
		r := routerWith(t, "--websocket-idle-timeout=1s")
		c, u := r.tunnel(t, r.sandbox(t))
		c.rest() // a Close frame is welcome
		u.rest()
	})
	for _, who := range []string{"client", "sandbox"} {
		t.Run("traffic of the "+who+" alone is traffic", func(t *testing.T) {
			t.Parallel()
			r := routerWith(t, "--websocket-idle-timeout=3s")
			one, other := r.tunnel(t, r.sandbox(t))
			if who == "sandbox" {
				one, other = other, one
			}
			for range 20 {
				time.Sleep(200 * time.Millisecond)
				one.send(".")
				other.expect(".")
			}
			echoes(one, other, "alive")
		})
	}
	t.Run("lifetime", func(t *testing.T) {
		t.Parallel()
		r := routerWith(t, "--websocket-max-lifetime=1s")
		c, u := r.tunnel(t, r.sandbox(t))
		go func() { // busy to the end
			for {
				if _, err := c.tcp.Write([]byte("\x8a\x80\x00\x00\x00\x00")); err != nil {
					return
				}
				time.Sleep(50 * time.Millisecond)
			}
		}()
		u.rest()
		c.rest()
	})
	t.Run("number for each client", func(t *testing.T) {
		t.Parallel()
		r := routerWith(t, limits...)
		ask := func(address string) (*conn, *sandbox) {
			c, s := r.dialFrom(t, address), r.sandbox(t)
			c.send(s.handshake())
			eventually(t, "an answer or a connection", func() bool { return s.pending() || c.readable() })
			return c, s
		}
		open := func(address string) (c, u *conn) {
			c, s := ask(address)
			u = s.accept()
			u.request()
			u.send(switching(""))
			require.Equal(t, 101, c.response("GET").status)
			return c, u
		}
		crowded, other := freshAddress(), freshAddress()
		first, firstUp := open(crowded)
		open(crowded)

		refused, s := ask(crowded)
		ownAnswer(t, refused.response("GET"), 429, "too_many_requests", false)
		s.untouched()
		open(other)

		first.close()
		firstUp.eof()
		firstUp.close()
		eventually(t, "a free place", func() bool {
			_, s := ask(crowded)
			return s.pending()
		})
	})
}
