package parse

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dovakiin0/agent-sandbox/router/record"
)

// notation lets tables show line ends and control bytes: ⏎ is CRLF, ␍ a bare CR, ␊ a bare LF, ␀ NUL.
var notation = strings.NewReplacer("⏎", "\r\n", "␍", "\r", "␊", "\n", "␀", "\x00")

// label63 is as long as an id may be. Short ones would be converted without an allocation and hide it.
var label63 = strings.Repeat("i", 62) + "d"

func TestHeadEnd(t *testing.T) {
	for _, row := range []struct {
		bytes string
		want  int
	}{
		{"", 0},
		{"GET / HTTP/1.1⏎", 0},
		{"GET / HTTP/1.1⏎Host: a⏎", 0},
		{"GET / HTTP/1.1⏎Host: a⏎␍", 0},
		{"GET / HTTP/1.1⏎⏎", 18},
		{"GET / HTTP/1.1⏎⏎rest⏎⏎", 18},
		{"GET / HTTP/1.1⏎⏎␊␊", 18},
		{"GET / HTTP/1.1␊Host: a␊␊", -1},
		{"GET / HTTP/1.1␊Host: a␊⏎", -1},
		{"GET / HTTP/1.1⏎Host: a␊", 0}, // more may come; Parse refuses the bare LF
		{"GET / HTTP/1.1⏎Host: a␊⏎", -1},
	} {
		assert.Equal(t, row.want, HeadEnd([]byte(notation.Replace(row.bytes))), row.bytes)
	}
}

// parseRequest parses lines with a blank line behind them.
func parseRequest(t testing.TB, lines string) (*Request, record.Reason) {
	t.Helper()
	head := []byte(notation.Replace(lines) + "\r\n")
	r := &Request{}
	return r, r.Parse(head)
}

