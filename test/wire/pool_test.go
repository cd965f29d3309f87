package wire

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestUpstreamConnectionIsReused: by the same client and by others.
func TestUpstreamConnectionIsReused(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		s := r.sandbox(t)
		first, second := r.dial(t), r.dial(t)
		first.send(s.get("/"))
		u := s.accept()
		u.request()
		u.ok("x")
		require.Equal(t, "x", first.response("GET").text())
		first.exchange(s, u, "same-client")
		first.settle()
		second.exchange(s, u, "other-client")
		second.close()
		first.exchange(s, u, "after-one-client-left")
		s.untouched()
	})
}

// TestLastUsedConnectionFirst: the connection that rested least is taken, so that the others can age out.
func TestLastUsedConnectionFirst(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		s := r.sandbox(t)
		var clients, upstreams []*conn
		for range 3 {
			c := r.dial(t)
			c.send(s.get("/"))
			u := s.accept()
			u.request()
			clients, upstreams = append(clients, c), append(upstreams, u)
		}
		for _, i := range []int{0, 2, 1} {
			upstreams[i].ok("x")
			require.Equal(t, "x", clients[i].response("GET").text())
			clients[i].settle()
		}
		for range 3 {
			clients[0].exchange(s, upstreams[1], "next")
			clients[0].settle()
		}
		s.untouched()
	})
}

// TestPortsArePooledApart: a connection to one port never serves another port of the same sandbox.
func TestPortsArePooledApart(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		s := r.sandbox(t)
		other := listen(t, s.id, s.address)
		c := r.dial(t)
		c.exchangeAnywhere(s, "one")
		c.exchangeAnywhere(other, "two")
		s.untouched()
		other.untouched()
	})
}

// TestSandboxesArePooledApart: nor another sandbox.
func TestSandboxesArePooledApart(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		c := r.dial(t)
		for range 3 {
			c.exchangeAnywhere(r.sandbox(t), "x")
		}
	})
}

// TestUnexpectedBytesKillTheConnection: what stands on a connection beyond its response would be taken for the answer to
// the next request (RFC 9112, section 9.2).
func TestUnexpectedBytesKillTheConnection(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		const poison = "HTTP/1.1 200 OK⏎Content-Length: 6⏎⏎poison"
		for _, row := range []struct{ name, method, response string }{
			{"behind a body of known length", "GET", "HTTP/1.1 200 OK⏎Content-Length: 2⏎⏎ok" + poison},
			{"a single byte behind it", "GET", "HTTP/1.1 200 OK⏎Content-Length: 2⏎⏎ok!"},
			{"behind the last chunk", "GET", "HTTP/1.1 200 OK⏎Transfer-Encoding: chunked⏎⏎2⏎ok⏎0⏎⏎" + poison},
			{"behind an answer to HEAD", "HEAD", "HTTP/1.1 200 OK⏎Content-Length: 6⏎⏎poison"},
			{"behind a chunked answer to HEAD", "HEAD", "HTTP/1.1 200 OK⏎Transfer-Encoding: chunked⏎⏎2⏎ok⏎0⏎⏎"},
			{"behind 204", "GET", "HTTP/1.1 204 No Content⏎⏎" + poison},
			{"behind 304", "GET", "HTTP/1.1 304 Not Modified⏎Content-Length: 6⏎⏎poison"},
			{"an empty line", "GET", "HTTP/1.1 200 OK⏎Content-Length: 2⏎⏎ok⏎"},
		} {
			for _, when := range []string{"in the same piece", "while idle"} {
				t.Run(row.name+" "+when, func(t *testing.T) {
					t.Parallel()
					s := r.sandbox(t)
					c := r.dial(t)
					c.send(row.method + " / HTTP/1.1⏎Host: app⏎" + s.route() + "⏎")
					u := s.accept()
					u.request()
					whole := notation.Replace(row.response)
					proper := properLength(row.method, whole)
					if when == "in the same piece" {
						u.write([]byte(whole))
					} else {
						u.write([]byte(whole[:proper]))
					}
					c.response(row.method).text()
					if when == "while idle" {
						c.settle()
						u.write([]byte(whole[proper:]))
					}
					c.exchangeAnywhere(s, "next")
					u.gone()
				})
			}
		}
	})
}

