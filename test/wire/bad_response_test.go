package wire

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBadResponse: a response that cannot be relayed without guessing becomes 502, and its connection is dropped.
func TestBadResponse(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		ok := func(lines string) string { return "HTTP/1.1 200 OK⏎" + lines + "⏎hello" }
		for _, row := range []struct{ name, response string }{
			{"length and coding", "HTTP/1.1 200 OK⏎Content-Length: 5⏎Transfer-Encoding: chunked⏎⏎5⏎hello⏎0⏎⏎"},
			{"coding and length", "HTTP/1.1 200 OK⏎Transfer-Encoding: chunked⏎Content-Length: 5⏎⏎5⏎hello⏎0⏎⏎"},
			{"two lengths that differ", ok("Content-Length: 5⏎Content-Length: 6⏎")},
			{"two lengths that agree", ok("Content-Length: 5⏎Content-Length: 5⏎")},
			{"length list that differs", ok("Content-Length: 5, 6⏎")},
			{"length list that agrees", ok("Content-Length: 5, 5⏎")},
			{"length with plus", ok("Content-Length: +5⏎")},
			{"negative length", ok("Content-Length: -1⏎")},
			{"empty length", ok("Content-Length:⏎")},
			{"length with letters", ok("Content-Length: 5x⏎")},
			{"length beyond 64 bits", ok("Content-Length: 18446744073709551621⏎")},
			{"coding twice", "HTTP/1.1 200 OK⏎Transfer-Encoding: chunked⏎Transfer-Encoding: chunked⏎⏎5⏎hello⏎0⏎⏎"},
			{"gzip, chunked", "HTTP/1.1 200 OK⏎Transfer-Encoding: gzip, chunked⏎⏎5⏎hello⏎0⏎⏎"},
			{"chunked not last", "HTTP/1.1 200 OK⏎Transfer-Encoding: chunked, gzip⏎⏎5⏎hello⏎0⏎⏎"},
			{"identity", ok("Transfer-Encoding: identity⏎")},
			{"xchunked", ok("Transfer-Encoding: xchunked⏎")},
			{"coding in HTTP/1.0", "HTTP/1.0 200 OK⏎Transfer-Encoding: chunked⏎⏎5⏎hello⏎0⏎⏎"},
			{"CR in a value", ok("A: a␍b⏎Content-Length: 5⏎")},
			{"NUL in a value", ok("A: a␀b⏎Content-Length: 5⏎")},
			{"LF in a value", ok("A: a␊Set-Cookie: evil⏎Content-Length: 5⏎")},
			{"control character in a value", ok("A: a\x01b⏎Content-Length: 5⏎")},
			{"blank in a name", ok("A B: 1⏎Content-Length: 5⏎")},
			{"empty name", ok(": 1⏎Content-Length: 5⏎")},
			{"no colon", ok("A⏎Content-Length: 5⏎")},
			{"blank before the first field", "HTTP/1.1 200 OK⏎ A: 1⏎Content-Length: 5⏎⏎hello"},
			{"blank before the colon of Content-Length", ok("Content-Length : 5⏎")},
			{"blank before the colon of Transfer-Encoding", "HTTP/1.1 200 OK⏎Transfer-Encoding : chunked⏎⏎5⏎hello⏎0⏎⏎"},
			{"folded Content-Length", ok("Content-Length:⏎ 5⏎")},
			{"version 2.0", "HTTP/2.0 200 OK⏎Content-Length: 5⏎⏎hello"},
			{"version without minor", "HTTP/2 200 OK⏎Content-Length: 5⏎⏎hello"},
			{"version 0.9", "HTTP/0.9 200 OK⏎Content-Length: 5⏎⏎hello"},
			{"lower-case version", "http/1.1 200 OK⏎Content-Length: 5⏎⏎hello"},
			{"other protocol", "ICY 200 OK⏎Content-Length: 5⏎⏎hello"},
			{"status with a letter", "HTTP/1.1 20x OK⏎Content-Length: 5⏎⏎hello"},
			{"status of two digits", "HTTP/1.1 20 OK⏎Content-Length: 5⏎⏎hello"},
			{"status of four digits", "HTTP/1.1 2000 OK⏎Content-Length: 5⏎⏎hello"},
			{"status below 100", "HTTP/1.1 099 Low⏎Content-Length: 5⏎⏎hello"},
			{"negative status", "HTTP/1.1 -20 OK⏎Content-Length: 5⏎⏎hello"},
			{"two blanks before the status", "HTTP/1.1  200 OK⏎Content-Length: 5⏎⏎hello"},
			{"no status", "HTTP/1.1⏎Content-Length: 5⏎⏎hello"},
			{"NUL in the reason", "HTTP/1.1 200 O␀K⏎Content-Length: 5⏎⏎hello"},
			{"CR in the reason", "HTTP/1.1 200 O␍K⏎Content-Length: 5⏎⏎hello"},
			{"not HTTP", "hello, I am not a web server⏎⏎"},
			{"TLS alert", "\x15\x03\x03\x00\x02\x02\x50⏎⏎"},
			{"HTTP/2 settings", "\x00\x00\x00\x04\x00\x00\x00\x00\x00⏎⏎"},
			{"SSH banner", "SSH-2.0-OpenSSH_9.6⏎⏎"},
			{"head over 64 KiB", "HTTP/1.1 200 OK⏎" + strings.Repeat("A: "+strings.Repeat("a", 1000)+"⏎", 70) + "Content-Length: 5⏎⏎hello"},
			{"one field over 64 KiB", "HTTP/1.1 200 OK⏎A: " + strings.Repeat("a", 70_000) + "⏎Content-Length: 5⏎⏎hello"},
			{"head without end", "HTTP/1.1 200 OK⏎" + strings.Repeat("A: "+strings.Repeat("a", 1000)+"⏎", 200)},
			{"line without end", strings.Repeat("a", 200_000)},
			{"101 unasked", "HTTP/1.1 101 Switching Protocols⏎Upgrade: websocket⏎Connection: Upgrade⏎⏎\x81\x00"},
			{"101 unasked, bare", "HTTP/1.1 101 Switching Protocols⏎⏎"},
			{"malformed 103", "HTTP/1.1 103 Early Hints⏎A : 1␀⏎⏎HTTP/1.1 200 OK⏎Content-Length: 5⏎⏎hello"},
			{"malformed answer behind 103", "HTTP/1.1 103 Early Hints⏎⏎HTTP/1.1 200 OK⏎Content-Length: 5x⏎⏎hello"},
		} {
			t.Run(row.name, func(t *testing.T) {
				t.Parallel()
				s := r.sandbox(t)
				c := r.dial(t)
				c.send(s.get("/"))
				u := s.accept()
				u.request()
				_, _ = u.stream.Write([]byte(notation.Replace(row.response))) // a long row may not be read to its end
				resp := c.response("GET")
				if resp.status == 103 {
					resp = c.response("GET")
				}
				ownAnswer(t, resp, 502, "bad_response", true)
				u.gone()

				// The client's connection is not to blame: it goes on, over a new upstream connection.
				if resp.fields.get("Connection") != "close" {
					c.send(s.get("/next"))
					u = s.accept()
					u.request()
					u.ok("next")
					require.Equal(t, "next", c.response("GET").text())
				}
			})
		}
	})
}

