package parse

import (
	"crypto/sha1"
	"encoding/base64"
)

// AcceptOf computes the Sec-WebSocket-Accept that answers key (RFC 6455, section 4.2.2). Keys of a wrong length leave out as it
// is, so that no answer can match.
func AcceptOf(key []byte, out *[28]byte) {
	var buf [60]byte
	if len(key) != 24 {
		return
	}
	n := copy(buf[:], key)
	n += copy(buf[n:], "258EAFA5-E914-47DA-95CA-C5AB0DC85B11")
	sum := sha1.Sum(buf[:n])
	base64.StdEncoding.Encode(out[:], sum[:])
}

// Frames follows the frames of one direction of a WebSocket (RFC 6455, section 5.2) without looking into them, so that a
// frame of the router's own can be put between two. The zero value stands before the first frame.
type Frames struct {
	head   [14]byte
	n      int    // bytes of the header so far
	left   uint64 // bytes of the payload still to come
	closed bool
}

// Closed reports whether a Close frame has begun.
func (f *Frames) Closed() bool { return f.closed }

// Between reports whether the bytes so far end with a whole frame.
func (f *Frames) Between() bool { return f.n == 0 && f.left == 0 }

// Follow reads b and returns how many of its bytes end with a whole frame: 0 if none does.
func (f *Frames) Follow(b []byte) (boundary int) {
	for i := 0; i < len(b); {
		if f.left > 0 {
			k := min(f.left, uint64(len(b)-i))
			f.left -= k
			i += int(k)
		} else {
			f.head[f.n] = b[i]
			f.n++
			i++
			if f.n < 2 || f.n < f.headLen() {
				continue
			}
			f.left = f.payload()
			f.n = 0
			f.closed = f.closed || f.head[0]&0x0f == 0x8
		}
		if f.left == 0 && f.n == 0 {
			boundary = i
		}
	}
	return boundary
}

func (f *Frames) headLen() int {
	n := 2
	switch f.head[1] & 0x7f {
	case 126:
		n += 2
	case 127:
		n += 8
	}
	if f.head[1]&0x80 != 0 {
		n += 4
	}
	return n
}

func (f *Frames) payload() uint64 {
	short := uint64(f.head[1] & 0x7f)
	from, to := 2, 2
	switch short {
	case 126:
		to = 4
	case 127:
		to = 10
	default:
		return short
	}
	var n uint64
	for _, b := range f.head[from:to] {
		n = n<<8 | uint64(b)
	}
	return n
}

// AppendClose appends a Close frame with a status code. Frames toward the sandbox are masked, as RFC 6455, section 5.3 wants of
// clients; a zero mask does.
func AppendClose(dst []byte, code uint16, masked bool) []byte {
	if masked {
		dst = append(dst, 0x88, 0x82, 0, 0, 0, 0)
	} else {
		dst = append(dst, 0x88, 0x02)
	}
	return append(dst, byte(code>>8), byte(code))
}
