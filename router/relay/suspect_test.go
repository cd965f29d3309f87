package relay_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestChunkSplitAcrossReads(t *testing.T) {
	r := start(t)
	s := r.serve(t, func(c net.Conn, in *bufio.Reader) {
		readHead(in)
		io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhe")
		time.Sleep(50 * time.Millisecond)
		io.WriteString(c, "llo\r\n0\r\n\r\n")
		in.ReadByte()
	})
	c := r.dial(t)
	c.send(t, "GET / HTTP/1.1", s.port, "\r\n")
	resp, err := http.ReadResponse(c.in, nil)
	require.NoError(t, err)
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	assert.Equal(t, "hello", string(b))
}

func TestTrailerAfterSplitChunk(t *testing.T) {
	r := start(t)
	s := r.serve(t, func(c net.Conn, in *bufio.Reader) {
		readHead(in)
		io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
		time.Sleep(50 * time.Millisecond)
		io.WriteString(c, "5\r\nhe")
		time.Sleep(50 * time.Millisecond)
		io.WriteString(c, "llo\r\n0\r\nX: y\r\n\r\n")
		in.ReadByte()
	})
	c := r.dial(t)
	c.send(t, "GET / HTTP/1.1", s.port, "\r\n")
	resp, err := http.ReadResponse(c.in, nil)
	require.NoError(t, err)
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	assert.Equal(t, "hello", string(b))
}

func TestCloseDelimitedAtOnce(t *testing.T) {
	r := start(t)
	s := r.serve(t, func(c net.Conn, in *bufio.Reader) {
		readHead(in)
		io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\nhello")
	})
	for i := 0; i < 200; i++ {
		c := r.dial(t)
		c.send(t, "GET / HTTP/1.1", s.port, "\r\n")
		c.SetDeadline(time.Now().Add(3 * time.Second))
		resp, err := http.ReadResponse(c.in, nil)
		require.NoError(t, err)
		b, err := io.ReadAll(resp.Body)
		require.NoError(t, err, "try %d", i)
		assert.Equal(t, "hello", string(b))
		c.Close()
	}
}

func TestEarlyAnswerUnreadUpload(t *testing.T) {
	r := start(t)
	gone := make(chan struct{})
	s := r.serve(t, func(c net.Conn, in *bufio.Reader) {
		readHead(in)
		io.WriteString(c, "HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
		<-gone // keeps the connection, reads nothing
	})
	t.Cleanup(func() { close(gone) })
	c := r.dial(t)
	c.send(t, "POST / HTTP/1.1", s.port, "Content-Length: 104857600\r\n\r\n")
	go func() {
		b := make([]byte, 1<<20)
		for {
			if _, err := c.Write(b); err != nil {
				return
			}
		}
	}()
	resp, err := http.ReadResponse(c.in, nil)
	require.NoError(t, err)
	b, _ := io.ReadAll(resp.Body)
	assert.Equal(t, "no", string(b))
	time.Sleep(200 * time.Millisecond)
	c.Close()
	eventually(t, func() bool { n, _ := r.Busy(); return n == 0 }, "busy")
	done := make(chan struct{})
	go func() { r.Wait(t.Context()); close(done) }()
	select {
	case <-done:
	case <-time.After(15 * time.Second):
		t.Error("client connection leaks")
	}
}

func TestCutHTTP10(t *testing.T) {
	r := start(t)
	s := r.serve(t, func(c net.Conn, in *bufio.Reader) {
		readHead(in)
		io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
		time.Sleep(100 * time.Millisecond)
	})
	clean := 0
	for i := 0; i < 20; i++ {
		c := r.dial(t)
		c.send(t, "GET / HTTP/1.0", s.port, "\r\n")
		_, err := io.ReadAll(c.in)
		if err == nil {
			clean++
		}
	}
	assert.Zero(t, clean, "cut answers looked complete")
}
