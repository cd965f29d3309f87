//go:build linux

package load

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dovakiin0/agent-sandbox/bench/epoll"
	"github.com/dovakiin0/agent-sandbox/bench/wire"
)

// phase is what a run is doing.
type phase uint8

const (
	warming phase = iota
	measuring
	finishing // answers under way are awaited, and what was due in the measured time but found no connection is made up for
)

// loop is one run. Times are since base.
type loop struct {
	plan   Plan
	poll   *epoll.Poller
	base   time.Time
	result Result

	phase      phase
	begin, end time.Duration // of the measured time
	sent, recv int64         // bytes since the phase began
	cpu        time.Duration // of the thread when the phase began
	issued     int           // requests since the phase began

	order   []int32
	at      int             // in order
	conns   []*conn         // by descriptor
	free    []*conn         // without a request, the last used last; of an open loop
	retries []time.Duration // when to dial again, the earliest first
	busy    int             // requests under way
	warm    int             // answers of the warm-up
	left    int
	sweep   time.Duration
	source  uint16 // of the next connection's address

	scratch []byte
	out     []byte // the frame of Plan.Message
}

// Run carries the plan out. It ends early when ctx does, with what was measured so far.
func Run(ctx context.Context, p Plan) (*Result, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	if p.Timeout == 0 {
		p.Timeout = 10 * time.Second
	}
	poll, err := epoll.New()
	if err != nil {
		return nil, err
	}
	l := &loop{
		plan: p, poll: poll, base: time.Now(), scratch: make([]byte, 256<<10),
		result: Result{Latency: NewHistogram(), Events: NewHistogram(), Lag: NewHistogram(), Errors: map[string]int64{}, Offered: p.Rate},
	}
	if p.Message != nil {
		l.out = wire.AppendFrame(nil, wire.Binary, p.Message, &[4]byte{0x37, 0xfa, 0x21, 0x3d})
	}
	for _, i := range rand.New(rand.NewPCG(1, 2)).Perm(len(p.Requests)) { // the same order in every run
		l.order = append(l.order, int32(i))
	}
	// The thread's CPU time is the generator's, and nobody else may run on it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer l.close()
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		poll.Wake()
		close(woken)
	})
	defer func() {
		if !stop() {
			<-woken // before the descriptor is another's
		}
	}()
	if err := l.run(ctx); err != nil {
		return nil, err
	}
	return &l.result, nil
}

func (l *loop) run(ctx context.Context) error {
	if l.plan.Warmup == 0 {
		l.start()
	}
	for range l.plan.Connections {
		l.dial()
	}
	for {
		now := l.now()
		if l.turn(now, ctx.Err() != nil) {
			return nil
		}
		l.arrive(now)
		events, err := l.poll.Wait(l.patience())
		if err != nil {
			return err
		}
		for _, e := range events {
			if c := l.conns[e.Fd]; c != nil {
				l.serve(c, e.Events)
			}
		}
	}
}

// turn goes to the next phase when it is time, and looks after what is late. true: the run is over.
func (l *loop) turn(now time.Duration, canceled bool) bool {
	for len(l.retries) > 0 && l.retries[0] <= now {
		l.retries = l.retries[1:]
		if l.wants() {
			l.dial()
		}
	}
	if now >= l.sweep {
		l.sweep = now + sweepEvery
		for _, c := range l.conns {
			if c != nil && c.waiting && now-c.sent > l.plan.Timeout {
				l.fail(c, Timeout)
			}
		}
	}
	if l.phase == warming && now >= l.plan.Warmup && l.warm >= l.plan.WarmupAnswers && !canceled {
		l.start()
	}
	counted := l.plan.Count > 0 && l.result.Answered+l.result.Failed() >= int64(l.plan.Count)
	over := l.plan.Count == 0 && now >= l.end || l.left == l.plan.Connections
	if l.phase == measuring && (counted || over) || canceled && l.phase != finishing {
		l.finish()
	}
	switch {
	case l.phase != finishing:
		return false
	case canceled || l.left == l.plan.Connections:
		return true
	case l.wants() && now > l.end+l.plan.Timeout:
		for ; l.wants(); l.issued++ {
			l.result.Errors[Timeout]++
		}
	}
	return l.busy == 0 && !l.wants()
}

