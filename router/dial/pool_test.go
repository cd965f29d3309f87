package dial

import (
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait for something that must happen.
const patience = 10 * time.Second

// conn is a connection as the tests keep it.
type conn struct {
	tcp     Transport
	pool    *Pool[*conn]
	started atomic.Int32
	killed  atomic.Int32
}

func (c *conn) Start() { c.started.Add(1) }
func (c *conn) Kill()  { c.killed.Add(1) }

func newConn(tcp Transport, pool *Pool[*conn]) *conn { return &conn{tcp: tcp, pool: pool} }

// end is what the user of a connection does when it is over.
func (c *conn) end() {
	c.tcp.Close()
	c.pool.Forget(c)
}

// server accepts connections and counts them.
type server struct {
	net.Listener
	port     uint16
	accepted atomic.Int32
}

func serve(t testing.TB, addr string) *server {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	require.NoError(t, err)
	s := &server{Listener: l, port: l.Addr().(*net.TCPAddr).AddrPort().Port()}
	var conns sync.Map
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns.Store(c, true)
			s.accepted.Add(1)
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
		conns.Range(func(c, _ any) bool { c.(net.Conn).Close(); return true })
	})
	return s
}

// host is the endpoint 127.0.0.1.
func host(t testing.TB, d *Dialer) *Host[*conn] {
	t.Helper()
	if d.Timeout == 0 {
		d.Timeout = patience
	}
	h := NewHost(netip.MustParseAddr("127.0.0.1"), d, false, newConn)
	t.Cleanup(func() { closeAll(h) })
	return h
}

func closeAll(h *Host[*conn]) {
	for _, p := range h.pools {
		p.mu.Lock()
		for c := range p.all {
			c.tcp.Close()
		}
		p.mu.Unlock()
	}
}

// acquire must succeed.
func acquire(t testing.TB, p *Pool[*conn]) (*conn, bool) {
	t.Helper()
	c, reused, err := p.Acquire(time.Time{}, nil)
	require.NoError(t, err)
	return c, reused
}

func TestLastUsedIsUsedNext(t *testing.T) {
	s := serve(t, "127.0.0.1:0")
	p := host(t, &Dialer{}).Pool(s.port)
	a, reused := acquire(t, p)
	assert.False(t, reused)
	b, _ := acquire(t, p)
	c, _ := acquire(t, p)
	assert.EqualValues(t, 1, a.started.Load(), "started once")
	for _, x := range []*conn{a, b, c} {
		require.True(t, p.Put(x))
	}
	for _, want := range []*conn{c, b, a} {
		got, reused := acquire(t, p)
		assert.True(t, reused)
		assert.Same(t, want, got)
	}
	d, reused := acquire(t, p)
	assert.False(t, reused)
	assert.NotContains(t, []*conn{a, b, c}, d)
}

func TestPortsHaveTheirOwnConnections(t *testing.T) {
	h := host(t, &Dialer{MaxConns: 1})
	s1, s2 := serve(t, "127.0.0.1:0"), serve(t, "127.0.0.1:0")
	a, _ := acquire(t, h.Pool(s1.port))
	b, _ := acquire(t, h.Pool(s2.port))
	require.True(t, h.Pool(s1.port).Put(a))
	require.True(t, h.Pool(s2.port).Put(b))
	got, _ := acquire(t, h.Pool(s2.port))
	assert.Same(t, b, got)
}

func TestWithdrawTakesOnlyIdleOnes(t *testing.T) {
	s := serve(t, "127.0.0.1:0")
	p := host(t, &Dialer{}).Pool(s.port)
	a, _ := acquire(t, p)
	b, _ := acquire(t, p)
	require.True(t, p.Put(a))
	require.True(t, p.Put(b))
	assert.True(t, p.Withdraw(a))
	assert.False(t, p.Withdraw(a), "gone")
	got, _ := acquire(t, p)
	assert.Same(t, b, got)
	assert.False(t, p.Withdraw(b), "busy")
}

func TestDialIgnoresIdleOnes(t *testing.T) {
	s := serve(t, "127.0.0.1:0")
	p := host(t, &Dialer{}).Pool(s.port)
	a, _ := acquire(t, p)
	require.True(t, p.Put(a))
	b, err := p.Dial(time.Time{}, nil)
	require.NoError(t, err)
	assert.NotSame(t, a, b)
}

