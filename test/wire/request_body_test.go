package wire

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRequestBody: a body arrives whole and ends exactly where the client's ended, framed anew (RFC 9112, sections 6
// and 7.1). The exchange after it, on the same connections, shows that no byte was lost or left over.
func TestRequestBody(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		big := string(Pattern(0, 300_000))
		for _, row := range []struct {
			name, method, lines, body string // lines end with the framing field
			want, framing             string // framing as it must arrive
		}{
			{"length 0", "POST", "Content-Length: 0⏎", "", "", "Content-Length: 0"},
			{"length 5", "POST", "Content-Length: 5⏎", "hello", "hello", "Content-Length: 5"},
			{"length with leading zeros", "POST", "Content-Length: 005⏎", "hello", "hello", "Content-Length: 5"},
			{"length large", "PUT", fmt.Sprintf("Content-Length: %d⏎", len(big)), big, big, fmt.Sprintf("Content-Length: %d", len(big))},
			{"GET with a body", "GET", "Content-Length: 5⏎", "hello", "hello", "Content-Length: 5"},
			{"DELETE with a body", "DELETE", "Content-Length: 5⏎", "hello", "hello", "Content-Length: 5"},
			{"HEAD with a body", "HEAD", "Content-Length: 5⏎", "hello", "hello", "Content-Length: 5"},
			{"OPTIONS with a body", "OPTIONS", "Content-Length: 5⏎", "hello", "hello", "Content-Length: 5"},
			{"body that looks like a request", "POST", "Content-Length: 39⏎", "GET /smuggled HTTP/1.1⏎Host: evil⏎⏎.", notation.Replace("GET /smuggled HTTP/1.1⏎Host: evil⏎⏎."), "Content-Length: 39"},
			{"chunked, empty", "POST", "Transfer-Encoding: chunked⏎", "0⏎⏎", "", "Transfer-Encoding: chunked"},
			{"chunked", "POST", "Transfer-Encoding: chunked⏎", "5⏎hello⏎1⏎ ⏎5⏎world⏎0⏎⏎", "hello world", "Transfer-Encoding: chunked"},
			{"chunked, coding name in other case", "POST", "transfer-encoding: Chunked⏎", "5⏎hello⏎0⏎⏎", "hello", "Transfer-Encoding: chunked"},
			{"chunked, blanks around the coding", "POST", "Transfer-Encoding: \tchunked ⏎", "5⏎hello⏎0⏎⏎", "hello", "Transfer-Encoding: chunked"},
			{"chunk sizes in both cases of hex", "POST", "Transfer-Encoding: chunked⏎", "A⏎0123456789⏎b⏎0123456789a⏎0⏎⏎", "01234567890123456789a", "Transfer-Encoding: chunked"},
			{"chunk size with leading zeros", "POST", "Transfer-Encoding: chunked⏎", "0005⏎hello⏎000⏎⏎", "hello", "Transfer-Encoding: chunked"},
			{"chunk extension dropped", "POST", "Transfer-Encoding: chunked⏎", "5;a=b⏎hello⏎0;c⏎⏎", "hello", "Transfer-Encoding: chunked"},
			{"quoted chunk extension dropped", "POST", "Transfer-Encoding: chunked⏎", "5;a=\"b;c\"⏎hello⏎0⏎⏎", "hello", "Transfer-Encoding: chunked"},
			{"trailers dropped", "POST", "Trailer: X-T⏎Transfer-Encoding: chunked⏎", "5⏎hello⏎0⏎X-T: 1⏎X-U: 2⏎⏎", "hello", "Transfer-Encoding: chunked"},
			{"trailers that look like framing dropped", "POST", "Transfer-Encoding: chunked⏎", "5⏎hello⏎0⏎Content-Length: 100⏎Transfer-Encoding: x⏎Host: evil⏎⏎", "hello", "Transfer-Encoding: chunked"},
			{"chunk data that looks like the end", "POST", "Transfer-Encoding: chunked⏎", "7⏎␍␊0⏎␍␊⏎0⏎⏎", "\r\n0\r\n\r\n", "Transfer-Encoding: chunked"},
			{"one large chunk", "POST", "Transfer-Encoding: chunked⏎", fmt.Sprintf("%x⏎%s⏎0⏎⏎", len(big), big), big, "Transfer-Encoding: chunked"},
			{"many one-byte chunks", "POST", "Transfer-Encoding: chunked⏎", strings.Repeat("1⏎x⏎", 3000) + "0⏎⏎", strings.Repeat("x", 3000), "Transfer-Encoding: chunked"},
		} {
			t.Run(row.name, func(t *testing.T) {
				t.Parallel()
				s := r.sandbox(t)
				c := r.dial(t)
				done := make(chan struct{})
				go func() { // the body may be larger than the buffers on the way
					defer close(done)
					_, _ = c.stream.Write([]byte(notation.Replace(row.method + " / HTTP/1.1⏎Host: app⏎" + s.route() + row.lines + "⏎" + row.body)))
				}()
				u := s.accept()
				request := u.request()
				framing := fields{}
				for _, f := range request.fields {
					if f.name == "Content-Length" && f.value == "005" {
						f.value = "5" // the same number
					}
					framing = append(framing, f)
				}
				require.Equal(t, []string{row.framing}, framing.lines(append(routerOwned, "Host")...))
				require.Equal(t, row.want, request.text())
				<-done
				u.ok("x")
				resp := c.response(row.method)
				if row.method != "HEAD" {
					require.Equal(t, "x", resp.text())
					c.exchange(s, u, "next")
				}
			})
		}
	})
}

