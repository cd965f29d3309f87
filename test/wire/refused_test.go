package wire

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// refusal is a request that must be answered without a byte to the sandbox, and the connection closed after it.
type refusal struct {
	name     string
	request  string // in table notation, with {route}, {id} and {port}
	statuses []int  // nil: 400
	code     string // "": any of the router's
	detail   string // "": any
}

var badRequest = []int{400}

// refuse runs rows against r.
func refuse(t *testing.T, r *router, rows []refusal) {
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s := r.sandbox(t)
			c := r.dial(t)
			c.send(s.fill(row.request))
			resp := c.response(strings.Fields(row.request)[0])
			text := resp.text()

			statuses := row.statuses
			if statuses == nil {
				statuses = badRequest
			}
			require.True(t, slices.Contains(statuses, resp.status), "status %d, want %v; body %s", resp.status, statuses, text)
			a, err := decodeAnswer(text)
			require.NoError(t, err, "body %q", text)
			requireOwn(t, resp, a)
			require.Equal(t, "false", resp.fields.get("X-Sandbox-Dispatched"))
			if row.code != "" {
				require.Equal(t, row.code, a.Code)
			}
			if row.detail != "" {
				require.Equal(t, row.detail, a.Detail)
			}
			require.Equal(t, "close", resp.fields.get("Connection"))
			c.gone()
			s.untouched()
		})
	}
}

// TestAmbiguousFraming: a request whose end two parsers could see differently is refused (RFC 9112, sections 6.1 and 6.3).
func TestAmbiguousFraming(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		const smuggled = "0⏎⏎GET /smuggled HTTP/1.1⏎Host: a⏎{route}⏎"
		with := func(lines string) string { return "POST / HTTP/1.1⏎Host: a⏎{route}" + lines + "⏎" + smuggled }
		refuse(t, p.shared(t), []refusal{
			{name: "length then coding", request: with("Content-Length: 4⏎Transfer-Encoding: chunked⏎")},
			{name: "coding then length", request: with("Transfer-Encoding: chunked⏎Content-Length: 4⏎")},
			{name: "length 0 and coding", request: with("Content-Length: 0⏎Transfer-Encoding: chunked⏎")},
			{name: "length in other case and coding", request: with("content-LENGTH: 4⏎transfer-ENCODING: chunked⏎")},
			{name: "coding twice", request: with("Transfer-Encoding: chunked⏎Transfer-Encoding: chunked⏎")},
			{name: "coding twice, second unknown", request: with("Transfer-Encoding: chunked⏎Transfer-Encoding: x⏎")},
			{name: "coding twice, first identity", request: with("Transfer-Encoding: identity⏎Transfer-Encoding: chunked⏎"), statuses: []int{400, 501}},
			{name: "chunked, chunked", request: with("Transfer-Encoding: chunked, chunked⏎"), statuses: []int{400, 501}},
			{name: "chunked not last", request: with("Transfer-Encoding: chunked, gzip⏎"), statuses: []int{400, 501}},
			{name: "gzip, chunked", request: with("Transfer-Encoding: gzip, chunked⏎"), statuses: []int{400, 501}},
			{name: "identity, chunked", request: with("Transfer-Encoding: identity, chunked⏎"), statuses: []int{400, 501}},
			{name: "gzip", request: with("Transfer-Encoding: gzip⏎"), statuses: []int{400, 501}},
			{name: "identity", request: with("Transfer-Encoding: identity⏎"), statuses: []int{400, 501}},
			{name: "xchunked", request: with("Transfer-Encoding: xchunked⏎"), statuses: []int{400, 501}},
			{name: "chunkedx", request: with("Transfer-Encoding: chunkedx⏎"), statuses: []int{400, 501}},
			{name: "quoted chunked", request: with("Transfer-Encoding: \"chunked\"⏎"), statuses: []int{400, 501}},
			{name: "chunked with parameter", request: with("Transfer-Encoding: chunked;q=1⏎"), statuses: []int{400, 501}},
			{name: "chunked in an empty list element", request: with("Transfer-Encoding: ,chunked⏎"), statuses: []int{400, 501}},
			{name: "chunked with a trailing comma", request: with("Transfer-Encoding: chunked,⏎"), statuses: []int{400, 501}},
			{name: "chunked behind a vertical tab", request: with("Transfer-Encoding: \vchunked⏎")},
			{name: "empty coding", request: with("Transfer-Encoding:⏎")},
			{name: "empty coding and length", request: with("Transfer-Encoding:⏎Content-Length: 5⏎")},
			{name: "coding in HTTP/1.0", request: "POST / HTTP/1.0⏎Host: a⏎{route}Transfer-Encoding: chunked⏎⏎" + smuggled},
			{name: "coding and keep-alive in HTTP/1.0", request: "POST / HTTP/1.0⏎Host: a⏎{route}Connection: keep-alive⏎Transfer-Encoding: chunked⏎⏎" + smuggled},
			{name: "two lengths that differ", request: with("Content-Length: 5⏎Content-Length: 6⏎")},
			{name: "two lengths that agree", request: with("Content-Length: 5⏎Content-Length: 5⏎")},
			{name: "length list that differs", request: with("Content-Length: 5, 6⏎")},
			{name: "length list that agrees", request: with("Content-Length: 5, 5⏎")},
			{name: "length with plus", request: with("Content-Length: +5⏎")},
			{name: "negative length", request: with("Content-Length: -1⏎")},
			{name: "minus zero length", request: with("Content-Length: -0⏎")},
			{name: "empty length", request: with("Content-Length:⏎")},
			{name: "hexadecimal length", request: with("Content-Length: 0x5⏎")},
			{name: "length with a blank inside", request: with("Content-Length: 5 5⏎")},
			{name: "length with an underscore", request: with("Content-Length: 1_0⏎")},
			{name: "length with a fraction", request: with("Content-Length: 5.0⏎")},
			{name: "length beyond 64 bits", request: with("Content-Length: 18446744073709551621⏎"), statuses: []int{400, 413}},
			{name: "length beyond 63 bits", request: with("Content-Length: 9223372036854775808⏎"), statuses: []int{400, 413}},
			{name: "length with other digits", request: with("Content-Length: ٥⏎")},
		})
	})
}

