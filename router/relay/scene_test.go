package relay

import (
	"bytes"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// scene is a dialogue over loopback, byte for byte, played without an allocation of its own. A message ends with its last few
// bytes, which stand nowhere else in it.
type scene struct {
	name        string
	begin       string // a handshake before the first round, and
	beginReply  string // its answer
	request     string // what the caller sends in each round
	requestEnd  string // of what the sandbox gets
	response    string // what the sandbox answers
	responseEnd string // of what the caller gets
	bytes       int64  // that are moved in each round
	pieces      int    // the response is sent in so many writes; 0: one
}

const (
	blankLine = "\r\n\r\n"
	portPlace = "{port}" // in begin and request: where the sandbox's port goes
)

// scenes are the shapes of traffic that must cost nothing.
func scenes() []scene {
	const port = portPlace
	id63 := "X-Request-ID: " + strings.Repeat("r", 63) + "\r\n"
	get := head("GET /"+strings.Repeat("p", 63)+" HTTP/1.1", port) + id63
	post := head("POST /execute HTTP/1.1", port) + id63
	small := strings.Repeat("b", 1020) + "END!"
	large := strings.Repeat("b", 1<<20-4) + "END!"
	length := func(body string) string { return "Content-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body }
	const ok = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
	chunked := "Transfer-Encoding: chunked\r\n\r\n" + strings.Repeat("100\r\n"+strings.Repeat("c", 256)+"\r\n", 4) + "0\r\n\r\n"
	event := "14\r\ndata: 0123456789ab\n\n\r\n"
	frame := "\x82\xfe\x04\x00\x00\x00\x00\x00" + small
	return []scene{
		{name: "GET", request: get + "\r\n", requestEnd: blankLine, response: ok + length(small), responseEnd: "END!", bytes: 1024},
		{name: "POST", request: post + length(small), requestEnd: "END!", response: ok + length(small), responseEnd: "END!", bytes: 2048},
		{name: "chunked", request: post + chunked, requestEnd: "0\r\n\r\n", response: ok + chunked, responseEnd: "0\r\n\r\n", bytes: 2048},
		{name: "upload 1 MiB", request: post + length(large), requestEnd: "END!", response: ok + length(small), responseEnd: "END!", bytes: 1 << 20},
		{name: "download 1 MiB", request: get + "\r\n", requestEnd: blankLine, response: ok + length(large), responseEnd: "END!", bytes: 1 << 20},
		{
			name: "SSE", request: get + "\r\n", requestEnd: blankLine, pieces: 10, responseEnd: "0\r\n\r\n", bytes: 10 * int64(len(event)),
			response: "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n" + strings.Repeat(event, 10) + "0\r\n\r\n",
		},
		{
			name:       "WebSocket",
			begin:      get + "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n",
			beginReply: "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n",
			request:    frame, requestEnd: "END!", response: "\x82\x7e\x04\x00" + small, responseEnd: "END!", bytes: 2048,
		},
	}
}

// until reads in until the bytes end with end.
func until(in io.Reader, buf, end []byte) error {
	kept := 0 // of the message before, in front
	for {
		n, err := in.Read(buf[kept:])
		if err != nil {
			return err
		}
		all := buf[:kept+n]
		if bytes.HasSuffix(all, end) {
			return nil
		}
		kept = copy(buf, all[max(0, len(all)-len(end)+1):])
	}
}

// sandbox plays the sandbox's end from now on, and returns its port.
func (s *scene) sandbox(t testing.TB) (port string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go s.play(c)
		}
	}()
	_, port, _ = net.SplitHostPort(l.Addr().String())
	s.begin = strings.ReplaceAll(s.begin, portPlace, port)
	s.request = strings.ReplaceAll(s.request, portPlace, port)
	return port
}

func (s *scene) play(c net.Conn) {
	defer c.Close()
	buf, end, response := make([]byte, 256<<10), []byte(s.requestEnd), []byte(s.response)
	if s.begin != "" {
		if until(c, buf, []byte(blankLine)) != nil {
			return
		}
		io.WriteString(c, s.beginReply)
	}
	pieces := max(1, s.pieces)
	for until(c, buf, end) == nil {
		size := (len(response) + pieces - 1) / pieces
		for at := 0; at < len(response); at += size {
			if _, err := c.Write(response[at:min(at+size, len(response))]); err != nil {
				return
			}
		}
	}
}

// player is the caller's end of a scene.
type player struct {
	c            net.Conn
	buf          []byte
	request, end []byte
}

func (s *scene) player(t testing.TB, addr string) *player {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	p := &player{c: c, buf: make([]byte, 256<<10), request: []byte(s.request), end: []byte(s.responseEnd)}
	if s.begin != "" {
		_, err := io.WriteString(c, s.begin)
		require.NoError(t, err)
		require.NoError(t, until(c, p.buf, []byte(blankLine)))
	}
	return p
}

// round plays one round.
func (p *player) round() error {
	if _, err := p.c.Write(p.request); err != nil {
		return err
	}
	return until(p.c, p.buf, p.end)
}
