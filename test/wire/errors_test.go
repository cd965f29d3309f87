package wire

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// limits are small, so that a case can pass them.
var limits = []string{"--max-request-body-bytes=1000", "--max-inflight-per-sandbox=1", "--websocket-max-connections-per-client=2"}

func TestErrorSandboxGone(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.ownRouter(t, numberedRoutes(2))
		s, witness := r.sandbox(t), r.sandbox(t)
		c := r.dial(t)
		c.send(witness.get("/"))
		u := witness.accept()
		u.request()
		r.setRoutes(t, routeTo("s0", sandboxAddress(0)))
		u.gone() // so the deletion has been seen
		c.response("GET").text()

		late := r.dial(t)
		late.send(witness.get("/"))
		ownAnswer(t, late.response("GET"), 410, "sandbox_gone", false)
		late.exchangeAnywhere(s, "others-live")
	})
}

func TestErrorUnreachableStates(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		in := func(id, state string, endpoints ...Endpoint) Route {
			return Route{ID: id, UID: "uid-" + id, State: state, Endpoints: endpoints}
		}
		ready := Endpoint{Address: sandboxAddress(0), Ready: true, UID: "p"}
		unready := Endpoint{Address: sandboxAddress(0), UID: "p"}
		r := p.ownRouter(t, []Route{
			in("suspended", "Suspended"), in("starting", "Starting"), in("bare", "Running"), in("unready", "Running", unready),
			in("suspending", "Suspending", ready), in("finished", "Finished"), in("expired", "Expired"),
		}, "--route-wait=300ms")
		for _, row := range []struct {
			id     string
			status int
			codes  []string
		}{
			{"suspended", 503, []string{"sandbox_suspended"}},
			{"starting", 503, []string{"sandbox_starting"}},
			{"bare", 503, []string{"sandbox_starting"}},
			{"unready", 503, []string{"sandbox_starting"}},
			{"suspending", 503, []string{"sandbox_suspended", "sandbox_starting"}},
			{"finished", 410, []string{"sandbox_gone", "sandbox_finished"}},
			{"expired", 410, []string{"sandbox_gone"}},
		} {
			t.Run(row.id, func(t *testing.T) {
				t.Parallel()
				c := r.dial(t)
				for _, method := range []string{"GET", "POST"} {
					c.send(method + " / HTTP/1.1⏎Host: a⏎X-Sandbox-ID: " + row.id + "⏎⏎")
					resp := c.response(method)
					text := resp.text()
					require.Equal(t, row.status, resp.status, "body %s", text)
					a, err := decodeAnswer(text)
					require.NoError(t, err)
					requireOwn(t, resp, a)
					require.Contains(t, row.codes, a.Code)
					require.Equal(t, "false", resp.fields.get("X-Sandbox-Dispatched"))
				}
			})
		}
	})
}

// TestHeldUntilReachable: a request for a sandbox that becomes reachable within the hold is not refused at all.
func TestHeldUntilReachable(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		later := routeTo("s0", sandboxAddress(0))
		for _, row := range []struct {
			name   string
			before []Route
		}{
			{"starting", []Route{{ID: "s0", UID: later.UID, State: "Starting", Endpoints: []Endpoint{}}}},
			{"suspending, then resumed", []Route{{ID: "s0", UID: later.UID, State: "Suspending", Endpoints: later.Endpoints}}},
			{"unknown", nil},
		} {
			t.Run(row.name, func(t *testing.T) {
				t.Parallel()
				r := p.ownRouter(t, row.before, "--route-wait=10s", "--unknown-wait=10s")
				s := r.sandbox(t)
				c := r.dial(t)
				c.send(s.post("/", "hello"))
				awaitRead(c.tcp)
				s.untouched()
				r.setRoutes(t, later)
				u := s.accept()
				require.Equal(t, "hello", u.request().text())
				u.ok("x")
				require.Equal(t, "x", c.response("POST").text())
			})
		}
	})
}

func TestErrorTooManyRequests(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.routerWith(t, limits...)
		s, other := r.sandbox(t), r.sandbox(t)
		first, second := r.dial(t), r.dial(t)
		first.send(s.get("/"))
		u := s.accept()
		u.request()
		second.send(s.get("/"))
		ownAnswer(t, second.response("GET"), 429, "too_many_requests", false)
		second.exchangeAnywhere(other, "other-sandboxes-are-free")
		u.ok("x")
		require.Equal(t, "x", first.response("GET").text())
		first.settle()
		second.exchange(s, u, "free-again")
		s.untouched()
	})
}

func TestErrorDialFailed(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		s := r.sandbox(t)
		open := listen(t, s.id, s.address)
		require.NoError(t, s.listener.Close())
		c := r.dial(t)
		for _, method := range []string{"GET", "POST"} {
			c.send(method + " / HTTP/1.1⏎Host: a⏎" + s.route() + "⏎")
			a := ownAnswer(t, c.response(method), 502, "dial_failed", false)
			require.Equal(t, "Could not connect to the backend sandbox: "+s.id, a.Detail)
		}
		c.exchangeAnywhere(open, "the-other-port-is-not-to-blame")
	})
}