// wants reports whether more requests have to start.
func (l *loop) wants() bool {
	switch {
	case l.phase == finishing:
		return l.plan.Rate > 0 && l.due() < l.end
	case l.plan.Count > 0:
		return l.issued < l.plan.Count
	}
	return true
}

// start begins the measured time.
func (l *loop) start() {
	if l.plan.Started != nil {
		l.plan.Started()
	}
	l.phase, l.issued, l.sent, l.recv = measuring, 0, 0, 0
	l.cpu = threadTime()
	l.begin = l.now()
	l.end = l.begin + l.plan.Duration
}

// finish ends the measured time.
func (l *loop) finish() {
	l.result.Elapsed = l.now() - l.begin
	l.result.Busy = float64(threadTime()-l.cpu) / float64(l.result.Elapsed)
	l.result.Sent, l.result.Received, l.result.Left = l.sent, l.recv, l.left
	if l.plan.Ended != nil {
		l.plan.Ended()
	}
	l.phase = finishing
}

// due returns when the next request of an open loop has to start.
func (l *loop) due() time.Duration {
	return l.begin + time.Duration(float64(l.issued)/l.plan.Rate*float64(time.Second))
}

// arrive starts the requests of an open loop that are due, as long as there are connections for them.
func (l *loop) arrive(now time.Duration) {
	if l.plan.Rate == 0 {
		return
	}
	for len(l.free) > 0 && l.wants() {
		due := l.due()
		if due > now {
			return
		}
		c := l.free[len(l.free)-1]
		l.free = l.free[:len(l.free)-1]
		if l.phase == measuring {
			l.result.Lag.Record(now - max(due, c.since))
		}
		l.begins(c, due)
	}
}

// patience is how long nothing has to be done unless something comes.
func (l *loop) patience() time.Duration {
	until := l.sweep
	switch l.phase {
	case warming:
		if l.warm >= l.plan.WarmupAnswers {
			until = min(until, l.plan.Warmup)
		}
	case measuring:
		if l.plan.Count == 0 {
			until = min(until, l.end)
		}
	}
	if len(l.retries) > 0 {
		until = min(until, l.retries[0])
	}
	if l.plan.Rate > 0 && l.wants() && len(l.free) > 0 {
		until = min(until, l.due())
	}
	return max(0, until-l.now())
}

func (l *loop) now() time.Duration { return time.Since(l.base) }

// next is called when a connection has nothing to do.
func (l *loop) next(c *conn, now time.Duration) {
	switch {
	case !l.wants():
	case l.plan.Rate > 0:
		l.free = append(l.free, c)
	default:
		l.begins(c, now)
	}
}

// pick returns the request whose turn it is.
func (l *loop) pick() *Request {
	r := &l.plan.Requests[l.order[l.at]]
	if l.at++; l.at == len(l.order) {
		l.at = 0
	}
	return r
}

// dial makes a connection. Source addresses rotate, because one has fewer ports than there are connections in a minute.
func (l *loop) dial() {
	l.source++
	fd, err := epoll.Dial(sourceAddr(l.source), l.plan.Proxy)
	if err != nil {
		l.fail(&conn{fd: -1}, Refused)
		return
	}
	if fd >= len(l.conns) {
		l.conns = append(l.conns, make([]*conn, fd+64-len(l.conns))...)
	}
	c := &conn{fd: fd}
	l.conns[fd] = c
	if err := l.poll.Add(fd); err != nil {
		l.fail(c, Refused)
	}
}

func sourceAddr(n uint16) netip.Addr { return netip.AddrFrom4([4]byte{127, 9, 0, byte(1 + n%200)}) }

func (l *loop) close() {
	for _, c := range l.conns {
		if c != nil {
			unix.Close(c.fd)
		}
	}
	l.poll.Close()
}

func threadTime() time.Duration {
	var ts unix.Timespec
	unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts)
	return time.Duration(ts.Nano())
}
