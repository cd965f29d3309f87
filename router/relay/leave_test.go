package relay

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dovakiin0/agent-sandbox/router/record"
)

// hook is a writer of the access log, which is written when an exchange is over and before its client is ready for the next.
type hook func()

func (h hook) Write(b []byte) (int, error) {
	h()
	return len(b), nil
}

// TestLeavingEndsOnlyTheOwnExchange stops the end of an exchange at the moment when its connection is in the pool again and the
// client does not know yet that it is over. A client that leaves then must not end what others do on that connection.
func TestLeavingEndsOnlyTheOwnExchange(t *testing.T) {
	var r *router
	var leaver *client
	stopped := make(chan struct{})
	first := true
	access, err := record.NewAccessLog(hook(func() {
		if first { // on the goroutine of the sandbox's connection
			first = false
			r.dog.each(func(d watched) {
				if c, ok := d.(*client); ok {
					leaver = c
				}
			})
			leaver.mu.Lock()
			close(stopped)
		}
	}), "all")
	require.NoError(t, err)
	r = start(t, func(s *setup) { s.access = access })
	arrived, answer := make(chan struct{}, 2), make(chan struct{})
	s := r.serve(t, func(c net.Conn, in *bufio.Reader) {
		for n := 0; ; n++ {
			if _, err := readHead(in); err != nil {
				return
			}
			if n > 0 {
				arrived <- struct{}{}
				<-answer
			}
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		}
	})
	a := r.dial(t)
	a.send(t, "GET / HTTP/1.1", s.port, "\r\n")
	<-stopped
	b := r.dial(t)
	u := <-r.opened
	eventually(t, func() bool { return u.client.Load() != leaver }, "the connection is in the pool")
	b.send(t, "POST / HTTP/1.1", s.port, "\r\n")
	<-arrived // on the same connection, or on one of its own
	leaver.abandon(record.ClientGone)
	leaver.mu.Unlock()
	close(answer)

	p, err := http.ReadResponse(b.in, nil)
	require.NoError(t, err)
	body, err := io.ReadAll(p.Body)
	require.NoError(t, err)
	assert.Equal(t, "ok", string(body))
}

// TestLeavingIsNoticed: the last bytes of a client and its end may come with one readiness edge.
func TestLeavingIsNoticed(t *testing.T) {
	r := start(t)
	seen := make(chan struct{}, 1)
	s := r.serve(t, func(_ net.Conn, in *bufio.Reader) {
		readHead(in)
		io.Copy(io.Discard, in)
		seen <- struct{}{}
	})
	for name, lines := range map[string]string{
		"waiting":             "\r\n",
		"with pipelined byte": "\r\nG",
		"uploading":           "Content-Length: 100\r\n\r\nhalf",
		"uploading chunks":    "Transfer-Encoding: chunked\r\n\r\n5\r\nhe",
	} {
		t.Run(name, func(t *testing.T) {
			for range 3 {
				c := r.dial(t)
				c.send(t, "POST / HTTP/1.1", s.port, lines)
				c.Close()
				select {
				case <-seen:
				case <-time.After(5 * time.Second):
					require.Fail(t, "the sandbox does not learn that the client left")
				}
			}
		})
	}
	eventually(t, func() bool { n, _ := r.Busy(); return n == 0 }, "exchanges are left")
}

// TestHalfCloseIsNoLeaving: who shuts the sending side after the request still wants the answer.
func TestHalfCloseIsNoLeaving(t *testing.T) {
	r := start(t)
	s := r.serve(t, func(c net.Conn, in *bufio.Reader) {
		readHead(in)
		time.Sleep(200 * time.Millisecond)
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	})
	c := r.dial(t)
	c.send(t, "GET / HTTP/1.1", s.port, "\r\n")
	require.NoError(t, c.CloseWrite())
	got, err := io.ReadAll(c.in)
	require.NoError(t, err)
	assert.Contains(t, string(got), "\r\n\r\nok")
}
