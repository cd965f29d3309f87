package wire

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// routerOwned are the fields that the router sets on every request.
var routerOwned = []string{"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"}

// TestTargetByteForByte: a proxy changes neither path nor query (RFC 9110, section 7.7).
func TestTargetByteForByte(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		for _, target := range []string{
			"/", "/a", "/a%2Fb", "/a%2fb", "/a//b", "//", "//a", "///evil.example/x", "/../x", "/a/../b", "/a/./b", "/.", "/..", "/%2e%2e/x", "/%2E",
			"/%", "/%zz", "/%0d%0aX-Evil:%201", "/%00", "/a;b=c", "/a?b?c", "/?", "/??", "/a?x=%20&&y=%2F&z", "/a?b=c;d",
			"/a+b?c+d", "/a|b", "/a\"b", "/<a>", "/{a}", "/a\\b", "/a^b", "/a`b", "/~user", "/a:80", "/a@b", "/http://x/y", "/a?http://x/y",
			"/!$&'()*+,;=:@", "/" + strings.Repeat("long/", 1000), "/?" + strings.Repeat("q=1&", 1000), "/healthz", "/readyz?x",
		} {
			t.Run(fmt.Sprintf("%.40s", target), func(t *testing.T) {
				t.Parallel()
				s := r.sandbox(t)
				c := r.dial(t)
				c.send(s.get(target))
				u := s.accept()
				require.Equal(t, "GET "+target+" HTTP/1.1", u.request().line)
				u.ok("x")
				require.Equal(t, "x", c.response("GET").text())
			})
		}
	})
}

// TestRawBytesInTarget: bytes above ASCII are passed on as they are or refused, never rewritten.
func TestRawBytesInTarget(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		for _, target := range []string{"/é", "/\xff\x80", "/a?é"} {
			t.Run(fmt.Sprintf("%q", target), func(t *testing.T) {
				t.Parallel()
				s := r.sandbox(t)
				c := r.dial(t)
				c.send(s.get(target))
				eventually(t, "an answer or a connection", func() bool { return s.pending() || c.readable() })
				if s.pending() {
					u := s.accept()
					require.Equal(t, "GET "+target+" HTTP/1.1", u.request().line)
					u.ok("x")
					require.Equal(t, "x", c.response("GET").text())
					return
				}
				ownAnswer(t, c.response("GET"), 400, "invalid_request", false)
				s.untouched()
			})
		}
	})
}

// TestAbsoluteForm: the target goes on in origin form, and its authority is the Host (RFC 9112, section 3.2.2).
func TestAbsoluteForm(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		for _, row := range []struct{ line, host, want string }{
			{"GET http://a/p?q=1 HTTP/1.1", "a", "GET /p?q=1 HTTP/1.1"},
			{"GET HTTP://a/p HTTP/1.1", "a", "GET /p HTTP/1.1"},
			{"GET http://A.Example/p HTTP/1.1", "a.example", "GET /p HTTP/1.1"},
			{"GET http://a:8080/p HTTP/1.1", "a:8080", "GET /p HTTP/1.1"},
			{"GET http://a HTTP/1.1", "a", "GET / HTTP/1.1"},
			{"GET http://a?q=1 HTTP/1.1", "a", "GET /?q=1 HTTP/1.1"},
			{"GET http://a//b/../c%2F HTTP/1.1", "a", "GET //b/../c%2F HTTP/1.1"},
			{"OPTIONS http://a HTTP/1.1", "a", "OPTIONS * HTTP/1.1"},
			{"OPTIONS http://a/ HTTP/1.1", "a", "OPTIONS / HTTP/1.1"},
			{"OPTIONS * HTTP/1.1", "a", "OPTIONS * HTTP/1.1"},
		} {
			t.Run(row.line, func(t *testing.T) {
				t.Parallel()
				s := r.sandbox(t)
				c := r.dial(t)
				c.send(row.line + "⏎Host: " + row.host + "⏎" + s.route() + "⏎")
				u := s.accept()
				request := u.request()
				require.Equal(t, row.want, request.line)
				require.Len(t, request.fields.all("Host"), 1)
				require.True(t, strings.EqualFold(row.host, request.fields.get("Host")))
				u.ok("x")
				require.Equal(t, "x", c.response("GET").text())
			})
		}
	})
}

// TestMethodsPass: every method but CONNECT and TRACE is the application's business.
func TestMethodsPass(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND", "M-SEARCH", "get", "X!#$%&'*+-.^_`|~"} {
			t.Run(method, func(t *testing.T) {
				t.Parallel()
				s := r.sandbox(t)
				c := r.dial(t)
				c.send(method + " / HTTP/1.1⏎Host: app⏎" + s.route() + "⏎")
				u := s.accept()
				request := u.request()
				require.Equal(t, method, request.method)
				// Nothing is invented: no Content-Length, Content-Type, User-Agent, Accept-Encoding or Connection.
				require.Equal(t, []string{"Host: app"}, request.fields.lines(routerOwned...))
				u.send("HTTP/1.1 204 No Content⏎⏎")
				require.Equal(t, 204, c.response(method).status)
			})
		}
	})
}

