package wire

import (
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
)

// First bytes of WebSocket frames that are whole messages (RFC 6455, section 5.2).
const (
	Binary = 0x80 | 0x2
	Close  = 0x80 | 0x8
	Ping   = 0x80 | 0x9
	Pong   = 0x80 | 0xA
)

// Frame is one WebSocket frame.
type Frame struct {
	First   byte // FIN, reserved bits and opcode
	Masked  bool
	Mask    [4]byte
	Payload []byte // as on the wire
	Size    int    // bytes of the frame
}

// ParseFrame reads the frame that b begins with. false: its end is not there yet. Payload points into b.
func ParseFrame(b []byte) (f Frame, ok bool) {
	if len(b) < 2 {
		return f, false
	}
	f.First, f.Masked = b[0], b[1]&0x80 != 0
	length, at := uint64(b[1]&0x7f), 2
	switch length {
	case 126:
		if len(b) < 4 {
			return f, false
		}
		length, at = uint64(binary.BigEndian.Uint16(b[2:])), 4
	case 127:
		if len(b) < 10 {
			return f, false
		}
		length, at = binary.BigEndian.Uint64(b[2:]), 10
	}
	if f.Masked {
		if len(b) < at+4 {
			return f, false
		}
		at += copy(f.Mask[:], b[at:])
	}
	if length > uint64(len(b)-at) {
		return f, false
	}
	f.Size = at + int(length)
	f.Payload = b[at:f.Size]
	return f, true
}

// AppendFrame appends a frame with the given first byte, masked if mask is not nil.
func AppendFrame(dst []byte, first byte, payload []byte, mask *[4]byte) []byte {
	var bit byte
	if mask != nil {
		bit = 0x80
	}
	dst = append(dst, first)
	switch n := len(payload); {
	case n < 126:
		dst = append(dst, bit|byte(n))
	case n < 1<<16:
		dst = binary.BigEndian.AppendUint16(append(dst, bit|126), uint16(n))
	default:
		dst = binary.BigEndian.AppendUint64(append(dst, bit|127), uint64(n))
	}
	if mask == nil {
		return append(dst, payload...)
	}
	dst = append(dst, mask[:]...)
	at := len(dst)
	dst = append(dst, payload...)
	MaskBytes(dst[at:], *mask)
	return dst
}

// MaskBytes masks or unmasks a payload in place.
func MaskBytes(b []byte, mask [4]byte) {
	for i := range b {
		b[i] ^= mask[i&3]
	}
}

// Accept returns the Sec-WebSocket-Accept for a key (RFC 6455, section 4.2.2).
func Accept(key []byte) string {
	sum := sha1.Sum(append(append([]byte(nil), key...), "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"...))
	return base64.StdEncoding.EncodeToString(sum[:])
}
