package wire

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// leaving bounds the time until a sandbox learns that the caller left. The promise is two seconds; the rest is for a busy
// machine.
const leaving = 4 * time.Second

// hangsUp wants the connection to end within leaving.
func (c *conn) hangsUp() {
	c.t.Helper()
	start := time.Now()
	c.gone()
	require.Less(c.t, time.Since(start), leaving, "the sandbox learned too late that the client left")
}

// TestClientLeaves: while the sandbox is silent, a caller that goes away is noticed and its work is ended.
func TestClientLeaves(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		t.Run("right behind its request", func(t *testing.T) { // its FIN may be read together with the head
			t.Parallel()
			s := r.sandbox(t)
			c := r.dial(t)
			c.send(s.get("/"))
			c.close()
			u := s.accept()
			u.request()
			u.hangsUp()
			s.untouched()
		})
		ends := map[string]func(*conn){"FIN": (*conn).close, "RST": (*conn).reset}
		for end, leave := range ends {
			t.Run("before the response head "+end, func(t *testing.T) {
				t.Parallel()
				s := r.sandbox(t)
				c := r.dial(t)
				c.send(s.get("/"))
				u := s.accept()
				u.request()
				leave(c)
				u.hangsUp()
				s.untouched()
			})
			t.Run("after a request with a body "+end, func(t *testing.T) {
				t.Parallel()
				s := r.sandbox(t)
				c := r.dial(t)
				c.send(s.post("/", "hello"))
				u := s.accept()
				u.request().text()
				leave(c)
				u.hangsUp()
				s.untouched()
			})
			t.Run("after the response head "+end, func(t *testing.T) {
				t.Parallel()
				s := r.sandbox(t)
				c := r.dial(t)
				c.send(s.get("/"))
				u := s.accept()
				u.request()
				u.send("HTTP/1.1 200 OK⏎Transfer-Encoding: chunked⏎⏎5⏎hello⏎")
				require.Equal(t, "hello", c.response("GET").body.next(5))
				leave(c)
				u.hangsUp()
			})
			t.Run("behind a pipelined request "+end, func(t *testing.T) {
				t.Parallel()
				s := r.sandbox(t)
				c := r.dial(t)
				c.send(s.get("/1") + s.get("/2"))
				u := s.accept()
				u.request()
				leave(c)
				u.hangsUp()
				s.untouched()
			})
			for what, behind := range map[string]string{"": "", "with a pipelined request ": "GET /2 HTTP/1.1⏎Host: a⏎⏎"} {
				t.Run("while its request is held "+what+end, func(t *testing.T) {
					t.Parallel()
					r := p.ownRouter(t, []Route{{ID: "starting", UID: "u", State: "Starting", Endpoints: []Endpoint{}}}, "--route-wait=1m")
					c := r.dial(t)
					c.send("GET / HTTP/1.1⏎Host: a⏎X-Sandbox-ID: starting⏎⏎" + behind)
					held := func(n float64) func() bool {
						return func() bool { return r.metric(t, "sandbox_router_held_requests") == n }
					}
					eventually(t, "a held request", held(1))
					leave(c)
					eventually(t, "the end of the hold", held(0))
				})
			}
			t.Run("while a download waits for it "+end, func(t *testing.T) {
				t.Parallel()
				s := r.sandbox(t)
				c := r.dial(t)
				c.send(s.get("/"))
				u := s.accept()
				u.request()
				u.send("HTTP/1.1 200 OK⏎Transfer-Encoding: chunked⏎⏎8000000⏎")
				_, err := u.flood(largeBody, stall)
				require.ErrorIs(t, err, os.ErrDeadlineExceeded)
				leave(c)
				u.hangsUp()
			})
		}
	})
}

// TestPipelinedBytesAreNoDeparture: a client that sends its next request early has not left, however long the sandbox
// takes.
func TestPipelinedBytesAreNoDeparture(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		s := r.sandbox(t)
		c := r.dial(t)
		c.send(s.get("/1") + s.get("/2"))
		u := s.accept()
		u.request()
		time.Sleep(2500 * time.Millisecond) // longer than a departure may take to be noticed
		u.ok("1")
		require.Equal(t, "/2", u.request().target)
		u.ok("2")
		require.Equal(t, "1", c.response("GET").text())
		require.Equal(t, "2", c.response("GET").text())
	})
}

// TestSilentSandboxIsNoDeparture: nor has a client that just waits.
func TestSilentSandboxIsNoDeparture(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		s := r.sandbox(t)
		c := r.dial(t)
		c.send(s.get("/"))
		u := s.accept()
		u.request()
		time.Sleep(2500 * time.Millisecond)
		u.send("HTTP/1.1 200 OK⏎Transfer-Encoding: chunked⏎⏎1⏎a⏎")
		resp := c.response("GET")
		require.Equal(t, "a", resp.body.next(1))
		time.Sleep(2500 * time.Millisecond)
		u.send("1⏎b⏎0⏎⏎")
		require.Equal(t, "b", resp.text())
	})
}

// TestHalfClosedClientGetsItsAnswer: a client may end its own direction after the request (RFC 9112, section 9.6), and
// a sandbox that answers within a second still reaches it.
func TestHalfClosedClientGetsItsAnswer(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		for _, row := range []struct {
			name string
			wait time.Duration
		}{{"at once", 0}, {"after half a second", 500 * time.Millisecond}} {
			t.Run(row.name, func(t *testing.T) {
				t.Parallel()
				for deadline := time.Now().Add(3 * patience); time.Now().Before(deadline); {
					s := r.sandbox(t)
					c := r.dial(t)
					c.send(s.post("/", "hello"))
					c.closeWrite()
					start := time.Now()
					u := s.accept()
					require.Equal(t, "hello", u.request().text())
					time.Sleep(row.wait)
					if _, err := u.stream.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nanswer")); err != nil || time.Since(start) > 900*time.Millisecond {
						continue // the machine stood still, and a second was over
					}
					require.Equal(t, "answer", c.response("POST").text())
					c.eof()
					return
				}
				t.Fatal("this machine is too slow to tell")
			})
		}
	})
}