func TestRefusedRequestHeads(t *testing.T) {
	const get = "GET / HTTP/1.1⏎Host: a⏎"
	const post = "POST / HTTP/1.1⏎Host: a⏎"
	for _, row := range []struct {
		name, lines string
		want        record.Reason
	}{
		{"empty", "⏎", record.MalformedHead},
		{"no blanks", "GET⏎", record.MalformedHead},
		{"no version", "GET /⏎", record.MalformedHead},
		{"no method", " / HTTP/1.1⏎Host: a⏎", record.MalformedHead},
		{"delimiter in the method", "GE(T / HTTP/1.1⏎Host: a⏎", record.MalformedHead},
		{"two blanks before the target", "GET  / HTTP/1.1⏎Host: a⏎", record.BadTarget},
		{"two blanks after the target", "GET /  HTTP/1.1⏎Host: a⏎", record.BadTarget},
		{"blank in the target", "GET /a b HTTP/1.1⏎Host: a⏎", record.BadTarget},
		{"tab for a blank", "GET\t/ HTTP/1.1⏎Host: a⏎", record.MalformedHead},
		{"blank behind the version", "GET / HTTP/1.1 ⏎Host: a⏎", record.MalformedHead},
		{"bare LF after the request line", "GET / HTTP/1.1␊Host: a⏎", record.MalformedHead},
		{"bare CR in the request line", "GET /␍ HTTP/1.1⏎Host: a⏎", record.BadTarget},
		{"NUL in the target", "GET /␀ HTTP/1.1⏎Host: a⏎", record.BadTarget},
		{"fragment", "GET /#a HTTP/1.1⏎Host: a⏎", record.BadTarget},
		{"relative target", "GET a HTTP/1.1⏎Host: a⏎", record.BadTarget},
		{"authority form", "GET a:80 HTTP/1.1⏎Host: a⏎", record.BadTarget},
		{"star without OPTIONS", "GET * HTTP/1.1⏎Host: a⏎", record.BadTarget},
		{"other scheme", "GET ftp://a/ HTTP/1.1⏎Host: a⏎", record.BadTarget},
		{"absolute form without host", "GET http:/// HTTP/1.1⏎Host: a⏎", record.BadTarget},
		{"absolute form with user", "GET http://u@a/ HTTP/1.1⏎Host: a⏎", record.BadTarget},
		{"absolute form of another host", "GET http://b/ HTTP/1.1⏎Host: a⏎", record.BadHost},
		{"absolute form with another port", "GET http://a:81/ HTTP/1.1⏎Host: a⏎", record.BadHost},
		{"lower-case version", "GET / http/1.1⏎Host: a⏎", record.MalformedHead},
		{"version without minor", "GET / HTTP/1⏎Host: a⏎", record.MalformedHead},
		{"two-digit minor", "GET / HTTP/1.10⏎Host: a⏎", record.MalformedHead},
		{"HTTP/2.0", "PRI * HTTP/2.0⏎", record.BadVersion},
		{"HTTP/1.2", "GET / HTTP/1.2⏎Host: a⏎", record.BadVersion},
		{"HTTP/0.9", "GET / HTTP/0.9⏎Host: a⏎", record.BadVersion},
		{"CONNECT", "CONNECT a:80 HTTP/1.1⏎Host: a⏎", record.MethodNotAllowed},
		{"TRACE", "TRACE / HTTP/1.1⏎Host: a⏎", record.MethodNotAllowed},

		{"no Host", "GET / HTTP/1.1⏎", record.BadHost},
		{"two Hosts", get + "Host: a⏎", record.BadHost},
		{"Host with a slash", "GET / HTTP/1.1⏎Host: a/b⏎", record.BadHost},
		{"Host list", "GET / HTTP/1.1⏎Host: a, b⏎", record.BadHost},
		{"Host with a blank", "GET / HTTP/1.1⏎Host: a b⏎", record.BadHost},
		{"Host with user", "GET / HTTP/1.1⏎Host: u@a⏎", record.BadHost},

		{"blank before the colon", get + "X-A : 1⏎", record.MalformedHead},
		{"tab before the colon", get + "X-A\t: 1⏎", record.MalformedHead},
		{"no colon", get + "X-A⏎", record.MalformedHead},
		{"no name", get + ": 1⏎", record.MalformedHead},
		{"blank before the first field", "GET / HTTP/1.1⏎ X-A: 1⏎Host: a⏎", record.MalformedHead},
		{"folded line", get + "X-A: 1⏎ 2⏎", record.MalformedHead},
		{"name above ASCII", get + "X-é: 1⏎", record.MalformedHead},
		{"bare CR in a value", get + "X-A: 1␍X-B: 2⏎", record.MalformedHead},
		{"bare CR at the end of a value", get + "X-A: 1␍⏎", record.MalformedHead},
		{"bare LF in a value", get + "X-A: 1␊X-B: 2⏎", record.MalformedHead},
		{"NUL in a value", get + "X-A: 1␀⏎", record.MalformedHead},
		{"DEL in a value", get + "X-A: 1\x7f⏎", record.MalformedHead},
		{"too many fields", get + strings.Repeat("A: 1⏎", MaxFields), record.HeadTooLarge},

		{"length and coding", post + "Content-Length: 5⏎Transfer-Encoding: chunked⏎", record.BadFraming},
		{"coding and length", post + "Transfer-Encoding: chunked⏎Content-Length: 5⏎", record.BadFraming},
		{"two lengths", post + "Content-Length: 5⏎Content-Length: 6⏎", record.BadFraming},
		{"the same length twice", post + "Content-Length: 5⏎Content-Length: 5⏎", record.BadFraming},
		{"length list", post + "Content-Length: 5, 5⏎", record.BadFraming},
		{"length with a sign", post + "Content-Length: +5⏎", record.BadFraming},
		{"negative length", post + "Content-Length: -5⏎", record.BadFraming},
		{"empty length", post + "Content-Length:⏎", record.BadFraming},
		{"hexadecimal length", post + "Content-Length: 0x5⏎", record.BadFraming},
		{"huge length", post + "Content-Length: 9999999999999999999⏎", record.BadFraming},
		{"two codings", post + "Transfer-Encoding: chunked⏎Transfer-Encoding: chunked⏎", record.BadFraming},
		{"unknown coding", post + "Transfer-Encoding: gzip⏎", record.BadFraming},
		{"unknown coding, chunked", post + "Transfer-Encoding: gzip, chunked⏎", record.UnknownCoding},
		{"chunked, unknown coding", post + "Transfer-Encoding: chunked, gzip⏎", record.BadFraming},
		{"chunked twice", post + "Transfer-Encoding: chunked, chunked⏎", record.UnknownCoding},
		{"almost chunked", post + "Transfer-Encoding: xchunked⏎", record.BadFraming},
		{"chunked with a parameter", post + "Transfer-Encoding: chunked;q=1⏎", record.BadFraming},
		{"identity", post + "Transfer-Encoding: identity⏎", record.BadFraming},
		{"empty coding", post + "Transfer-Encoding:⏎", record.BadFraming},
		{"coding in HTTP/1.0", "POST / HTTP/1.0⏎Transfer-Encoding: chunked⏎", record.BadFraming},
		{"unknown expectation", post + "Expect: 200-ok⏎", record.BadExpectation},

		{"repeated id", get + "X-Sandbox-ID: a⏎X-Sandbox-ID: a⏎", record.RepeatedHeader},
		{"repeated empty id", get + "X-Sandbox-ID:⏎X-Sandbox-ID:⏎", record.RepeatedHeader},
		{"repeated id in other case", get + "X-Sandbox-ID: a⏎x-sandbox-id: a⏎", record.RepeatedHeader},
		{"repeated claim", get + "X-Sandbox-Claim: a⏎X-Sandbox-Claim: a⏎", record.RepeatedHeader},
		{"repeated namespace", get + "X-Sandbox-Namespace: a⏎X-Sandbox-Namespace: a⏎", record.RepeatedHeader},
		{"repeated port", get + "X-Sandbox-Port: 1⏎X-Sandbox-Port: 1⏎", record.RepeatedHeader},
		{"repeated UID", get + "X-Sandbox-UID: a⏎X-Sandbox-UID: a⏎", record.RepeatedHeader},
		{"repeated pod IP", get + "X-Sandbox-Pod-IP: ::1⏎X-Sandbox-Pod-IP: ::1⏎", record.RepeatedHeader},
		{"repeated timeout", get + "X-Sandbox-Timeout: 1⏎X-Sandbox-Timeout: 1⏎", record.RepeatedHeader},
		{"repeated token", get + "X-Sandbox-Token: a⏎X-Sandbox-Token: a⏎", record.RepeatedHeader},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, why := parseRequest(t, row.lines)
			assert.Equal(t, row.want.String(), why.String())
		})
	}
}

