package parse

// Limits of what a chunked body may hold besides its data.
const (
	maxExtension = 4 << 10  // bytes of extensions in one chunk line
	maxTrailer   = 16 << 10 // bytes of the whole trailer section
)

// Chunks reads a chunked body piece by piece (RFC 9112, section 7.1). Extensions are passed over (section 7.1.1), and so are
// trailer fields once they are known to be well formed: a router that neither merges nor needs them may discard them
// (section 7.1.2). The zero value stands before the first chunk line.
type Chunks struct {
	state  chunkState
	digits uint8
	left   uint64 // of the size line: the size so far; of the data: what is still to come
	extra  int    // bytes of the extension or of the trailer section so far
	extras bool
}

// Plain reports whether the body so far had neither extensions nor trailer fields, so that its bytes may be passed on as
// they came.
func (c *Chunks) Plain() bool { return !c.extras }

type chunkState uint8

const (
	inSize chunkState = iota
	inExtension
	afterSize // the LF of the chunk line
	inData
	afterData // the CR behind the data
	endOfData // its LF
	atTrailer // the start of a trailer line
	inName
	inValue
	endOfTrailer // the LF of a trailer line
	endOfBody    // the last LF
	done
)

// Next reads from b. It returns the next piece of data (a view of b, maybe empty), how many bytes of b it used, and whether
// the body is complete. ok is false when the body is malformed. Call it again with the rest of b until that is empty.
func (c *Chunks) Next(b []byte) (data []byte, used int, complete, ok bool) {
	for i := 0; i < len(b); i++ {
		switch c.state {
		case inData:
			n := c.take(len(b) - i)
			return b[i : i+n], i + n, false, true
		case done:
			return nil, i, true, true
		}
		if !c.step(b[i]) {
			return nil, 0, false, false
		}
	}
	return nil, len(b), c.state == done, true
}

// Strip reads from b like Next and appends it to dst as it came, but for extensions and trailer fields. data counts the
// bytes of data.
func (c *Chunks) Strip(dst, b []byte) (out []byte, used, data int, complete, ok bool) {
	for used < len(b) && c.state != done {
		if c.state == inData {
			n := c.take(len(b) - used)
			dst = append(dst, b[used:used+n]...)
			used += n
			data += n
			continue
		}
		before, ch := c.state, b[used]
		if !c.step(ch) {
			return dst, used, data, false, false
		}
		used++
		switch before {
		case inSize:
			if ch == ';' {
				continue
			}
		case inExtension, atTrailer:
			if ch != '\r' {
				continue
			}
		case inName, inValue, endOfTrailer:
			continue
		}
		dst = append(dst, ch)
	}
	return dst, used, data, c.state == done, true
}

// Data reads from b like Next and appends its data alone to dst.
func (c *Chunks) Data(dst, b []byte) (out []byte, used, data int, complete, ok bool) {
	for used < len(b) && !complete {
		piece, n, end, sound := c.Next(b[used:])
		if !sound {
			return dst, used, data, false, false
		}
		dst = append(dst, piece...)
		used, data, complete = used+n, data+len(piece), end
	}
	return dst, used, data, complete, true
}

// take uses up to n bytes of data.
func (c *Chunks) take(n int) int {
	k := int(min(uint64(n), c.left))
	if c.left -= uint64(k); c.left == 0 {
		c.state = afterData
	}
	return k
}

// step reads one byte that is not data, and reports whether it may stand there.
func (c *Chunks) step(ch byte) bool {
	switch c.state {
	case inSize:
		if v := hexValue[ch]; v < 16 {
			c.digits++
			c.left = c.left<<4 | uint64(v)
			return c.digits < 16 // more is beyond what any body can be
		}
		switch {
		case c.digits == 0:
			return false
		case ch == '\r':
			c.state = afterSize
		case ch == ';':
			c.state, c.extra, c.extras = inExtension, 0, true
		default:
			return false
		}
	case inExtension:
		if ch == '\r' {
			c.state = afterSize
			return true
		}
		c.extra++
		return text[ch] && c.extra <= maxExtension
	case afterSize:
		c.digits, c.extra, c.state = 0, 0, inData
		if c.left == 0 {
			c.state = atTrailer
		}
		return ch == '\n'
	case afterData:
		c.state = endOfData
		return ch == '\r'
	case endOfData:
		c.state = inSize
		return ch == '\n'
	case endOfBody:
		c.state = done
		return ch == '\n'
	default:
		return c.trailer(ch)
	}
	return true
}

// trailer checks one byte of the trailer section by the rules of header fields.
func (c *Chunks) trailer(ch byte) bool {
	if c.extra++; c.extra > maxTrailer {
		return false
	}
	switch c.state {
	case atTrailer:
		if ch == '\r' {
			c.state = endOfBody
			return true
		}
		c.state, c.extras = inName, true
		return token[ch]
	case inName:
		if ch == ':' {
			c.state = inValue
			return true
		}
		return token[ch]
	case inValue:
		if ch == '\r' {
			c.state = endOfTrailer
			return true
		}
		return text[ch]
	default: // endOfTrailer
		c.state = atTrailer
		return ch == '\n'
	}
}

var hexValue [256]uint8

func init() {
	for c := range hexValue {
		switch {
		case c >= '0' && c <= '9':
			hexValue[c] = uint8(c - '0')
		case c >= 'a' && c <= 'f':
			hexValue[c] = uint8(c - 'a' + 10)
		case c >= 'A' && c <= 'F':
			hexValue[c] = uint8(c - 'A' + 10)
		default:
			hexValue[c] = 16
		}
	}
}

// AppendChunk appends data as one chunk.
func AppendChunk(dst, data []byte) []byte {
	dst = AppendChunkSize(dst, len(data))
	dst = append(dst, data...)
	return append(dst, "\r\n"...)
}

// AppendChunkSize appends the line that begins a chunk of n bytes.
func AppendChunkSize(dst []byte, n int) []byte {
	const digits = "0123456789abcdef"
	shift := 60
	for shift > 0 && n>>shift == 0 {
		shift -= 4
	}
	for ; shift >= 0; shift -= 4 {
		dst = append(dst, digits[n>>shift&15])
	}
	return append(dst, "\r\n"...)
}

// LastChunk ends a chunked body without trailer fields.
const LastChunk = "0\r\n\r\n"
