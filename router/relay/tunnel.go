package relay

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dovakiin0/agent-sandbox/router/parse"
	"github.com/dovakiin0/agent-sandbox/router/record"
)

// closeGrace is how long a tunnel that is told to end may go on to the end of the frame under way.
const closeGrace = time.Second

// A tunnel that had traffic is looked at soon, because an end that came with the last bytes shows in no edge; a quiet one rarely.
const (
	quietAfter = 2 * probeEvery
	quietLook  = 30 * time.Second
)

const goingAway = 1001 // RFC 6455, section 7.4.1

// tunnel is the state of a WebSocket. All but the frame positions is guarded by client.mu.
type tunnel struct {
	began   time.Time
	upEnd   bool // the client sends no more
	downEnd bool // the sandbox sends no more
	ending  record.Reason
	endBy   time.Time
	up      parse.Frames // read by the client's goroutine under the sandbox's write lock
	down    parse.Frames // read by the sandbox's goroutine under the client's write lock
}

// startTunnel turns the exchange into a tunnel. The caller holds mu.
func (c *client) startTunnel(now time.Time) {
	c.tunnel = tunnel{began: now}
	c.x.active.Store(now.UnixNano())
	c.tcp.SetKeepAlive(true)
	c.x.u.tcp.SetKeepAlive(true)
	c.r.tunnels.total.Add(1)
	c.r.busy.Add(-1)
	c.x.tunnelled = true
	c.to(tunnelling)
	c.expireTunnel(now)
}

// frames passes what the client sent on to the sandbox.
func (c *client) frames(u *upstream) {
	b := c.in.unread()
	c.touch()
	c.in.use(len(b))
	c.x.up.Add(int64(len(b)))
	u.pass(b, &c.tunnel.up, c, true) // when it fails, the sandbox's goroutine sees the end and ends the tunnel
}

// pass writes bytes of a tunnel to s. When the tunnel is told to end it stops at the end of a frame, adds a Close frame and
// reports false.
func (s *socket) pass(b []byte, f *parse.Frames, c *client, toSandbox bool) bool {
	s.w.Lock()
	defer s.w.Unlock()
	if c.ending.Load() {
		n := f.Follow(b)
		if n == 0 && !f.Between() {
			return s.write(b) == nil
		}
		s.write(parse.AppendClose(append([]byte(nil), b[:n]...), goingAway, toSandbox))
		s.closeWrite()
		return false
	}
	f.Follow(b)
	return s.write(b) == nil
}

// endUp notes that the client sends no more: an orderly end is passed on, and the other direction goes on. The caller holds mu.
func (c *client) endUp(orderly bool) {
	c.tunnel.upEnd = true
	c.moved.Broadcast()
	if orderly && !c.tunnel.downEnd {
		c.x.u.closeWrite()
		return
	}
	c.x.u.end(record.OK)
}

// endTunnel ends a WebSocket with a Close frame to both sides, each at the end of the frame under way.
func (c *client) endTunnel(why record.Reason) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endTunnelLocked(why, time.Now())
}

func (c *client) endTunnelLocked(why record.Reason, now time.Time) {
	if c.phase != tunnelling || c.tunnel.ending != record.OK {
		return
	}
	c.tunnel.ending, c.tunnel.endBy = why, now.Add(closeGrace)
	c.ending.Store(true)
	c.ring(now, closeGrace)
	u := c.x.u
	// Writes may have to wait for the other end, so they are not for this goroutine.
	go func() {
		closeBetween(&c.socket, &c.tunnel.down, false)
		closeBetween(&u.socket, &c.tunnel.up, true)
	}()
}

// closeBetween sends a Close frame if no frame is under way; pass does it at the end of the frame otherwise.
func closeBetween(s *socket, f *parse.Frames, masked bool) {
	s.w.Lock()
	defer s.w.Unlock()
	if f.Between() {
		s.write(parse.AppendClose(nil, goingAway, masked))
		s.closeWrite()
	}
}

// expireTunnel looks at the limits of a WebSocket. The caller holds mu.
func (c *client) expireTunnel(now time.Time) {
	t, cfg := &c.tunnel, &c.r.cfg
	if t.ending != record.OK {
		if !now.Before(t.endBy) {
			c.abandon(t.ending)
			c.shut()
		}
		c.ring(now, closeGrace)
		return
	}
	silence := now.Sub(time.Unix(0, c.x.active.Load()))
	switch {
	case cfg.TunnelLifetime > 0 && now.Sub(t.began) >= cfg.TunnelLifetime:
		c.endTunnelLocked(record.TunnelExpired, now)
		return
	case cfg.TunnelIdle > 0 && silence >= cfg.TunnelIdle:
		c.endTunnelLocked(record.TunnelIdle, now)
		return
	}
	next := quietLook
	if silence < quietAfter {
		next = probeEvery
	}
	if cfg.TunnelIdle > 0 {
		next = min(next, cfg.TunnelIdle-silence)
	}
	if cfg.TunnelLifetime > 0 {
		next = min(next, cfg.TunnelLifetime-now.Sub(t.began))
	}
	if !t.upEnd && c.look() == over {
		c.kick()
	}
	if !t.downEnd && c.x.u.look() == over {
		c.x.u.kick()
	}
	c.ring(now, next)
}

// touch notes that a byte moved.
func (c *client) touch() { c.x.active.Store(c.r.dog.now()) }

// tunnelCount counts WebSockets, in all and by client address.
type tunnelCount struct {
	total atomic.Int64
	mu    sync.Mutex
	of    map[netip.Addr]int
}

// admit counts one more for addr, unless it has limit already.
func (t *tunnelCount) admit(addr netip.Addr, limit int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of == nil {
		t.of = make(map[netip.Addr]int)
	}
	if limit > 0 && t.of[addr] >= limit {
		return false
	}
	t.of[addr]++
	return true
}

func (t *tunnelCount) leave(addr netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of[addr]--; t.of[addr] <= 0 {
		delete(t.of, addr)
	}
}