// TestMalformedFieldLines: RFC 9112, section 5, and RFC 9110, sections 5.1 and 5.5.
func TestMalformedFieldLines(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		with := func(lines string) string { return "GET / HTTP/1.1⏎Host: a⏎{route}" + lines + "⏎" }
		refuse(t, p.shared(t), []refusal{
			{name: "blank before the colon of a field", request: with("X-A : 1⏎")},
			{name: "tab before the colon of a field", request: with("X-A\t: 1⏎")},
			{name: "blank before the colon of Host", request: "GET / HTTP/1.1⏎Host : a⏎{route}⏎"},
			{name: "blank before the colon of Content-Length", request: "POST / HTTP/1.1⏎Host: a⏎{route}Content-Length : 5⏎⏎hello"},
			{name: "blank before the colon of Transfer-Encoding", request: "POST / HTTP/1.1⏎Host: a⏎{route}Transfer-Encoding : chunked⏎⏎0⏎⏎"},
			{name: "blank before the colon of X-Sandbox-ID", request: "GET / HTTP/1.1⏎Host: a⏎X-Sandbox-ID : {id}⏎X-Sandbox-Port: {port}⏎⏎"},
			{name: "blank before the first field", request: "GET / HTTP/1.1⏎ X-Sandbox-ID: {id}⏎Host: a⏎X-Sandbox-Port: {port}⏎⏎"},
			{name: "folded field", request: with("X-A: 1⏎ 2⏎")},
			{name: "field folded with a tab", request: with("X-A: 1⏎\t2⏎")},
			{name: "folded X-Sandbox-ID", request: "GET / HTTP/1.1⏎Host: a⏎X-Sandbox-ID:⏎ {id}⏎X-Sandbox-Port: {port}⏎⏎"},
			{name: "folded Transfer-Encoding", request: "POST / HTTP/1.1⏎Host: a⏎{route}Transfer-Encoding:⏎ chunked⏎⏎0⏎⏎"},
			{name: "folded empty line", request: with("X-A: 1⏎ ⏎X-B: 2⏎")},
			{name: "CR in a value", request: with("X-A: a␍b⏎")},
			{name: "CR before CRLF", request: with("X-A: a␍⏎")},
			{name: "NUL in a value", request: with("X-A: a␀b⏎")},
			{name: "LF in a value", request: with("X-A: a␊X-Evil: 1⏎")},
			{name: "control character in a value", request: with("X-A: a\x01b⏎")},
			{name: "DEL in a value", request: with("X-A: a\x7fb⏎")},
			{name: "escape in a value", request: with("X-A: \x1b[31m⏎")},
			{name: "CR in a name", request: with("X␍-A: 1⏎")},
			{name: "NUL in a name", request: with("X-A␀: 1⏎")},
			{name: "blank in a name", request: with("X A: 1⏎")},
			{name: "parenthesis in a name", request: with("X(A): 1⏎")},
			{name: "at sign in a name", request: with("X@A: 1⏎")},
			{name: "byte above ASCII in a name", request: with("X-\xc3\xa9: 1⏎")},
			{name: "empty name", request: with(": 1⏎")},
			{name: "no colon", request: with("X-A⏎")},
			{name: "only LF after a field", request: "GET / HTTP/1.1⏎Host: a␊{route}⏎"},
			{name: "only LF after the request line", request: "GET / HTTP/1.1␊Host: a⏎{route}⏎"},
			{name: "only LF as the blank line", request: "GET / HTTP/1.1⏎Host: a⏎{route}␊"},
			{name: "only LF everywhere", request: "GET / HTTP/1.1␊Host: a␊X-Sandbox-ID: {id}␊X-Sandbox-Port: {port}␊␊"},
			{name: "only CR after a field", request: "GET / HTTP/1.1⏎Host: a␍{route}⏎"},
			{name: "no Host", request: "GET / HTTP/1.1⏎{route}⏎"},
			{name: "two Hosts", request: with("Host: b⏎")},
			{name: "the same Host twice", request: with("Host: a⏎")},
			{name: "Host list", request: "GET / HTTP/1.1⏎Host: a, b⏎{route}⏎"},
			{name: "Host with a blank", request: "GET / HTTP/1.1⏎Host: a b⏎{route}⏎"},
			{name: "Host with a path", request: "GET / HTTP/1.1⏎Host: a/b⏎{route}⏎"},
			{name: "Host with user info", request: "GET / HTTP/1.1⏎Host: user@a⏎{route}⏎"},
			{name: "name of colons", request: with("::⏎")},
		})
	})
}

