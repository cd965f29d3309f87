package wire

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestTimeoutHeaderShortens: X-Sandbox-Timeout: 1 ends the wait after a second though the operator allows minutes.
func TestTimeoutHeaderShortens(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		s := r.sandbox(t)
		c := r.dial(t)
		start := time.Now()
		c.send(s.post("/", "hello", "X-Sandbox-Timeout: 1"))
		u := s.accept()
		require.Equal(t, "hello", u.request().text())
		ownAnswer(t, c.response("POST"), 504, "timeout", true)
		require.GreaterOrEqual(t, time.Since(start), 900*time.Millisecond, "the caller asked for one second")
		u.gone()
		s.untouched()
	})
}

// TestTimeoutHeaderNeverLengthens: a larger value leaves the operator's limit alone.
func TestTimeoutHeaderNeverLengthens(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.routerWith(t, "--response-header-timeout=1s")
		for _, value := range []string{"600", "1e9", "99999999999", "1.5"} {
			t.Run(value, func(t *testing.T) {
				t.Parallel()
				s := r.sandbox(t)
				c := r.dial(t)
				c.send(s.get("/", "X-Sandbox-Timeout: "+value))
				eventually(t, "an answer or a connection", func() bool { return s.pending() || c.readable() })
				if !s.pending() { // a value may also be refused for its spelling
					ownAnswer(t, c.response("GET"), 400, "invalid_request", false)
					return
				}
				u := s.accept()
				u.request()
				ownAnswer(t, c.response("GET"), 504, "timeout", true)
			})
		}
	})
}

// TestResponseInTimeIsNotDisturbed: the limit for heads ends with the head, and the body may take longer.
func TestResponseInTimeIsNotDisturbed(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.routerWith(t, "--response-header-timeout=3s")
		s := r.sandbox(t)
		c := r.dial(t)
		c.send(s.get("/"))
		u := s.accept()
		u.request()
		u.send("HTTP/1.1 200 OK⏎Content-Length: 4⏎⏎a")
		resp := c.response("GET")
		require.Equal(t, "a", resp.body.next(1))
		time.Sleep(3500 * time.Millisecond)
		u.send("bcd")
		require.Equal(t, "bcd", resp.text())
		c.exchange(s, u, "next")
	})
}

// TestStreamIdleTimeout: a body that stands still is cut, visibly; one that moves is not.
func TestStreamIdleTimeout(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		t.Run("silent response", func(t *testing.T) {
			t.Parallel()
			r := p.routerWith(t, "--stream-idle-timeout=1s")
			s := r.sandbox(t)
			c := r.dial(t)
			c.send(s.get("/"))
			u := s.accept()
			u.request()
			u.send("HTTP/1.1 200 OK⏎Transfer-Encoding: chunked⏎⏎1⏎a⏎")
			resp := c.response("GET")
			require.Equal(t, "a", resp.body.next(1))
			resp.cut()
			u.gone()
		})
		t.Run("slow response", func(t *testing.T) {
			t.Parallel()
			r := p.routerWith(t, "--stream-idle-timeout=3s")
			s := r.sandbox(t)
			c := r.dial(t)
			c.send(s.get("/"))
			u := s.accept()
			u.request()
			u.send("HTTP/1.1 200 OK⏎Transfer-Encoding: chunked⏎⏎")
			resp := c.response("GET")
			for range 20 {
				time.Sleep(200 * time.Millisecond)
				u.send("1⏎a⏎")
				require.Equal(t, "a", resp.body.next(1))
			}
			u.send("0⏎⏎")
			require.Empty(t, resp.text())
		})
	})
}