func TestErrorTimeout(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.routerWith(t, "--response-header-timeout=1s")
		for _, row := range []struct{ name, body, lines, setting string }{
			{"operator's limit", "", "", "--response-header-timeout"},
			{"operator's limit, with a body", "hello", "", "--response-header-timeout"},
			{"caller's limit", "", "X-Sandbox-Timeout: 0.5", "X-Sandbox-Timeout"},
		} {
			t.Run(row.name, func(t *testing.T) {
				t.Parallel()
				s := r.sandbox(t)
				c := r.dial(t)
				if row.lines == "" {
					c.send(s.post("/", row.body))
				} else {
					c.send(s.post("/", row.body, row.lines))
				}
				u := s.accept()
				require.Equal(t, row.body, u.request().text())
				a := ownAnswer(t, c.response("POST"), 504, "timeout", true)
				require.True(t, strings.HasPrefix(a.Detail, "Timed out waiting for the backend sandbox: "+s.id), a.Detail)
				require.Contains(t, a.Detail, row.setting, "the answer names the setting")
				u.gone()
				s.untouched()
			})
		}
	})
}

func TestErrorBodyTooLarge(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.routerWith(t, limits...)
		t.Run("said beforehand", func(t *testing.T) {
			t.Parallel()
			s := r.sandbox(t)
			c := r.dial(t)
			c.send("POST / HTTP/1.1⏎Host: a⏎" + s.route() + "Content-Length: 1001⏎⏎")
			ownAnswer(t, c.response("POST"), 413, "body_too_large", false)
			s.untouched()
		})
		t.Run("while the client goes on sending", func(t *testing.T) {
			t.Parallel()
			s := r.sandbox(t)
			c := r.dial(t)
			c.send("POST / HTTP/1.1⏎Host: a⏎" + s.route() + "Content-Length: 10000000⏎⏎")
			_, _ = c.flood(512<<10, patience)
			ownAnswer(t, c.response("POST"), 413, "body_too_large", false)
			c.gone()
			s.untouched()
		})
		t.Run("found on the way", func(t *testing.T) {
			t.Parallel()
			s := r.sandbox(t)
			c := r.dial(t)
			c.send("POST / HTTP/1.1⏎Host: a⏎" + s.route() + "Transfer-Encoding: chunked⏎⏎5⏎hello⏎")
			u := s.accept()
			request := u.request()
			require.Equal(t, "hello", request.body.next(5))
			c.send("3e8⏎" + strings.Repeat("x", 1000) + "⏎0⏎⏎")
			ownAnswer(t, c.response("POST"), 413, "body_too_large", true)
			c.gone()
			_, complete := request.body.all()
			require.False(t, complete)
		})
		for name, body := range map[string]string{
			"just within, by length": "Content-Length: 1000⏎⏎" + strings.Repeat("x", 1000),
			"just within, chunked":   "Transfer-Encoding: chunked⏎⏎3e8⏎" + strings.Repeat("x", 1000) + "⏎0⏎⏎",
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := r.sandbox(t)
				c := r.dial(t)
				c.send("POST / HTTP/1.1⏎Host: a⏎" + s.route() + body)
				u := s.accept()
				require.Len(t, u.request().text(), 1000)
				u.ok("x")
				require.Equal(t, "x", c.response("POST").text())
			})
		}
	})
}