// TestRequestFields: what a request's header section looks like at the sandbox. Hop-by-hop fields: RFC 9110, section
// 7.6.1; order and repeats: section 5.3.
func TestRequestFields(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		const same = "same"
		for _, row := range []struct{ name, send, want string }{
			{"order, repeats and spelling kept", "B: 1⏎a: 2⏎B: 3⏎X-UPPER: 4⏎x-lower: 5⏎B: 1⏎", same},
			{"cookies kept apart", "Cookie: a=1; b=2⏎Cookie: c=3⏎", same},
			{"application's headers kept", "User-Agent: u/1⏎Accept: */*⏎Accept-Encoding: zstd⏎Content-Type: text/x⏎Origin: http://o⏎Referer: http://r⏎", same},
			{"blanks around values trimmed", "A: \t 1 \t⏎B:2⏎C:⏎D: ⏎", "A: 1⏎B: 2⏎C: ⏎D: ⏎"},
			{"blanks inside values kept", "A: 1  2\t3⏎", same},
			{"bytes above ASCII in values kept", "A: é\xff⏎", same},
			{"delimiters in values kept", "A: \"x\\\"\", (y), z=1; q=\"a,b\"⏎", same},
			{"Authorization kept without authorization", "Authorization: Bearer app⏎", same},
			{"tracing kept", "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01⏎tracestate: a=b⏎X-Request-ID: r1⏎", same},
			{"range and conditions kept", "Range: bytes=0-1⏎If-None-Match: \"x\"⏎If-Match: *⏎If-Range: \"x\"⏎", same},
			{"Via and Max-Forwards kept", "Via: 1.1 x⏎Max-Forwards: 3⏎", same},
			{"Keep-Alive removed", "Keep-Alive: timeout=5⏎A: 1⏎", "A: 1⏎"},
			{"Proxy-Connection removed", "Proxy-Connection: keep-alive⏎A: 1⏎", "A: 1⏎"},
			{"Proxy-Authorization removed", "Proxy-Authorization: Basic eA==⏎A: 1⏎", "A: 1⏎"},
			{"Proxy-Authenticate removed", "Proxy-Authenticate: Basic⏎A: 1⏎", "A: 1⏎"},
			{"TE removed", "TE: trailers⏎A: 1⏎", "A: 1⏎"},
			{"TE nominated and removed", "TE: trailers⏎Connection: TE⏎A: 1⏎", "A: 1⏎"},
			{"Trailer removed", "Trailer: X-T⏎A: 1⏎", "A: 1⏎"},
			{"Upgrade removed", "Upgrade: h2c⏎Connection: Upgrade, HTTP2-Settings⏎HTTP2-Settings: AAMAAABkAAQAAP__⏎A: 1⏎", "A: 1⏎"},
			{"Upgrade without Connection removed", "Upgrade: h2c⏎A: 1⏎", "A: 1⏎"},
			{"Connection: keep-alive removed", "Connection: keep-alive⏎A: 1⏎", "A: 1⏎"},
			{"nominated field removed", "Connection: X-P⏎X-P: 1⏎A: 1⏎", "A: 1⏎"},
			{"nominated field before Connection removed", "X-P: 1⏎A: 1⏎Connection: X-P⏎", "A: 1⏎"},
			{"nominated in other case removed", "Connection: x-p⏎X-P: 1⏎A: 1⏎", "A: 1⏎"},
			{"every repeat of a nominated field removed", "Connection: x-p⏎X-P: 1⏎A: 1⏎x-p: 2⏎", "A: 1⏎"},
			{"nominated in a list with blanks and empty elements", "Connection: , keep-alive\t, X-P ,,X-Q⏎X-P: 1⏎X-Q: 1⏎A: 1⏎", "A: 1⏎"},
			{"nominated on the second Connection line, first empty", "Connection:⏎Connection: X-P⏎X-P: 1⏎A: 1⏎", "A: 1⏎"},
			{"nominated on each of three Connection lines", "Connection: X-P⏎Connection: keep-alive⏎Connection: X-Q⏎X-P: 1⏎X-Q: 1⏎A: 1⏎", "A: 1⏎"},
			{"prefix of a nominated name kept", "Connection: X-P⏎X-Pq: 1⏎X: 1⏎", "X-Pq: 1⏎X: 1⏎"},
			{"Host cannot be nominated", "Connection: Host⏎A: 1⏎", "A: 1⏎"},
			{"nominating what is absent changes nothing", "Connection: X-Absent⏎A: 1⏎", "A: 1⏎"},
			{"routing headers nominated still route", "Connection: X-Sandbox-ID, X-Sandbox-Port⏎A: 1⏎", "A: 1⏎"},
		} {
			t.Run(row.name, func(t *testing.T) {
				t.Parallel()
				want := row.want
				if want == same {
					want = row.send
				}
				s := r.sandbox(t)
				c := r.dial(t)
				c.send("GET / HTTP/1.1⏎Host: app⏎" + s.route() + row.send + "⏎")
				u := s.accept()
				require.Equal(t, append([]string{"Host: app"}, linesOf(want)...), u.request().fields.lines(routerOwned...))
				u.ok("x")
				require.Equal(t, "x", c.response("GET").text())
			})
		}
	})
}