// waiting starts an Acquire that has to wait, and returns what it gets.
func waiting(t *testing.T, p *Pool[*conn], cancel chan struct{}) <-chan result {
	t.Helper()
	p.mu.Lock()
	before := len(p.waits)
	p.mu.Unlock()
	out := make(chan result, 1)
	go func() {
		c, reused, err := p.Acquire(time.Time{}, cancel)
		out <- result{c, reused, err}
	}()
	require.Eventually(t, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.waits) == before+1
	}, patience, time.Millisecond)
	return out
}

type result struct {
	c      *conn
	reused bool
	err    error
}

func get(t *testing.T, from <-chan result) result {
	t.Helper()
	select {
	case r := <-from:
		return r
	case <-time.After(patience):
		require.Fail(t, "still waiting")
		return result{}
	}
}

func TestFullPoolMakesCallersWaitInOrder(t *testing.T) {
	s := serve(t, "127.0.0.1:0")
	p := host(t, &Dialer{MaxConns: 2, MaxWaits: 2}).Pool(s.port)
	a, _ := acquire(t, p)
	b, _ := acquire(t, p)
	first := waiting(t, p, nil)
	second := waiting(t, p, nil)

	_, _, err := p.Acquire(time.Time{}, nil)
	assert.ErrorIs(t, err, ErrTooMany, "the queue is full")

	require.True(t, p.Put(a))
	assert.Equal(t, result{a, true, nil}, get(t, first))

	b.end()
	r := get(t, second)
	require.NoError(t, r.err)
	assert.False(t, r.reused, "a place was freed, so a new connection is made")
	assert.Eventually(t, func() bool { return s.accepted.Load() == 3 }, patience, time.Millisecond)
}

func TestWaitEndsInTime(t *testing.T) {
	s := serve(t, "127.0.0.1:0")
	p := host(t, &Dialer{MaxConns: 1, MaxWaits: 1}).Pool(s.port)
	a, _ := acquire(t, p)

	_, _, err := p.Acquire(time.Now().Add(time.Millisecond), nil)
	assert.ErrorIs(t, err, ErrTooMany)

	cancel := make(chan struct{})
	left := waiting(t, p, cancel)
	close(cancel)
	assert.ErrorIs(t, get(t, left).err, ErrCanceled)
	assert.Empty(t, p.waits, "who left is not waited for")

	next := waiting(t, p, nil)
	require.True(t, p.Put(a))
	assert.Same(t, a, get(t, next).c)
}

// TestTurnOfOneWhoLeftIsPassedOn lets the turn and the end come at once: whoever wins, the next caller must get the place.
func TestTurnOfOneWhoLeftIsPassedOn(t *testing.T) {
	s := serve(t, "127.0.0.1:0")
	p := host(t, &Dialer{MaxConns: 1, MaxWaits: 2}).Pool(s.port)
	a, _ := acquire(t, p)
	for range 200 {
		cancel := make(chan struct{})
		leaving := waiting(t, p, cancel)
		staying := waiting(t, p, nil)
		go close(cancel)
		require.True(t, p.Put(a))
		if r := get(t, leaving); r.err == nil {
			require.True(t, p.Put(r.c))
		}
		r := get(t, staying)
		require.NoError(t, r.err)
		require.Same(t, a, r.c)
	}
}

func TestFailedDialFreesItsPlace(t *testing.T) {
	s := serve(t, "127.0.0.1:0")
	s.Close()
	p := host(t, &Dialer{MaxConns: 1, MaxWaits: 1}).Pool(s.port)
	for range 3 {
		_, _, err := p.Acquire(time.Time{}, nil)
		assert.ErrorIs(t, err, ErrRefused)
	}
}

