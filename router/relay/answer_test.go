package relay

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// get sends a GET of the given version to the sandbox at port and reads the whole answer.
func (r *router) get(t *testing.T, version, port string) (string, error) {
	t.Helper()
	c := r.dial(t)
	defer c.Close()
	c.send(t, "GET / "+version, port, "\r\n")
	p, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(p.Body)
	return string(body), err
}

// TestChunksInPieces has a sandbox send its answer in pieces that cut chunks apart, and waits for each to arrive before the next.
func TestChunksInPieces(t *testing.T) {
	for name, pieces := range map[string][]string{
		"inside a chunk":          {"5\r\nhe", "llo\r\n0\r\n\r\n"},
		"before an extension":     {"", "5\r\nhe", "llo\r\n1;a=b\r\n!\r\n0\r\n\r\n"},
		"before a trailer":        {"", "5\r\nhe", "llo\r\n0\r\nX-T: 1\r\n\r\n"},
		"inside a size":           {"1", "0\r\n0123456789abcdef\r\n0\r\n\r\n"},
		"inside an extension":     {"5;a", "b\r\nhello\r\n0\r\n\r\n"},
		"inside a trailer":        {"5\r\nhello\r\n0\r\nX-", "T: 1\r\n\r\n"},
		"before the last line":    {"5\r\nhello\r\n0\r\n", "\r\n"},
		"inside the last line":    {"5\r\nhello\r\n0\r\n\r", "\n"},
		"between chunk and end":   {"5\r\nhello", "\r\n", "0\r\n\r\n"},
		"one large after a small": {"1\r\nx\r\n", "20000\r\n" + strings.Repeat("y", 0x20000) + "\r\n", "0\r\n\r\n"},
	} {
		for _, version := range []string{"HTTP/1.1", "HTTP/1.0"} {
			t.Run(name+" "+version, func(t *testing.T) {
				r := start(t)
				s := r.serve(t, func(c net.Conn, in *bufio.Reader) {
					readHead(in)
					pieces := append([]string{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + pieces[0]}, pieces[1:]...)
					for _, piece := range pieces {
						io.WriteString(c, piece)
						time.Sleep(10 * time.Millisecond) // so that the router reads it alone; the test holds without it too
					}
					in.ReadByte()
				})
				body, err := r.get(t, version, s.port)
				require.NoError(t, err)
				assert.Equal(t, dechunk(t, strings.Join(pieces, "")), body)
			})
		}
	}
}

// dechunk reads a chunked body with net/http.
func dechunk(t *testing.T, raw string) string {
	t.Helper()
	p, err := http.ReadResponse(bufio.NewReader(strings.NewReader("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"+raw)), nil)
	require.NoError(t, err)
	body, err := io.ReadAll(p.Body)
	require.NoError(t, err)
	return string(body)
}

// TestAnswerAndEndAtOnce: a server that answers and closes tells of both with one readiness edge.
func TestAnswerAndEndAtOnce(t *testing.T) {
	r := start(t)
	for _, row := range []struct {
		name, answer string
		whole        bool
	}{
		{"until close", "HTTP/1.1 200 OK\r\n\r\nhello", true},
		{"old server", "HTTP/1.0 200 OK\r\n\r\nhello", true},
		{"whole", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", true},
		{"truncated", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello", false},
		{"truncated chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := r.serve(t, func(c net.Conn, in *bufio.Reader) {
				readHead(in)
				io.WriteString(c, row.answer)
			})
			for range 20 {
				body, err := r.get(t, "HTTP/1.1", s.port)
				assert.Equal(t, row.whole, err == nil, err)
				assert.NotErrorIs(t, err, os.ErrDeadlineExceeded)
				assert.Equal(t, "hello", body)
			}
		})
	}
}

// TestCutAnswerLooksCut: without chunks and a length, only a reset tells an old client that a part is missing.
func TestCutAnswerLooksCut(t *testing.T) {
	r := start(t)
	s := r.serve(t, func(c net.Conn, in *bufio.Reader) {
		readHead(in)
		io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
	})
	for range 20 {
		for _, version := range []string{"HTTP/1.0", "HTTP/1.1"} {
			_, err := r.get(t, version, s.port)
			assert.Error(t, err, version)
			assert.NotErrorIs(t, err, os.ErrDeadlineExceeded)
		}
	}
}

// TestLateAnswerToOldClientLooksCut is the same for an answer that the router itself gives up.
func TestLateAnswerToOldClientLooksCut(t *testing.T) {
	r := start(t, func(s *setup) { s.Total = 300 * time.Millisecond })
	s := r.serve(t, func(c net.Conn, in *bufio.Reader) {
		readHead(in)
		io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
		in.ReadByte()
	})
	_, err := r.get(t, "HTTP/1.0", s.port)
	assert.Error(t, err)
	assert.NotErrorIs(t, err, os.ErrDeadlineExceeded)
}

// TestEarlyAnswer: the sandbox answers, reads nothing of the upload and keeps the connection. The client gets the answer, and
// nothing is left behind when it goes.
func TestEarlyAnswer(t *testing.T) {
	r := start(t)
	over, answer := make(chan struct{}), make(chan struct{})
	s := r.serve(t, func(c net.Conn, in *bufio.Reader) {
		readHead(in)
		<-answer
		io.WriteString(c, "HTTP/1.1 413 Content Too Large\r\nContent-Length: 2\r\n\r\nno")
		<-over
	})
	t.Cleanup(func() { close(over) })
	c := r.dial(t)
	c.send(t, "POST / HTTP/1.1", s.port, "Content-Length: 1073741824\r\n\r\n")
	blocked := make(chan struct{})
	go func() {
		piece := make([]byte, 1<<20)
		for {
			c.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
			if _, err := c.Write(piece); err != nil {
				close(blocked)
				return
			}
		}
	}()
	<-blocked
	close(answer)
	p, err := http.ReadResponse(c.in, nil)
	require.NoError(t, err)
	body, err := io.ReadAll(p.Body)
	require.NoError(t, err)
	assert.Equal(t, "no", string(body))
	c.Close()
	eventually(t, func() bool { return r.connections() == 0 }, "connections are left")
}

// TestUnsentUploadKeepsItsConnection: an early answer may come while the last bytes of the upload are still to be written. Until
// they are, the connection must not carry another request: they would become part of it, or hold it up.
func TestUnsentUploadKeepsItsConnection(t *testing.T) {
	r := start(t)
	begun, answer := make(chan struct{}), make(chan struct{})
	s := r.serve(t, func(c net.Conn, in *bufio.Reader) {
		head, _ := readHead(in)
		if strings.HasPrefix(head, "POST") {
			io.ReadFull(in, make([]byte, 2))
			close(begun)
			<-answer
		}
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		in.ReadByte()
	})
	a := r.dial(t)
	a.send(t, "POST / HTTP/1.1", s.port, "Content-Length: 5\r\n\r\nhe")
	<-begun
	u := <-r.opened
	u.w.Lock() // now the last bytes cannot be written
	defer u.w.Unlock()
	_, err := io.WriteString(a, "llo")
	require.NoError(t, err)
	for until := time.Now().Add(300 * time.Millisecond); u.client.Load().now() != waiting && time.Now().Before(until); {
		time.Sleep(time.Millisecond) // the router may or may not come to this
	}
	close(answer)
	_, err = readHead(a.in)
	require.NoError(t, err)
	body, err := r.get(t, "HTTP/1.1", s.port)
	require.NoError(t, err)
	assert.Equal(t, "ok", body)
}