// linesOf splits field lines in table notation.
func linesOf(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "⏎"), "⏎")
}

// TestFramingCannotBeNominated: Connection must not take away the framing of the message it stands in.
func TestFramingCannotBeNominated(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		for _, row := range []struct{ name, lines, body string }{
			{"Content-Length", "Connection: Content-Length⏎Content-Length: 5⏎", "hello"},
			{"Transfer-Encoding", "Connection: Transfer-Encoding⏎Transfer-Encoding: chunked⏎", "5⏎hello⏎0⏎⏎"},
		} {
			t.Run(row.name, func(t *testing.T) {
				t.Parallel()
				s := r.sandbox(t)
				c := r.dial(t)
				c.send("POST / HTTP/1.1⏎Host: app⏎" + s.route() + row.lines + "⏎" + row.body)
				u := s.accept()
				require.Equal(t, "hello", u.request().text())
				u.ok("x")
				require.Equal(t, "x", c.response("POST").text())
				c.exchange(s, u, "next")
			})
		}
	})
}

// TestHTTP10Request: it becomes HTTP/1.1 on the way, with exactly one Host, and the connection ends with the answer.
func TestHTTP10Request(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		for _, row := range []struct{ name, lines string }{{"with Host", "Host: app⏎"}, {"without Host", ""}} {
			t.Run(row.name, func(t *testing.T) {
				t.Parallel()
				s := r.sandbox(t)
				c := r.dial(t)
				c.send("GET /x HTTP/1.0⏎" + row.lines + s.route() + "⏎")
				u := s.accept()
				request := u.request()
				require.Equal(t, "GET /x HTTP/1.1", request.line)
				require.Len(t, request.fields.all("Host"), 1)
				u.ok("old")
				require.Equal(t, "old", c.response("GET").text())
				c.eof()
			})
		}
	})
}

// TestEmptyLineBeforeRequest: at least one is ignored (RFC 9112, section 2.2).
func TestEmptyLineBeforeRequest(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		s := r.sandbox(t)
		c := r.dial(t)
		c.send("⏎" + s.get("/one"))
		u := s.accept()
		require.Equal(t, "/one", u.request().target)
		u.ok("1")
		require.Equal(t, "1", c.response("GET").text())
		c.send("⏎" + s.get("/two"))
		require.Equal(t, "/two", u.request().target)
		u.ok("2")
		require.Equal(t, "2", c.response("GET").text())
	})
}

// TestHeadInPieces: a head arrives in any pieces, down to single bytes.
func TestHeadInPieces(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		s := r.sandbox(t)
		c := r.dial(t)
		c.send(strings.Split(notation.Replace(s.post("/slow", "hello", "A: 1")), "")...)
		u := s.accept()
		request := u.request()
		require.Equal(t, "/slow", request.target)
		require.Equal(t, "hello", request.text())
		u.ok("x")
		require.Equal(t, "x", c.response("POST").text())
	})
}

// TestConnectionCloseOfClient: it is obeyed and said back, whatever its spelling (RFC 9112, section 9.6).
func TestConnectionCloseOfClient(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		for _, value := range []string{"close", "Close", "keep-alive, close", "close, X-P"} {
			t.Run(value, func(t *testing.T) {
				t.Parallel()
				s := r.sandbox(t)
				c := r.dial(t)
				c.send(s.get("/", "Connection: "+value) + s.get("/never"))
				u := s.accept()
				require.False(t, u.request().fields.has("Connection"), "hop-by-hop, and not about this hop")
				u.ok("bye")
				resp := c.response("GET")
				require.Equal(t, "close", resp.fields.get("Connection"))
				require.Equal(t, "bye", resp.text())
				c.gone()
				s.untouched()
			})
		}
	})
}

// TestPipelining: answers come in the order of the requests, each from its own sandbox.
func TestPipelining(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		first, second := r.sandbox(t), r.sandbox(t)
		c := r.dial(t)
		c.send(first.get("/1") + second.post("/2", "body of two") + first.get("/3") + "GET /4 HTTP/1.1⏎Host: a⏎⏎")

		u := first.accept()
		require.Equal(t, "/1", u.request().target)
		u.ok("one")
		w := second.accept()
		request := w.request()
		require.Equal(t, "/2", request.target)
		require.Equal(t, "body of two", request.text())
		w.ok("two")
		require.Equal(t, "/3", u.request().target)
		u.ok("three")

		require.Equal(t, "one", c.response("GET").text())
		require.Equal(t, "two", c.response("POST").text())
		require.Equal(t, "three", c.response("GET").text())
		a := ownAnswer(t, c.response("GET"), 400, "invalid_request", false)
		require.Equal(t, detailIDRequired, a.Detail, "the routing headers of one request do not stick to the connection")
	})
}
