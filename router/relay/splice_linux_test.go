package relay

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/dovakiin0/agent-sandbox/router/record"
)

// tooMuch is more than the kernel takes for a client that does not read.
const tooMuch = 32 << 20

// count counts the pipes that are open, and those that carry a body.
func (s *pipePool) count() (made, inUse int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.made, s.made - len(s.idle)
}

func (s *pipePool) inUse() int {
	_, n := s.count()
	return n
}

// again forgets what the system refused.
func (s *pipePool) again() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused, s.failed = false, time.Time{}
}

// openPipes counts the descriptors of pipes of this process.
func openPipes(t *testing.T) (n int) {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	for _, d := range all {
		if target, err := os.Readlink("/proc/self/fd/" + d.Name()); err == nil && strings.HasPrefix(target, "pipe:") {
			n++
		}
	}
	return n
}

// idlePipes checks at the end of a test that no pipe is in use, and that those that are open are in the pool.
func idlePipes(t *testing.T) {
	require.Zero(t, pipes.inUse())
	made, _ := pipes.count()
	others := openPipes(t) - 2*made
	t.Cleanup(func() {
		eventually(t, func() bool { return pipes.inUse() == 0 }, "pipes are in use")
		made, _ := pipes.count()
		// Fewer are no wonder: the garbage collector closes those that package net spliced with.
		assert.LessOrEqual(t, openPipes(t)-2*made, others, "pipes are left open")
	})
}

// large makes a sandbox that answers every request with size bytes of a pattern, of which it sends part, and then more.
func (r *router) large(t *testing.T, size, part int, more string) (s *sandbox, ended chan error) {
	ended = make(chan error, 64)
	return r.serve(t, func(c net.Conn, in *bufio.Reader) {
		for n := 0; ; n++ {
			if _, err := readHead(in); err != nil {
				ended <- err
				return
			}
			body := &pattern{token: fmt.Sprintf("answer %d.", n)}
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", size)
			if _, err := io.CopyBuffer(struct{ io.Writer }{c}, io.LimitReader(body, int64(part)), make([]byte, 300_000)); err != nil {
				ended <- err
				return
			}
			io.WriteString(c, more)
			if part < size {
				return
			}
		}
	}), ended
}

// answered reads the answer n of a large sandbox, up to its end.
func (c *caller) answered(t *testing.T, n int) (length int, err error) {
	t.Helper()
	p, err := http.ReadResponse(c.in, nil)
	require.NoError(t, err)
	body, b := &pattern{token: fmt.Sprintf("answer %d.", n)}, make([]byte, 100_000)
	for {
		got, err := p.Body.Read(b)
		require.NoError(t, body.check(b[:got]))
		if length += got; err == io.EOF {
			return length, nil
		} else if err != nil {
			return length, err
		}
	}
}

// stuck waits until the answer of the router's only connection to a sandbox is held up by its client.
func (r *router) stuck(t *testing.T) {
	t.Helper()
	u := <-r.opened
	eventually(t, func() bool { c := u.client.Load(); return c != nil && c.stuck.Load() }, "the client does not hold up its answer")
	require.Equal(t, 1, pipes.inUse(), "the answer is not spliced")
}

// TestSplicedBodies: bodies that are spliced come byte for byte, to a caller that makes the router wait too, and their connections
// serve the requests behind them.
func TestSplicedBodies(t *testing.T) {
	for _, size := range []int{spliceMin - 1, spliceMin + smallBlock, spliceMin + smallBlock + 1, 1_000_000, tooMuch} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			idlePipes(t)
			lines := make(chan string, 3)
			access, err := record.NewAccessLog(lineWriter(lines), "all")
			require.NoError(t, err)
			r := start(t, func(s *setup) { s.access = access })
			s, _ := r.large(t, size, size, "")
			c := r.dial(t)
			c.send(t, "GET / HTTP/1.1", s.port, "\r\n", head("GET / HTTP/1.1", s.port), "\r\n") // the second waits for its turn
			if size == tooMuch {
				r.stuck(t)
			}
			for n := range 3 {
				got, err := c.answered(t, n)
				require.NoError(t, err)
				require.Equal(t, size, got)
				require.Contains(t, <-lines, fmt.Sprintf(`"bytes_out":%d,`, size))
				if n == 1 {
					c.send(t, "GET / HTTP/1.1", s.port, "\r\n")
				}
			}
		})
	}
}

type lineWriter chan string

func (l lineWriter) Write(b []byte) (int, error) {
	l <- string(b)
	return len(b), nil
}