// TestRequestBodyByteByByte: each byte of an upload is passed on when it comes, and so is its end.
func TestRequestBodyByteByByte(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		for _, row := range []struct {
			name, framing string
			frame         func(b byte) string
			end           string
		}{
			{"by length", "Content-Length: 20⏎", func(b byte) string { return string(b) }, ""},
			{"chunked", "Transfer-Encoding: chunked⏎", func(b byte) string { return "1⏎" + string(b) + "⏎" }, "0⏎⏎"},
		} {
			t.Run(row.name, func(t *testing.T) {
				t.Parallel()
				s := r.sandbox(t)
				c := r.dial(t)
				c.send("PATCH / HTTP/1.1⏎Host: app⏎" + s.route() + row.framing + "⏎")
				u := s.accept()
				request := u.request()
				for b := range byte(20) {
					c.send(row.frame('a' + b))
					require.Equal(t, string('a'+b), request.body.next(1))
				}
				if row.end != "" {
					c.send(row.end)
				}
				require.Empty(t, request.text())
				u.ok("x")
				require.Equal(t, "x", c.response("PATCH").text())
			})
		}
	})
}

// TestChunkedRequestInPieces: a chunked body may be split between any two bytes.
func TestChunkedRequestInPieces(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		s := r.sandbox(t)
		c := r.dial(t)
		body := notation.Replace("5;ext=\"v\"⏎hello⏎6⏎ world⏎0⏎X-T: 1⏎⏎")
		var u *conn
		for at := 1; at < len(body); at++ {
			c.send("POST / HTTP/1.1⏎Host: app⏎"+s.route()+"Transfer-Encoding: chunked⏎⏎"+body[:at], body[at:])
			if u == nil {
				u = s.accept()
			}
			require.Equal(t, "hello world", u.request().text(), "split at %d", at)
			u.ok("x")
			require.Equal(t, "x", c.response("POST").text())
		}
	})
}