// TestUnclearResponse: what a receiver may repair or refuse comes out clean or as 502, never as it came.
func TestUnclearResponse(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		for _, row := range []struct{ name, lines, want string }{
			{"blank before the colon", "HTTP/1.1 200 OK⏎X-A : 1⏎Content-Length: 5⏎⏎hello", "X-A: 1"},
			{"folded field", "HTTP/1.1 200 OK⏎X-A: 1⏎ 2⏎Content-Length: 5⏎⏎hello", "X-A: 1 2"},
			{"only LF as line ends", "HTTP/1.1 200 OK␊X-A: 1␊Content-Length: 5␊␊hello", "X-A: 1"},
			{"no blank behind the status", "HTTP/1.1 200⏎X-A: 1⏎Content-Length: 5⏎⏎hello", "X-A: 1"},
			{"empty line before the response", "⏎HTTP/1.1 200 OK⏎X-A: 1⏎Content-Length: 5⏎⏎hello", "X-A: 1"},
		} {
			t.Run(row.name, func(t *testing.T) {
				t.Parallel()
				s := r.sandbox(t)
				c := r.dial(t)
				c.send(s.get("/"))
				u := s.accept()
				u.request()
				u.send(row.lines)
				resp := c.response("GET")
				if resp.status == 502 {
					ownAnswer(t, resp, 502, "bad_response", true)
					u.gone()
					return
				}
				require.Equal(t, 200, resp.status)
				require.Equal(t, []string{row.want}, resp.fields.lines(hopFields...))
				require.Equal(t, "hello", resp.text())
			})
		}
	})
}

