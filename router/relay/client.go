package relay

import (
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dovakiin0/agent-sandbox/router/parse"
	"github.com/dovakiin0/agent-sandbox/router/record"
)

// phase is where a client connection stands. The client's goroutine moves it on from reading, routing and uploading; the
// sandbox's goroutine ends uploading, waiting and tunnelling.
type phase uint8

const (
	reading    phase = iota // between requests, or inside a head
	routing                 // looking for the sandbox and connecting to it
	uploading               // the request goes out; its answer may come already
	waiting                 // the request went out whole
	tunnelling              // a WebSocket
	closing                 // the last answer went out: what still comes is thrown away
)

const (
	probeEvery = time.Second      // how often a client is looked at while its sandbox works
	halfClosed = time.Second      // how long the answer may take, in silence, after the client has shut its sending side
	lingerIdle = 2 * time.Second  // how long a closing connection waits for the client to be silent or gone (RFC 9112, section 9.6)
	lingerMost = 10 * time.Second // in all
)

// client is a connection to a caller.
type client struct {
	socket
	r       *Relay
	in      inbox
	addr    netip.Addr
	peer    []byte // addr as text
	proto   string
	trusted bool
	bell    alarm
	shard   *shard

	mu      sync.Mutex
	moved   sync.Cond // phase changed; its lock is mu
	phase   phase
	since   time.Time     // the phase is reading: when it began, or when the head began; closing: when it began
	inHead  bool          // part of a head has been read
	late    bool          // the head took too long
	probed  bool          // while idle: the watchdog has looked whether the client is still there
	eof     time.Time     // the client has shut its sending side
	cancel  chan struct{} // closed when the client is seen to have left; made when a request first has to wait for something
	left    bool          // it is closed
	hurried bool          // writes that have to wait fail
	soon    *time.Timer   // for deadlines that are shorter than the watchdog's tick can tell
	x       exchange
	tunnel  tunnel
	ending  atomic.Bool // the tunnel is told to end
	counted netip.Addr  // in Relay.tunnels
}

func newClient(r *Relay, conn net.Conn, tcp *net.TCPConn) *client {
	c := &client{r: r, proto: "http", since: time.Now()}
	c.init(conn, tcp)
	c.moved.L = &c.mu
	if conn != net.Conn(tcp) {
		c.proto = "https"
	}
	if ap, ok := tcp.RemoteAddr().(*net.TCPAddr); ok {
		c.addr = ap.AddrPort().Addr().Unmap()
	}
	c.peer = c.addr.AppendTo(nil)
	c.trusted = r.trusts(c.addr)
	return c
}

// serve reads the connection until it ends.
func (c *client) serve() {
	c.shard = c.r.dog.add(c)
	c.bell.at.Store(c.since.Add(probeEvery).UnixNano())
	c.read(c)
	c.shard.remove(c)
	if c.soon != nil {
		c.soon.Stop()
	}
	c.close()
	c.in.drop()
}

func (c *client) alarm() *alarm { return &c.bell }

func (c *client) room() []byte { return c.in.room(c.bulk()) }

// bulk reports whether the next bytes are part of something large.
func (c *client) bulk() bool {
	switch c.now() {
	case uploading:
		return c.x.length == parse.Chunked || c.x.left > smallBlock
	case tunnelling:
		return c.in.full
	}
	return false
}

func (c *client) got(n int) bool {
	c.in.add(n)
	return c.consume()
}

func (c *client) pause() { c.in.rest() }

func (c *client) expects() bool {
	switch c.now() {
	case reading:
		return len(c.in.unread()) > 0
	case uploading:
		return true
	case tunnelling:
		return c.tunnel.up.Closed()
	}
	return false
}

func (c *client) now() phase {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.phase
}

// consume uses the unread bytes as far as the phase lets it. false: the connection is over.
func (c *client) consume() bool {
	for {
		c.mu.Lock()
		if c.phase == waiting && len(c.in.unread()) > 0 {
			c.moved.Wait() // the next request waits for the end of this one
			c.mu.Unlock()
			continue
		}
		phase, u := c.phase, c.x.u
		c.mu.Unlock()
		if phase != closing && len(c.in.unread()) == 0 {
			return true
		}
		switch phase {
		case reading:
			if !c.head() {
				return true
			}
		case uploading:
			c.upload(u)
		case tunnelling:
			c.frames(u)
		case closing:
			c.in.use(len(c.in.unread()))
			return c.lingerOn()
		}
	}
}

