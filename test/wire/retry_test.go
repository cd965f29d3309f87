package wire

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// dead is a way for a sandbox to end a connection after it has read a request.
type dead struct {
	name string
	end  func(u *conn)
}

var deaths = []dead{
	{"FIN", (*conn).close},
	{"RST", (*conn).reset},
	{"half-close", (*conn).closeWrite},
}

// TestExecutedOnce: a request that reached the sandbox is never sent again by the router, because it may have had its
// effect (RFC 9110, section 9.2.2).
func TestExecutedOnce(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		for _, connection := range []string{"fresh", "reused"} {
			for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "GET"} {
				if method == "GET" && connection == "reused" {
					continue // see TestSafeRequestOnDeadConnectionIsReplaced
				}
				for _, death := range deaths {
					t.Run(method+" on a "+connection+" connection, "+death.name, func(t *testing.T) {
						t.Parallel()
						s := r.sandbox(t)
						c := r.dial(t)
						u := c.upstream(s, connection)
						c.send(method + " /execute HTTP/1.1⏎Host: app⏎" + s.route() + "Content-Length: 2⏎⏎hi")
						if u == nil {
							u = s.accept()
						}
						require.Equal(t, "hi", u.request().text())
						death.end(u)
						ownAnswer(t, c.response(method), 502, "upstream_closed", true)
						s.untouched()
					})
				}
				t.Run(method+" on a "+connection+" connection, part of an answer", func(t *testing.T) {
					t.Parallel()
					s := r.sandbox(t)
					c := r.dial(t)
					u := c.upstream(s, connection)
					c.send(method + " /execute HTTP/1.1⏎Host: app⏎" + s.route() + "Content-Length: 2⏎⏎hi")
					if u == nil {
						u = s.accept()
					}
					u.request().text()
					u.send("HTTP/1.1 200 O")
					u.close()
					resp := c.response(method)
					require.Equal(t, 502, resp.status)
					require.Equal(t, "true", resp.fields.get("X-Sandbox-Dispatched"))
					s.untouched()
				})
				for _, answer := range []string{"500 Internal Server Error⏎", "502 Bad Gateway⏎", "503 Service Unavailable⏎Retry-After: 1⏎", "504 Gateway Timeout⏎", "429 Too Many Requests⏎Retry-After: 1⏎", "408 Request Timeout⏎"} {
					t.Run(method+" on a "+connection+" connection, "+answer[:3], func(t *testing.T) {
						t.Parallel()
						s := r.sandbox(t)
						c := r.dial(t)
						u := c.upstream(s, connection)
						c.send(method + " /execute HTTP/1.1⏎Host: app⏎" + s.route() + "Content-Length: 2⏎⏎hi")
						if u == nil {
							u = s.accept()
						}
						u.request().text()
						u.send("HTTP/1.1 " + answer + "Content-Length: 5⏎⏎sorry")
						resp := c.response(method)
						require.Equal(t, answer[:3], strconv.Itoa(resp.status))
						require.Equal(t, "sorry", resp.text())
						require.False(t, resp.fields.has("X-Sandbox-Dispatched"), "the sandbox's own answer")
						s.untouched()
					})
				}
			}
		}
	})
}

// upstream gives c a pooled connection to the sandbox and returns it, or returns nil for "fresh".
func (c *conn) upstream(s *sandbox, connection string) *conn {
	c.t.Helper()
	if connection == "fresh" {
		return nil
	}
	c.send(s.get("/warm-up"))
	u := s.accept()
	u.request()
	u.ok("")
	c.response("GET").text()
	c.settle()
	return u
}

// TestSafeRequestOnDeadConnectionIsReplaced: when a reused connection ends before any response byte, GET, HEAD and
// OPTIONS are sent once more, on a fresh connection, and not a third time.
func TestSafeRequestOnDeadConnectionIsReplaced(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		for _, method := range []string{"GET", "HEAD", "OPTIONS"} {
			for _, death := range deaths {
				t.Run(method+" "+death.name, func(t *testing.T) {
					t.Parallel()
					s := r.sandbox(t)
					c := r.dial(t)
					u := c.upstream(s, "reused")
					c.send(method + " /x HTTP/1.1⏎Host: app⏎" + s.route() + "A: 1⏎⏎")
					first := u.request()
					death.end(u)
					next := s.accept()
					again := next.request()
					require.Equal(t, first.line, again.line)
					require.Equal(t, first.fields, again.fields)
					next.ok("")
					require.Equal(t, 200, c.response(method).status)
					s.untouched()
				})
				t.Run(method+" "+death.name+", fresh one dies as well", func(t *testing.T) {
					t.Parallel()
					s := r.sandbox(t)
					c := r.dial(t)
					u := c.upstream(s, "reused")
					c.send(method + " /x HTTP/1.1⏎Host: app⏎" + s.route() + "⏎")
					u.request()
					death.end(u)
					next := s.accept()
					next.request()
					death.end(next)
					resp := c.response(method)
					require.Equal(t, 502, resp.status)
					require.Equal(t, "true", resp.fields.get("X-Sandbox-Dispatched"))
					s.untouched()
				})
			}
			t.Run(method+" with part of an answer is not replaced", func(t *testing.T) {
				t.Parallel()
				s := r.sandbox(t)
				c := r.dial(t)
				u := c.upstream(s, "reused")
				c.send(method + " /x HTTP/1.1⏎Host: app⏎" + s.route() + "⏎")
				u.request()
				u.send("H")
				u.close()
				resp := c.response(method)
				require.Equal(t, 502, resp.status)
				require.Equal(t, "true", resp.fields.get("X-Sandbox-Dispatched"))
				s.untouched()
			})
		}
	})
}

// TestDialIsRetried: while nothing was sent, trying again is safe for every method.
func TestDialIsRetried(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.ownRouter(t, numberedRoutes(1), "--upstream-max-retries=20", "--upstream-retry-initial-delay=20ms")
		s := r.sandbox(t)
		require.NoError(t, s.listener.Close())
		c := r.dial(t)
		c.send(s.post("/execute", "hello"))
		eventually(t, "two refused attempts", func() bool { return r.metric(t, "sandbox_router_upstream_retries_total") >= 2 })
		s = listenAt(t, s.id, s.address, s.port)
		u := s.accept()
		require.Equal(t, "hello", u.request().text())
		u.ok("once")
		require.Equal(t, "once", c.response("POST").text())
		s.untouched()
	})
}
