package parse

import (
	"bytes"
	"net/netip"
)

// Forwarding is what the router adds to a request, and what it decided about it.
type Forwarding struct {
	Peer     []byte // address of the socket's other end, without port
	Proto    string // "http" or "https"
	Trusted  bool   // the peer is a proxy of ours: its forwarding fields are believed
	Host     []byte // replaces the Host field; nil keeps it
	Consumed bool   // the Authorization field was the router's credential
}

// AppendTo appends the head as the sandbox gets it: the fields that are the caller's in their order and spelling, then the
// router's own.
func (r *Request) AppendTo(dst []byte, f *Forwarding) []byte {
	dst = append(dst, r.Method...)
	dst = append(dst, ' ')
	if r.slash {
		dst = append(dst, '/')
	}
	dst = append(dst, r.Target...)
	dst = append(dst, " HTTP/1.1\r\n"...)

	var named, seenHost, seenProto bool
	run, end := uint32(0), uint32(0) // the run of kept lines not yet copied
	for i := range r.fields.list[:r.fields.n] {
		l := &r.fields.list[i]
		ours := false
		switch l.kind {
		case keep, contentLength, requestID, secKey, secAccept:
		case host:
			ours, named = f.Host != nil, true
		case authorization:
			ours = f.Consumed
		case forwardedHost:
			ours = !f.Trusted
			seenHost = seenHost || f.Trusted
		case forwardedProto:
			ours = !f.Trusted
			seenProto = seenProto || f.Trusted
		case forwardedOther:
			ours = !f.Trusted
		default:
			ours = true
		}
		if ours {
			continue
		}
		if l.at != end {
			dst = append(dst, r.head[run:end]...)
			run = l.at
		}
		end = l.end
	}
	dst = append(dst, r.head[run:end]...)

	if f.Host != nil {
		dst = appendField(dst, "Host: ", f.Host)
	} else if !named {
		dst = appendField(dst, "Host: ", r.Host) // HTTP/1.0 without one becomes 1.1, which needs it (RFC 9112, section 3.2)
	}
	if r.Length == Chunked {
		dst = append(dst, "Transfer-Encoding: chunked\r\n"...)
	}
	dst = append(dst, "X-Forwarded-For: "...)
	if f.Trusted {
		for i := range r.fields.list[:r.fields.n] {
			if l := &r.fields.list[i]; l.kind == forwardedFor && l.from < l.to {
				dst = append(dst, l.value(r.head)...)
				dst = append(dst, ", "...)
			}
		}
	}
	dst = append(dst, f.Peer...)
	dst = append(dst, "\r\n"...)
	if !seenHost && len(r.Host) > 0 {
		dst = appendField(dst, "X-Forwarded-Host: ", r.Host)
	}
	if !seenProto {
		dst = append(dst, "X-Forwarded-Proto: "...)
		dst = append(dst, f.Proto...)
		dst = append(dst, "\r\n"...)
	}
	if r.WebSocket {
		dst = append(dst, "Connection: Upgrade\r\nUpgrade: websocket\r\n"...)
	}
	return append(dst, "\r\n"...)
}

// Origin is the caller behind a trusted peer: the nearest hop in X-Forwarded-For that is not trusted itself. What lies beyond it
// is only what that hop says. The zero Addr means that no such hop is named.
func (r *Request) Origin(trusted func(netip.Addr) bool) netip.Addr {
	for i := r.fields.n - 1; i >= 0; i-- {
		l := &r.fields.list[i]
		if l.kind != forwardedFor {
			continue
		}
		for rest, more := l.value(r.head), true; more; {
			var hop []byte
			at := bytes.LastIndexByte(rest, ',')
			hop, rest, more = rest[at+1:], rest[:max(at, 0)], at >= 0
			a, ok := hopAddress(string(bytes.TrimSpace(hop)))
			if !ok {
				return netip.Addr{}
			}
			if !trusted(a) {
				return a
			}
		}
	}
	return netip.Addr{}
}

// hopAddress reads an address to which some load balancers add the port.
func hopAddress(s string) (netip.Addr, bool) {
	if a, err := netip.ParseAddr(s); err == nil {
		return a.Unmap(), true
	}
	ap, err := netip.ParseAddrPort(s)
	return ap.Addr().Unmap(), err == nil
}

func appendField(dst []byte, name string, value []byte) []byte {
	dst = append(dst, name...)
	dst = append(dst, value...)
	return append(dst, "\r\n"...)
}