// TestClientHeaderTimeout: a head must be complete within its limit, however its bytes trickle (RFC 9110, section 15.5.9).
func TestClientHeaderTimeout(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.routerWith(t, "--client-header-timeout=1s")
		for _, row := range []struct {
			name    string
			begin   string
			trickle bool
		}{
			{"half a head", "GET / HTTP/1.1⏎Host: a⏎", false},
			{"half a request line", "GET /", false},
			{"a head that trickles", "GET / HTTP/1.1⏎A: ", true},
			{"half a handshake", "GET / HTTP/1.1⏎Host: a⏎Connection: Upgrade⏎Upgrade: websocket⏎", true},
		} {
			t.Run(row.name, func(t *testing.T) {
				t.Parallel()
				c := r.dial(t)
				c.send(row.begin)
				if row.trickle {
					go c.drip("x")
				}
				data, _ := c.rest()
				if len(data) > 0 {
					require.True(t, strings.HasPrefix(string(data), "HTTP/1.1 408 "), "%q", data)
				}
			})
		}
		t.Run("second request of a connection", func(t *testing.T) {
			t.Parallel()
			s := r.sandbox(t)
			c := r.dial(t)
			c.exchangeAnywhere(s, "first")
			c.send("GET / HTTP/1.1⏎")
			data, _ := c.rest()
			if len(data) > 0 {
				require.True(t, strings.HasPrefix(string(data), "HTTP/1.1 408 "), "%q", data)
			}
		})
		t.Run("a response may take longer", func(t *testing.T) {
			t.Parallel()
			s := r.sandbox(t)
			c := r.dial(t)
			c.send(s.get("/"))
			u := s.accept()
			u.request()
			time.Sleep(1500 * time.Millisecond)
			u.ok("x")
			require.Equal(t, "x", c.response("GET").text())
		})
	})
}

// TestClientIdleTimeout: a connection without a request is closed without a word, before its first request and between two.
func TestClientIdleTimeout(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.routerWith(t, "--client-idle-timeout=2s", "--client-header-timeout=2s")
		t.Run("before the first request", func(t *testing.T) {
			t.Parallel()
			r.dial(t).eof()
		})
		t.Run("between two requests", func(t *testing.T) {
			t.Parallel()
			c := r.dial(t)
			c.exchangeAnywhere(r.sandbox(t), "first")
			c.eof()
		})
	})
}

// TestClientMinBodyRate: an upload slower than the limit is ended; a steady one is not.
func TestClientMinBodyRate(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.routerWith(t, "--client-min-body-rate=1000", "--client-header-timeout=1s")
		t.Run("too slow", func(t *testing.T) {
			t.Parallel()
			s := r.sandbox(t)
			c := r.dial(t)
			c.send("POST / HTTP/1.1⏎Host: a⏎" + s.route() + "Content-Length: 100000⏎⏎")
			go c.drip("x")
			eventually(t, "the router's patience of ten seconds to end", c.readable)
			resp := c.response("POST")
			require.Equal(t, 408, resp.status)
			require.Equal(t, "true", resp.fields.get("X-Sandbox-Dispatched"))
			u := s.accept()
			_, complete := u.request().body.all()
			require.False(t, complete)
		})
		t.Run("fast enough", func(t *testing.T) {
			t.Parallel()
			s := r.sandbox(t)
			c := r.dial(t)
			c.send("POST / HTTP/1.1⏎Host: a⏎" + s.route() + "Content-Length: 12000⏎⏎")
			u := s.accept()
			request := u.request()
			for range 12 {
				time.Sleep(200 * time.Millisecond)
				c.write(Pattern(0, 1000))
				request.body.next(1000)
			}
			u.ok("x")
			require.Equal(t, "x", c.response("POST").text())
		})
	})
}

// TestDialTimeout: an address that swallows packets costs the dial limit and no more. A listener whose queue is full
// does that on loopback.
func TestDialTimeout(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.routerWith(t, "--dial-timeout=500ms", "--upstream-max-retries=1", "--upstream-retry-initial-delay=10ms")
		s := r.sandbox(t)
		address, port := deafListener(t, s.address)
		deaf := &sandbox{t, s.id, address, port, s.listener}
		c := r.dial(t)
		c.send(deaf.get("/"))
		a := ownAnswer(t, c.response("GET"), 502, "dial_failed", false)
		require.Equal(t, "Could not connect to the backend sandbox: "+s.id, a.Detail)
	})
}

// TestSlowAnswerIsNoDialTimeout: a sandbox that took the connection has all the time of the other limits.
func TestSlowAnswerIsNoDialTimeout(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.routerWith(t, "--dial-timeout=500ms", "--upstream-max-retries=1", "--upstream-retry-initial-delay=10ms")
		s := r.sandbox(t)
		c := r.dial(t)
		c.send(s.post("/", "hello"))
		u := s.accept()
		require.Equal(t, "hello", u.request().text())
		time.Sleep(1500 * time.Millisecond)
		u.ok("late")
		require.Equal(t, "late", c.response("POST").text())
		s.untouched()
	})
}