// head begins an exchange when a whole head is at hand. false: it is not yet.
func (c *client) head() bool {
	b := c.in.unread()
	for len(b) >= 2 && b[0] == '\r' && b[1] == '\n' { // RFC 9112, section 2.2
		c.in.use(2)
		b = c.in.unread()
	}
	n := parse.HeadEnd(b)
	switch {
	case n > c.r.cfg.MaxHeader || n == 0 && len(b) >= c.r.cfg.MaxHeader:
		c.refuseHead(record.HeadTooLarge)
	case n < 0:
		c.refuseHead(record.MalformedHead)
	case n == 0:
		c.startHead(len(b) > 0)
		return false
	default:
		c.begin(b[:n])
	}
	return true
}

// startHead starts the clock for a head of which only a part has come.
func (c *client) startHead(begun bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if begun && !c.inHead {
		c.inHead, c.since = true, time.Now()
		c.ring(c.since, c.r.cfg.ClientHeader)
	}
}

// woken is called after a kick.
func (c *client) woken() bool {
	c.mu.Lock()
	phase, late := c.phase, c.late
	c.late = false
	c.mu.Unlock()
	switch {
	case phase == closing:
		return false // silent for lingerIdle
	case late && phase == reading:
		c.refuseHead(record.RequestTimeout)
	}
	return true
}

// ended is called when the client sends no more.
func (c *client) ended(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch c.phase {
	case uploading:
		c.abandon(record.ClientGone)
	case waiting:
		// It may have shut only its sending side and still want the answer; see expire for how long.
		c.eof = time.Now()
		c.ring(c.eof, halfClosed)
		if err != io.EOF {
			c.abandon(record.ClientGone)
		}
	case tunnelling:
		c.endUp(err == io.EOF)
	}
	for c.phase == uploading || c.phase == waiting || c.phase == tunnelling {
		c.moved.Wait()
	}
}

// to changes the phase. The caller holds mu.
func (c *client) to(p phase) {
	c.phase = p
	c.moved.Broadcast()
}

// abandon ends the exchange: its sandbox's goroutine sees the connection end, and why. The caller holds mu.
func (c *client) abandon(why record.Reason) {
	if c.x.abort == record.OK {
		c.x.abort = why
	}
	if c.x.u != nil {
		c.x.u.end(why)
	}
	c.hurry()
	c.moved.Broadcast()
}

// lose is called when the connection of the exchange is ended.
func (c *client) lose(u *upstream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.x.u == u {
		c.hurry()
	}
	c.moved.Broadcast()
}

// hurry fails the sandbox's goroutine if it waits for the client to read. An answer that has just gone out whole is not touched,
// nor the request behind it. The caller holds mu.
func (c *client) hurry() {
	if c.x.answering {
		c.hurried = true
		c.tcp.SetWriteDeadline(time.Unix(1, 0))
	}
}

// linger closes the sending side after the last answer and waits a little for the client to have read it: closing with unread
// bytes would destroy the answer on its way (RFC 9112, section 9.6).
func (c *client) linger() {
	c.closeWrite()
	c.tcp.SetReadDeadline(time.Now().Add(lingerIdle))
}

// lingerOn is called for bytes that are thrown away.
func (c *client) lingerOn() bool {
	c.mu.Lock()
	since := c.since
	c.mu.Unlock()
	if time.Since(since) > lingerMost {
		return false
	}
	c.tcp.SetReadDeadline(time.Now().Add(lingerIdle))
	return true
}

// finished puts the connection back to reading, or closes it. The caller holds mu and has written the whole answer.
func (c *client) finished(keep bool) {
	c.x.u, c.x.answering, c.x.abort = nil, false, record.OK
	c.since, c.inHead, c.probed = time.Now(), false, false
	if keep {
		if c.hurried {
			c.hurried = false
			c.tcp.SetWriteDeadline(time.Time{})
		}
		c.ring(c.since, probeEvery)
		c.to(reading)
		return
	}
	c.ring(c.since, lingerMost)
	c.to(closing)
}
