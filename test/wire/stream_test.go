package wire

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestFlushAtOnce: the head is forwarded before there is a body, and every piece of the body before the next one is
// sent, whatever the media type and the framing.
func TestFlushAtOnce(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		chunk := func(s string) string { return fmt.Sprintf("%x⏎%s⏎", len(notation.Replace(s)), s) }
		plain := func(s string) string { return s }
		for _, row := range []struct {
			name, lines string
			frame       func(string) string
			end         string
		}{
			{"event stream", "Content-Type: text/event-stream⏎Transfer-Encoding: chunked⏎", chunk, "0⏎⏎"},
			{"NDJSON", "Content-Type: application/x-ndjson⏎Transfer-Encoding: chunked⏎", chunk, "0⏎⏎"},
			{"no type", "Transfer-Encoding: chunked⏎", chunk, "0⏎⏎"},
			{"by length", "Content-Length: 50⏎", plain, ""},
			{"until close", "", plain, ""},
		} {
			t.Run(row.name, func(t *testing.T) {
				t.Parallel()
				s := r.sandbox(t)
				c := r.dial(t)
				c.send(s.get("/"))
				u := s.accept()
				u.request()
				u.send("HTTP/1.1 200 OK⏎" + row.lines + "⏎")
				resp := c.response("GET")
				for i := range 5 {
					event := fmt.Sprintf("event %d␊␊", i) // 9 bytes
					u.send(row.frame(event))
					require.Equal(t, notation.Replace(event), resp.body.next(9))
					u.send(row.frame("."))
					require.Equal(t, ".", resp.body.next(1))
				}
				if row.end != "" {
					u.send(row.end)
				}
				if row.name == "until close" {
					u.close()
				}
				require.Empty(t, resp.text())
			})
		}
	})
}

// TestBothDirectionsAtOnce: a response may begin while the request body is still on its way, and each goes on alone.
func TestBothDirectionsAtOnce(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		s := r.sandbox(t)
		c := r.dial(t)
		c.send("POST / HTTP/1.1⏎Host: app⏎" + s.route() + "Transfer-Encoding: chunked⏎⏎1⏎a⏎")
		u := s.accept()
		request := u.request()
		require.Equal(t, "a", request.body.next(1))
		u.send("HTTP/1.1 200 OK⏎Transfer-Encoding: chunked⏎⏎1⏎A⏎")
		resp := c.response("POST")
		require.Equal(t, "A", resp.body.next(1))
		for i := range byte(10) {
			c.send("1⏎" + string('b'+i) + "⏎")
			require.Equal(t, string('b'+i), request.body.next(1))
			u.send("1⏎" + string('B'+i) + "⏎")
			require.Equal(t, string('B'+i), resp.body.next(1))
		}
		c.send("0⏎⏎")
		require.Empty(t, request.text())
		u.send("0⏎⏎")
		require.Empty(t, resp.text())
		if resp.fields.get("Connection") == "close" { // said before the router knew that both would end well
			c.gone()
		}
	})
}

// largeBody is far more than what the kernel buffers on the way can hold.
const largeBody = 64 << 20

// stall is how long a full pipe accepts nothing before a writer calls it full.
const stall = time.Second

// TestBackPressure: a slow reader at one end stops the sender at the other; nothing piles up in the router, and once the
// reader goes on every byte arrives.
func TestBackPressure(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		t.Run("download", func(t *testing.T) {
			t.Parallel()
			r := p.ownRouter(t, numberedRoutes(1))
			s := r.sandbox(t)
			c := r.dial(t)
			c.send(s.get("/"))
			u := s.accept()
			u.request()
			before := r.memory(t)
			u.send("HTTP/1.1 200 OK⏎Content-Length: " + strconv.Itoa(largeBody) + "⏎⏎")
			down := u.pour(largeBody)
			down.stops(t, stall)
			n, complete := c.response("GET").body.discard()
			require.NoError(t, <-down.done)
			require.True(t, complete)
			require.Equal(t, largeBody, n)
			require.Less(t, r.memory(t)-before, 32<<20, "peak memory grew with the body")
		})
		t.Run("upload", func(t *testing.T) {
			t.Parallel()
			r := p.ownRouter(t, numberedRoutes(1))
			s := r.sandbox(t)
			c := r.dial(t)
			before := r.memory(t)
			c.send("POST / HTTP/1.1⏎Host: app⏎" + s.route() + "Content-Length: " + strconv.Itoa(largeBody) + "⏎⏎")
			up := c.pour(largeBody)
			up.stops(t, stall)
			u := s.accept()
			request := u.request()
			n, complete := request.body.discard()
			require.NoError(t, <-up.done)
			require.True(t, complete)
			require.Equal(t, largeBody, n)
			u.ok("x")
			require.Equal(t, "x", c.response("POST").text())
			require.Less(t, r.memory(t)-before, 32<<20, "peak memory grew with the body")
		})
	})
}

// memory is the router's peak resident set.
func (r *router) memory(t testing.TB) int {
	t.Helper()
	peak, err := r.PeakMemory()
	require.NoError(t, err)
	return peak
}