// TestUnexpectedBytesAndTheNextRequestAtOnce: bytes that nobody asked for and the next request may come in one instant, here
// while the router stands still. They are no answer to it.
func TestUnexpectedBytesAndTheNextRequestAtOnce(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.ownRouter(t, numberedRoutes(16))
		var clients, upstreams []*conn
		var sandboxes []*sandbox
		for range 16 {
			s, c := r.sandbox(t), r.dial(t)
			u := c.upstream(s, "reused")
			sandboxes, clients, upstreams = append(sandboxes, s), append(clients, c), append(upstreams, u)
		}
		require.NoError(t, r.Signal(syscall.SIGSTOP))
		for i, s := range sandboxes {
			upstreams[i].send("HTTP/1.1 200 OK⏎Content-Length: 6⏎⏎poison")
			clients[i].send([]string{s.get("/next"), s.post("/next", "")}[i%2])
		}
		require.NoError(t, r.Signal(syscall.SIGCONT))
		for i, s := range sandboxes {
			u := s.accept()
			require.Equal(t, "/next", u.request().target)
			u.ok("next")
			require.Equal(t, "next", clients[i].response("GET").text())
			upstreams[i].gone()
		}
	})
}

// properLength is the length of the part of text that is one response to method.
func properLength(method, text string) int {
	head := strings.Index(text, "\r\n\r\n") + 4
	switch {
	case method == "HEAD" || strings.HasPrefix(text, "HTTP/1.1 204") || strings.HasPrefix(text, "HTTP/1.1 304"):
		return head
	case strings.Contains(text[:head], "chunked"):
		return strings.Index(text, "\r\n0\r\n\r\n") + 7
	}
	return head + 2 // "ok"
}

// TestIdleConnectionClosedBySandbox: its end is seen before the next request is written, so that request runs once and
// succeeds, whatever the method.
func TestIdleConnectionClosedBySandbox(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		for _, method := range []string{"GET", "POST", "PUT", "DELETE"} {
			for end, finish := range map[string]func(*conn){"FIN": (*conn).close, "RST": (*conn).reset, "half-close": (*conn).closeWrite} {
				t.Run(method+" "+end, func(t *testing.T) {
					t.Parallel()
					s := r.sandbox(t)
					c := r.dial(t)
					c.send(s.get("/first"))
					u := s.accept()
					u.request()
					u.ok("first")
					require.Equal(t, "first", c.response("GET").text())
					c.settle()
					finish(u)

					c.send(method + " /second HTTP/1.1⏎Host: app⏎" + s.route() + "Content-Length: 2⏎⏎hi")
					next := s.accept()
					request := next.request()
					require.Equal(t, method+" /second HTTP/1.1", request.line)
					require.Equal(t, "hi", request.text())
					next.ok("second")
					require.Equal(t, "second", c.response(method).text())
					s.untouched()
				})
			}
		}
	})
}

// TestServerRestart: a new server on the same address and port takes over; nothing of the old one is in the way.
func TestServerRestart(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		s := r.sandbox(t)
		c := r.dial(t)
		for _, method := range []string{"GET", "POST", "GET"} {
			c.send(method + " / HTTP/1.1⏎Host: app⏎" + s.route() + "⏎")
			u := s.accept()
			u.request()
			u.ok("x")
			require.Equal(t, "x", c.response(method).text())
			c.settle()
			require.NoError(t, s.listener.Close())
			u.close()
			s = listenAt(t, s.id, s.address, s.port)
		}
	})
}