func TestRetire(t *testing.T) {
	s := serve(t, "127.0.0.1:0")
	h := host(t, &Dialer{MaxConns: 2, MaxWaits: 1})
	p := h.Pool(s.port)
	idle, _ := acquire(t, p)
	busy, _ := acquire(t, p)
	waits := waiting(t, p, nil)
	require.True(t, p.Put(idle))
	got := get(t, waits) // takes the idle one
	require.Same(t, idle, got.c)
	require.True(t, p.Put(idle))

	h.Retire()
	assert.EqualValues(t, 1, idle.killed.Load())
	assert.EqualValues(t, 1, busy.killed.Load())
	assert.False(t, p.Put(busy), "not wanted any more")
	_, _, err := p.Acquire(time.Time{}, nil)
	assert.ErrorIs(t, err, ErrRetired)
	_, _, err = h.Pool(s.port+1).Acquire(time.Time{}, nil)
	assert.ErrorIs(t, err, ErrRetired, "other ports too")
}

func TestRetireEndsWaits(t *testing.T) {
	s := serve(t, "127.0.0.1:0")
	h := host(t, &Dialer{MaxConns: 1, MaxWaits: 2})
	p := h.Pool(s.port)
	acquire(t, p)
	first, second := waiting(t, p, nil), waiting(t, p, nil)
	h.Retire()
	assert.ErrorIs(t, get(t, first).err, ErrRetired)
	assert.ErrorIs(t, get(t, second).err, ErrRetired)
}

// TestRetireDuringDial retires the host when the connection is made and the pool does not know it yet.
func TestRetireDuringDial(t *testing.T) {
	s := serve(t, "127.0.0.1:0")
	var h *Host[*conn]
	var made *conn
	h = NewHost(netip.MustParseAddr("127.0.0.1"), &Dialer{Timeout: patience}, false, func(tcp Transport, p *Pool[*conn]) *conn {
		h.Retire()
		made = newConn(tcp, p)
		return made
	})
	t.Cleanup(func() { closeAll(h) })
	_, _, err := h.Pool(s.port).Acquire(time.Time{}, nil)
	assert.ErrorIs(t, err, ErrRetired)
	assert.EqualValues(t, 1, made.started.Load(), "its user must see its end")
	assert.EqualValues(t, 1, made.killed.Load())
}

func TestRetireEndsRetries(t *testing.T) {
	s := serve(t, "127.0.0.1:0")
	s.Close()
	d := &Dialer{Retries: 1_000_000}
	h := host(t, d)
	d.Retried = h.Retire
	_, _, err := h.Pool(s.port).Acquire(time.Time{}, nil)
	assert.ErrorIs(t, err, ErrRetired)
}

// TestPortsThatNobodyUsesAreForgotten: a caller may name every port there is.
func TestPortsThatNobodyUsesAreForgotten(t *testing.T) {
	s := serve(t, "127.0.0.1:0")
	h := host(t, &Dialer{})
	p := h.Pool(s.port)
	c, _ := acquire(t, p)
	require.True(t, p.Put(c))
	for port := 1; port <= 65535; port++ {
		h.Pool(uint16(port))
		require.LessOrEqual(t, len(h.pools), maxPorts)
	}
	assert.Same(t, p, h.Pool(s.port), "a port with connections stays")
	h.Retire()
	assert.EqualValues(t, 1, c.killed.Load())
}

// TestPoolUnderLoad has callers that come, go and break connections while the cap holds.
func TestPoolUnderLoad(t *testing.T) {
	s := serve(t, "127.0.0.1:0")
	h := host(t, &Dialer{MaxConns: 4, MaxWaits: 64})
	p := h.Pool(s.port)
	var busy, most atomic.Int32
	var callers sync.WaitGroup
	for i := range 16 {
		callers.Go(func() {
			for n := range 200 {
				c, _, err := p.Acquire(time.Now().Add(patience), nil)
				if !assert.NoError(t, err) {
					return
				}
				now := busy.Add(1)
				for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
				}
				busy.Add(-1)
				if (n+i)%5 == 0 {
					c.end()
				} else {
					p.Put(c)
				}
			}
		})
	}
	callers.Wait()
	assert.LessOrEqual(t, most.Load(), int32(4))
	assert.LessOrEqual(t, len(p.all), 4)
	assert.Zero(t, p.dialing)
	assert.Empty(t, p.waits)
}

func TestAuthority(t *testing.T) {
	for addr, want := range map[string]string{"10.0.0.1": "10.0.0.1:8888", "fd00::1": "[fd00::1]:8888"} {
		h := NewHost(netip.MustParseAddr(addr), &Dialer{}, false, newConn)
		assert.Equal(t, want, string(h.Authority(8888)))
	}
}