func TestRequestMeaning(t *testing.T) {
	r, why := parseRequest(t, "POST /a%2Fb?x=%20 HTTP/1.1⏎Host: a.example:80⏎Content-Length: 12⏎Expect: 100-Continue⏎"+
		"x-sandbox-id: \t s1 \t⏎X-Sandbox-Claim:⏎X-SANDBOX-NAMESPACE: n⏎X-Sandbox-Port:8080⏎X-Sandbox-UID: u⏎"+
		"X-Sandbox-Pod-IP: 10.0.0.1⏎X-Sandbox-Timeout: 1.5⏎X-Sandbox-Token: t⏎Authorization: Bearer b⏎X-Request-ID: r⏎")
	require.Equal(t, record.OK, why)
	for name, c := range map[string]struct{ want, got []byte }{
		"method": {[]byte("POST"), r.Method}, "target": {[]byte("/a%2Fb?x=%20"), r.Target}, "host": {[]byte("a.example:80"), r.Host},
		"id": {[]byte("s1"), r.ID}, "claim": {[]byte{}, r.Claim}, "namespace": {[]byte("n"), r.Namespace}, "port": {[]byte("8080"), r.Port},
		"uid": {[]byte("u"), r.UID}, "pod IP": {[]byte("10.0.0.1"), r.PodIP}, "timeout": {[]byte("1.5"), r.Timeout},
		"token": {[]byte("t"), r.Token}, "authorization": {[]byte("Bearer b"), r.Authorization}, "request id": {[]byte("r"), r.RequestID},
	} {
		assert.NotNil(t, c.got, name)
		assert.Equal(t, string(c.want), string(c.got), name)
	}
	assert.EqualValues(t, 12, r.Length)
	assert.True(t, r.KeepAlive)
	assert.True(t, r.Continue)
	assert.False(t, r.WebSocket)
	assert.EqualValues(t, 1, r.Minor)

	// A Request is used again and again: nothing of the last head may be left.
	require.Equal(t, record.OK, r.Parse([]byte("GET / HTTP/1.0\r\n\r\n")))
	assert.Equal(t, Request{Method: []byte("GET"), Target: []byte("/"), head: r.head, fields: r.fields}, *r)
	assert.Zero(t, r.fields.n)
}

