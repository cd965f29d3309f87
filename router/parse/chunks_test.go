package parse

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// chunked is a body, and what is known of it.
var chunkedBodies = []struct {
	name, body string
	data       string // what it carries
	plain      string // the body as Strip makes it; "" for the same
}{
	{name: "empty", body: "0⏎⏎"},
	{name: "one chunk", body: "5⏎hello⏎0⏎⏎", data: "hello"},
	{name: "chunks", body: "5⏎hello⏎1⏎ ⏎00A⏎0123456789⏎000⏎⏎", data: "hello 0123456789"},
	{name: "hexadecimal in both cases", body: "a⏎0123456789⏎A⏎0123456789⏎0⏎⏎", data: "01234567890123456789"},
	{name: "line ends as data", body: "4⏎⏎⏎⏎0⏎⏎", data: "\r\n\r\n"},
	{name: "chunk lines as data", body: "5⏎0⏎⏎⏎0⏎⏎", data: "0\r\n\r\n"},
	{name: "extensions", body: "5;a⏎hello⏎1;b=\"c;d\" ; e⏎!⏎0;f⏎⏎", data: "hello!", plain: "5⏎hello⏎1⏎!⏎0⏎⏎"},
	{name: "empty extension", body: "1;⏎!⏎0⏎⏎", data: "!", plain: "1⏎!⏎0⏎⏎"},
	{name: "trailer fields", body: "1⏎!⏎0⏎A: 1⏎b:⏎X-Sandbox-ID: evil⏎⏎", data: "!", plain: "1⏎!⏎0⏎⏎"},
	{name: "extensions and trailer fields", body: "1;x⏎!⏎0⏎A: \t é⏎⏎", data: "!", plain: "1⏎!⏎0⏎⏎"},
}

// TestChunksSplitAnywhere reads every body in two pieces cut at every offset, and in single bytes.
func TestChunksSplitAnywhere(t *testing.T) {
	for _, row := range chunkedBodies {
		t.Run(row.name, func(t *testing.T) {
			body, rest := notation.Replace(row.body), "GET / HTTP/1.1"
			want := body
			if row.plain != "" {
				want = notation.Replace(row.plain)
			}
			split := func(pieces ...string) {
				t.Helper()
				var next, strip, data Chunks
				var carried, stripped, decoded []byte
				used, complete := 0, false
				for i, piece := range pieces {
					n, end, ok := readAll(&next, piece, &carried)
					used += n
					assert.True(t, ok, pieces)
					assert.Equal(t, i == len(pieces)-1, end, pieces)
					complete = end

					var count int
					stripped, count, _, end, ok = strip.Strip(stripped, []byte(piece))
					assert.True(t, ok)
					assert.Equal(t, n, count)
					assert.Equal(t, complete, end)

					decoded, count, _, end, ok = data.Data(decoded, []byte(piece))
					assert.True(t, ok)
					assert.Equal(t, n, count)
					assert.Equal(t, complete, end)
				}
				assert.Equal(t, len(body), used, "the next message begins where the body ends")
				assert.Equal(t, row.data, string(carried))
				assert.Equal(t, row.data, string(decoded))
				assert.Equal(t, want, string(stripped))
				assert.Equal(t, row.plain == "", next.Plain())
				assert.Equal(t, next, strip)
				assert.Equal(t, next, data)
			}
			for i := range body {
				split(body[:i], body[i:]+rest)
			}
			var bytes []string
			for i := range len(body) {
				bytes = append(bytes, body[i:i+1])
			}
			split(bytes...)
		})
	}
}

// readAll gives piece to c and appends its data to data.
func readAll(c *Chunks, piece string, data *[]byte) (used int, complete, ok bool) {
	for used < len(piece) && !complete {
		d, n, end, sound := c.Next([]byte(piece[used:]))
		if !sound {
			return used, false, false
		}
		*data = append(*data, d...)
		used, complete = used+n, end
	}
	return used, complete, true
}

func TestStripCountsData(t *testing.T) {
	var c Chunks
	_, used, data, complete, ok := c.Strip(nil, []byte("5;x\r\nhello\r\n1\r\n!\r\n0\r\n\r\nrest"))
	assert.Equal(t, 23, used)
	assert.Equal(t, 6, data)
	assert.True(t, complete)
	assert.True(t, ok)
}