// TestErrorHeaderTooLarge: 431 and the end of the connection (RFC 6585, section 5), readable however much was sent.
func TestErrorHeaderTooLarge(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		pad := func(n int) string { return strings.Repeat("x", n) }
		for _, row := range []struct{ name, request string }{
			{"one field", "GET / HTTP/1.1⏎Host: a⏎{route}A: " + pad(64<<10) + "⏎⏎"},
			{"many fields", "GET / HTTP/1.1⏎Host: a⏎{route}" + strings.Repeat("A: "+pad(1000)+"⏎", 70) + "⏎"},
			{"target", "GET /" + pad(64<<10) + " HTTP/1.1⏎Host: a⏎{route}⏎"},
			{"without an end", "GET / HTTP/1.1⏎Host: a⏎{route}A: " + pad(300<<10)},
			{"method without an end", pad(100 << 10)},
			{"thousands of fields", "GET / HTTP/1.1⏎Host: a⏎{route}" + strings.Repeat("A:⏎", 15_000) + "⏎"},
		} {
			t.Run(row.name, func(t *testing.T) {
				t.Parallel()
				s := r.sandbox(t)
				c := r.dial(t)
				c.send(s.fill(row.request))
				resp := c.response("GET")
				if resp.status == 414 || resp.status == 400 && strings.HasPrefix(row.name, "method") {
					return // the other names that the RFCs have for it
				}
				ownAnswer(t, resp, 431, "header_too_large", false)
				require.Equal(t, "close", resp.fields.get("Connection"))
				c.gone()
				s.untouched()
			})
		}
		t.Run("just within", func(t *testing.T) {
			t.Parallel()
			s := r.sandbox(t)
			c := r.dial(t)
			c.send(s.get("/", "A: "+pad(62<<10)))
			u := s.accept()
			require.Len(t, u.request().fields.get("A"), 62<<10)
			u.ok("x")
			require.Equal(t, "x", c.response("GET").text())
		})
		t.Run("limit set by flag", func(t *testing.T) {
			t.Parallel()
			r := p.routerWith(t, "--max-header-bytes=8192")
			s := r.sandbox(t)
			c := r.dial(t)
			c.send(s.get("/", "A: "+pad(7<<10)))
			u := s.accept()
			u.request()
			u.ok("x")
			require.Equal(t, "x", c.response("GET").text())
			c.send(s.get("/", "A: "+pad(8<<10)))
			ownAnswer(t, c.response("GET"), 431, "header_too_large", false)
		})
	})
}

// TestErrorBodyHasNoBodyOnHEAD: an error answer to HEAD is a head alone, and the connection goes on.
func TestErrorBodyHasNoBodyOnHEAD(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		s := r.sandbox(t)
		c := r.dial(t)
		c.send("HEAD / HTTP/1.1⏎Host: a⏎X-Sandbox-ID: nobody⏎⏎")
		resp := c.response("HEAD")
		require.Equal(t, 404, resp.status)
		require.Equal(t, "false", resp.fields.get("X-Sandbox-Dispatched"))
		require.Equal(t, "application/json", resp.fields.get("Content-Type"))
		c.exchangeAnywhere(s, "next")
	})
}

// TestErrorKeepsTheConnection: an answer that leaves no doubt where the next request begins does not end the connection.
func TestErrorKeepsTheConnection(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		s := r.sandbox(t)
		c := r.dial(t)
		c.send("GET / HTTP/1.1⏎Host: a⏎X-Sandbox-ID: nobody⏎⏎", "GET / HTTP/1.1⏎Host: a⏎⏎")
		ownAnswer(t, c.response("GET"), 404, "sandbox_not_found", false)
		ownAnswer(t, c.response("GET"), 400, "invalid_request", false)
		c.exchangeAnywhere(s, "next")
	})
}

// TestErrorBeforeTheBodyIsRead: the body of a refused request is never taken for the next request.
func TestErrorBeforeTheBodyIsRead(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		s := r.sandbox(t)
		smuggled := notation.Replace(s.get("/smuggled"))
		for name, body := range map[string]string{
			"by length": fmt.Sprintf("Content-Length: %d⏎⏎%s", len(smuggled), smuggled),
			"chunked":   fmt.Sprintf("Transfer-Encoding: chunked⏎⏎%x⏎%s⏎0⏎⏎", len(smuggled), smuggled),
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				c := r.dial(t)
				c.send("POST / HTTP/1.1⏎Host: a⏎X-Sandbox-ID: nobody⏎" + body + "GET /healthz HTTP/1.1⏎Host: a⏎⏎")
				resp := c.response("POST")
				ownAnswer(t, resp, 404, "sandbox_not_found", false)
				if resp.fields.get("Connection") == "close" {
					c.gone()
				} else {
					require.JSONEq(t, `{"status":"ok"}`, c.response("GET").text())
				}
				s.untouched()
			})
		}
	})
}

// TestRequestIDIsRepeated: the caller finds its own request in the answer; a hostile value is not repeated.
func TestRequestIDIsRepeated(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		c := r.dial(t)
		c.send("GET / HTTP/1.1⏎Host: a⏎X-Request-ID: 0123456789abcdef⏎⏎")
		require.Equal(t, "0123456789abcdef", ownAnswer(t, c.response("GET"), 400, "invalid_request", false).RequestID)

		c.send("GET / HTTP/1.1⏎Host: a⏎⏎", "GET / HTTP/1.1⏎Host: a⏎⏎")
		one := ownAnswer(t, c.response("GET"), 400, "invalid_request", false).RequestID
		two := ownAnswer(t, c.response("GET"), 400, "invalid_request", false).RequestID
		require.NotEqual(t, one, two)

		for _, hostile := range []string{`"},"code":"forged`, `\`, strings.Repeat("x", 5000), "é\xff"} {
			c.send("GET / HTTP/1.1⏎Host: a⏎X-Request-ID: " + hostile + "⏎⏎")
			ownAnswer(t, c.response("GET"), 400, "invalid_request", false) // decodes, so the JSON is sound
		}
	})
}
