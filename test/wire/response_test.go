package wire

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// hopFields are the response fields that speak about one hop, which the router writes itself.
var hopFields = []string{"Connection", "Content-Length", "Transfer-Encoding"}

// TestResponseFields: what a response's header section looks like at the client.
func TestResponseFields(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		const same = "same"
		for _, row := range []struct{ name, send, want string }{
			{"nothing invented", "", ""},
			{"order, repeats and spelling kept", "B: 1⏎a: 2⏎B: 3⏎X-UPPER: 4⏎x-lower: 5⏎", same},
			{"Set-Cookie kept apart", "Set-Cookie: a=1; Path=/⏎A: 1⏎Set-Cookie: b=2; Expires=Wed, 21 Oct 2026 07:28:00 GMT⏎", same},
			{"application's headers kept", "Date: d⏎Server: s⏎Content-Type: text/x⏎ETag: \"x\"⏎Last-Modified: l⏎Cache-Control: no-store⏎Vary: *⏎Location: /x⏎", same},
			{"Content-Encoding kept", "Content-Encoding: gzip⏎", same},
			{"blanks around values trimmed", "A: \t 1 \t⏎B:2⏎C:⏎", "A: 1⏎B: 2⏎C: ⏎"},
			{"bytes above ASCII kept", "A: é\xff⏎", same},
			{"WWW-Authenticate kept", "WWW-Authenticate: Basic realm=\"x\", Bearer⏎WWW-Authenticate: Digest⏎", same},
			{"X-Accel-Buffering kept", "X-Accel-Buffering: no⏎", same},
			{"Keep-Alive removed", "Keep-Alive: timeout=5⏎A: 1⏎", "A: 1⏎"},
			{"Proxy-Authenticate removed", "Proxy-Authenticate: Basic⏎A: 1⏎", "A: 1⏎"},
			{"Proxy-Connection removed", "Proxy-Connection: keep-alive⏎A: 1⏎", "A: 1⏎"},
			{"Trailer removed", "Trailer: X-T⏎A: 1⏎", "A: 1⏎"},
			{"TE removed", "TE: trailers⏎A: 1⏎", "A: 1⏎"},
			{"Upgrade removed", "Upgrade: h2c⏎Connection: Upgrade⏎A: 1⏎", "A: 1⏎"},
			{"nominated field removed", "Connection: X-P⏎X-P: 1⏎A: 1⏎", "A: 1⏎"},
			{"nominated on the second Connection line, first empty", "Connection:⏎Connection: x-p⏎X-P: 1⏎A: 1⏎", "A: 1⏎"},
			{"nominated before Connection removed", "X-P: 1⏎A: 1⏎Connection: keep-alive, X-P⏎", "A: 1⏎"},
			{"Connection: keep-alive removed", "Connection: keep-alive⏎A: 1⏎", "A: 1⏎"},
		} {
			t.Run(row.name, func(t *testing.T) {
				t.Parallel()
				want := row.want
				if want == same {
					want = row.send
				}
				s := r.sandbox(t)
				c := r.dial(t)
				c.send(s.get("/"))
				u := s.accept()
				u.request()
				u.send("HTTP/1.1 200 OK⏎" + row.send + "Content-Length: 1⏎⏎x")
				resp := c.response("GET")
				require.Equal(t, append([]string{}, linesOf(want)...), resp.fields.lines(hopFields...))
				require.Equal(t, "x", resp.text())
				require.False(t, resp.fields.has("Connection"), "the client's connection goes on")
				c.exchange(s, u, "next")
			})
		}
	})
}

// TestFramingCannotBeNominatedInResponse: nor may a sandbox take the framing away from under the client.
func TestFramingCannotBeNominatedInResponse(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		for _, row := range []struct{ name, response string }{
			{"Content-Length", "Connection: Content-Length⏎Content-Length: 5⏎⏎hello"},
			{"Transfer-Encoding", "Connection: Transfer-Encoding⏎Transfer-Encoding: chunked⏎⏎5⏎hello⏎0⏎⏎"},
		} {
			t.Run(row.name, func(t *testing.T) {
				t.Parallel()
				s := r.sandbox(t)
				c := r.dial(t)
				c.send(s.get("/"))
				u := s.accept()
				u.request()
				u.send("HTTP/1.1 200 OK⏎" + row.response)
				require.Equal(t, "hello", c.response("GET").text())
				c.exchange(s, u, "next")
			})
		}
	})
}