// TestMalformedRequestLine: RFC 9112, section 3; versions: RFC 9110, sections 2.5 and 15.6.6.
func TestMalformedRequestLine(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		line := func(line string) string { return line + "⏎Host: a⏎{route}⏎" }
		version := []int{400, 505}
		refuse(t, p.shared(t), []refusal{
			{name: "two blanks before the target", request: line("GET  / HTTP/1.1")},
			{name: "two blanks before the version", request: line("GET /  HTTP/1.1")},
			{name: "blank at the end", request: line("GET / HTTP/1.1 ")},
			{name: "blank at the start", request: line(" GET / HTTP/1.1")},
			{name: "tab for a blank", request: line("GET\t/ HTTP/1.1")},
			{name: "tab before the version", request: line("GET /\tHTTP/1.1")},
			{name: "vertical tab in the line", request: line("GET /\v HTTP/1.1")},
			{name: "no version", request: line("GET /")},
			{name: "no target", request: line("GET HTTP/1.1")},
			{name: "only a method", request: line("GET")},
			{name: "blank in the target", request: line("GET /a b HTTP/1.1")},
			{name: "CR in the target", request: line("GET /a␍b HTTP/1.1")},
			{name: "NUL in the target", request: line("GET /a␀b HTTP/1.1")},
			{name: "LF in the target", request: line("GET /a␊b HTTP/1.1")},
			{name: "DEL in the target", request: line("GET /a\x7fb HTTP/1.1")},
			{name: "fragment in the target", request: line("GET /a#b HTTP/1.1")},
			{name: "relative target", request: line("GET a HTTP/1.1")},
			{name: "asterisk with GET", request: line("GET * HTTP/1.1")},
			{name: "authority with GET", request: line("GET a:80 HTTP/1.1")},
			{name: "at sign in the method", request: line("G@T / HTTP/1.1")},
			{name: "NUL in the method", request: line("G␀T / HTTP/1.1")},
			{name: "lower-case version", request: line("GET / http/1.1"), statuses: version},
			{name: "version with a letter", request: line("GET / HTTP/1.x"), statuses: version},
			{name: "version without a dot", request: line("GET / HTTP/11"), statuses: version},
			{name: "version with two digits", request: line("GET / HTTP/1.10"), statuses: version},
			{name: "version with leading zero", request: line("GET / HTTP/01.1"), statuses: version},
			{name: "other protocol", request: line("GET / RTSP/1.0"), statuses: version},
			{name: "HTTP/0.9", request: line("GET / HTTP/0.9"), statuses: version},
			{name: "HTTP/1.2", request: line("GET / HTTP/1.2"), statuses: version},
			{name: "HTTP/2.0", request: line("GET / HTTP/2.0"), statuses: []int{505}},
			{name: "HTTP/3.0", request: line("GET / HTTP/3.0"), statuses: []int{505}},
			{name: "HTTP/2 preface", request: "PRI * HTTP/2.0⏎⏎SM⏎⏎\x00\x00\x00\x04\x00\x00\x00\x00\x00", statuses: []int{505}},
			{name: "TLS hello", request: "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03⏎⏎⏎"},
		})
	})
}

