package wire

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// field is one header field as it stood in the message, its value without the blanks around it.
type field struct{ name, value string }

// fields is a header section in the order of the message.
type fields []field

// all returns the values of every field called name, in order.
func (fs fields) all(name string) []string {
	var values []string
	for _, f := range fs {
		if strings.EqualFold(f.name, name) {
			values = append(values, f.value)
		}
	}
	return values
}

// get returns the values of name joined as a list (RFC 9110, section 5.3).
func (fs fields) get(name string) string { return strings.Join(fs.all(name), ", ") }

func (fs fields) has(name string) bool { return fs.all(name) != nil }

// lines returns "Name: value" of every field but those called one of except.
func (fs fields) lines(except ...string) []string {
	lines := []string{}
	for _, f := range fs {
		if !slices.ContainsFunc(except, func(name string) bool { return strings.EqualFold(name, f.name) }) {
			lines = append(lines, f.name+": "+f.value)
		}
	}
	return lines
}

// parseHead takes a message head apart and accepts only what RFC 9112 lets a sender generate.
func parseHead(head string) (start string, fs fields, err error) {
	head, ok := strings.CutSuffix(head, "\r\n\r\n")
	if !ok {
		return "", nil, fmt.Errorf("no blank line at the end of %q", head)
	}
	lines := strings.Split(head, "\r\n")
	for _, line := range lines {
		for i := range len(line) {
			if c := line[i]; c < ' ' && c != '\t' || c == 0x7f {
				return "", nil, fmt.Errorf("control character %#x in line %q", c, line)
			}
		}
	}
	for _, line := range lines[1:] {
		name, value, ok := strings.Cut(line, ":")
		if !ok || !isToken(name) {
			return "", nil, fmt.Errorf("not a field line: %q", line)
		}
		fs = append(fs, field{name, strings.Trim(value, " \t")})
	}
	return lines[0], fs, nil
}

// isToken reports whether s is a token (RFC 9110, section 5.6.2).
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		letterOrDigit := c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9'
		if !letterOrDigit && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return s != ""
}

// framing is how the end of a body is told (RFC 9112, section 6.3).
type framing int

const (
	noBody framing = iota
	byLength
	byChunks
	byClose
)

// framingOf finds the framing of a message that may have a body, without being lenient.
func framingOf(fs fields, isResponse bool) (framing, int, error) {
	lengths, codings := fs.all("Content-Length"), fs.all("Transfer-Encoding")
	switch {
	case len(codings) > 0 && len(lengths) > 0:
		return 0, 0, fmt.Errorf("both Content-Length and Transfer-Encoding")
	case len(codings) > 0:
		if len(codings) != 1 || codings[0] != "chunked" {
			return 0, 0, fmt.Errorf("Transfer-Encoding %q", codings)
		}
		return byChunks, 0, nil
	case len(lengths) > 0:
		n, err := strconv.ParseUint(lengths[0], 10, 62)
		if err != nil || len(lengths) != 1 || strings.HasPrefix(lengths[0], "+") {
			return 0, 0, fmt.Errorf("Content-Length %q", lengths)
		}
		return byLength, int(n), nil
	case isResponse:
		return byClose, 0, nil
	}
	return noBody, 0, nil
}

// body reads the body of a message from its connection, decoded, as it comes.
type body struct {
	c       *conn
	framing framing
	left    int // bytes left of a byLength body, or of the current chunk
	inside  bool
	ended   bool // a byChunks body: the last chunk was seen
}

// next takes exactly n bytes of the body.
func (b *body) next(n int) string {
	b.c.t.Helper()
	var data []byte
	for len(data) < n {
		piece, more := b.piece(n - len(data))
		data = append(data, piece...)
		if !more {
			require.FailNow(b.c.t, "body ended", "%s waited for %d bytes of body and got %q", b.c.side, n, data)
		}
	}
	return string(data)
}

// all takes the body to its end. complete tells whether the framing says that nothing is missing.
func (b *body) all() (data string, complete bool) {
	b.c.t.Helper()
	var all []byte
	for {
		piece, more := b.piece(1 << 20)
		all = append(all, piece...)
		if more {
			continue
		}
		switch b.framing {
		case noBody:
			complete = true
		case byLength:
			complete = b.left == 0
		case byChunks:
			complete = b.ended
		case byClose:
			_, complete = b.c.rest()
		}
		return string(all), complete
	}
}

// discard reads the body to its end, keeps nothing, and checks it against Pattern. It returns the length.
func (b *body) discard() (n int, complete bool) {
	b.c.t.Helper()
	for {
		piece, more := b.piece(MaxPattern)
		if !bytes.Equal(piece, Pattern(n, len(piece))) {
			require.FailNow(b.c.t, "wrong byte in the body", "%s, after %d good bytes", b.c.side, n)
		}
		n += len(piece)
		if !more {
			_, complete = b.all()
			return n, complete
		}
	}
}

