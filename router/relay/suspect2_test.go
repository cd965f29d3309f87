package relay_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestUploadCutAtOnce(t *testing.T) {
	r := start(t)
	seen := make(chan struct{}, 100)
	s := r.serve(t, func(c net.Conn, in *bufio.Reader) {
		readHead(in)
		io.Copy(io.Discard, in)
		seen <- struct{}{}
	})
	for i := 0; i < 30; i++ {
		c := r.dial(t)
		c.send(t, "POST / HTTP/1.1", s.port, "Content-Length: 100\r\n\r\nhalf")
		c.Close()
		select {
		case <-seen:
		case <-time.After(5 * time.Second):
			t.Fatalf("try %d: the sandbox does not learn that the client left", i)
		}
	}
}

func TestTruncatedAtOnce(t *testing.T) {
	r := start(t)
	s := r.serve(t, func(c net.Conn, in *bufio.Reader) {
		readHead(in)
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello")
	})
	for i := 0; i < 30; i++ {
		c := r.dial(t)
		c.send(t, "GET / HTTP/1.1", s.port, "\r\n")
		c.SetDeadline(time.Now().Add(3 * time.Second))
		resp, err := http.ReadResponse(c.in, nil)
		require.NoError(t, err)
		_, err = io.ReadAll(resp.Body)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, "try %d", i)
	}
}

func TestEarlyAnswerLeak(t *testing.T) {
	r := start(t)
	gone, answer := make(chan struct{}), make(chan struct{})
	s := r.serve(t, func(c net.Conn, in *bufio.Reader) {
		readHead(in)
		<-answer
		io.WriteString(c, "HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
		<-gone // keeps the connection, reads nothing
	})
	defer close(gone)
	c := r.dial(t)
	c.send(t, "POST / HTTP/1.1", s.port, "Content-Length: 1073741824\r\n\r\n")
	var sent atomic.Int64
	go func() {
		b := make([]byte, 64<<10)
		for {
			n, err := c.Write(b)
			sent.Add(int64(n))
			if err != nil {
				return
			}
		}
	}()
	last := int64(-1)
	require.Eventually(t, func() bool { n := sent.Load(); ok := n == last && n > 0; last = n; return ok }, patience, 200*time.Millisecond)
	close(answer)
	resp, err := http.ReadResponse(c.in, nil)
	require.NoError(t, err)
	b, _ := io.ReadAll(resp.Body)
	assert.Equal(t, "no", string(b))
	c.Close()
	done := make(chan struct{})
	go func() { r.Wait(t.Context()); close(done) }()
	select {
	case <-done:
	case <-time.After(15 * time.Second):
		t.Fatal("client connection leaks")
	}
}

func TestLeavingDoesNotHurtOthers(t *testing.T) {
	r := start(t)
	s := r.serve(t, func(c net.Conn, in *bufio.Reader) {
		for {
			h, err := readHead(in)
			if err != nil {
				return
			}
			tok := h[strings.Index(h, "X-Tok: ")+7:]
			tok = tok[:strings.Index(tok, "\r")]
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(tok), tok)
		}
	})
	stop := time.Now().Add(5 * time.Second)
	var wg sync.WaitGroup
	for i := 0; i < 8; i++ {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for time.Now().Before(stop) {
				c, err := net.Dial("tcp", r.addr)
				if err != nil {
					return
				}
				io.WriteString(c, head("POST / HTTP/1.1", s.port)+"X-Tok: leaver\r\n\r\n")
				in := bufio.NewReader(c)
				readHead(in)
				c.(*net.TCPConn).SetLinger(0)
				c.Close()
			}
		}()
	}
	var n, bad atomic.Int64
	for i := 0; i < 4; i++ {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for time.Now().Before(stop) {
				c, err := net.Dial("tcp", r.addr)
				if err != nil {
					return
				}
				in := bufio.NewReader(c)
				for k := 0; k < 50; k++ {
					tok := fmt.Sprintf("t%d-%d", i, n.Add(1))
					io.WriteString(c, head("POST / HTTP/1.1", s.port)+"X-Tok: "+tok+"\r\n\r\n")
					c.SetDeadline(time.Now().Add(5 * time.Second))
					resp, err := http.ReadResponse(in, nil)
					if err != nil {
						bad.Add(1)
						t.Log(err)
						break
					}
					b, _ := io.ReadAll(resp.Body)
					if string(b) != tok {
						bad.Add(1)
						t.Log(resp.Status, string(b))
						break
					}
				}
				c.Close()
			}
		}()
	}
	wg.Wait()
	t.Log(n.Load())
	assert.Zero(t, bad.Load())
}