// TestMalformedChunk: a body whose framing is broken never looks complete to the sandbox, and the client learns it
// (RFC 9112, sections 7.1 and 8).
func TestMalformedChunk(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		for _, row := range []struct{ name, body string }{
			{"hexadecimal prefix", "0x2⏎hi⏎0⏎⏎"},
			{"plus sign", "+2⏎hi⏎0⏎⏎"},
			{"minus sign", "-2⏎hi⏎0⏎⏎"},
			{"no digit", "⏎hi⏎0⏎⏎"},
			{"only an extension", ";a⏎hi⏎0⏎⏎"},
			{"not hexadecimal", "g⏎hi⏎0⏎⏎"},
			{"blank before the size", " 2⏎hi⏎0⏎⏎"},
			{"underscore in the size", "0_2⏎hi⏎0⏎⏎"},
			{"size beyond 64 bits", "10000000000000002⏎hi⏎0⏎⏎"},
			{"size of 63 bits", "ffffffffffffffff⏎hi⏎0⏎⏎"},
			{"LF in an extension", "2;␊xx⏎0⏎⏎"},
			{"CR in an extension", "2;a␍b⏎hi⏎0⏎⏎"},
			{"NUL in an extension", "2;a␀b⏎hi⏎0⏎⏎"},
			{"only LF after the size", "2␊hi⏎0⏎⏎"},
			{"only LF after the data", "2⏎hi␊0⏎⏎"},
			{"only CR after the size", "2␍hi⏎0⏎⏎"},
			{"data longer than the size", "2⏎hip⏎0⏎⏎"},
			{"data shorter than the size", "3⏎hi⏎0⏎⏎"},
			{"nothing between data and next size", "2⏎hi0⏎⏎"},
			{"CR in a trailer", "2⏎hi⏎0⏎X-T: a␍X-Evil: 1⏎⏎"},
			{"LF in a trailer", "2⏎hi⏎0⏎X-T: a␊X-Evil: 1⏎⏎"},
			{"NUL in a trailer", "2⏎hi⏎0⏎X-T: a␀⏎⏎"},
			{"blank before the colon of a trailer", "2⏎hi⏎0⏎X-T : 1⏎⏎"},
			{"trailer without colon", "2⏎hi⏎0⏎GET /smuggled HTTP/1.1⏎⏎"},
			{"folded trailer", "2⏎hi⏎0⏎X-T: 1⏎ 2⏎⏎"},
			{"only LF at the end", "2⏎hi⏎0⏎␊"},
			{"extension without end", "2;" + strings.Repeat("a", 1<<20)},
			{"trailers without end", "2⏎hi⏎0⏎" + strings.Repeat("X-T: 1⏎", 1<<17)},
			{"size without end", strings.Repeat("0", 1<<17)},
		} {
			t.Run(row.name, func(t *testing.T) {
				t.Parallel()
				s := r.sandbox(t)
				c := r.dial(t)
				head := s.fill("POST / HTTP/1.1⏎Host: app⏎{route}Transfer-Encoding: chunked⏎⏎")
				go func() { // a long row may not be read to its end
					_, _ = c.stream.Write([]byte(notation.Replace(head + row.body + s.get("/smuggled"))))
				}()
				resp := c.response("POST")
				text := resp.text()
				require.Contains(t, []int{400, 413, 431}, resp.status, "body %s", text)
				a, err := decodeAnswer(text)
				require.NoError(t, err)
				requireOwn(t, resp, a)
				c.gone()

				dispatched := "false"
				if s.pending() {
					u := s.accept()
					received, _ := u.rest()
					require.False(t, bytes.HasSuffix(received, []byte("\r\n0\r\n\r\n")), "the sandbox got a complete body: %.300q", received)
					require.NotContains(t, string(received), "smuggled")
					require.NotContains(t, string(received), "Evil")
					if len(received) > 0 {
						dispatched = "true"
					}
				}
				require.Equal(t, dispatched, resp.fields.get("X-Sandbox-Dispatched"))
				s.untouched()
			})
		}
	})
}

