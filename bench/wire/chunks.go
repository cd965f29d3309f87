package wire

import "errors"

// ErrChunk says that a chunked body is malformed.
var ErrChunk = errors.New("malformed chunk")

// Chunks decodes a chunked body (RFC 9112, section 7.1) as it comes. The zero value is ready for a body.
type Chunks struct {
	state chunkState
	left  int64 // bytes of the chunk still to come
	line  int   // bytes of the trailer line so far
}

type chunkState uint8

const (
	inSize chunkState = iota
	inExtension
	inData
	inDataEnd
	inTrailer
	atEnd
)

// Next takes from b. It returns at most one piece of content, which points into b, and how many bytes it used. It uses
// all of b unless it returns content or the body is done.
func (c *Chunks) Next(b []byte) (data []byte, used int, err error) {
	for used < len(b) && c.state != atEnd {
		switch c.state {
		case inData:
			n := int(min(c.left, int64(len(b)-used)))
			data = b[used : used+n]
			used += n
			if c.left -= int64(n); c.left == 0 {
				c.state = inDataEnd
			}
			return data, used, nil
		default:
			if err := c.step(b[used]); err != nil {
				return nil, used, err
			}
			used++
		}
	}
	return nil, used, nil
}

// step takes one byte that is not content.
func (c *Chunks) step(b byte) error {
	switch c.state {
	case inSize:
		digit, ok := hex(b)
		switch {
		case ok:
			if c.left > 1<<40 {
				return ErrChunk
			}
			c.left = c.left<<4 | digit
		case b == ';' || b == '\r' || b == ' ':
			c.state = inExtension
		default:
			return ErrChunk
		}
	case inExtension:
		if b == '\n' {
			c.state = inData
			if c.left == 0 {
				c.state = inTrailer
			}
		}
	case inDataEnd:
		switch b {
		case '\r':
		case '\n':
			c.state = inSize
		default:
			return ErrChunk
		}
	case inTrailer:
		switch {
		case b == '\n' && c.line == 0:
			c.state = atEnd
		case b == '\n':
			c.line = 0
		case b != '\r':
			c.line++
		}
	}
	return nil
}

// Done reports whether the whole body has been taken.
func (c *Chunks) Done() bool { return c.state == atEnd }

func hex(b byte) (int64, bool) {
	switch {
	case '0' <= b && b <= '9':
		return int64(b - '0'), true
	case 'a' <= b|0x20 && b|0x20 <= 'f':
		return int64(b|0x20-'a') + 10, true
	}
	return 0, false
}