// TestResponseStatus: codes pass whether the router knows them or not; every one but 1xx, 204 and 304 has a body.
func TestResponseStatus(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		for _, line := range []string{
			"200 OK", "200 ", "201 Created", "206 Partial Content", "299 Of Its Own", "301 Moved Permanently", "302 Found", "400 Bad Request",
			"401 Unauthorized", "404 Not Found", "418 I'm a teapot", "429 Too Many Requests", "500 Internal Server Error",
			"502 Bad Gateway", "503 Service Unavailable", "504 Gateway Timeout", "599 Whatever (really)", "200 \xc3\xa9",
		} {
			t.Run(line, func(t *testing.T) {
				t.Parallel()
				s := r.sandbox(t)
				c := r.dial(t)
				c.send(s.get("/"))
				u := s.accept()
				u.request()
				u.send("HTTP/1.1 " + line + "⏎Content-Length: 4⏎⏎body")
				resp := c.response("GET")
				require.Equal(t, "HTTP/1.1", resp.version)
				require.Equal(t, line, fmt.Sprintf("%d %s", resp.status, resp.reason))
				require.False(t, resp.fields.has("X-Sandbox-Dispatched"), "the sandbox's answer, not the router's")
				require.Equal(t, "body", resp.text())
				c.exchange(s, u, "next")
			})
		}
	})
}

// TestResponseBody: bodies arrive whole, framed anew. keep tells whether both connections can carry the next exchange.
func TestResponseBody(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		big := string(Pattern(0, 300_000))
		for _, row := range []struct {
			name, response string
			want, framing  string // as they must arrive
			keep           bool   // the upstream connection is reused
		}{
			{"length 0", "HTTP/1.1 200 OK⏎Content-Length: 0⏎⏎", "", "Content-Length: 0", true},
			{"length 5", "HTTP/1.1 200 OK⏎Content-Length: 5⏎⏎hello", "hello", "Content-Length: 5", true},
			{"length large", fmt.Sprintf("HTTP/1.1 200 OK⏎Content-Length: %d⏎⏎%s", len(big), big), big, fmt.Sprintf("Content-Length: %d", len(big)), true},
			{"chunked, empty", "HTTP/1.1 200 OK⏎Transfer-Encoding: chunked⏎⏎0⏎⏎", "", "Transfer-Encoding: chunked", true},
			{"chunked", "HTTP/1.1 200 OK⏎Transfer-Encoding: chunked⏎⏎5⏎hello⏎1⏎ ⏎5⏎world⏎0⏎⏎", "hello world", "Transfer-Encoding: chunked", true},
			{"chunked, coding name in other case", "HTTP/1.1 200 OK⏎transfer-encoding: CHUNKED⏎⏎5⏎hello⏎0⏎⏎", "hello", "Transfer-Encoding: chunked", true},
			{"chunk extension dropped", "HTTP/1.1 200 OK⏎Transfer-Encoding: chunked⏎⏎5;a=b⏎hello⏎0;c⏎⏎", "hello", "Transfer-Encoding: chunked", true},
			{"trailers dropped", "HTTP/1.1 200 OK⏎Trailer: X-T⏎Transfer-Encoding: chunked⏎⏎5⏎hello⏎0⏎X-T: 1⏎Set-Cookie: evil=1⏎⏎", "hello", "Transfer-Encoding: chunked", true},
			{"one large chunk", fmt.Sprintf("HTTP/1.1 200 OK⏎Transfer-Encoding: chunked⏎⏎%x⏎%s⏎0⏎⏎", len(big), big), big, "Transfer-Encoding: chunked", true},
			{"many one-byte chunks", "HTTP/1.1 200 OK⏎Transfer-Encoding: chunked⏎⏎" + strings.Repeat("1⏎x⏎", 3000) + "0⏎⏎", strings.Repeat("x", 3000), "Transfer-Encoding: chunked", true},
			{"until close", "HTTP/1.1 200 OK⏎⏎hello", "hello", "Transfer-Encoding: chunked", false},
			{"until close, empty", "HTTP/1.1 200 OK⏎⏎", "", "Transfer-Encoding: chunked", false},
			{"HTTP/1.0 until close", "HTTP/1.0 200 OK⏎⏎hello", "hello", "Transfer-Encoding: chunked", false},
			{"HTTP/1.0 with length", "HTTP/1.0 200 OK⏎Content-Length: 5⏎⏎hello", "hello", "Content-Length: 5", false},
			{"Connection: close with length", "HTTP/1.1 200 OK⏎Connection: close⏎Content-Length: 5⏎⏎hello", "hello", "Content-Length: 5", false},
			{"Connection: Close in a list", "HTTP/1.1 200 OK⏎Connection: x, Close⏎Content-Length: 5⏎⏎hello", "hello", "Content-Length: 5", false},
			{"Connection: close, chunked", "HTTP/1.1 200 OK⏎Connection: close⏎Transfer-Encoding: chunked⏎⏎5⏎hello⏎0⏎⏎", "hello", "Transfer-Encoding: chunked", false},
		} {
			t.Run(row.name, func(t *testing.T) {
				t.Parallel()
				s := r.sandbox(t)
				c := r.dial(t)
				c.send(s.get("/"))
				u := s.accept()
				u.request()
				done := make(chan struct{})
				go func() {
					defer close(done)
					_, _ = u.stream.Write([]byte(notation.Replace(row.response)))
					if !row.keep {
						_ = u.tcp.CloseWrite()
					}
				}()
				resp := c.response("GET")
				require.Equal(t, "HTTP/1.1", resp.version)
				require.Equal(t, []string{row.framing}, resp.fields.lines())
				require.Equal(t, row.want, resp.text())
				<-done
				if !row.keep {
					u.gone()
					c.send(s.get("/next"))
					u = s.accept()
					require.Equal(t, "/next", u.request().target)
					u.ok("next")
					require.Equal(t, "next", c.response("GET").text())
				}
				c.exchange(s, u, "again")
			})
		}
	})
}

