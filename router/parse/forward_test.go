package parse

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dovakiin0/agent-sandbox/router/record"
)

// TestForwardedHead compares whole heads: what is kept comes first, in its order and spelling, then the router's own.
func TestForwardedHead(t *testing.T) {
	const get = "GET /a%2Fb//../c?x=%zz&&y HTTP/1.1⏎"
	const own = "X-Forwarded-For: 10.1.1.1⏎X-Forwarded-Host: h⏎X-Forwarded-Proto: https⏎"
	stranger := Forwarding{Peer: []byte("10.1.1.1"), Proto: "https"}
	trusted, consumed, renamed := stranger, stranger, stranger
	trusted.Trusted, consumed.Consumed, renamed.Host = true, true, []byte("10.2.2.2:8888")
	for _, row := range []struct {
		name     string
		f        Forwarding
		in, want string
	}{
		{"least", stranger, get + "Host: h⏎", get + "Host: h⏎" + own},
		{"order, repeats, spelling and blanks kept", stranger,
			get + "b: 2⏎Host:  h ⏎A:1⏎b:\t3⏎C:⏎A: é\xff⏎", get + "b: 2⏎Host:  h ⏎A:1⏎b:\t3⏎C:⏎A: é\xff⏎" + own},
		{"hop-by-hop fields", stranger,
			get + "A: 1⏎TE: trailers⏎Connection: keep-alive⏎Keep-Alive: 5⏎B: 1⏎Proxy-Connection: x⏎Trailer: X⏎Upgrade: h2c⏎HTTP2-Settings: A⏎Proxy-Authorization: x⏎Host: h⏎C: 1⏎",
			get + "A: 1⏎B: 1⏎Host: h⏎C: 1⏎" + own},
		{"nominated fields", stranger,
			get + "X-P: 1⏎Connection:⏎Connection: x-p, ,Host , X-Q,X-Forwarded-For,content-length,Authorization⏎Host: h⏎X-Q: 2⏎X-Pq: 3⏎x-p: 4⏎Content-Length: 0⏎Authorization: a⏎",
			get + "Host: h⏎X-Pq: 3⏎Content-Length: 0⏎" + own},
		{"routing fields and their twins", stranger,
			get + "X-Sandbox-ID: s⏎x-sandbox-port: 1⏎X-Sandbox-Token: t⏎X-Sandbox-Unknown: u⏎X-Sandbox-: e⏎Host: h⏎X_Sandbox_ID: s⏎X-Sandbox_Port: 1⏎X_Sandbox_" + strings.Repeat("y", 40) + ": v⏎A_B: 1⏎",
			get + "Host: h⏎A_B: 1⏎" + own},
		{"twins of the router's other words", stranger,
			get + "Host: h⏎X_Forwarded_For: 1⏎Content_Length: 5⏎Transfer_Encoding: chunked⏎X_Request_ID: 1⏎Proxy_Connection: x⏎X_Real_IP: 1⏎" + strings.Repeat("a_", 40) + ": 1⏎",
			get + "Host: h⏎" + strings.Repeat("a_", 40) + ": 1⏎" + own},
		{"forwarding fields of a stranger", stranger,
			get + "Host: h⏎X-Forwarded-For: 1.1.1.1⏎X-Forwarded-Host: x⏎X-Forwarded-Proto: http⏎X-Forwarded-Port: 1⏎Forwarded: for=x⏎X-Real-IP: 1.1.1.1⏎",
			get + "Host: h⏎" + own},
		{"forwarding fields of a trusted proxy", trusted,
			get + "Host: h⏎X-Forwarded-For: 1.1.1.1⏎X-Forwarded-Host: x⏎X-Forwarded-Proto: http⏎X-Forwarded-Port: 1⏎X-Forwarded-For: 2.2.2.2, 3.3.3.3⏎X-Forwarded-For:⏎Forwarded: for=x⏎",
			get + "Host: h⏎X-Forwarded-Host: x⏎X-Forwarded-Proto: http⏎X-Forwarded-Port: 1⏎Forwarded: for=x⏎X-Forwarded-For: 1.1.1.1, 2.2.2.2, 3.3.3.3, 10.1.1.1⏎"},
		{"trusted proxy that says nothing", trusted, get + "Host: h⏎", get + "Host: h⏎" + own},
		{"the application's credential", stranger, get + "Host: h⏎Authorization: Bearer app⏎", get + "Host: h⏎Authorization: Bearer app⏎" + own},
		{"the router's credential", consumed, get + "Authorization: Basic x⏎Host: h⏎Authorization: Bearer router⏎", get + "Host: h⏎" + own},
		{"request id", stranger, get + "Host: h⏎X-Request-ID: r⏎", get + "Host: h⏎X-Request-ID: r⏎" + own},
		{"other Host", renamed, get + "A: 1⏎Host: h⏎B: 2⏎", get + "A: 1⏎B: 2⏎Host: 10.2.2.2:8888⏎" + own},
		{"fixed length", stranger, "PUT / HTTP/1.1⏎Content-Length: 005⏎Host: h⏎", "PUT / HTTP/1.1⏎Content-Length: 005⏎Host: h⏎" + own},
		{"chunked", stranger, "PUT / HTTP/1.1⏎transfer-encoding: CHUNKED⏎Host: h⏎", "PUT / HTTP/1.1⏎Host: h⏎Transfer-Encoding: chunked⏎" + own},
		{"expectation", stranger, "PUT / HTTP/1.1⏎Expect: 100-continue⏎Host: h⏎", "PUT / HTTP/1.1⏎Host: h⏎" + own},
		{"WebSocket", stranger,
			get + "Host: h⏎connection: upgrade, x-p⏎X-P: 1⏎upgrade: WebSocket⏎Sec-WebSocket-Key: k⏎Sec-WebSocket-Protocol: a, b⏎",
			get + "Host: h⏎Sec-WebSocket-Key: k⏎Sec-WebSocket-Protocol: a, b⏎" + own + "Connection: Upgrade⏎Upgrade: websocket⏎"},
		{"HTTP/1.0 with Host", stranger, "GET / HTTP/1.0⏎Host: h⏎", "GET / HTTP/1.1⏎Host: h⏎" + own},
		{"HTTP/1.0 without Host", stranger, "GET / HTTP/1.0⏎A: 1⏎", "GET / HTTP/1.1⏎A: 1⏎Host: ⏎X-Forwarded-For: 10.1.1.1⏎X-Forwarded-Proto: https⏎"},
		{"no fields but the router's", renamed, "GET / HTTP/1.0⏎", "GET / HTTP/1.1⏎Host: 10.2.2.2:8888⏎X-Forwarded-For: 10.1.1.1⏎X-Forwarded-Proto: https⏎"},
	} {
		t.Run(row.name, func(t *testing.T) {
			r, why := parseRequest(t, row.in)
			require.Equal(t, record.OK.String(), why.String())
			got := string(r.AppendTo([]byte("before"), &row.f))
			assert.Equal(t, "before"+notation.Replace(row.want+"⏎"), got)
		})
	}
}