// TestSplicedBodyIsCut: a sandbox ends inside its answer.
func TestSplicedBodyIsCut(t *testing.T) {
	for _, version := range []string{"HTTP/1.1", "HTTP/1.0"} {
		t.Run(version, func(t *testing.T) {
			idlePipes(t)
			r := start(t)
			s, _ := r.large(t, tooMuch, tooMuch/2, "")
			c := r.dial(t)
			c.send(t, "GET / "+version, s.port, "\r\n")
			r.stuck(t)
			got, err := c.answered(t, 0)
			if version == "HTTP/1.1" {
				assert.Equal(t, tooMuch/2, got)
				assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
			} else {
				assert.ErrorIs(t, err, syscall.ECONNRESET, "without it the answer of an HTTP/1.0 server could look complete")
			}
		})
	}
}

// TestSpliceEnds: whoever ends an exchange whose client holds it up, the sandbox learns of it, and the pipe with the rest in it is
// nobody else's.
func TestSpliceEnds(t *testing.T) {
	for name, row := range map[string]struct {
		edit func(*setup)
		act  func(*router, *caller)
	}{
		"the client leaves":      {act: func(_ *router, c *caller) { c.Close() }},
		"the client breaks off":  {act: func(_ *router, c *caller) { c.SetLinger(0); c.Close() }},
		"the endpoint leaves":    {act: func(r *router, _ *caller) { r.table.Remove("default", id) }},
		"total timeout":          {edit: func(s *setup) { s.Total = 500 * time.Millisecond }},
		"the stream stands idle": {edit: func(s *setup) { s.StreamIdle = time.Second }},
	} {
		t.Run(name, func(t *testing.T) {
			idlePipes(t)
			r := start(t, func(s *setup) {
				if row.edit != nil {
					row.edit(s)
				}
			})
			s, ended := r.large(t, tooMuch, tooMuch, "")
			c := r.dial(t)
			c.send(t, "GET / HTTP/1.1", s.port, "\r\n")
			r.stuck(t)
			before, _ := pipes.count()
			if row.act != nil {
				row.act(r, c)
			}
			select {
			case err := <-ended:
				assert.Error(t, err)
			case <-time.After(patience):
				require.Fail(t, "the sandbox does not learn of it")
			}
			eventually(t, func() bool { return pipes.inUse() == 0 }, "the pipe is in use")
			after, _ := pipes.count()
			assert.Equal(t, before-1, after, "a pipe with bytes in it is kept")
		})
	}
}

// TestSilenceHoldsNoPipe: a pipe is kept only while bytes flow.
func TestSilenceHoldsNoPipe(t *testing.T) {
	idlePipes(t)
	r := start(t)
	goOn, whole := make(chan struct{}), make([]byte, 1_000_000)
	s := r.serve(t, func(c net.Conn, in *bufio.Reader) {
		readHead(in)
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", len(whole))
		c.Write(whole[:len(whole)/2])
		<-goOn
		c.Write(whole[len(whole)/2:])
	})
	c := r.dial(t)
	c.send(t, "GET / HTTP/1.1", s.port, "\r\n")
	p, err := http.ReadResponse(c.in, nil)
	require.NoError(t, err)
	_, err = io.ReadFull(p.Body, make([]byte, len(whole)/2))
	require.NoError(t, err)
	eventually(t, func() bool { return pipes.inUse() == 0 }, "the pipe is in use")
	close(goOn)
	_, err = io.ReadFull(p.Body, make([]byte, len(whole)/2))
	require.NoError(t, err)
}

// TestSlowReaderIsNotIdle: bytes move while a caller reads, however long it takes.
func TestSlowReaderIsNotIdle(t *testing.T) {
	idlePipes(t)
	const idle, steps = time.Second, 20
	r := start(t, func(s *setup) { s.StreamIdle = idle })
	s, _ := r.large(t, tooMuch, tooMuch, "")
	c := r.dial(t)
	c.send(t, "GET / HTTP/1.1", s.port, "\r\n")
	r.stuck(t)
	p, err := http.ReadResponse(c.in, nil)
	require.NoError(t, err)
	for range steps {
		time.Sleep(3 * idle / steps) // three times as long in all as it may be idle
		_, err := io.CopyN(io.Discard, p.Body, tooMuch/steps)
		require.NoError(t, err)
	}
}