func TestRequestFraming(t *testing.T) {
	for _, row := range []struct {
		lines string
		want  int64
	}{
		{"GET / HTTP/1.1⏎Host: a⏎", 0},
		{"POST / HTTP/1.1⏎Host: a⏎", 0},
		{"POST / HTTP/1.1⏎Host: a⏎Content-Length: 0⏎", 0},
		{"GET / HTTP/1.1⏎Host: a⏎Content-Length: 7⏎", 7},
		{"POST / HTTP/1.1⏎Host: a⏎content-length:007⏎", 7},
		{"POST / HTTP/1.1⏎Host: a⏎Content-Length: 999999999999999999⏎", 999999999999999999},
		{"POST / HTTP/1.0⏎Content-Length: 7⏎", 7},
		{"POST / HTTP/1.1⏎Host: a⏎Transfer-Encoding: chunked⏎", Chunked},
		{"POST / HTTP/1.1⏎Host: a⏎transfer-encoding: \tCHUNKED ⏎", Chunked},
	} {
		r, why := parseRequest(t, row.lines)
		require.Equal(t, record.OK, why, row.lines)
		assert.Equal(t, row.want, r.Length, row.lines)
	}
}

func TestRequestKeepAlive(t *testing.T) {
	for lines, want := range map[string]bool{
		"GET / HTTP/1.1⏎Host: a⏎":                              true,
		"GET / HTTP/1.1⏎Host: a⏎Connection: keep-alive⏎":       true,
		"GET / HTTP/1.1⏎Host: a⏎Connection: Close⏎":            false,
		"GET / HTTP/1.1⏎Host: a⏎Connection: x, ,close⏎":        false,
		"GET / HTTP/1.1⏎Host: a⏎Connection:⏎Connection:close⏎": false,
		"GET / HTTP/1.1⏎Host: a⏎Connection: closed⏎":           true,
		"GET / HTTP/1.0⏎":                        false,
		"GET / HTTP/1.0⏎Connection: keep-alive⏎": false,
	} {
		r, why := parseRequest(t, lines)
		require.Equal(t, record.OK, why, lines)
		assert.Equal(t, want, r.KeepAlive, lines)
	}
}

func TestRequestExpect(t *testing.T) {
	for lines, want := range map[string]bool{
		"POST / HTTP/1.1⏎Host: a⏎Content-Length: 1⏎Expect: 100-continue⏎": true,
		"POST / HTTP/1.1⏎Host: a⏎Content-Length: 1⏎":                      false,
		"POST / HTTP/1.0⏎Content-Length: 1⏎Expect: 100-continue⏎":         false, // RFC 9110, section 10.1.1
	} {
		r, why := parseRequest(t, lines)
		require.Equal(t, record.OK, why, lines)
		assert.Equal(t, want, r.Continue, lines)
	}
}

