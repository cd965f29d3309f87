package relay

import (
	"bufio"
	"bytes"
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// pattern is an endless body that repeats a token, so that every byte tells whose it is.
type pattern struct {
	token string
	at    int
}

func (p *pattern) Read(b []byte) (int, error) {
	n := 0
	for n < len(b) && n < len(p.token) {
		b[n] = p.token[(p.at+n)%len(p.token)]
		n++
	}
	for n < len(b) {
		n += copy(b[n:], b[:n-n%len(p.token)])
	}
	p.at += n
	return n, nil
}

// check fails when b is not how the pattern goes on.
func (p *pattern) check(b []byte) error {
	want := make([]byte, len(b))
	p.Read(want)
	if !bytes.Equal(want, b) {
		return fmt.Errorf("%s at %d: want %.40q, got %.40q", p.token, p.at-len(b), want, b)
	}
	return nil
}

// stress is a run of callers that behave badly against a sandbox that counts what must never happen.
type stress struct {
	t      *testing.T
	r      *router
	port   string
	next   atomic.Int64
	whole  atomic.Int64 // answers that came whole
	faults atomic.Int64
}

func (s *stress) fault(format string, args ...any) {
	if s.faults.Add(1) <= 10 {
		s.t.Errorf(format, args...)
	}
}

// sandbox answers each request with its token. Whatever it can't read was mixed up by the router, unless it just ends.
func (s *stress) sandbox(c net.Conn, in *bufio.Reader) {
	for {
		q, err := http.ReadRequest(in)
		if err != nil {
			if !ended(err) {
				s.fault("the sandbox reads: %v", err)
			}
			return
		}
		token := q.Header.Get("X-Token")
		if q.Header.Get("Upgrade") != "" {
			sum := sha1.Sum([]byte(q.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
			fmt.Fprintf(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: %s\r\n\r\n",
				base64.StdEncoding.EncodeToString(sum[:]))
			io.Copy(c, in)
			return
		}
		early, _ := strconv.Atoi(q.Header.Get("X-Early"))
		size, _ := strconv.Atoi(q.Header.Get("X-Size"))
		body := &pattern{token: token}
		read := func(r io.Reader) bool {
			b, err := io.ReadAll(r)
			if wrong := body.check(b); wrong != nil {
				s.fault("the sandbox reads a body: %v", wrong)
			}
			if err != nil && !ended(err) {
				s.fault("the sandbox reads a body: %v", err)
			}
			return err == nil
		}
		if early > 0 && !read(io.LimitReader(q.Body, int64(early))) || early == 0 && !read(q.Body) {
			return
		}
		if err := answer(c, token, size); err != nil {
			return
		}
		if !read(q.Body) {
			return
		}
	}
}

// answer is chunked for odd sizes.
func answer(c net.Conn, token string, size int) error {
	out := bufio.NewWriter(c)
	fmt.Fprintf(out, "HTTP/1.1 200 OK\r\nX-Token: %s\r\n", token)
	body := &pattern{token: token}
	if size%2 == 0 {
		fmt.Fprintf(out, "Content-Length: %d\r\n\r\n", size)
		io.CopyN(out, body, int64(size))
		return out.Flush()
	}
	io.WriteString(out, "Transfer-Encoding: chunked\r\n\r\n")
	for left := size; left > 0; {
		n := 1 + rand.IntN(left)
		ext := ""
		if n%3 == 0 {
			ext = ";x=y"
		}
		fmt.Fprintf(out, "%x%s\r\n", n, ext)
		io.CopyN(out, body, int64(n))
		io.WriteString(out, "\r\n")
		left -= n
		if n%5 == 0 {
			out.Flush()
		}
	}
	trailer := ""
	if size%3 == 0 {
		trailer = "X-Token: trailer\r\n"
	}
	fmt.Fprintf(out, "0\r\n%s\r\n", trailer)
	return out.Flush()
}

// ended reports whether err is just the end of a connection.
func ended(err error) bool {
	var broken *net.OpError
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &broken) ||
		strings.HasSuffix(err.Error(), "unexpected EOF reading trailer")
}

// request is one request and what is known of it.
type request struct {
	token string
	raw   string
}

func (s *stress) request() request {
	token := fmt.Sprintf("t%d.", s.next.Add(1))
	lines := fmt.Sprintf("X-Token: %s\r\nX-Size: %d\r\n", token, sizes[rand.IntN(len(sizes))])
	if rand.IntN(2) == 0 {
		return request{token, head("GET / HTTP/1.1", s.port) + lines + "\r\n"}
	}
	size := sizes[rand.IntN(len(sizes))]
	if size > 1 && rand.IntN(2) == 0 {
		lines += fmt.Sprintf("X-Early: %d\r\n", 1+rand.IntN(size))
	}
	body, _ := io.ReadAll(io.LimitReader(&pattern{token: token}, int64(size)))
	if rand.IntN(2) == 0 {
		return request{token, head("POST / HTTP/1.1", s.port) + lines + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", size, body)}
	}
	var chunks strings.Builder
	for len(body) > 0 {
		n := 1 + rand.IntN(len(body))
		fmt.Fprintf(&chunks, "%x\r\n%s\r\n", n, body[:n])
		body = body[n:]
	}
	return request{token, head("PUT / HTTP/1.1", s.port) + lines + "Transfer-Encoding: chunked\r\n\r\n" + chunks.String() + "0\r\n\r\n"}
}

var sizes = []int{0, 1, 2, 10, 100, 1001, 8192, 8193, 20_000, 70_001, 150_000}

// exchange sends some requests at once and reads their answers.
func (s *stress) exchange(c net.Conn, in *bufio.Reader) bool {
	all := make([]request, 1+rand.IntN(3))
	var raw strings.Builder
	for i := range all {
		all[i] = s.request()
		raw.WriteString(all[i].raw)
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		s.send(c, raw.String())
	}()
	defer func() { <-sent }()
	for _, q := range all {
		if !s.read(c, in, q.token) {
			c.Close()
			return false
		}
	}
	return true
}

// send writes in pieces, and sometimes not to the end.
func (s *stress) send(c net.Conn, raw string) {
	stop := len(raw)
	if rand.IntN(8) == 0 {
		stop = rand.IntN(len(raw))
	}
	for at := 0; at < stop; {
		n := min(stop-at, 1+rand.IntN(len(raw)))
		if _, err := io.WriteString(c, raw[at:at+n]); err != nil {
			return
		}
		at += n
	}
	if stop < len(raw) {
		s.leave(c)
	}
}

// leave ends a connection in one of the ways that callers do.
func (s *stress) leave(c net.Conn) {
	switch rand.IntN(3) {
	case 0:
		c.(*net.TCPConn).SetLinger(0)
	case 1:
		c.(*net.TCPConn).CloseWrite()
	}
	c.Close()
}

// read reads one answer. false: the connection is over.
func (s *stress) read(c net.Conn, in *bufio.Reader, token string) bool {
	p, err := http.ReadResponse(in, nil)
	if err != nil {
		if !ended(err) {
			s.fault("the caller reads: %v", err)
		}
		return false
	}
	if p.StatusCode != 200 {
		body, _ := io.ReadAll(p.Body)
		if p.StatusCode < 500 && p.StatusCode != 429 {
			s.fault("%s: %s", p.Status, body)
		}
		return !p.Close
	}
	if got := p.Header.Get("X-Token"); got != token {
		s.fault("the answer to %s is that to %s", token, got)
		return false
	}
	body, piece := &pattern{token: token}, make([]byte, 4096)
	for {
		n, err := p.Body.Read(piece)
		if wrong := body.check(piece[:n]); wrong != nil {
			s.fault("the caller reads a body: %v", wrong)
			return false
		}
		if err == io.EOF {
			s.whole.Add(1)
			return !p.Close
		}
		if err != nil {
			if !ended(err) {
				s.fault("the caller reads a body of %s: %v", token, err)
			}
			return false
		}
		if rand.IntN(200) == 0 {
			s.leave(c)
			return false
		}
	}
}

// webSocket opens one and has bytes echoed.
func (s *stress) webSocket(c net.Conn, in *bufio.Reader) {
	token := fmt.Sprintf("w%d.", s.next.Add(1))
	io.WriteString(c, head("GET / HTTP/1.1", s.port)+"X-Token: "+token+"\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
	p, err := http.ReadResponse(in, nil)
	if err != nil || p.StatusCode != http.StatusSwitchingProtocols {
		return
	}
	body, out := &pattern{token: token}, &pattern{token: token}
	frame := make([]byte, 1+rand.IntN(60_000))
	for range 1 + rand.IntN(5) {
		out.Read(frame)
		if _, err := c.Write(frame); err != nil {
			return
		}
		echo := make([]byte, len(frame))
		n, err := io.ReadFull(in, echo)
		if wrong := body.check(echo[:n]); wrong != nil {
			s.fault("the caller reads a WebSocket: %v", wrong)
		}
		if err != nil {
			return
		}
	}
}

// TestStress has callers that pipeline, upload, leave at random bytes and open WebSockets, a sandbox that answers early, and
// endpoints that are replaced all the time. Nobody may ever read a byte of somebody else's, and nothing may be left behind.
func TestStress(t *testing.T) {
	for name, limit := range map[string]int{"without a cap": 0, "with a cap": 3} {
		t.Run(name, func(t *testing.T) {
			r := start(t, func(s *setup) { s.MaxConns = limit })
			s := &stress{t: t, r: r}
			s.port = r.serve(t, s.sandbox).port
			descriptors := openDescriptors(t)

			stop := make(chan struct{})
			var callers sync.WaitGroup
			for range 12 {
				callers.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
						}
						c, err := net.Dial("tcp", r.addr)
						if err != nil {
							continue
						}
						c.SetDeadline(time.Now().Add(patience))
						in := bufio.NewReader(c)
						if rand.IntN(6) == 0 {
							s.webSocket(c, in)
						} else {
							for range 10 {
								if !s.exchange(c, in) {
									break
								}
							}
						}
						s.leave(c)
					}
				})
			}
			callers.Go(func() {
				for pod := 0; ; pod++ {
					select {
					case <-stop:
						return
					case <-time.After(30 * time.Millisecond):
						r.publish("127.0.0.1", "pod-"+strconv.Itoa(pod))
					}
				}
			})
			time.Sleep(3 * time.Second)
			close(stop)
			callers.Wait()

			assert.Zero(t, s.faults.Load())
			assert.Positive(t, s.whole.Load())
			t.Logf("%d requests, %d whole answers", s.next.Load(), s.whole.Load())
			eventually(t, func() bool { n, w := r.Busy(); return n == 0 && w == 0 }, "exchanges are left")
			r.table.Remove("default", id)
			eventually(t, func() bool { return openDescriptors(t) <= descriptors }, "descriptors are left")
		})
	}
}

// openDescriptors counts the sockets of this process.
func openDescriptors(t *testing.T) int {
	t.Helper()
	if runtime.GOOS != "linux" {
		return 0
	}
	all, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	n := 0
	for _, d := range all {
		if target, err := os.Readlink("/proc/self/fd/" + d.Name()); err == nil && strings.HasPrefix(target, "socket:") {
			n++
		}
	}
	return n
}
