package parse

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// parseResponse parses lines with a blank line behind them, as the answer to GET.
func parseResponse(lines string) (*Response, bool) {
	r := &Response{}
	ok := r.Parse([]byte(notation.Replace(lines)+"\r\n"), false)
	return r, ok
}

func TestRefusedResponseHeads(t *testing.T) {
	const ok = "HTTP/1.1 200 OK⏎"
	for name, lines := range map[string]string{
		"empty":                             "⏎",
		"no version":                        "200 OK⏎",
		"HTTP/2":                            "HTTP/2.0 200 OK⏎",
		"HTTP/1.2":                          "HTTP/1.2 200 OK⏎",
		"lower-case version":                "http/1.1 200 OK⏎",
		"two-digit status":                  "HTTP/1.1 20 OK⏎",
		"four-digit status":                 "HTTP/1.1 2000 OK⏎",
		"status below 100":                  "HTTP/1.1 099 OK⏎",
		"status above 599":                  "HTTP/1.1 600 OK⏎",
		"signed status":                     "HTTP/1.1 +20 OK⏎",
		"two blanks before the status":      "HTTP/1.1  200 OK⏎",
		"NUL in the reason":                 "HTTP/1.1 200 O␀K⏎",
		"bare CR in the reason":             "HTTP/1.1 200 O␍K⏎",
		"bare LF after the status line":     "HTTP/1.1 200 OK␊A: 1⏎",
		"blank before the colon":            ok + "A : 1⏎",
		"folded line":                       ok + "A: 1⏎ 2⏎",
		"no colon":                          ok + "A⏎",
		"NUL in a value":                    ok + "A: ␀⏎",
		"bare CR in a value":                ok + "A: 1␍B: 2⏎",
		"too many fields":                   ok + strings.Repeat("A: 1⏎", MaxFields+1),
		"length and coding":                 ok + "Content-Length: 5⏎Transfer-Encoding: chunked⏎",
		"coding and length":                 ok + "Transfer-Encoding: chunked⏎Content-Length: 5⏎",
		"different lengths":                 ok + "Content-Length: 5⏎Content-Length: 6⏎",
		"the same length twice":             ok + "Content-Length: 5⏎Content-Length: 5⏎",
		"length list":                       ok + "Content-Length: 5, 5⏎",
		"signed length":                     ok + "Content-Length: +5⏎",
		"negative length":                   ok + "Content-Length: -1⏎",
		"empty length":                      ok + "Content-Length:⏎",
		"huge length":                       ok + "Content-Length: 9999999999999999999⏎",
		"two codings":                       ok + "Transfer-Encoding: chunked⏎Transfer-Encoding: chunked⏎",
		"gzip, chunked":                     ok + "Transfer-Encoding: gzip, chunked⏎",
		"identity":                          ok + "Transfer-Encoding: identity⏎",
		"coding in HTTP/1.0":                "HTTP/1.0 200 OK⏎Transfer-Encoding: chunked⏎",
		"length and coding with no content": "HTTP/1.1 304 Not Modified⏎Content-Length: 5⏎Transfer-Encoding: chunked⏎",
	} {
		_, sound := parseResponse(lines)
		assert.False(t, sound, name)
	}
}

func TestResponseFraming(t *testing.T) {
	for _, row := range []struct {
		lines     string
		bodiless  bool
		length    int64
		keepAlive bool
	}{
		{"HTTP/1.1 200 OK⏎Content-Length: 5⏎", false, 5, true},
		{"HTTP/1.1 200 OK⏎Content-Length: 0⏎", false, 0, true},
		{"HTTP/1.1 200 OK⏎Transfer-Encoding: chunked⏎", false, Chunked, true},
		{"HTTP/1.1 200 OK⏎transfer-encoding:Chunked⏎", false, Chunked, true},
		{"HTTP/1.1 200 OK⏎", false, UntilClose, false},
		{"HTTP/1.1 200 OK⏎Connection: keep-alive⏎", false, UntilClose, false},
		{"HTTP/1.0 200 OK⏎Content-Length: 5⏎", false, 5, false},
		{"HTTP/1.0 200 OK⏎Connection: Keep-Alive⏎Content-Length: 5⏎", false, 5, true},
		{"HTTP/1.0 200 OK⏎", false, UntilClose, false},
		{"HTTP/1.1 200 OK⏎Connection: close⏎Content-Length: 5⏎", false, 5, false},
		{"HTTP/1.1 200 OK⏎Connection: x, Close⏎Content-Length: 5⏎", false, 5, false},
		{"HTTP/1.1 200 OK⏎Connection: keep-alive, close⏎Content-Length: 5⏎", false, 5, false},
		{"HTTP/1.1 200 OK⏎Content-Length: 5⏎", true, 0, true},
		{"HTTP/1.1 200 OK⏎Transfer-Encoding: chunked⏎", true, 0, true},
		{"HTTP/1.1 200 OK⏎", true, 0, true},
		{"HTTP/1.1 204 No Content⏎", false, 0, true},
		{"HTTP/1.1 204 No Content⏎Content-Length: 5⏎", false, 0, true},
		{"HTTP/1.1 304 Not Modified⏎Content-Length: 5⏎", false, 0, true},
		{"HTTP/1.1 304 Not Modified⏎Transfer-Encoding: chunked⏎", false, 0, true},
		{"HTTP/1.1 103 Early Hints⏎Link: x⏎", false, 0, true},
		{"HTTP/1.1 205 Reset⏎Content-Length: 0⏎", false, 0, true},
	} {
		r := &Response{}
		require.True(t, r.Parse([]byte(notation.Replace(row.lines)+"\r\n"), row.bodiless), row.lines)
		assert.Equal(t, row.length, r.Length, row.lines)
		assert.Equal(t, row.keepAlive, r.KeepAlive, row.lines)
	}
}