// TestResponseToHTTP10: such a client gets neither chunks nor a persistent connection (RFC 9112, section 6.1).
func TestResponseToHTTP10(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		for _, row := range []struct{ name, response string }{
			{"length", "HTTP/1.1 200 OK⏎Content-Length: 5⏎⏎hello"},
			{"chunked", "HTTP/1.1 200 OK⏎Transfer-Encoding: chunked⏎⏎5⏎hello⏎0⏎⏎"},
			{"chunked behind 103", "HTTP/1.1 103 Early Hints⏎Link: </a>⏎⏎HTTP/1.1 200 OK⏎Transfer-Encoding: chunked⏎⏎5⏎hello⏎0⏎⏎"},
			{"until close", "HTTP/1.1 200 OK⏎⏎hello"},
		} {
			t.Run(row.name, func(t *testing.T) {
				t.Parallel()
				s := r.sandbox(t)
				c := r.dial(t)
				c.send("GET / HTTP/1.0⏎Host: app⏎" + s.route() + "⏎")
				u := s.accept()
				u.request()
				u.send(row.response)
				u.closeWrite()
				resp := c.response("GET")
				require.Equal(t, 200, resp.status)
				require.False(t, resp.fields.has("Transfer-Encoding"))
				require.Equal(t, "hello", resp.text())
				c.eof()
			})
		}
	})
}

// TestResponseWithoutBody: answers to HEAD, 204 and 304 end with their head, whatever it says (RFC 9112, section 6.3).
func TestResponseWithoutBody(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		for _, row := range []struct{ name, method, response, want string }{ // want: the framing lines at the client
			{"HEAD with length", "HEAD", "200 OK⏎Content-Length: 5⏎⏎", "Content-Length: 5⏎"},
			{"HEAD with huge length", "HEAD", "200 OK⏎Content-Length: 1099511627776⏎⏎", "Content-Length: 1099511627776⏎"},
			{"HEAD with coding", "HEAD", "200 OK⏎Transfer-Encoding: chunked⏎⏎", "Transfer-Encoding: chunked⏎"},
			{"HEAD with neither", "HEAD", "200 OK⏎⏎", ""},
			{"HEAD with error status and length", "HEAD", "401 Unauthorized⏎Content-Length: 5⏎⏎", "Content-Length: 5⏎"},
			{"304 with length", "GET", "304 Not Modified⏎Content-Length: 5⏎⏎", "Content-Length: 5⏎"},
			{"304 without", "GET", "304 Not Modified⏎⏎", ""},
			{"204", "GET", "204 No Content⏎⏎", ""},
			{"204 with length 0", "DELETE", "204 No Content⏎Content-Length: 0⏎⏎", ""},
		} {
			t.Run(row.name, func(t *testing.T) {
				t.Parallel()
				s := r.sandbox(t)
				c := r.dial(t)
				c.send(row.method + " / HTTP/1.1⏎Host: app⏎" + s.route() + "⏎")
				u := s.accept()
				u.request()
				u.send("HTTP/1.1 " + row.response)
				resp := c.response(row.method)
				require.Equal(t, append([]string{}, linesOf(row.want)...), resp.fields.lines())
				c.exchange(s, u, "next")
			})
		}
		// 204 has neither body nor framing fields (RFC 9110, section 8.6); a sandbox that says otherwise is not reused.
		for _, lines := range []string{"Content-Length: 5⏎⏎hello", "Transfer-Encoding: chunked⏎⏎5⏎hello⏎0⏎⏎"} {
			t.Run("204 with "+strings.SplitN(lines, ":", 2)[0], func(t *testing.T) {
				t.Parallel()
				s := r.sandbox(t)
				c := r.dial(t)
				c.send(s.get("/"))
				u := s.accept()
				u.request()
				u.send("HTTP/1.1 204 No Content⏎" + lines)
				require.Empty(t, c.response("GET").fields.lines())
				c.send(s.get("/next"))
				u = s.accept()
				u.request()
				u.ok("next")
				require.Equal(t, "next", c.response("GET").text())
			})
		}
	})
}

