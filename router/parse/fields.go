// Package parse holds every rule about HTTP/1.1 messages: what is refused, what is stripped, what is added, and where a
// message ends (RFC 9110, RFC 9112). It works on bytes that others have read and touches no network. What it does not
// understand it refuses, so that no two parties can read a message differently.
package parse

import (
	"bytes"

	"github.com/dovakiin0/agent-sandbox/proto"
)

// MaxFields is the largest number of header fields in a head. More are answered like a head that is too large.
const MaxFields = 128

// kind says what the router does with a field.
type kind uint8

const (
	keep             kind = iota
	drop                  // hop-by-hop (RFC 9110, section 7.6.1), or a router's word that callers may not say
	connection            // dropped, its tokens are obeyed
	upgrade               // dropped, said anew for WebSocket
	host                  // forwarded as received
	contentLength         // forwarded as received, once it is known to be well formed
	transferEncoding      // dropped, said anew
	expect                // dropped, answered here
	authorization         // the application's, unless the router consumed it
	requestID             // forwarded, and repeated in error answers
	forwardedFor          // said anew from the socket
	forwardedHost         // said anew from the socket, kept from a trusted peer
	forwardedProto        // likewise
	forwardedOther        // dropped, kept from a trusted peer
	secKey                // Sec-WebSocket-Key, forwarded
	secAccept             // Sec-WebSocket-Accept, forwarded
	routeID
	routeClaim
	routeNamespace
	routePort
	routeUID
	routePodIP
	routeTimeout
	routeToken
	numKinds
)

// routing reports whether fields of kind k address a sandbox and so must not be repeated.
func (k kind) routing() bool { return k >= routeID && k < numKinds }

// field is one line of a head, as offsets into it: the name is [at:colon], the trimmed value [from:to], the line ends at end.
type field struct {
	at, colon, from, to, end uint32
	kind                     kind
}

// fields are the header fields of one head, in order.
type fields struct {
	list [MaxFields]field
	n    int
}

func (f *field) name(head []byte) []byte  { return head[f.at:f.colon] }
func (f *field) value(head []byte) []byte { return head[f.from:f.to] }

// fault is what can be wrong with a head before its meaning is looked at.
type fault uint8

const (
	sound fault = iota
	malformed
	tooMany
)

var (
	token  [256]bool // tchar, RFC 9110, section 5.6.2
	text   [256]bool // what a field value may hold: VCHAR, obs-text, SP and HTAB (section 5.5)
	target [256]bool // what a request target may hold; obs-text is passed on as it came
)

func init() {
	for c := 0; c < 256; c++ {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		token[c] = letter || bytes.IndexByte([]byte("!#$%&'*+-.^_`|~"), byte(c)) >= 0
		text[c] = c == '\t' || c >= ' ' && c != 0x7f
		target[c] = c > ' ' && c != 0x7f && c != '#'
	}
}

// scan takes the field lines apart that stand between from and the blank line at the end of head.
// Line folding is refused (RFC 9112, section 5.2), and so are a blank before the colon (section 5.1), a bare CR or LF
// (section 2.2) and control bytes in values (RFC 9110, section 5.5).
func (fs *fields) scan(head []byte, from int, classify func(name []byte) kind) fault {
	fs.n = 0
	end := len(head) - 2
	for i := from; i < end; {
		eol := bytes.IndexByte(head[i:], '\n') + i
		if eol <= i || head[eol-1] != '\r' {
			return malformed
		}
		last := eol - 1
		colon := i
		for colon < last && token[head[colon]] {
			colon++
		}
		if colon == i || colon == last || head[colon] != ':' {
			return malformed
		}
		for _, c := range head[colon+1 : last] {
			if !text[c] {
				return malformed
			}
		}
		if fs.n == MaxFields {
			return tooMany
		}
		start := colon + 1
		for start < last && blank(head[start]) {
			start++
		}
		for last > start && blank(head[last-1]) {
			last--
		}
		fs.list[fs.n] = field{at: uint32(i), colon: uint32(colon), from: uint32(start), to: uint32(last), end: uint32(eol + 1), kind: classify(head[i:colon])}
		fs.n++
		i = eol + 1
	}
	return sound
}

// nominate marks the fields for dropping that the Connection field names (RFC 9110, section 7.6.1). Framing, routing and
// Host are not the sender's to remove.
func (fs *fields) nominate(head, name []byte) {
	for i := range fs.list[:fs.n] {
		f := &fs.list[i]
		switch f.kind {
		case keep, authorization, requestID, secKey, secAccept, forwardedHost, forwardedProto, forwardedOther, forwardedFor:
			if bytes.EqualFold(f.name(head), name) {
				f.kind = drop
			}
		}
	}
}

// obey nominates what the Connection fields of the head name.
func (fs *fields) obey(head []byte) {
	for i := range fs.list[:fs.n] {
		f := &fs.list[i]
		if f.kind != connection {
			continue
		}
		for tok, rest := nextToken(f.value(head)); len(tok) > 0; tok, rest = nextToken(rest) {
			fs.nominate(head, tok)
		}
	}
}

func blank(c byte) bool { return c == ' ' || c == '\t' }

