package parse

import "bytes"

// Response is the head of a response taken apart. Its byte fields are views into the head that Parse was given.
type Response struct {
	Status int
	Minor  byte
	Length int64 // of the body: 0 or more, Chunked or UntilClose

	KeepAlive bool // the sandbox takes another request on this connection
	WebSocket bool // Upgrade: websocket, and Connection says so
	Accept    []byte

	head   []byte
	reason []byte // the line from the status code on, its CRLF included
	fields fields
}

// Parse takes a whole response head apart. bodiless says that the request was HEAD, whose answers have no body whatever
// their fields say (RFC 9112, section 6.3). false: the head is malformed or its framing ambiguous.
func (r *Response) Parse(head []byte, bodiless bool) bool {
	r.Status, r.Minor, r.Length = 0, 0, UntilClose
	r.KeepAlive, r.WebSocket, r.Accept = false, false, nil
	r.head, r.reason = head, nil
	from, ok := r.line()
	if !ok || r.fields.scan(head, from, responseKind) != sound {
		return false
	}
	return r.meaning(bodiless)
}

// line reads the status line: version SP 3DIGIT SP reason CRLF (RFC 9112, section 4). A missing last blank is forgiven,
// as many servers leave it out with the reason.
func (r *Response) line() (next int, ok bool) {
	eol := bytes.IndexByte(r.head, '\n')
	if eol < len("HTTP/1.1 200\r") || r.head[eol-1] != '\r' {
		return 0, false
	}
	line := r.head[:eol-1]
	if !bytes.HasPrefix(line, http11[:7]) || line[7] != '0' && line[7] != '1' || line[8] != ' ' {
		return 0, false
	}
	r.Minor = line[7] - '0'
	for _, c := range line[9:12] {
		if c < '0' || c > '9' {
			return 0, false
		}
		r.Status = r.Status*10 + int(c-'0')
	}
	if r.Status < 100 || r.Status > 599 || len(line) > 12 && line[12] != ' ' {
		return 0, false
	}
	for _, c := range line[12:] {
		if !text[c] {
			return 0, false
		}
	}
	r.reason = r.head[9 : eol+1]
	return eol + 1, true
}

func (r *Response) meaning(bodiless bool) bool {
	var codings, upgrades int
	var close, keepAlive, upgradeSaid, sized, nominated bool
	var protocol, coding []byte
	length := UntilClose
	for i := range r.fields.list[:r.fields.n] {
		f := &r.fields.list[i]
		if f.kind <= drop {
			continue
		}
		value := f.value(r.head)
		switch f.kind {
		case contentLength:
			n, ok := number(value)
			if !ok || sized {
				return false // not even the same one twice: who wrote it twice may have two bodies in mind
			}
			sized, length = true, n
		case transferEncoding:
			codings++
			coding = value
		case connection:
			for tok, rest := nextToken(value); len(tok) > 0; tok, rest = nextToken(rest) {
				switch {
				case is(tok, "close"):
					close = true
				case is(tok, "keep-alive"):
					keepAlive = true
				case is(tok, "upgrade"):
					upgradeSaid = true
				default:
					nominated = true
				}
			}
		case upgrade:
			upgrades++
			protocol = value
		case secAccept:
			r.Accept = value
		}
	}
	if codings > 1 || codings == 1 && (sized || r.Minor == 0 || !is(coding, "chunked")) {
		return false
	}
	r.WebSocket = r.Status == 101 && upgradeSaid && upgrades == 1 && is(protocol, "websocket")
	r.KeepAlive = !close && (r.Minor == 1 || keepAlive)
	if codings == 1 {
		length = Chunked
	}
	r.Length = length
	if bodiless || r.Status < 200 || r.Status == 204 || r.Status == 304 {
		r.Length = 0
	}
	if r.Length == UntilClose {
		r.KeepAlive = false
	}
	if nominated {
		r.fields.obey(r.head)
	}
	return true
}

// AppendTo appends the head as the client gets it. chunked says that the router frames the body that way; close says
// that the connection ends after this response.
func (r *Response) AppendTo(dst []byte, chunked, close bool) []byte {
	dst = append(dst, "HTTP/1.1 "...)
	if len(r.reason) == len("200\r\n") { // the blank after the code is not optional (RFC 9112, section 4)
		dst = append(dst, r.reason[:3]...)
		dst = append(dst, " \r\n"...)
	} else {
		dst = append(dst, r.reason...)
	}
	sizeless := r.Status == 204 || r.Status < 200 // these must not say a length (RFC 9110, section 8.6)
	run, end := uint32(0), uint32(0)
	for i := range r.fields.list[:r.fields.n] {
		l := &r.fields.list[i]
		switch l.kind {
		case keep, secAccept:
		case contentLength:
			if sizeless {
				continue
			}
		default:
			continue
		}
		if l.at != end {
			dst = append(dst, r.head[run:end]...)
			run = l.at
		}
		end = l.end
	}
	dst = append(dst, r.head[run:end]...)
	switch {
	case r.WebSocket:
		dst = append(dst, "Connection: Upgrade\r\nUpgrade: websocket\r\n"...)
	case close:
		dst = append(dst, "Connection: close\r\n"...)
	}
	if chunked {
		dst = append(dst, "Transfer-Encoding: chunked\r\n"...)
	}
	return append(dst, "\r\n"...)
}

// SaysChunked reports whether the head has a Transfer-Encoding field. The answer to HEAD repeats it although no body follows.
func (r *Response) SaysChunked() bool {
	for i := range r.fields.list[:r.fields.n] {
		if r.fields.list[i].kind == transferEncoding {
			return true
		}
	}
	return false
}