func TestNextToken(t *testing.T) {
	for list, want := range map[string][]string{
		"":                     nil,
		" \t ":                 nil,
		",":                    nil,
		", ,\t,":               nil,
		"a":                    {"a"},
		" a ":                  {"a"},
		"a,b":                  {"a", "b"},
		", a\t, b c ,,d,":      {"a", "b c", "d"},
		"keep-alive, Upgrade ": {"keep-alive", "Upgrade"},
	} {
		var got []string
		for tok, rest := nextToken([]byte(list)); len(tok) > 0; tok, rest = nextToken(rest) {
			got = append(got, string(tok))
		}
		assert.Equal(t, want, got, "%q", list)
	}
}

func TestOrigin(t *testing.T) {
	ours := netip.MustParsePrefix("10.0.0.0/8")
	for _, row := range []struct{ lines, want string }{
		{"X-Forwarded-For: 198.51.100.7", "198.51.100.7"},
		{"X-Forwarded-For: 203.0.113.9, 198.51.100.7, 10.0.0.2", "198.51.100.7"},
		{"X-Forwarded-For: 203.0.113.9\r\nx-forwarded-for: 198.51.100.7,10.0.0.2 , 10.0.0.3", "198.51.100.7"},
		{"X-Forwarded-For: ::ffff:198.51.100.7", "198.51.100.7"},
		{"X-Forwarded-For: 198.51.100.7:4711", "198.51.100.7"},
		{"X-Forwarded-For: [2001:db8::7]:4711", "2001:db8::7"},
		{"X-Forwarded-For: 10.0.0.2", "invalid IP"},
		{"X-Forwarded-For: 198.51.100.7, unknown, 10.0.0.2", "invalid IP"},
		{"X-Forwarded-For: 198.51.100.7,", "invalid IP"},
		{"X-Forwarded-For:", "invalid IP"},
		{"X-Forwarded-For: 198.51.100.7\r\nConnection: x-forwarded-for", "invalid IP"},
		{"A: 198.51.100.7", "invalid IP"},
	} {
		var r Request
		require.Equal(t, record.OK, r.Parse([]byte("GET / HTTP/1.1\r\nHost: a\r\n"+row.lines+"\r\n\r\n")))
		assert.Equal(t, row.want, r.Origin(ours.Contains).String(), row.lines)
	}
}