// TestTargetForms: RFC 9112, section 3.2; CONNECT and TRACE are for the last hop only (RFC 9110, sections 9.3.6 and 9.3.8).
func TestTargetForms(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		notAllowed := []int{405}
		refuse(t, p.shared(t), []refusal{
			{name: "CONNECT", request: "CONNECT a:80 HTTP/1.1⏎Host: a:80⏎{route}⏎", statuses: notAllowed, code: "method_not_allowed"},
			{name: "CONNECT with a path", request: "CONNECT / HTTP/1.1⏎Host: a⏎{route}⏎", statuses: notAllowed, code: "method_not_allowed"},
			{name: "CONNECT with bytes behind it", request: "CONNECT a:80 HTTP/1.1⏎Host: a:80⏎{route}⏎GET /smuggled HTTP/1.1⏎Host: a⏎{route}⏎", statuses: notAllowed},
			{name: "TRACE", request: "TRACE / HTTP/1.1⏎Host: a⏎{route}⏎", statuses: notAllowed, code: "method_not_allowed"},
			{name: "absolute form with another host", request: "GET http://evil/p HTTP/1.1⏎Host: good⏎{route}⏎"},
			{name: "absolute form with another port", request: "GET http://a:81/p HTTP/1.1⏎Host: a:80⏎{route}⏎"},
			{name: "absolute form with user info", request: "GET http://a@a/p HTTP/1.1⏎Host: a⏎{route}⏎"},
			{name: "absolute form without host", request: "GET http:///p HTTP/1.1⏎Host: a⏎{route}⏎"},
			{name: "absolute form of another scheme", request: "GET ftp://a/p HTTP/1.1⏎Host: a⏎{route}⏎"},
			{name: "scheme without authority", request: "GET http:/p HTTP/1.1⏎Host: a⏎{route}⏎"},
		})
	})
}

// TestMethodNotAllowedSaysWhichAre: a 405 must carry Allow (RFC 9110, section 15.5.6).
func TestMethodNotAllowedSaysWhichAre(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		c := r.dial(t)
		c.send("TRACE / HTTP/1.1⏎Host: a⏎⏎")
		resp := c.response("TRACE")
		require.Equal(t, 405, resp.status)
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} {
			require.Contains(t, resp.fields.get("Allow"), method)
		}
	})
}

// TestRefusedRequestEndsThePipeline: what stands behind a refused request is never read as a request.
func TestRefusedRequestEndsThePipeline(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		s := r.sandbox(t)
		c := r.dial(t)
		c.send(s.get("/first"))
		u := s.accept()
		u.request()
		c.send("GET / HTTP/1.1⏎Host: a⏎X-A : 1⏎" + s.route() + "⏎" + s.get("/smuggled"))
		u.ok("first")
		require.Equal(t, "first", c.response("GET").text())
		ownAnswer(t, c.response("GET"), 400, "invalid_request", false)
		c.gone()
		s.untouched()
	})
}

// TestRefusalReachesAClientThatKeepsSending: closing with unread bytes would reset the connection and take the answer
// with it (RFC 9112, section 9.6).
func TestRefusalReachesAClientThatKeepsSending(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		s := r.sandbox(t)
		c := r.dial(t)
		c.send("POST / HTTP/1.1⏎Host: a⏎" + s.route() + "Content-Length: 5⏎Content-Length: 6⏎⏎")
		_, _ = c.flood(512<<10, patience) // the router may stop listening, but not before the answer can be read
		ownAnswer(t, c.response("POST"), 400, "invalid_request", false)
		s.untouched()
	})
}