func TestReturnedHead(t *testing.T) {
	const ok = "HTTP/1.1 200 OK⏎"
	for _, row := range []struct {
		name           string
		in             string
		chunked, close bool
		want           string
	}{
		{"least", ok, false, false, ok},
		{"order, repeats, spelling and blanks kept", ok + "b: 2⏎Set-Cookie: a=1⏎A:1 ⏎set-cookie:\tb=2⏎C:⏎D: é\xff⏎", false, false,
			ok + "b: 2⏎Set-Cookie: a=1⏎A:1 ⏎set-cookie:\tb=2⏎C:⏎D: é\xff⏎"},
		{"hop-by-hop fields", ok + "A: 1⏎Connection: keep-alive⏎Keep-Alive: 5⏎B: 1⏎TE: x⏎Trailer: X⏎Upgrade: h2c⏎Proxy-Connection: x⏎Proxy-Authenticate: x⏎C: 1⏎", false, false,
			ok + "A: 1⏎B: 1⏎C: 1⏎"},
		{"nominated fields", ok + "X-P: 1⏎Connection:⏎Connection: x-p, Content-Length,Set-Cookie⏎Set-Cookie: a⏎Content-Length: 0⏎X-Pq: 1⏎", false, false,
			ok + "Content-Length: 0⏎X-Pq: 1⏎"},
		{"the router's word", ok + "X-Sandbox-Dispatched: false⏎A: 1⏎", false, false, ok + "A: 1⏎"},
		{"no reason", "HTTP/1.1 200⏎A: 1⏎", false, false, "HTTP/1.1 200 ⏎A: 1⏎"},
		{"empty reason", "HTTP/1.1 200 ⏎", false, false, "HTTP/1.1 200 ⏎"},
		{"reason with blanks", "HTTP/1.1 418 I'm a teapot é⏎", false, false, "HTTP/1.1 418 I'm a teapot é⏎"},
		{"HTTP/1.0", "HTTP/1.0 200 OK⏎A: 1⏎", false, false, ok + "A: 1⏎"},
		{"length without content", "HTTP/1.1 204 No Content⏎Content-Length: 0⏎A: 1⏎", false, false, "HTTP/1.1 204 No Content⏎A: 1⏎"},
		{"length of what was not modified", "HTTP/1.1 304 Not Modified⏎Content-Length: 5⏎", false, false, "HTTP/1.1 304 Not Modified⏎Content-Length: 5⏎"},
		{"interim", "HTTP/1.1 103 Early Hints⏎Link: x⏎Connection: X-P⏎X-P: 1⏎Content-Length: 0⏎", false, false, "HTTP/1.1 103 Early Hints⏎Link: x⏎"},
		{"framed by the router", ok + "A: 1⏎transfer-encoding: CHUNKED⏎", true, false, ok + "A: 1⏎Transfer-Encoding: chunked⏎"},
		{"the last one", ok + "A: 1⏎", true, true, ok + "A: 1⏎Connection: close⏎Transfer-Encoding: chunked⏎"},
		{"WebSocket", "HTTP/1.1 101 Switching Protocols⏎Upgrade: WebSocket⏎connection: Upgrade⏎Sec-WebSocket-Accept: x⏎Sec-WebSocket-Protocol: b⏎", false, false,
			"HTTP/1.1 101 Switching Protocols⏎Sec-WebSocket-Accept: x⏎Sec-WebSocket-Protocol: b⏎Connection: Upgrade⏎Upgrade: websocket⏎"},
	} {
		t.Run(row.name, func(t *testing.T) {
			r, ok := parseResponse(row.in)
			require.True(t, ok)
			assert.Equal(t, "before"+notation.Replace(row.want+"⏎"), string(r.AppendTo([]byte("before"), row.chunked, row.close)))
		})
	}
}

func TestResponseWebSocket(t *testing.T) {
	const accept = "Sec-WebSocket-Accept: x⏎"
	for lines, want := range map[string]bool{
		"HTTP/1.1 101 S⏎Connection: upgrade⏎Upgrade: websocket⏎" + accept:                     true,
		"HTTP/1.1 101 S⏎Connection: keep-alive, Upgrade⏎Upgrade: WEBSOCKET⏎" + accept:         true,
		"HTTP/1.1 101 S⏎Upgrade: websocket⏎" + accept:                                         false,
		"HTTP/1.1 101 S⏎Connection: upgrade⏎" + accept:                                        false,
		"HTTP/1.1 101 S⏎Connection: upgrade⏎Upgrade: h2c⏎" + accept:                           false,
		"HTTP/1.1 101 S⏎Connection: upgrade⏎Upgrade: websocket⏎Upgrade: websocket⏎" + accept:  false,
		"HTTP/1.1 200 OK⏎Connection: upgrade⏎Upgrade: websocket⏎Content-Length: 0⏎" + accept:  false,
		"HTTP/1.1 426 Upgrade⏎Connection: upgrade⏎Upgrade: websocket⏎Content-Length: 0⏎A: 1⏎": false,
	} {
		r, ok := parseResponse(lines)
		require.True(t, ok, lines)
		assert.Equal(t, want, r.WebSocket, lines)
		if strings.Contains(lines, accept) {
			assert.Equal(t, "x", string(r.Accept), lines)
		} else {
			assert.Nil(t, r.Accept, lines)
		}
	}
}

func TestSaysChunked(t *testing.T) {
	r := &Response{}
	require.True(t, r.Parse([]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"), true))
	assert.True(t, r.SaysChunked())
	require.True(t, r.Parse([]byte("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"), true))
	assert.False(t, r.SaysChunked())
}