// TestEarlyFinalResponse: a sandbox may answer before it has read the upload. The client gets that answer whole, even if
// it goes on sending, and neither connection is used again (RFC 9112, section 9.6).
func TestEarlyFinalResponse(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		body := string(Pattern(0, 50_000))
		answer := "HTTP/1.1 413 Content Too Large⏎Content-Length: 50000⏎⏎" + body
		for _, row := range []struct {
			name string
			end  func(u *conn)
		}{
			{"connection stays open", func(*conn) {}},
			{"half-close", (*conn).closeWrite},
			{"close with unread upload", (*conn).close}, // the kernel makes it an RST
		} {
			for _, framing := range []string{"Content-Length: 104857600⏎", "Transfer-Encoding: chunked⏎"} {
				t.Run(row.name+", upload by "+strings.SplitN(framing, ":", 2)[0], func(t *testing.T) {
					t.Parallel()
					s := r.sandbox(t)
					c := r.dial(t)
					c.send("POST / HTTP/1.1⏎Host: app⏎" + s.route() + framing + "⏎")
					go func() { // goes on sending, like curl, until it has the whole answer
						if strings.HasPrefix(framing, "T") {
							_, _ = c.stream.Write([]byte("6400000\r\n"))
						}
						_, _ = c.flood(100<<20, patience)
					}()
					u := s.accept()
					request := u.request()
					request.body.next(1024)
					u.send(answer)
					row.end(u)
					resp := c.response("POST")
					require.Equal(t, 413, resp.status)
					require.Equal(t, "close", resp.fields.get("Connection"))
					require.Equal(t, body, resp.text())
					s.untouched()
				})
			}
		}
	})
}

// TestEarlyFinalResponseToSlowReader: the answer survives although the client looks at it only after it has sent more.
func TestEarlyFinalResponseToSlowReader(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		s := r.sandbox(t)
		c := r.dial(t)
		c.send("POST / HTTP/1.1⏎Host: app⏎" + s.route() + "Content-Length: 10000000⏎⏎" + strings.Repeat("x", 1000))
		u := s.accept()
		u.request()
		u.send("HTTP/1.1 401 Unauthorized⏎Content-Length: 3⏎⏎no!")
		eventually(t, "the answer at the client", c.readable)
		for range 8 {
			if _, err := c.stream.Write(Pattern(0, 32<<10)); err != nil {
				break
			}
		}
		resp := c.response("POST")
		require.Equal(t, 401, resp.status)
		require.Equal(t, "no!", resp.text())
		c.gone()
		u.rest()
	})
}

// TestAnswerRightBehindTheUpload: an answer that comes as soon as the last byte of the request arrived is not an early one:
// both connections go on.
func TestAnswerRightBehindTheUpload(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		s := r.sandbox(t)
		var opened atomic.Int32
		server := http.Server{
			Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				_, _ = io.Copy(io.Discard, q.Body) // a cut upload would show at the client
				fmt.Fprint(w, "x")
			}),
			ConnState: func(_ net.Conn, state http.ConnState) {
				if state == http.StateNew {
					opened.Add(1)
				}
			},
		}
		go func() { _ = server.Serve(s.listener) }() // until it is closed
		t.Cleanup(func() { _ = server.Close() })
		c := r.dial(t)
		for n := range 200 {
			c.send("POST / HTTP/1.1⏎Host: app⏎"+s.route()+"Content-Length: 2⏎⏎a", "b")
			resp := c.response("POST")
			require.Equal(t, "x", resp.text())
			require.False(t, resp.fields.has("Connection"), "exchange %d", n)
		}
		require.EqualValues(t, 1, opened.Load(), "connections to the sandbox")
	})
}

// TestEarlyFinalResponseThenRestOfUpload: an answer that comes early while the client finishes its upload properly leaves
// nothing broken behind.
func TestEarlyFinalResponseThenRestOfUpload(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		s := r.sandbox(t)
		c := r.dial(t)
		c.send("POST / HTTP/1.1⏎Host: app⏎" + s.route() + "Content-Length: 10⏎⏎hello")
		u := s.accept()
		request := u.request()
		require.Equal(t, "hello", request.body.next(5))
		u.ok("early")
		resp := c.response("POST")
		require.Equal(t, "early", resp.text())
		if resp.fields.get("Connection") != "close" {
			c.send("world")
			c.exchangeAnywhere(s, "next")
		}
	})
}

// exchangeAnywhere does one GET over c and whatever upstream connection the router opens for it.
func (c *conn) exchangeAnywhere(s *sandbox, body string) {
	c.t.Helper()
	c.send(s.get("/" + body))
	u := s.accept()
	require.Equal(c.t, "/"+body, u.request().target)
	u.ok(body)
	require.Equal(c.t, body, c.response("GET").text())
}

// TestAbandonedDownloadDirtiesNoConnection: what the first caller left unread is never read by the next one.
func TestAbandonedDownloadDirtiesNoConnection(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		for _, row := range []struct{ name, head string }{
			{"by length", "Content-Length: 10000000⏎⏎"},
			{"chunked", "Transfer-Encoding: chunked⏎⏎989680⏎"},
			{"until close", "⏎"},
		} {
			t.Run(row.name, func(t *testing.T) {
				t.Parallel()
				s := r.sandbox(t)
				first := r.dial(t)
				first.send(s.get("/large"))
				u := s.accept()
				u.request()
				go func() { // until the router closes the connection
					_, _ = u.stream.Write([]byte(notation.Replace("HTTP/1.1 200 OK⏎" + row.head)))
					_, _ = u.flood(10_000_000, patience)
				}()
				first.response("GET").body.next(1_000_000)
				first.close()

				second := r.dial(t)
				second.exchangeAnywhere(s, "second")
				u.gone()
			})
		}
	})
}
