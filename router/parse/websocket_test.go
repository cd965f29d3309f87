package parse

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestAcceptOf(t *testing.T) {
	var out [28]byte
	AcceptOf([]byte("dGhlIHNhbXBsZSBub25jZQ=="), &out) // the example of RFC 6455, section 1.3
	assert.Equal(t, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", string(out[:]))
	for _, key := range []string{"", "short", "dGhlIHNhbXBsZSBub25jZQ==x"} {
		out = [28]byte{}
		AcceptOf([]byte(key), &out)
		assert.Zero(t, out, key)
	}
}

// frame builds a frame of RFC 6455, section 5.2, with a payload of n bytes.
func frame(op byte, n int, masked bool) []byte {
	b := []byte{0x80 | op, 0}
	switch {
	case n < 126:
		b[1] = byte(n)
	case n < 1<<16:
		b[1] = 126
		b = binary.BigEndian.AppendUint16(b, uint16(n))
	default:
		b[1] = 127
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	if masked {
		b[1] |= 0x80
		b = append(b, 1, 2, 3, 4)
	}
	return append(b, bytes.Repeat([]byte{0xff}, n)...)
}

func TestFramesSplitAnywhere(t *testing.T) {
	for _, masked := range []bool{false, true} {
		var all []byte
		ends := map[int]bool{0: true}
		for _, n := range []int{0, 1, 125, 126, 127, 300, 65535, 65536, 0} {
			all = append(all, frame(2, n, masked)...)
			ends[len(all)] = true
		}
		// last is the last boundary in all[:to] behind from, relative to from.
		last := func(from, to int) int {
			for i := to; i > from; i-- {
				if ends[i] {
					return i - from
				}
			}
			return 0
		}
		for cut := 0; cut <= len(all); cut += 1 + len(all)/500 {
			var f Frames
			assert.True(t, f.Between())
			assert.Equal(t, last(0, cut), f.Follow(all[:cut]), cut)
			assert.Equal(t, ends[cut], f.Between(), cut)
			assert.Equal(t, last(cut, len(all)), f.Follow(all[cut:]), cut)
			assert.True(t, f.Between(), cut)
		}
		var f Frames
		for i := range all {
			if boundary := f.Follow(all[i : i+1]); boundary == 1 != ends[i+1] || f.Between() != ends[i+1] {
				t.Fatalf("byte %d: boundary %d, between %v", i, boundary, f.Between())
			}
		}
	}
}

func TestFramesTakeAnyLength(t *testing.T) {
	var f Frames
	f.Follow([]byte{0x82, 127, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}) // not allowed, and not the router's to judge
	assert.Zero(t, f.Follow(make([]byte, 1<<20)))
	assert.False(t, f.Between())
}

func TestAppendClose(t *testing.T) {
	assert.Equal(t, []byte{'b', 0x88, 2, 0x03, 0xe9}, AppendClose([]byte("b"), 1001, false))
	masked := AppendClose(nil, 1001, true)
	assert.Equal(t, []byte{0x88, 0x82, 0, 0, 0, 0, 0x03, 0xe9}, masked)
	var f Frames
	assert.Equal(t, len(masked), f.Follow(masked))
}
