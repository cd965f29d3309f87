// Package wire reads and writes the little of HTTP/1.1 and WebSocket framing that the load generator and the backend
// share. It trusts both: it finds where messages end and does not judge them.
package wire

import "bytes"

// Head is what the framing of a message needs of its head (RFC 9112, section 6).
type Head struct {
	Size    int    // bytes of the head, the empty line included
	Start   []byte // start line without its line end
	Length  int64  // Content-Length; -1: none
	Chunked bool
	Close   bool   // Connection: close, or HTTP/1.0
	Key     []byte // Sec-WebSocket-Key, of a handshake
}

var (
	emptyLine        = []byte("\r\n\r\n")
	contentLength    = []byte("content-length")
	transferEncoding = []byte("transfer-encoding")
	connection       = []byte("connection")
	webSocketKey     = []byte("sec-websocket-key")
	closing          = []byte("close")
	chunked          = []byte("chunked")
	http10           = []byte("HTTP/1.0")
)

// ParseHead reads the head that b begins with. false: its end is not there yet. The slices of the Head point into b.
func ParseHead(b []byte) (h Head, ok bool) {
	end := bytes.Index(b, emptyLine)
	if end < 0 {
		return h, false
	}
	h.Size, h.Length = end+len(emptyLine), -1
	rest := b[:end+2]
	h.Start, rest = line(rest)
	h.Close = bytes.HasPrefix(h.Start, http10) || bytes.HasSuffix(h.Start, http10)
	for len(rest) > 0 {
		var field []byte
		field, rest = line(rest)
		colon := bytes.IndexByte(field, ':')
		if colon < 0 {
			continue
		}
		name, value := field[:colon], field[colon+1:]
		switch {
		case is(name, contentLength):
			h.Length = number(bytes.TrimSpace(value))
		case is(name, transferEncoding):
			h.Chunked = bytes.EqualFold(bytes.TrimSpace(value), chunked)
		case is(name, connection):
			h.Close = h.Close || bytes.EqualFold(bytes.TrimSpace(value), closing)
		case is(name, webSocketKey):
			h.Key = bytes.TrimSpace(value)
		}
	}
	return h, true
}

// line cuts the first line off b, which ends with a line end.
func line(b []byte) (line, rest []byte) {
	end := bytes.IndexByte(b, '\n')
	return bytes.TrimSuffix(b[:end], []byte{'\r'}), b[end+1:]
}

// is compares the length first: most fields are none of those looked for, and most of them differ in it.
func is(name, want []byte) bool {
	return len(name) == len(want) && bytes.EqualFold(name, want)
}

// number reads a decimal number; -1: it is none.
func number(b []byte) int64 {
	if len(b) == 0 || len(b) > 18 {
		return -1
	}
	var n int64
	for _, c := range b {
		if c < '0' || c > '9' {
			return -1
		}
		n = n*10 + int64(c-'0')
	}
	return n
}

// Status returns the status code of a response's start line; 0: it has none.
func (h *Head) Status() int {
	if len(h.Start) < 12 {
		return 0
	}
	return max(0, int(number(h.Start[9:12])))
}

// Target returns the request target of a request's start line.
func (h *Head) Target() []byte {
	_, rest, _ := bytes.Cut(h.Start, []byte{' '})
	target, _, _ := bytes.Cut(rest, []byte{' '})
	return target
}