// TestMalformedChunks tries every body whole and in single bytes.
func TestMalformedChunks(t *testing.T) {
	for name, body := range map[string]string{
		"no size":                         "⏎",
		"no size before an extension":     ";a⏎",
		"prefix":                          "0x2⏎hi⏎",
		"sign":                            "+2⏎hi⏎",
		"negative":                        "-2⏎hi⏎",
		"letter":                          "g⏎",
		"blank before the size":           " 2⏎hi⏎",
		"blank after the size":            "2 ⏎hi⏎",
		"blank before an extension":       "2 ;a⏎hi⏎",
		"tab after the size":              "2\t⏎hi⏎",
		"comma":                           "2,2⏎hi⏎",
		"LF alone after the size":         "2␊hi␊0␊␊",
		"CR alone after the size":         "2␍hi⏎",
		"LF in an extension":              "2;␊xx⏎",
		"CR in an extension":              "2;a␍b⏎hi⏎",
		"NUL in an extension":             "2;␀⏎hi⏎",
		"16 digits":                       "0000000000000002⏎hi⏎",
		"17 digits":                       "10000000000000002⏎hi⏎",
		"no line end after the data":      "2⏎hi0⏎⏎",
		"LF alone after the data":         "2⏎hi␊0⏎⏎",
		"more data than the size":         "2⏎hi!⏎0⏎⏎",
		"NUL in a trailer field":          "0⏎A: ␀⏎⏎",
		"bare CR in a trailer field":      "0⏎A: a␍X-Evil: 1⏎⏎",
		"bare LF in a trailer field":      "0⏎A: a␊X-Evil: 1⏎⏎",
		"LF alone ends the trailer":       "0⏎␊",
		"CR alone ends the trailer":       "0⏎␍A: 1⏎⏎",
		"folded trailer line":             "0⏎A: a⏎ b⏎⏎",
		"trailer line without colon":      "0⏎A⏎⏎",
		"trailer line without name":       "0⏎: a⏎⏎",
		"blank before a trailer's colon":  "0⏎A : a⏎⏎",
		"extension over the limit":        "2;" + strings.Repeat("x", maxExtension+1) + "⏎hi⏎0⏎⏎",
		"trailer over the limit":          "0⏎A: " + strings.Repeat("x", maxTrailer) + "⏎⏎",
		"many trailers are over the same": "0⏎" + strings.Repeat("A: 1⏎", maxTrailer/6+1) + "⏎",
	} {
		raw := notation.Replace(body)
		var next, strip, data, single Chunks
		var out []byte
		_, _, ok := readAll(&next, raw, &out)
		assert.False(t, ok, name)
		_, _, _, _, ok = strip.Strip(nil, []byte(raw))
		assert.False(t, ok, name)
		_, _, _, _, ok = data.Data(nil, []byte(raw))
		assert.False(t, ok, name)
		ok = true
		for i := 0; ok && i < len(raw); i++ {
			_, _, ok = readAll(&single, raw[i:i+1], &out)
		}
		assert.False(t, ok, name)
	}
}

func TestChunksLimits(t *testing.T) {
	var out []byte
	var c Chunks
	_, complete, ok := readAll(&c, "2;"+strings.Repeat("x", maxExtension)+"\r\nhi\r\n0\r\n\r\n", &out)
	assert.True(t, ok && complete)
	c = Chunks{}
	_, _, ok = readAll(&c, "fffffffffffffff\r\n", &out)
	assert.True(t, ok, "a size of 15 digits")
}

func TestAppendChunk(t *testing.T) {
	for _, n := range []int{1, 9, 10, 15, 16, 255, 256, 4095, 1 << 20} {
		data := strings.Repeat("x", n)
		assert.Equal(t, "b"+strconv.FormatInt(int64(n), 16)+"\r\n"+data+"\r\n", string(AppendChunk([]byte("b"), []byte(data))))
	}
	assert.Equal(t, "0\r\n", string(AppendChunkSize(nil, 0)))
}
