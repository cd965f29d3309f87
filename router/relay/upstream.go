package relay

import (
	"io"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/dovakiin0/agent-sandbox/router/dial"
	"github.com/dovakiin0/agent-sandbox/router/parse"
	"github.com/dovakiin0/agent-sandbox/router/record"
)

// stage is which part of an answer a sandbox's connection is in.
type stage uint8

const (
	atHead stage = iota
	inBody
	inTunnel
)

// step is what a sandbox's goroutine does next.
type step uint8

const (
	again step = iota // look at the unread bytes anew
	more              // read
	stop              // end the connection; broke says why
)

// upstream is a connection to a sandbox. Its goroutine reads answers and writes them to the client of the exchange.
type upstream struct {
	socket
	r     *Relay
	pool  *dial.Pool[*upstream]
	in    inbox
	bell  alarm
	shard *shard

	client atomic.Pointer[client] // of the exchange; nil while idle; deadEnd when the connection is over
	why    atomic.Uint32          // a record.Reason: why the router ended the connection
	reused bool                   // the exchange is not its first; set by the client's goroutine before attach

	// The rest is the goroutine's own.
	stage  stage
	begun  bool         // part of an answer has come
	passed bool         // part of it went to the client
	framed int64        // length of the body, as parse.Response has it
	left   int64        // of a fixed length
	chunks parse.Chunks // of a chunked one
	via    *pipe        // that the body goes through; nil: it is read
	keep   bool         // the sandbox takes another request
	last   bool         // the client's connection ends with this answer
	broke  record.Reason
}

// deadEnd stands for the client of a connection that is over, so that no exchange can begin on it.
var deadEnd = new(client)

func newUpstream(r *Relay, tcp dial.Transport, pool *dial.Pool[*upstream]) *upstream {
	u := &upstream{r: r, pool: pool, broke: record.UpstreamClosed}
	u.init(tcp, tcp)
	return u
}

// Start begins to read; dial calls it once.
func (u *upstream) Start() {
	u.shard = u.r.dog.add(u)
	go u.serve()
}

func (u *upstream) serve() {
	u.read(u)
	if c := u.client.Swap(deadEnd); c != nil && c != deadEnd {
		u.fail(c)
	}
	u.shard.remove(u)
	u.pool.Withdraw(u)
	u.pool.Forget(u)
	u.close()
	u.in.drop()
	u.dropPipe()
}

// Kill ends the connection because its endpoint is not wanted any more.
func (u *upstream) Kill() {
	u.end(record.EndpointGone)
	if c := u.client.Load(); c != nil && c != deadEnd {
		c.lose(u)
	}
}

// end makes the goroutine see the end of the connection, and why.
func (u *upstream) end(why record.Reason) {
	u.why.CompareAndSwap(0, uint32(why))
	u.shut()
}

// attach begins an exchange. false: the connection is over, and nothing may be sent.
func (u *upstream) attach(c *client) bool {
	u.bell.at.Store(0)
	return u.client.CompareAndSwap(nil, c)
}

// take begins an exchange with the first bytes of its request. The right to write is held over both, see written.
func (u *upstream) take(c *client, b []byte) (attached bool, err error) {
	u.w.Lock()
	defer u.w.Unlock()
	if !u.attach(c) {
		return false, nil
	}
	return true, u.write(b)
}

// written reports whether a request that has come whole has also gone out whole. If not, nothing else may be sent behind it. The
// answer may be here before its sender has returned from the system call, so a sender that does not wait for the sandbox is
// waited for.
func (u *upstream) written() bool {
	for n := 0; n < writtenTries; n++ {
		if u.w.TryLock() {
			u.w.Unlock()
			return true
		}
		switch {
		case u.stuck.Load():
			return false
		case n < writtenTries/4:
			runtime.Gosched()
		default:
			time.Sleep(writtenPause)
		}
	}
	return false
}

// How often, and after the first quarter how long, written waits for a sender.
const (
	writtenTries = 200
	writtenPause = 100 * time.Microsecond
)

// rest makes the connection idle. false: it is not wanted any more.
func (u *upstream) rest() bool {
	if idle := u.r.cfg.UpstreamIdle; idle > 0 {
		u.bell.at.Store(u.r.dog.now() + int64(idle))
	}
	return u.pool.Put(u)
}

// giveBack makes a connection idle that was acquired and not used.
func (u *upstream) giveBack() {
	if !u.rest() {
		u.Kill()
	}
}

func (u *upstream) alarm() *alarm { return &u.bell }

// expire ends a connection that was idle for too long.
func (u *upstream) expire(time.Time) {
	u.bell.at.Store(0)
	if u.pool.Withdraw(u) {
		u.Kill()
	}
}

func (u *upstream) room() []byte {
	return u.in.room(u.in.full || u.stage == inBody && u.left > smallBlock)
}

func (u *upstream) pause() {
	u.in.rest()
	u.dropPipe()
}

func (u *upstream) expects() bool {
	switch u.stage {
	case atHead:
		return u.begun
	case inTunnel:
		c := u.client.Load()
		return c != nil && c.tunnel.down.Closed()
	}
	return true
}

func (u *upstream) woken() bool { return true }

func (u *upstream) got(n int) bool {
	if u.via != nil {
		return u.spliced(n)
	}
	u.in.add(n)
	for len(u.in.unread()) > 0 {
		c := u.client.Load()
		if c == nil {
			return false // nobody asked: what comes now could be taken for the answer to the next request
		}
		c.touch()
		next := stop
		switch u.stage {
		case atHead:
			next = u.head(c)
		case inBody:
			next = u.body(c)
		case inTunnel:
			next = u.frames(c)
		}
		if next != again {
			return next == more
		}
	}
	return true
}

// ended is called when the sandbox sends no more.
func (u *upstream) ended(err error) {
	c := u.client.Load()
	if c == nil || c == deadEnd {
		return
	}
	orderly := err == io.EOF && u.why.Load() == 0
	switch {
	case u.stage == inTunnel:
		u.endDown(c, orderly)
	case u.stage == inBody && u.framed == parse.UntilClose && orderly:
		var tail []byte
		if c.x.minor == 1 {
			tail = lastChunk
		}
		u.finish(c, tail)
	case u.begun && u.stage == atHead && orderly:
		u.broke = record.BadResponse
	}
}

var lastChunk = []byte(parse.LastChunk)

// bad ends the connection because of what the sandbox said.
func (u *upstream) bad() step {
	u.broke = record.BadResponse
	return stop
}

// fail ends an exchange whose connection is over before its answer was.
func (u *upstream) fail(c *client) {
	if c.x.replay != nil && u.reused && !u.begun && u.cause(c) == record.UpstreamClosed && c.replay() {
		return
	}
	why := u.cause(c)
	c.mu.Lock()
	answering, uploaded := c.x.answering, c.phase == waiting
	c.mu.Unlock()
	if answering {
		c.cut(why)
		return
	}
	u.r.meter.UpstreamError(c.x.class, why)
	c.answer(why, c.x.keepAlive && uploaded && !why.Answer().Close)
}

// cause is why the exchange failed: because it was given up, because the router ended the connection, or by itself.
func (u *upstream) cause(c *client) record.Reason {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.x.abort != record.OK {
		return c.x.abort
	}
	if why := record.Reason(u.why.Load()); why != record.OK {
		return why
	}
	return u.broke
}
