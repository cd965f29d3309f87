package wire

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestBytesBehindTheHandshake: frames that stand right behind the handshake on either side are delivered, wherever the
// network split the bytes.
func TestBytesBehindTheHandshake(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
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
	})
}

// TestTunnelPassesAnyBytes: the router splices; it neither assembles nor judges messages (RFC 6455, section 5.4).
func TestTunnelPassesAnyBytes(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
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
				require.Equal(t, Pattern(at, 1<<20), u.take(1<<20))
				require.Equal(t, Pattern(at, 1<<20), c.take(1<<20))
			}
			require.NoError(t, <-errs)
			require.NoError(t, <-errs)
		})
	})
}

// TestTunnelHalfClose: the end of one direction is passed on and leaves the other one open.
func TestTunnelHalfClose(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
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
	})
}

// TestTunnelReset: a side that is gone takes the other one with it.
func TestTunnelReset(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
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
	})
}

// TestTunnelSlowReader: a tunnel holds back a fast side for a slow one and loses nothing.
func TestTunnelSlowReader(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		c, u := r.tunnel(t, r.sandbox(t))
		sent, err := u.flood(largeBody, stall)
		require.Error(t, err, "the sandbox was never stopped")
		for at := 0; at < sent; {
			n := min(1<<20, sent-at)
			require.Equal(t, Pattern(at, n), c.take(n))
			at += n
		}
		echoes(c, u, "still alive")
	})
}

// TestTunnelEndsWithItsSandbox: when the endpoint leaves the table, so do its tunnels.
func TestTunnelEndsWithItsSandbox(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.ownRouter(t, numberedRoutes(1))
		c, u := r.tunnel(t, r.sandbox(t))
		echoes(c, u, "x")
		r.setRoutes(t)
		c.rest() // a Close frame is welcome
		u.rest()
	})
}

// TestTunnelOutlivesHeadDeadlines: the limits for heads end with the handshake.
func TestTunnelOutlivesHeadDeadlines(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.routerWith(t, "--client-header-timeout=2s", "--client-idle-timeout=2s", "--response-header-timeout=2s", "--proxy-timeout=2s", "--stream-idle-timeout=2s")
		c, u := r.tunnel(t, r.sandbox(t))
		time.Sleep(3500 * time.Millisecond)
		echoes(c, u, "alive")
	})
}

// TestWebSocketLimits: idle time, life time and number for each client are limited by flags.
func TestWebSocketLimits(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		t.Run("idle", func(t *testing.T) {
			t.Parallel()
			r := p.routerWith(t, "--websocket-idle-timeout=1s")
			c, u := r.tunnel(t, r.sandbox(t))
			c.rest() // a Close frame is welcome
			u.rest()
		})
		for _, who := range []string{"client", "sandbox"} {
			t.Run("traffic of the "+who+" alone is traffic", func(t *testing.T) {
				t.Parallel()
				r := p.routerWith(t, "--websocket-idle-timeout=3s")
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
			r := p.routerWith(t, "--websocket-max-lifetime=1s")
			c, u := r.tunnel(t, r.sandbox(t))
			go c.drip("\x8a\x80\x00\x00\x00\x00") // busy to the end
			u.rest()
			c.rest()
		})
		t.Run("number for each client behind a trusted proxy", func(t *testing.T) {
			t.Parallel()
			r := p.routerWith(t, "--websocket-max-connections-per-client=1", "--trusted-proxy-cidrs=127.55.0.0/16")
			const proxy = "127.55.3.4"
			one, other, stranger := freshAddress(), freshAddress(), freshAddress()
			ask := func(peer, forwardedFor string) (*conn, *sandbox) {
				c, s := r.dialFrom(t, peer), r.sandbox(t)
				c.send(s.handshake("X-Forwarded-For: " + forwardedFor))
				return c, s
			}
			open := func(peer, forwardedFor string) {
				c, s := ask(peer, forwardedFor)
				u := s.accept()
				u.request()
				u.send(switching(""))
				require.Equal(t, 101, c.response("GET").status)
			}
			refused := func(peer, forwardedFor string) {
				c, s := ask(peer, forwardedFor)
				ownAnswer(t, c.response("GET"), 429, "too_many_requests", false)
				s.untouched()
			}
			open(proxy, one)
			open(proxy, other)
			refused(proxy, "203.0.113.9, "+one+", 127.55.9.9")
			open(stranger, freshAddress())
			refused(stranger, freshAddress())
		})
		t.Run("number for each client", func(t *testing.T) {
			t.Parallel()
			r := p.routerWith(t, limits...)
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
	})
}