// TestMalformedChunkAfterGoodOnes: the break comes when the sandbox has seen half of the body; the connection to it ends
// and is not used again.
func TestMalformedChunkAfterGoodOnes(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		s := r.sandbox(t)
		c := r.dial(t)
		c.send("POST / HTTP/1.1⏎Host: app⏎" + s.route() + "Transfer-Encoding: chunked⏎⏎5⏎hello⏎")
		u := s.accept()
		request := u.request()
		require.Equal(t, "hello", request.body.next(5))
		c.send("zz⏎")
		ownAnswer(t, c.response("POST"), 400, "invalid_request", true)
		c.gone()
		_, complete := request.body.all()
		require.False(t, complete)

		other := r.dial(t)
		other.send(s.get("/"))
		next := s.accept()
		next.request()
		next.ok("fresh")
		require.Equal(t, "fresh", other.response("GET").text())
	})
}

// TestMalformedChunkAfterResponseBegan: nothing but the end of the connection can tell the client.
func TestMalformedChunkAfterResponseBegan(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		s := r.sandbox(t)
		c := r.dial(t)
		c.send("POST / HTTP/1.1⏎Host: app⏎" + s.route() + "Transfer-Encoding: chunked⏎⏎5⏎hello⏎")
		u := s.accept()
		request := u.request()
		require.Equal(t, "hello", request.body.next(5))
		u.send("HTTP/1.1 200 OK⏎Content-Length: 10⏎⏎half.")
		resp := c.response("POST")
		require.Equal(t, "half.", resp.body.next(5))
		c.send("zz⏎")
		require.Empty(t, resp.cut())
		_, complete := request.body.all()
		require.False(t, complete)
	})
}

// TestClientCutsItsBody: a request that ends early ends early at the sandbox, too.
func TestClientCutsItsBody(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		for _, row := range []struct{ name, lines, body string }{
			{"by length", "Content-Length: 10⏎", "hello"},
			{"chunked between chunks", "Transfer-Encoding: chunked⏎", "5⏎hello⏎"},
			{"chunked inside a chunk", "Transfer-Encoding: chunked⏎", "a⏎hello"},
			{"chunked in the trailer", "Transfer-Encoding: chunked⏎", "5⏎hello⏎0⏎"},
		} {
			for _, end := range []string{"FIN", "RST"} {
				t.Run(row.name+" "+end, func(t *testing.T) {
					t.Parallel()
					s := r.sandbox(t)
					c := r.dial(t)
					c.send("POST / HTTP/1.1⏎Host: app⏎" + s.route() + row.lines + "⏎" + row.body)
					u := s.accept()
					request := u.request()
					require.Equal(t, "hello", request.body.next(5))
					if end == "FIN" {
						c.close()
					} else {
						c.reset()
					}
					rest, complete := request.body.all()
					require.Empty(t, rest)
					require.False(t, complete)
				})
			}
		}
	})
}