// TestBytesBehindASplicedBody: what a sandbox says unasked ends its connection, and reaches nobody.
func TestBytesBehindASplicedBody(t *testing.T) {
	idlePipes(t)
	r := start(t)
	s, _ := r.large(t, 1_000_000, 1_000_000, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad")
	c := r.dial(t)
	for range 3 {
		c.send(t, "GET / HTTP/1.1", s.port, "\r\n")
		got, err := c.answered(t, 0) // the first on its connection
		require.NoError(t, err)
		require.Equal(t, 1_000_000, got)
	}
}

// TestNoPipe: bodies that get no pipe are copied.
func TestNoPipe(t *testing.T) {
	for name, without := range map[string]func(*testing.T){
		"all are in use": func(t *testing.T) {
			var all []*pipe
			for p := pipes.get(); p != nil; p = pipes.get() {
				all = append(all, p)
			}
			require.Len(t, all, maxPipes)
			t.Cleanup(func() {
				for _, p := range all {
					pipes.put(p)
				}
			})
		},
		"none can be made": func(t *testing.T) {
			pipes.refuse() // closes those there are
			pipes.again()
			var before unix.Rlimit
			require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &before))
			require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: before.Max}))
			require.Nil(t, pipes.get())
			require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &before))
			require.Nil(t, pipes.get(), "it is tried again at once")
			t.Cleanup(pipes.again)
		},
		"the system refuses": func(t *testing.T) {
			pipes.made++
			pipes.put(stub(t)) // neither end of the first splice is a pipe
			t.Cleanup(func() {
				assert.Nil(t, pipes.get(), "pipes are still made")
				pipes.again()
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			without(t) // before there is a listener, which takes a descriptor before it waits
			r := start(t)
			s, _ := r.large(t, tooMuch, tooMuch, "")
			c := r.dial(t)
			for n := range 2 {
				c.send(t, "GET / HTTP/1.1", s.port, "\r\n")
				got, err := c.answered(t, n)
				require.NoError(t, err)
				require.Equal(t, tooMuch, got)
			}
		})
	}
}

// stub is no pipe, so that splicing into it fails as on a system that does not know how.
func stub(t *testing.T) *pipe {
	var ends [2]int
	for i := range ends {
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
		require.NoError(t, err)
		ends[i] = fd
	}
	return &pipe{r: ends[0], w: ends[1]}
}

func TestPipePool(t *testing.T) {
	var pool pipePool
	before := openPipes(t)
	var all []*pipe
	for range maxPipes {
		p := pool.get()
		require.NotNil(t, p)
		size, err := unix.FcntlInt(uintptr(p.r), unix.F_GETPIPE_SZ, 0)
		require.NoError(t, err)
		require.GreaterOrEqual(t, size, pipeSize)
		all = append(all, p)
	}
	assert.Nil(t, pool.get(), "there are more than maxPipes")
	assert.Equal(t, before+2*maxPipes, openPipes(t))

	full := all[0]
	full.n = 1
	pool.put(full)
	pool.put(all[1])
	assert.Equal(t, maxPipes-1, pool.made)
	assert.Same(t, all[1], pool.get())
	for _, p := range all[1 : maxPipes/2] {
		pool.put(p)
	}
	pool.refuse()
	assert.Nil(t, pool.get())
	for _, p := range all[maxPipes/2:] {
		pool.put(p)
	}
	assert.Zero(t, pool.made)
	assert.Equal(t, before, openPipes(t))
}

func TestPipesThatNobodyNeedsAreClosed(t *testing.T) {
	var pool pipePool
	before := openPipes(t)
	var all []*pipe
	for range 8 {
		all = append(all, pool.get())
	}
	for _, p := range all[:5] {
		pool.put(p)
	}
	now := time.Now()
	pool.trim(now) // none has been idle since the last time
	require.Len(t, pool.idle, 5)
	needed := []*pipe{pool.get(), pool.get()}
	for _, p := range append(needed, all[5:]...) {
		pool.put(p)
	}
	pool.trim(now.Add(pipeIdle - 1)) // too early
	require.Len(t, pool.idle, 8)
	pool.trim(now.Add(pipeIdle))
	assert.Len(t, pool.idle, 5, "two were in use and three came back since")
	assert.Equal(t, 5, pool.made)
	assert.Subset(t, pool.idle, needed)
	pool.trim(now.Add(2 * pipeIdle))
	assert.Zero(t, pool.made)
	assert.Equal(t, before, openPipes(t))

	p := pool.get()
	require.NotNil(t, p)
	pool.put(p)
	pool.trim(now.Add(3 * pipeIdle))
	require.Len(t, pool.idle, 1)
	pool.refuse()
	pool.trim(now.Add(4 * pipeIdle)) // what was spare is closed already
	assert.Zero(t, pool.made)
	assert.Equal(t, before, openPipes(t))
}

// TestRelayTrimsPipes: what a splice leaves behind is closed while the router runs.
func TestRelayTrimsPipes(t *testing.T) {
	idlePipes(t)
	r := start(t)
	s, _ := r.large(t, tooMuch, tooMuch, "")
	c := r.dial(t)
	c.send(t, "GET / HTTP/1.1", s.port, "\r\n")
	_, err := c.answered(t, 0)
	require.NoError(t, err)
	eventually(t, func() bool {
		pipes.mu.Lock()
		defer pipes.mu.Unlock()
		pipes.trimmed = time.Time{} // as if pipeIdle had passed
		return pipes.made == 0
	}, "pipes are left open")
}