// piece takes at most limit bytes, and reports false at the end of the body or of the stream.
func (b *body) piece(limit int) ([]byte, bool) {
	b.c.t.Helper()
	if b.framing == byChunks && b.left == 0 && !b.ended && !b.nextChunk() {
		return nil, false
	}
	if b.framing == noBody || b.ended || b.framing == byLength && b.left == 0 {
		return nil, false
	}
	if len(b.c.buf) == 0 && !b.c.fill() {
		return nil, false
	}
	n := min(limit, len(b.c.buf))
	if b.framing != byClose {
		n = min(n, b.left)
		b.left -= n
	}
	return b.c.takeBuffered(n), true
}

// nextChunk reads a chunk-size line, and before it the line end of the chunk before. It wants the plainest spelling:
// no extensions and no trailers, which the router drops. It reports false if the stream ended first.
func (b *body) nextChunk() bool {
	b.c.t.Helper()
	if b.inside {
		if !b.has("\r\n") {
			return false
		}
		b.c.expect("⏎")
		b.inside = false
	}
	if !b.has("\r\n") {
		return false
	}
	line := strings.TrimSuffix(b.c.until("\r\n"), "\r\n")
	size, err := strconv.ParseUint(line, 16, 62)
	require.NoError(b.c.t, err, "%s: chunk-size line %q", b.c.side, line)
	if size == 0 {
		if !b.has("\r\n") {
			return false
		}
		b.c.expect("⏎")
		b.ended = true
		return true
	}
	b.left, b.inside = int(size), true
	return true
}

// has waits for text, and reports false if the stream ended before.
func (b *body) has(text string) bool {
	b.c.t.Helper()
	for !strings.Contains(string(b.c.buf[:min(len(b.c.buf), 64)]), text) {
		if !b.c.fill() {
			return false
		}
	}
	return true
}

// request is a request as it arrived at a sandbox.
type request struct {
	line, method, target, version string

	fields fields
	body   *body
}

// request takes a request head. The body follows on demand.
func (c *conn) request() *request {
	c.t.Helper()
	head := c.until("\r\n\r\n")
	line, fs, err := parseHead(head)
	require.NoError(c.t, err)
	parts := strings.Split(line, " ")
	require.Len(c.t, parts, 3, "request line %q", line)
	how, n, err := framingOf(fs, false)
	require.NoError(c.t, err, "head %q", head)
	return &request{line, parts[0], parts[1], parts[2], fs, &body{c: c, framing: how, left: n}}
}

// text takes the rest of the body, which must be complete.
func (r *request) text() string {
	r.body.c.t.Helper()
	text, complete := r.body.all()
	require.True(r.body.c.t, complete, "incomplete request body %.200q", text)
	return text
}

// response is a response as it arrived at a client.
type response struct {
	version string
	status  int
	reason  string

	fields fields
	body   *body
}

// response takes a response head. method is the method that it answers; it decides whether there is a body.
func (c *conn) response(method string) *response {
	c.t.Helper()
	head := c.until("\r\n\r\n")
	line, fs, err := parseHead(head)
	require.NoError(c.t, err)
	version, rest, _ := strings.Cut(line, " ")
	code, reason, spaced := strings.Cut(rest, " ")
	status, err := strconv.Atoi(code)
	require.NoError(c.t, err, "status line %q", line)
	require.True(c.t, spaced && len(code) == 3, "status line %q", line)

	r := &response{version, status, reason, fs, &body{c: c}}
	if method == "HEAD" || status < 200 || status == 204 || status == 304 {
		return r
	}
	r.body.framing, r.body.left, err = framingOf(fs, true)
	require.NoError(c.t, err, "head %q", head)
	return r
}

// text takes the rest of the body, which must be complete.
func (r *response) text() string {
	r.body.c.t.Helper()
	text, complete := r.body.all()
	require.True(r.body.c.t, complete, "incomplete response body %.200q", text)
	return text
}

// cut takes the rest of the body, which must look incomplete, and wants the connection to end.
func (r *response) cut() string {
	r.body.c.t.Helper()
	c := r.body.c
	text, complete := r.body.all()
	require.False(c.t, complete, "the body %.200q looks complete", text)
	if r.body.framing == byChunks { // it may have been cut inside a chunk-size line
		require.Regexp(c.t, `^[0-9a-fA-F]*\r?$`, string(c.takeBuffered(len(c.buf))), "%s: bytes behind the body", c.side)
	}
	c.gone()
	return text
}

func TestParseHeadIsStrict(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{
		"GET / HTTP/1.1⏎",
		"GET / HTTP/1.1⏎A : 1⏎⏎",
		"GET / HTTP/1.1⏎A: 1␍2⏎⏎",
		"GET / HTTP/1.1⏎A: 1␊B: 2⏎⏎",
		"GET / HTTP/1.1⏎ A: 1⏎⏎",
		"GET / HTTP/1.1⏎: 1⏎⏎",
		"GET / HTTP/1.1⏎no colon⏎⏎",
	} {
		_, _, err := parseHead(notation.Replace(bad))
		assert.Error(t, err, "%q", bad)
	}
	start, fs, err := parseHead(notation.Replace("GET / HTTP/1.1⏎A:1⏎a: \t2 \t⏎⏎"))
	require.NoError(t, err)
	assert.Equal(t, "GET / HTTP/1.1", start)
	assert.Equal(t, fields{{"A", "1"}, {"a", "2"}}, fs)
	assert.Equal(t, "1, 2", fs.get("A"))
}
