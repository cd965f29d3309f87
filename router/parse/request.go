package parse

import (
	"bytes"

	"github.com/dovakiin0/agent-sandbox/router/record"
)

// Chunked and UntilClose are the lengths of bodies that say their end otherwise.
const (
	Chunked    int64 = -1
	UntilClose int64 = -2
)

// Request is the head of a request taken apart. Its byte fields are views into the head that Parse was given.
type Request struct {
	Method []byte
	Target []byte // origin form, or "*"
	Host   []byte
	Minor  byte  // of the version HTTP/1.Minor
	Length int64 // of the body: 0 or more, or Chunked

	KeepAlive bool // the client takes another response on this connection
	Continue  bool // the client waits for 100 (Continue) before it sends the body
	WebSocket bool // the client asks for a WebSocket

	ID, Claim, Namespace, Port, UID, PodIP, Timeout []byte // routing fields, as they came; nil: absent
	Token, Authorization                            []byte // credentials
	Doubtful                                        bool   // there is more than one Authorization field
	RequestID                                       []byte
	Key                                             []byte // Sec-WebSocket-Key

	head   []byte
	slash  bool // Target lacks the "/" of its empty path
	fields fields
}

// HeadEnd returns the length of the head at the start of b, its blank line included, 0 if it is not complete, and -1
// if it never will be, because a line ends in a bare LF.
func HeadEnd(b []byte) int {
	if i := bytes.Index(b, crlfcrlf); i >= 0 {
		return i + len(crlfcrlf)
	}
	if bytes.Contains(b, lflf) || bytes.Contains(b, lfcrlf) {
		return -1
	}
	return 0
}

var (
	crlfcrlf = []byte("\r\n\r\n")
	lflf     = []byte("\n\n")
	lfcrlf   = []byte("\n\r\n")
	http11   = []byte("HTTP/1.1")
)

// Parse takes a whole head apart, as HeadEnd found it, and returns OK or why the request is refused. The view fields of r
// are valid as long as head is.
func (r *Request) Parse(head []byte) record.Reason {
	r.reset(head)
	from, why := r.line()
	if why != record.OK {
		return why
	}
	switch r.fields.scan(head, from, requestKind) {
	case malformed:
		return record.MalformedHead
	case tooMany:
		return record.HeadTooLarge
	}
	if why = r.meaning(); why != record.OK {
		return why
	}
	return r.origin()
}

func (r *Request) reset(head []byte) {
	// The array of fields is overwritten as far as it is used: clearing it would cost more than the parse.
	r.Method, r.Target, r.Host, r.Minor, r.Length = nil, nil, nil, 0, 0
	r.KeepAlive, r.Continue, r.WebSocket, r.Doubtful = false, false, false, false
	r.ID, r.Claim, r.Namespace, r.Port, r.UID, r.PodIP, r.Timeout = nil, nil, nil, nil, nil, nil, nil
	r.Token, r.Authorization, r.RequestID, r.Key = nil, nil, nil, nil
	r.head, r.slash = head, false
	r.fields.n = 0
}

// line reads the request line: token SP target SP version CRLF, with exactly these blanks (RFC 9112, section 3).
func (r *Request) line() (next int, why record.Reason) {
	eol := bytes.IndexByte(r.head, '\n')
	if eol < 1 || r.head[eol-1] != '\r' {
		return 0, record.MalformedHead
	}
	line := r.head[:eol-1]
	a := bytes.IndexByte(line, ' ')
	z := bytes.LastIndexByte(line, ' ')
	if a < 1 || z <= a {
		return 0, record.MalformedHead
	}
	r.Method, r.Target = line[:a], line[a+1:z]
	for _, c := range r.Method {
		if !token[c] {
			return 0, record.MalformedHead
		}
	}
	version := line[z+1:]
	if !bytes.Equal(version, http11) {
		if len(version) != 8 || !bytes.HasPrefix(version, http11[:5]) || version[6] != '.' || version[5] < '0' || version[5] > '9' || version[7] < '0' || version[7] > '9' {
			return 0, record.MalformedHead
		}
		if version[5] != '1' || version[7] != '0' {
			return 0, record.BadVersion
		}
	}
	r.Minor = version[7] - '0'
	if len(r.Target) == 0 {
		return 0, record.BadTarget
	}
	for _, c := range r.Target {
		if !target[c] {
			return 0, record.BadTarget
		}
	}
	if string(r.Method) == "CONNECT" || string(r.Method) == "TRACE" {
		return 0, record.MethodNotAllowed
	}
	return eol + 1, record.OK
}