// TestIdleUpstreamConnectionsAreClosed: the router's patience with idle connections is by default shorter than that of
// common servers, five seconds, so that it rarely writes to one that is about to close.
func TestIdleUpstreamConnectionsAreClosed(t *testing.T) {
	t.Parallel()
	binary, err := base.binary()
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "routes.yaml")
	require.NoError(t, WriteRoutes(file, numberedRoutes(1)))
	process, err := Start(binary, []string{"--discovery=file", "--routes-file=" + file, "--allow-loopback-pod-ip", "--access-log=off"}, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, process.Kill()) }()

	r := &router{instance: &instance{Router: process}}
	s := r.sandbox(t)
	c := r.dial(t)
	c.send(s.get("/"))
	u := s.accept()
	u.request()
	u.ok("x")
	require.Equal(t, "x", c.response("GET").text())
	u.eof() // within the patience of this suite
	c.exchangeAnywhere(s, "later")
}

// TestConnectionLimit: requests beyond --max-connections-per-sandbox wait for a connection instead of opening one.
func TestConnectionLimit(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.routerWith(t, "--max-connections-per-sandbox=1")
		s := r.sandbox(t)
		first, second := r.dial(t), r.dial(t)
		first.send(s.get("/first"))
		u := s.accept()
		u.request()
		second.send(s.get("/second"))
		awaitRead(second.tcp)
		s.untouched()
		u.ok("first")
		require.Equal(t, "first", first.response("GET").text())
		require.Equal(t, "/second", u.request().target)
		u.ok("second")
		require.Equal(t, "second", second.response("GET").text())
		s.untouched()
	})
}

// TestAddressGoesToAnotherSandbox: connections belong to the identity of an endpoint. When its address is given away,
// they end, and not a byte meant for one sandbox reaches the other.
func TestAddressGoesToAnotherSandbox(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		address := sandboxAddress(0)
		alone := func(id, uid, pod string) Route {
			return Route{ID: id, UID: uid, Endpoints: []Endpoint{{Address: address, Ready: true, UID: pod}}}
		}
		for _, row := range []struct {
			name      string
			successor Route
			old       []int // status of a request for the old name; nil: it is the new one's, too
		}{
			{"another sandbox", alone("b", "uid-b", "pod-b"), []int{404, 410}},
			{"a namesake with another UID", alone("a", "uid-a2", "pod-a2"), nil},
			{"another pod of the same sandbox", alone("a", "uid-a", "pod-a2"), nil},
		} {
			t.Run(row.name, func(t *testing.T) {
				t.Parallel()
				r := p.ownRouter(t, []Route{alone("a", "uid-a", "pod-a")})
				s := listen(t, "a", address)
				idle, busy := r.dial(t), r.dial(t)
				idle.send(s.get("/idle"))
				resting := s.accept()
				resting.request()
				busy.send(s.get("/busy"))
				working := s.accept()
				working.request()
				resting.ok("x")
				require.Equal(t, "x", idle.response("GET").text())

				r.setRoutes(t, row.successor)
				resting.gone()
				working.gone()
				resp := busy.response("GET")
				assert.GreaterOrEqual(t, resp.status, 500)
				assert.Equal(t, "true", resp.fields.get("X-Sandbox-Dispatched"))

				if row.old != nil {
					idle.send(s.get("/old"))
					require.Contains(t, row.old, idle.response("GET").status)
					s.untouched()
				}
				successor := &sandbox{t, row.successor.ID, s.address, s.port, s.listener}
				r.dial(t).exchangeAnywhere(successor, "new")
				s.untouched()
			})
		}
	})
}

// TestUnchangedEndpointKeepsItsConnections: a change elsewhere in the table disturbs nobody.
func TestUnchangedEndpointKeepsItsConnections(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		a, b := routeTo("s0", sandboxAddress(0)), routeTo("b", sandboxAddress(1))
		r := p.ownRouter(t, []Route{a, b})
		s := r.sandbox(t)
		other := listen(t, "b", sandboxAddress(1))
		c, d := r.dial(t), r.dial(t)
		c.send(s.get("/"))
		u := s.accept()
		u.request()
		d.send(other.get("/"))
		w := other.accept()
		w.request()

		r.setRoutes(t, a)
		w.gone() // so the change has been applied
		u.ok("undisturbed")
		require.Equal(t, "undisturbed", c.response("GET").text())
		c.exchange(s, u, "still-the-same-connection")
	})
}