func TestRequestWebSocket(t *testing.T) {
	const handshake = "Host: a⏎Connection: Upgrade⏎Upgrade: websocket⏎Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==⏎"
	for _, row := range []struct {
		name, lines string
		want        bool
	}{
		{"plain", "GET / HTTP/1.1⏎" + handshake, true},
		{"other case, list", "GET / HTTP/1.1⏎Host: a⏎Connection: keep-alive, UPGRADE⏎Upgrade: WebSocket⏎", true},
		{"Connection twice", "GET / HTTP/1.1⏎Host: a⏎Connection: keep-alive⏎Connection: Upgrade⏎Upgrade: websocket⏎", true},
		{"length 0", "GET / HTTP/1.1⏎" + handshake + "Content-Length: 0⏎", true},
		{"with a body", "GET / HTTP/1.1⏎" + handshake + "Content-Length: 1⏎", false},
		{"chunked", "GET / HTTP/1.1⏎" + handshake + "Transfer-Encoding: chunked⏎", false},
		{"POST", "POST / HTTP/1.1⏎" + handshake, false},
		{"HTTP/1.0", "GET / HTTP/1.0⏎" + handshake, false},
		{"no Connection", "GET / HTTP/1.1⏎Host: a⏎Upgrade: websocket⏎", false},
		{"no Upgrade", "GET / HTTP/1.1⏎Host: a⏎Connection: Upgrade⏎", false},
		{"two protocols", "GET / HTTP/1.1⏎Host: a⏎Connection: Upgrade⏎Upgrade: h2c, websocket⏎", false},
		{"Upgrade twice", "GET / HTTP/1.1⏎Host: a⏎Connection: Upgrade⏎Upgrade: websocket⏎Upgrade: h2c⏎", false},
		{"h2c", "GET / HTTP/1.1⏎Host: a⏎Connection: Upgrade, HTTP2-Settings⏎Upgrade: h2c⏎HTTP2-Settings: AA⏎", false},
		{"with a version", "GET / HTTP/1.1⏎Host: a⏎Connection: Upgrade⏎Upgrade: websocket/13⏎", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			r, why := parseRequest(t, row.lines)
			require.Equal(t, record.OK, why)
			assert.Equal(t, row.want, r.WebSocket)
		})
	}
}

func TestAbsoluteForm(t *testing.T) {
	for _, row := range []struct{ line, host, wantLine, wantHost string }{
		{"GET http://a/p?q=1 HTTP/1.1", "Host: a⏎", "GET /p?q=1 HTTP/1.1", "a"},
		{"GET HTTPS://A.b:80/p HTTP/1.1", "Host: a.B:80⏎", "GET /p HTTP/1.1", "a.B:80"},
		{"GET http://a HTTP/1.1", "Host: a⏎", "GET / HTTP/1.1", "a"},
		{"GET http://a?q HTTP/1.1", "Host: a⏎", "GET /?q HTTP/1.1", "a"},
		{"GET http://a//b/../c%2F HTTP/1.1", "Host: a⏎", "GET //b/../c%2F HTTP/1.1", "a"},
		{"OPTIONS http://a HTTP/1.1", "Host: a⏎", "OPTIONS * HTTP/1.1", "a"},
		{"OPTIONS http://a/ HTTP/1.1", "Host: a⏎", "OPTIONS / HTTP/1.1", "a"},
		{"OPTIONS http://a?q HTTP/1.1", "Host: a⏎", "OPTIONS /?q HTTP/1.1", "a"},
		{"GET http://a/p HTTP/1.0", "", "GET /p HTTP/1.1", "a"},
	} {
		r, why := parseRequest(t, row.line+"⏎"+row.host)
		require.Equal(t, record.OK, why, row.line)
		out := string(r.AppendTo(nil, &Forwarding{Peer: []byte("p"), Proto: "http"}))
		assert.True(t, strings.HasPrefix(out, row.wantLine+"\r\nHost: "+row.wantHost+"\r\n"), "%s: %q", row.line, out)
		assert.Equal(t, 1, strings.Count(out, "\r\nHost:"), row.line)
	}
}