// is reports whether b is the lower-case word, whatever the case of b.
func is(b []byte, word string) bool {
	if len(b) != len(word) {
		return false
	}
	for i := 0; i < len(word); i++ {
		c := b[i]
		if c >= 'A' && c <= 'Z' {
			c |= 0x20
		}
		if c != word[i] {
			return false
		}
	}
	return true
}

// nextToken cuts the next element off a comma-separated list (RFC 9110, section 5.6.1). Empty elements are passed over;
// the token is empty at the end of the list.
func nextToken(list []byte) (tok, rest []byte) {
	for len(list) > 0 {
		i := bytes.IndexByte(list, ',')
		if i < 0 {
			i = len(list)
		}
		tok = bytes.Trim(list[:i], " \t")
		list = list[min(i+1, len(list)):]
		if len(tok) > 0 {
			return tok, list
		}
	}
	return nil, nil
}

// number reads a Content-Length: digits only, no sign, no list (RFC 9110, section 8.6).
func number(b []byte) (int64, bool) {
	if len(b) == 0 || len(b) > 18 {
		return 0, false
	}
	var n int64
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, true
}

// requestKind classifies the field names of requests. Names with an underscore are compared as if it were a hyphen,
// because CGI-like servers read both as one: the twin of a field that the router reads or writes is dropped.
func requestKind(name []byte) kind {
	if bytes.IndexByte(name, '_') >= 0 {
		return underscored(name)
	}
	return requestName(name)
}

func underscored(name []byte) kind {
	var buf [32]byte // longer than every name that is known, so of longer ones the prefix is enough
	twin := buf[:copy(buf[:], name)]
	for i, c := range twin {
		if c == '_' {
			twin[i] = '-'
		}
	}
	if requestName(twin) == keep {
		return keep
	}
	return drop
}

func requestName(name []byte) kind {
	switch len(name) {
	case 2:
		if is(name, "te") {
			return drop
		}
	case 4:
		if is(name, "host") {
			return host
		}
	case 6:
		if is(name, "expect") {
			return expect
		}
	case 7:
		if is(name, "upgrade") {
			return upgrade
		}
		if is(name, "trailer") {
			return drop
		}
	case 9:
		if is(name, "forwarded") || is(name, "x-real-ip") {
			return forwardedOther
		}
	case 10:
		if is(name, "connection") {
			return connection
		}
		if is(name, "keep-alive") {
			return drop
		}
	case 12:
		if is(name, "x-request-id") {
			return requestID
		}
	case 13:
		if is(name, "authorization") {
			return authorization
		}
	case 14:
		if is(name, "content-length") {
			return contentLength
		}
		if is(name, "http2-settings") {
			return drop
		}
	case 15:
		if is(name, "x-forwarded-for") {
			return forwardedFor
		}
	case 16:
		if is(name, "x-forwarded-host") {
			return forwardedHost
		}
		if is(name, "proxy-connection") {
			return drop
		}
	case 17:
		if is(name, "transfer-encoding") {
			return transferEncoding
		}
		if is(name, "x-forwarded-proto") {
			return forwardedProto
		}
		if is(name, "sec-websocket-key") {
			return secKey
		}
	case 18:
		if is(name, "proxy-authenticate") {
			return drop
		}
	case 19:
		if is(name, "proxy-authorization") {
			return drop
		}
	}
	if len(name) >= len("x-forwarded-") && is(name[:len("x-forwarded-")], "x-forwarded-") {
		return forwardedOther
	}
	if len(name) >= len(proto.HeaderPrefix) && is(name[:len(proto.HeaderPrefix)], "x-sandbox-") {
		return routingName(name[len(proto.HeaderPrefix):])
	}
	return keep
}

func routingName(rest []byte) kind {
	switch {
	case is(rest, "id"):
		return routeID
	case is(rest, "claim"):
		return routeClaim
	case is(rest, "namespace"):
		return routeNamespace
	case is(rest, "port"):
		return routePort
	case is(rest, "uid"):
		return routeUID
	case is(rest, "pod-ip"):
		return routePodIP
	case is(rest, "timeout"):
		return routeTimeout
	case is(rest, "token"):
		return routeToken
	}
	return drop
}

// responseKind classifies the field names of responses.
func responseKind(name []byte) kind {
	switch len(name) {
	case 2:
		if is(name, "te") {
			return drop
		}
	case 7:
		if is(name, "upgrade") {
			return upgrade
		}
		if is(name, "trailer") {
			return drop
		}
	case 10:
		if is(name, "connection") {
			return connection
		}
		if is(name, "keep-alive") {
			return drop
		}
	case 14:
		if is(name, "content-length") {
			return contentLength
		}
	case 16:
		if is(name, "proxy-connection") {
			return drop
		}
	case 17:
		if is(name, "transfer-encoding") {
			return transferEncoding
		}
	case 18:
		if is(name, "proxy-authenticate") {
			return drop
		}
	case 20:
		if is(name, "sec-websocket-accept") {
			return secAccept
		}
		// The router's own word, which a sandbox must not speak in its place.
		if is(name, "x-sandbox-dispatched") {
			return drop
		}
	}
	return keep
}