// TestInterimResponses: 1xx other than 100 and 101 are relayed clean to HTTP/1.1 clients and the final answer is intact
// (RFC 9110, section 15.2).
func TestInterimResponses(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		const hint = "103 Early Hints⏎Link: </a>; rel=preload⏎Connection: X-P⏎X-P: 1⏎Keep-Alive: timeout=5⏎⏎"
		const cleaned = "103 Early Hints⏎Link: </a>; rel=preload⏎⏎"
		for _, row := range []struct {
			name    string
			interim []string
			want    []string
		}{
			{"103 cleaned", []string{hint}, []string{cleaned}},
			{"102", []string{"102 Processing⏎⏎"}, []string{"102 Processing⏎⏎"}},
			{"unknown one", []string{"199 Strange⏎A: 1⏎⏎"}, []string{"199 Strange⏎A: 1⏎⏎"}},
			{"several in order", []string{"102 Processing⏎⏎", hint, "103 Early Hints⏎A: 2⏎⏎"}, []string{"102 Processing⏎⏎", cleaned, "103 Early Hints⏎A: 2⏎⏎"}},
			{"100 swallowed", []string{"100 Continue⏎⏎"}, nil},
			{"100 with fields swallowed", []string{"100 Continue⏎A: 1⏎⏎", "103 Early Hints⏎⏎"}, []string{"103 Early Hints⏎⏎"}},
			{"framing fields in 103 removed", []string{"103 Early Hints⏎Content-Length: 5⏎A: 1⏎⏎"}, []string{"103 Early Hints⏎A: 1⏎⏎"}},
		} {
			t.Run(row.name, func(t *testing.T) {
				t.Parallel()
				s := r.sandbox(t)
				c := r.dial(t)
				c.send(s.get("/"))
				u := s.accept()
				u.request()
				for _, interim := range row.interim {
					u.send("HTTP/1.1 " + interim)
				}
				for _, want := range row.want {
					c.expect("HTTP/1.1 " + want)
				}
				u.ok("final")
				resp := c.response("GET")
				require.Equal(t, 200, resp.status)
				require.Equal(t, "final", resp.text())
				c.exchange(s, u, "next")
			})
		}
		t.Run("relayed at once", func(t *testing.T) {
			t.Parallel()
			s := r.sandbox(t)
			c := r.dial(t)
			c.send(s.post("/", "hello"))
			u := s.accept()
			u.request().text()
			u.send("HTTP/1.1 103 Early Hints⏎Link: </a>⏎⏎")
			c.expect("HTTP/1.1 103 Early Hints⏎Link: </a>⏎⏎") // before there is a final answer
			u.ok("x")
			require.Equal(t, "x", c.response("POST").text())
		})
		t.Run("before the answer to HEAD", func(t *testing.T) {
			t.Parallel()
			s := r.sandbox(t)
			c := r.dial(t)
			c.send("HEAD / HTTP/1.1⏎Host: app⏎" + s.route() + "⏎")
			u := s.accept()
			u.request()
			u.send("HTTP/1.1 103 Early Hints⏎⏎HTTP/1.1 200 OK⏎Content-Length: 5⏎⏎")
			require.Equal(t, 103, c.response("HEAD").status)
			require.Equal(t, 200, c.response("HEAD").status)
			c.exchange(s, u, "next")
		})
		t.Run("cut before the final answer", func(t *testing.T) {
			t.Parallel()
			s := r.sandbox(t)
			c := r.dial(t)
			c.send(s.get("/"))
			u := s.accept()
			u.request()
			u.send("HTTP/1.1 103 Early Hints⏎⏎")
			u.close()
			require.Equal(t, 103, c.response("GET").status)
			resp := c.response("GET")
			require.Equal(t, 502, resp.status)
			require.Equal(t, "true", resp.fields.get("X-Sandbox-Dispatched"))
		})
	})
}

// TestResponseInPieces: a response may be split between any two bytes.
func TestResponseInPieces(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		s := r.sandbox(t)
		c := r.dial(t)
		response := notation.Replace("HTTP/1.1 103 Early Hints⏎⏎HTTP/1.1 200 OK⏎A: 1⏎Transfer-Encoding: chunked⏎⏎5;x⏎hello⏎6⏎ world⏎0⏎X-T: 1⏎⏎")
		var u *conn
		for at := 1; at < len(response); at++ {
			c.send(s.get("/"))
			if u == nil {
				u = s.accept()
			}
			u.request()
			u.send(response[:at], response[at:])
			require.Equal(t, 103, c.response("GET").status)
			resp := c.response("GET")
			require.Equal(t, "1", resp.fields.get("A"))
			require.Equal(t, "hello world", resp.text(), "split at %d", at)
		}
	})
}
