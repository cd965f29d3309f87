package wire

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseHead(t *testing.T) {
	for name, c := range map[string]struct {
		in   string
		want Head
	}{
		"length":    {"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\nbody", Head{Length: 12}},
		"none":      {"GET / HTTP/1.1\r\nHost: a\r\n\r\n", Head{Length: -1}},
		"no fields": {"HTTP/1.1 204 No Content\r\n\r\n", Head{Length: -1}},
		"chunked":   {"POST / HTTP/1.1\r\ntransfer-encoding: Chunked\r\n\r\n", Head{Length: -1, Chunked: true}},
		"close":     {"HTTP/1.1 200 OK\r\nconnection:close\r\ncontent-length:0\r\n\r\n", Head{Close: true}},
		"1.0":       {"HTTP/1.0 200 OK\r\n\r\n", Head{Length: -1, Close: true}},
		"handshake": {"GET /ws HTTP/1.1\r\nSec-WebSocket-Key: abc\r\n\r\n", Head{Length: -1, Key: []byte("abc")}},
	} {
		t.Run(name, func(t *testing.T) {
			head := c.in[:strings.Index(c.in, "\r\n\r\n")+4]
			c.want.Size = len(head)
			start, _, _ := strings.Cut(head, "\r\n")
			c.want.Start = []byte(start)
			for n := range len(head) {
				_, ok := ParseHead([]byte(head[:n]))
				require.False(t, ok, "%q", head[:n])
			}
			h, ok := ParseHead([]byte(c.in))
			require.True(t, ok)
			assert.Equal(t, c.want, h)
		})
	}
}

func TestHeadStart(t *testing.T) {
	h, _ := ParseHead([]byte("HTTP/1.1 503 Service Unavailable\r\n\r\n"))
	assert.Equal(t, 503, h.Status())
	h, _ = ParseHead([]byte("GET /fixed/64 HTTP/1.1\r\n\r\n"))
	assert.Equal(t, "/fixed/64", string(h.Target()))
	assert.Zero(t, h.Status())
}

func TestChunksInEverySplit(t *testing.T) {
	const body = "5\r\nhello\r\nA;x=y\r\n, 10 bytes\r\n0\r\nTrailer: a\r\n\r\n"
	for split := range len(body) {
		var c Chunks
		var got []byte
		for _, piece := range []string{body[:split], body[split:]} {
			for b := []byte(piece); len(b) > 0; {
				data, used, err := c.Next(b)
				require.NoError(t, err)
				require.NotZero(t, used)
				got = append(got, data...)
				b = b[used:]
			}
		}
		assert.True(t, c.Done())
		assert.Equal(t, "hello, 10 bytes", string(got))
	}
}

func TestChunksEnd(t *testing.T) {
	var c Chunks
	_, used, err := c.Next([]byte("0\r\n\r\nHTTP/1.1 200 OK"))
	require.NoError(t, err)
	assert.True(t, c.Done())
	assert.Equal(t, 5, used, "what follows is another message")
}

func TestChunksMalformed(t *testing.T) {
	for _, body := range []string{"x\r\n", "2\r\nabc\r\n", "fffffffffffff\r\n"} {
		var c Chunks
		var err error
		for b := []byte(body); len(b) > 0 && err == nil; {
			var used int
			_, used, err = c.Next(b)
			b = b[used:]
		}
		assert.ErrorIs(t, err, ErrChunk, "%q", body)
	}
}

func TestFrames(t *testing.T) {
	for _, size := range []int{0, 1, 125, 126, 65535, 65536} {
		for _, mask := range []*[4]byte{nil, {1, 2, 3, 4}} {
			t.Run(fmt.Sprintf("%d bytes, masked %v", size, mask != nil), func(t *testing.T) {
				payload := strings.Repeat("m", size)
				b := AppendFrame(nil, Binary, []byte(payload), mask)
				_, ok := ParseFrame(b[:len(b)-1])
				assert.False(t, ok)
				f, ok := ParseFrame(append(b, "more"...))
				require.True(t, ok)
				assert.Equal(t, len(b), f.Size)
				assert.Equal(t, mask != nil, f.Masked)
				assert.EqualValues(t, Binary, f.First)
				if mask != nil {
					MaskBytes(f.Payload, f.Mask)
				}
				assert.Equal(t, payload, string(f.Payload))
			})
		}
	}
}

func TestAccept(t *testing.T) {
	// The example of RFC 6455, section 1.3.
	assert.Equal(t, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", Accept([]byte("dGhlIHNhbXBsZSBub25jZQ==")))
}
