//go:build linux

package scenario

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/dovakiin0/agent-sandbox/bench/fleet"
	"github.com/dovakiin0/agent-sandbox/bench/load"
	"github.com/dovakiin0/agent-sandbox/proto"
)

// request is what clients ask for.
type request struct {
	path      string
	body      int   // bytes to send; 0: a GET
	chunked   bool  // the body has no Content-Length
	echoed    bool  // the answer is the body
	length    int64 // of the answer
	webSocket bool
	events    bool // the answer is an event stream
}

// message is what goes over WebSockets.
var message = []byte(strings.Repeat("print(6*7)\n# ", 5)[:64])

// wholeBody is the longest body that is sent with the head: longer ones are shared between requests.
const wholeBody = 64 << 10

// build makes one request for each of n sandboxes, as a client library sends them: some 270 bytes of head in 8 fields.
// fields are more of them; nil: none. generation says which pod of each sandbox must answer; nil: any.
func (r request) build(n int, backend uint16, fields func(i int) string, generation func(i int) int) []load.Request {
	all := make([]load.Request, n)
	body := r.content()
	for i := range all {
		var b bytes.Buffer
		method := "GET"
		if r.body > 0 {
			method = "POST"
		}
		fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: sandbox-router-svc.agent-sandbox-system.svc\r\nUser-Agent: agent-sandbox-client/1.0\r\n", method, r.path)
		fmt.Fprintf(&b, "Accept: */*\r\n%s: %s\r\n%s: %s\r\n%s: %d\r\n", proto.HeaderID, fleet.ID(i), proto.HeaderNamespace, proto.DefaultNamespace, proto.HeaderPort, backend)
		if fields != nil {
			b.WriteString(fields(i))
		}
		switch {
		case r.webSocket:
			b.WriteString("Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n")
		case r.chunked:
			b.WriteString("Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n")
		case r.body > 0:
			fmt.Fprintf(&b, "Content-Type: application/json\r\nContent-Length: %d\r\n", r.body)
		}
		b.WriteString("\r\n")
		all[i].Want = load.Want{Length: r.length}
		switch {
		case r.echoed:
			all[i].Want = load.Want{Begin: body, Length: int64(r.body)}
		case generation != nil && !r.events:
			mark := fleet.Mark(fleet.Addr(i, generation(i)))
			all[i].Want.Begin = mark[:]
		}
		if len(body) <= wholeBody {
			b.Write(body)
		} else {
			all[i].Rest = body
		}
		all[i].Bytes = b.Bytes()
	}
	return all
}

// first is the pod that each sandbox has at the start.
func first(int) int { return 0 }

// content is the body as it goes on the wire.
func (r request) content() []byte {
	body := []byte(strings.Repeat("0123456789abcdef", r.body/16+1)[:r.body])
	if !r.chunked {
		return body
	}
	var b []byte
	for len(body) > 0 {
		n := min(1<<10, len(body))
		b = append(strconv.AppendInt(b, int64(n), 16), "\r\n"...)
		b = append(append(b, body[:n]...), "\r\n"...)
		body = body[n:]
	}
	return append(b, "0\r\n\r\n"...)
}