// TestCutResponse: a body that breaks off at the sandbox looks broken off at the client: no end mark, no added bytes,
// and the connection ends (RFC 9112, section 8).
func TestCutResponse(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		const length, chunked = "Content-Length: 10⏎⏎", "Transfer-Encoding: chunked⏎⏎"
		for _, row := range []struct{ name, head, then, want string }{
			{"by length", length, "hello", "hello"},
			{"by length, nothing came", length, "", ""},
			{"between chunks", chunked, "5⏎hello⏎", "hello"},
			{"inside a chunk", chunked, "a⏎hello", "hello"},
			{"inside a chunk size", chunked, "5⏎hello⏎5", "hello"},
			{"before the line end behind a chunk", chunked, "5⏎hello", "hello"},
			{"before the last line end", chunked, "5⏎hello⏎0⏎", "hello"},
			{"inside the trailers", chunked, "5⏎hello⏎0⏎X-T: 1⏎", "hello"},
		} {
			for _, end := range []string{"FIN", "RST"} {
				t.Run(row.name+" "+end, func(t *testing.T) {
					t.Parallel()
					s := r.sandbox(t)
					c := r.dial(t)
					c.send(s.get("/"))
					u := s.accept()
					u.request()
					u.send("HTTP/1.1 200 OK⏎" + row.head + row.then)
					resp := c.response("GET")
					got := resp.body.next(len(row.want)) // then the router has read it, and an RST takes nothing away
					if end == "FIN" {
						u.close()
					} else {
						u.reset()
					}
					require.Equal(t, row.want, got+resp.cut())
					s.untouched()
				})
			}
		}
		t.Run("until close, ended by RST", func(t *testing.T) {
			t.Parallel()
			s := r.sandbox(t)
			c := r.dial(t)
			c.send(s.get("/"))
			u := s.accept()
			u.request()
			u.send("HTTP/1.1 200 OK⏎⏎hello")
			resp := c.response("GET")
			require.Equal(t, "hello", resp.body.next(5))
			u.reset()
			require.Empty(t, resp.cut())
		})
		t.Run("chunked, to an HTTP/1.0 client", func(t *testing.T) {
			t.Parallel()
			s := r.sandbox(t)
			c := r.dial(t)
			c.send("GET / HTTP/1.0⏎Host: app⏎" + s.route() + "⏎")
			u := s.accept()
			u.request()
			u.send("HTTP/1.1 200 OK⏎" + chunked + "5⏎hello⏎")
			resp := c.response("GET")
			require.Equal(t, "hello", resp.body.next(5))
			u.close()
			resp.cut() // without length or chunks only a reset says so
		})
	})
}

// TestMalformedChunkInResponse: the client gets what was good and then a broken connection.
func TestMalformedChunkInResponse(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		for _, row := range []struct{ name, then string }{
			{"not hexadecimal", "zz⏎"},
			{"empty size line", "⏎"},
			{"size beyond 64 bits", "10000000000000002⏎hi⏎0⏎⏎"},
			{"blank before the size", " 2⏎hi⏎0⏎⏎"},
			{"LF in an extension", "2;␊hi⏎0⏎⏎"},
			{"only LF after the size", "2␊hi␊0␊␊"},
			{"data longer than the size", "2⏎hip⏎0⏎⏎"},
			{"CR in a trailer", "0⏎X-T: a␍X-Evil: 1⏎⏎"},
			{"next response in place of a trailer", "0⏎HTTP/1.1 200 OK⏎Content-Length: 0⏎⏎"},
		} {
			t.Run(row.name, func(t *testing.T) {
				t.Parallel()
				s := r.sandbox(t)
				c := r.dial(t)
				c.send(s.get("/"))
				u := s.accept()
				u.request()
				u.send("HTTP/1.1 200 OK⏎Transfer-Encoding: chunked⏎⏎5⏎hello⏎")
				resp := c.response("GET")
				require.Equal(t, "hello", resp.body.next(5))
				u.send(row.then)
				rest := resp.cut()
				require.True(t, strings.HasPrefix("hi", rest), "%q was never in the body", rest)
				u.gone()
				s.untouched()
			})
		}
		t.Run("in one piece with the head", func(t *testing.T) {
			t.Parallel()
			s := r.sandbox(t)
			c := r.dial(t)
			c.send(s.get("/"))
			u := s.accept()
			u.request()
			u.send("HTTP/1.1 200 OK⏎Transfer-Encoding: chunked⏎⏎zz⏎hello⏎0⏎⏎")
			resp := c.response("GET")
			if resp.status == 502 {
				ownAnswer(t, resp, 502, "bad_response", true)
			} else {
				require.Empty(t, resp.cut())
			}
			u.gone()
		})
	})
}