// TestExpectContinue: the router decides first and then answers the expectation itself (RFC 9110, section 10.1.1).
func TestExpectContinue(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		limited := p.routerWith(t, limits...)
		const huge = "Content-Length: 1073741824⏎"
		for _, row := range []struct {
			name    string
			r       *router
			request string
			status  int
			code    string
		}{
			{"unknown sandbox", r, "POST / HTTP/1.1⏎Host: a⏎X-Sandbox-ID: nobody⏎Expect: 100-continue⏎" + huge + "⏎", 404, "sandbox_not_found"},
			{"no sandbox", r, "POST / HTTP/1.1⏎Host: a⏎Expect: 100-continue⏎" + huge + "⏎", 400, "invalid_request"},
			{"too large", limited, "POST / HTTP/1.1⏎Host: a⏎{route}Expect: 100-continue⏎" + huge + "⏎", 413, "body_too_large"},
			{"no credential", p.routerWith(t, staticToken...), "POST / HTTP/1.1⏎Host: a⏎{route}Expect: 100-continue⏎" + huge + "⏎", 401, "unauthenticated"},
			{"other expectation", r, "POST / HTTP/1.1⏎Host: a⏎{route}Expect: the-unexpected⏎Content-Length: 2⏎⏎hi", 417, "expectation_failed"},
			{"expectation with a parameter", r, "POST / HTTP/1.1⏎Host: a⏎{route}Expect: 100-continue;x=1⏎Content-Length: 2⏎⏎hi", 417, "expectation_failed"},
		} {
			t.Run("final answer first: "+row.name, func(t *testing.T) {
				t.Parallel()
				s := row.r.sandbox(t)
				c := row.r.dial(t)
				c.send(s.fill(row.request))
				ownAnswer(t, c.response("POST"), row.status, row.code, false)
				s.untouched()
			})
		}
		for _, row := range []struct{ name, expect string }{{"as usual", "100-continue"}, {"in other case", "100-Continue"}} {
			t.Run("known sandbox "+row.name, func(t *testing.T) {
				t.Parallel()
				s := r.sandbox(t)
				c := r.dial(t)
				c.send("POST / HTTP/1.1⏎Host: app⏎" + s.route() + "Expect: " + row.expect + "⏎Content-Length: 5⏎⏎")
				c.expect("HTTP/1.1 100 Continue⏎⏎")
				c.send("hello")
				u := s.accept()
				request := u.request()
				require.False(t, request.fields.has("Expect"))
				require.Equal(t, "hello", request.text())
				u.send("HTTP/1.1 100 Continue⏎⏎") // a sandbox may send it unasked; the client has had its own
				u.ok("x")
				resp := c.response("POST")
				require.Equal(t, 200, resp.status)
				require.Equal(t, "x", resp.text())
				c.exchange(s, u, "next")
			})
		}
		t.Run("chunked body", func(t *testing.T) {
			t.Parallel()
			s := r.sandbox(t)
			c := r.dial(t)
			c.send("POST / HTTP/1.1⏎Host: app⏎" + s.route() + "Expect: 100-continue⏎Transfer-Encoding: chunked⏎⏎")
			c.expect("HTTP/1.1 100 Continue⏎⏎")
			c.send("5⏎hello⏎0⏎⏎")
			u := s.accept()
			require.Equal(t, "hello", u.request().text())
			u.ok("x")
			require.Equal(t, "x", c.response("POST").text())
		})
		t.Run("body sent without waiting", func(t *testing.T) {
			t.Parallel()
			s := r.sandbox(t)
			c := r.dial(t)
			c.send("POST / HTTP/1.1⏎Host: app⏎" + s.route() + "Expect: 100-continue⏎Content-Length: 5⏎⏎hello")
			u := s.accept()
			require.Equal(t, "hello", u.request().text())
			u.ok("x")
			resp := c.response("POST")
			if resp.status == 100 { // it may be left out when the body is there already
				resp = c.response("POST")
			}
			require.Equal(t, "x", resp.text())
		})
		t.Run("ignored in HTTP/1.0", func(t *testing.T) {
			t.Parallel()
			s := r.sandbox(t)
			c := r.dial(t)
			c.send("POST / HTTP/1.0⏎Host: app⏎" + s.route() + "Expect: 100-continue⏎Content-Length: 5⏎⏎hello")
			u := s.accept()
			request := u.request()
			require.Equal(t, "hello", request.text())
			u.ok("x")
			resp := c.response("POST")
			require.Equal(t, 200, resp.status, "an HTTP/1.0 client must not get a 1xx")
			require.Equal(t, "x", resp.text())
		})
		t.Run("sandbox refuses early", func(t *testing.T) {
			t.Parallel()
			s := r.sandbox(t)
			c := r.dial(t)
			c.send("POST / HTTP/1.1⏎Host: app⏎" + s.route() + "Expect: 100-continue⏎" + huge + "⏎")
			u := s.accept()
			u.request()
			u.send("HTTP/1.1 413 Content Too Large⏎Content-Length: 3⏎⏎no!")
			resp := c.response("POST")
			if resp.status == 100 {
				resp = c.response("POST")
			}
			require.Equal(t, 413, resp.status)
			require.Equal(t, "no!", resp.text())
			c.gone()
		})
	})
}