// meaning reads the fields that frame, address or otherwise concern the router.
func (r *Request) meaning() record.Reason {
	var hosts, lengths, codings, upgrades int
	var nominated, close, upgradeAsked bool
	var protocol, coding []byte
	for i := range r.fields.list[:r.fields.n] {
		f := &r.fields.list[i]
		switch f.kind {
		case keep, drop:
			continue
		}
		value := f.value(r.head)
		switch f.kind {
		case host:
			hosts++
			r.Host = value
		case contentLength:
			lengths++
			n, ok := number(value)
			if !ok {
				return record.BadFraming
			}
			r.Length = n
		case transferEncoding:
			codings++
			coding = value
		case connection:
			for tok, rest := nextToken(value); len(tok) > 0; tok, rest = nextToken(rest) {
				switch {
				case is(tok, "close"):
					close = true
				case is(tok, "upgrade"):
					upgradeAsked = true
				case is(tok, "keep-alive"):
				default:
					nominated = true
				}
			}
		case upgrade:
			upgrades++
			protocol = value
		case expect:
			if !is(value, "100-continue") {
				return record.BadExpectation
			}
			r.Continue = r.Minor == 1
		case authorization:
			r.Doubtful = r.Authorization != nil
			r.Authorization = value
		case requestID:
			r.RequestID = value
		case secKey:
			r.Key = value
		default:
			if f.kind.routing() && !r.route(f.kind, value) {
				return record.RepeatedHeader
			}
		}
	}
	if hosts > 1 || hosts == 0 && r.Minor == 1 || !validHost(r.Host) {
		return record.BadHost
	}
	if lengths > 1 || codings > 1 || codings == 1 && (lengths == 1 || r.Minor == 0) {
		return record.BadFraming
	}
	if codings == 1 {
		if !is(coding, "chunked") {
			return unknownCoding(coding)
		}
		r.Length = Chunked
	}
	r.KeepAlive = r.Minor == 1 && !close
	// Only WebSocket is tunnelled (RFC 6455, section 4.1), and a request with a body is none.
	r.WebSocket = upgradeAsked && upgrades == 1 && is(protocol, "websocket") && r.Minor == 1 && r.Length == 0 && string(r.Method) == "GET"
	if nominated {
		r.fields.obey(r.head)
	}
	return record.OK
}

// unknownCoding tells a transfer coding that the router does not know from a framing that nobody could read
// (RFC 9112, section 6.1 and 6.3).
func unknownCoding(value []byte) record.Reason {
	last := value
	for tok, rest := nextToken(value); len(tok) > 0; tok, rest = nextToken(rest) {
		last = tok
	}
	if is(last, "chunked") && len(last) < len(value) {
		return record.UnknownCoding
	}
	return record.BadFraming
}

// route notes a routing field and reports whether it is the first of its kind.
func (r *Request) route(k kind, value []byte) bool {
	var to *[]byte
	switch k {
	case routeID:
		to = &r.ID
	case routeClaim:
		to = &r.Claim
	case routeNamespace:
		to = &r.Namespace
	case routePort:
		to = &r.Port
	case routeUID:
		to = &r.UID
	case routePodIP:
		to = &r.PodIP
	case routeTimeout:
		to = &r.Timeout
	default:
		to = &r.Token
	}
	if *to != nil {
		return false
	}
	*to = value // not nil even when empty: it is a view of the head
	return true
}

// origin brings the target to origin form. An absolute form must name the same host as the Host field, or the two ends
// of the connection could decide on different ones (RFC 9112, section 3.2.2).
func (r *Request) origin() record.Reason {
	options := string(r.Method) == "OPTIONS"
	if r.Target[0] == '/' || options && string(r.Target) == "*" {
		return record.OK
	}
	i := bytes.Index(r.Target, []byte("://"))
	if i < 0 || !is(r.Target[:i], "http") && !is(r.Target[:i], "https") {
		return record.BadTarget
	}
	rest := r.Target[i+3:]
	end := bytes.IndexAny(rest, "/?")
	if end < 0 {
		end = len(rest)
	}
	authority := rest[:end]
	if len(authority) == 0 || !validHost(authority) {
		return record.BadTarget
	}
	if r.Host == nil {
		r.Host = authority
	} else if !bytes.EqualFold(authority, r.Host) {
		return record.BadHost
	}
	r.Target = rest[end:]
	switch {
	case len(r.Target) == 0 && options:
		r.Target = star
	case len(r.Target) == 0 || r.Target[0] != '/':
		r.slash = true
	}
	return record.OK
}

var star = []byte("*")

// validHost admits the bytes of uri-host and port (RFC 3986, section 3.2.2), without the comma, which looks like a list.
func validHost(h []byte) bool {
	for _, c := range h {
		if !hostByte[c] {
			return false
		}
	}
	return true
}

var hostByte [256]bool

func init() {
	for c := 0; c < 256; c++ {
		hostByte[c] = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
			bytes.IndexByte([]byte("-._~:[]%!$&'()*+;="), byte(c)) >= 0
	}
}

// UserAgent finds the value of the User-Agent field, for logs.
func (r *Request) UserAgent() []byte {
	for i := range r.fields.list[:r.fields.n] {
		if f := &r.fields.list[i]; f.kind == keep && is(f.name(r.head), "user-agent") {
			return f.value(r.head)
		}
	}
	return nil
}

// HeadLen is the length of the head in bytes, its blank line included.
func (r *Request) HeadLen() int { return len(r.head) }
