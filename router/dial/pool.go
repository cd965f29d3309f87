package dial

import (
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Conn is a connection as its user keeps it. Start is called once, when the pool knows the connection; Kill ends it from
// any goroutine, without waiting.
type Conn interface {
	comparable
	Start()
	Kill()
}

// Host is one endpoint identity and its connections. Another pod that gets the same address is another Host: no byte
// meant for one can reach the other.
type Host[C Conn] struct {
	Addr netip.Addr

	dialer *Dialer
	open   func(Transport, *Pool[C]) C
	born   time.Time // zero: as old as the process

	mu      sync.Mutex
	pools   []*Pool[C] // one for each port; a sandbox has few
	retired bool
}

// NewHost makes a Host without connections. open wraps a new connection for its user. fresh says that the endpoint
// has just appeared, so that the dialer's grace counts.
func NewHost[C Conn](addr netip.Addr, d *Dialer, fresh bool, open func(Transport, *Pool[C]) C) *Host[C] {
	h := &Host[C]{Addr: addr, dialer: d, open: open}
	if fresh {
		h.born = time.Now()
	}
	return h
}

// maxPorts is how many ports of a sandbox are remembered when nothing is connected to them. Callers name ports, and without a
// bound they could fill the memory.
const maxPorts = 64

// Pool returns the connections to one port.
func (h *Host[C]) Pool(port uint16) *Pool[C] {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.pools {
		if p.port == port {
			return p
		}
	}
	if len(h.pools) >= maxPorts {
		h.pools = slices.DeleteFunc(h.pools, (*Pool[C]).retireUnused)
	}
	p := &Pool[C]{
		host: h,
		port: port,
		addr: netip.AddrPortFrom(h.dialer.Translate.Of(h.Addr), port),
		all:  make(map[C]struct{}),
	}
	p.retired = h.retired
	h.pools = append(h.pools, p)
	return p
}

// Retire ends every connection of the Host, busy ones included, and refuses new ones.
func (h *Host[C]) Retire() {
	h.mu.Lock()
	h.retired = true
	pools := slices.Clone(h.pools)
	h.mu.Unlock()
	for _, p := range pools {
		p.retire()
	}
}

// Pool are the connections to one port of a Host. The one used last is used next, so that the others can age out.
type Pool[C Conn] struct {
	host *Host[C]
	port uint16
	addr netip.AddrPort // to dial

	mu      sync.Mutex
	idle    []C
	all     map[C]struct{} // idle and busy ones
	dialing int
	waits   []chan struct{} // callers waiting for a place, oldest first
	retired bool
}

// Acquire returns an idle connection or makes one; reused says which. It waits while the pool is full. Failures are this
// package's errors. until bounds the attempts, if it is not zero.
func (p *Pool[C]) Acquire(until time.Time, cancel <-chan struct{}) (c C, reused bool, err error) {
	for {
		p.mu.Lock()
		switch n := len(p.idle); {
		case p.retired:
			p.mu.Unlock()
			return c, false, ErrRetired
		case n > 0:
			c = p.idle[n-1]
			var none C
			p.idle[n-1] = none
			p.idle = p.idle[:n-1]
			p.mu.Unlock()
			return c, true, nil
		}
		if limit := p.host.dialer.MaxConns; limit == 0 || len(p.all)+p.dialing < limit {
			p.dialing++
			p.mu.Unlock()
			c, err = p.dial(until, cancel)
			return c, false, err
		}
		if err = p.wait(until, cancel); err != nil {
			return c, false, err
		}
	}
}

// Dial makes a new connection whatever stands idle.
func (p *Pool[C]) Dial(until time.Time, cancel <-chan struct{}) (C, error) {
	p.mu.Lock()
	p.dialing++
	p.mu.Unlock()
	return p.dial(until, cancel)
}

// dial uses the place that the caller has reserved in p.dialing.
func (p *Pool[C]) dial(until time.Time, cancel <-chan struct{}) (c C, err error) {
	d := p.host.dialer
	var t Transport
	for n := 1; ; n++ {
		if t, err = d.dial(p.addr, until, cancel); err == nil || err == ErrCanceled {
			break
		}
		if p.isRetired() {
			err = ErrRetired
			break
		}
		if n > d.Retries && !(err == ErrRefused && p.Fresh()) {
			break
		}
		if e := d.pause(n, until, cancel); e != nil {
			if e == ErrCanceled {
				err = e
			}
			break
		}
	}
	if err == nil {
		c = p.host.open(t, p)
	}
	p.mu.Lock()
	p.dialing--
	retired := p.retired
	if err == nil {
		p.all[c] = struct{}{}
	} else {
		p.wake()
	}
	p.mu.Unlock()
	if err != nil {
		return c, err
	}
	c.Start()
	if retired {
		c.Kill()
		return c, ErrRetired
	}
	return c, nil
}

// Fresh reports whether the endpoint is younger than the dialer's grace.
func (p *Pool[C]) Fresh() bool {
	return !p.host.born.IsZero() && time.Since(p.host.born) < p.host.dialer.Grace
}

func (p *Pool[C]) isRetired() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.retired
}

// wait is called with p.mu held and gives it up.
func (p *Pool[C]) wait(until time.Time, cancel <-chan struct{}) error {
	if len(p.waits) >= p.host.dialer.MaxWaits {
		p.mu.Unlock()
		return ErrTooMany
	}
	turn := make(chan struct{})
	p.waits = append(p.waits, turn)
	p.mu.Unlock()

	var late <-chan time.Time
	if !until.IsZero() {
		t := time.NewTimer(time.Until(until))
		defer t.Stop()
		late = t.C
	}
	err := ErrTooMany
	select {
	case <-turn:
		return nil
	case <-cancel:
		err = ErrCanceled
	case <-late:
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, w := range p.waits {
		if w == turn {
			p.waits = append(p.waits[:i], p.waits[i+1:]...)
			return err
		}
	}
	p.wake() // the turn came in the meantime: pass it on
	return err
}

// wake gives the oldest waiting caller its turn. The caller holds p.mu.
func (p *Pool[C]) wake() {
	if len(p.waits) > 0 {
		close(p.waits[0])
		p.waits = p.waits[1:]
	}
}

// Put makes a connection idle. false: it is not wanted any more, and its user must end it.
func (p *Pool[C]) Put(c C) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.retired {
		return false
	}
	p.idle = append(p.idle, c)
	p.wake()
	return true
}

// Withdraw takes an idle connection out of the pool. false: it is in use.
func (p *Pool[C]) Withdraw(c C) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := len(p.idle) - 1; i >= 0; i-- {
		if p.idle[i] == c {
			p.idle = slices.Delete(p.idle, i, i+1)
			return true
		}
	}
	return false
}

// Forget frees the place of a connection that ended.
func (p *Pool[C]) Forget(c C) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.all, c)
	p.wake()
}

// retireUnused retires a pool without connections. Who has just got it and not used it yet finds it retired.
func (p *Pool[C]) retireUnused() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.retired = p.retired || len(p.all)+p.dialing+len(p.waits) == 0
	return p.retired
}

func (p *Pool[C]) retire() {
	p.mu.Lock()
	p.retired = true
	p.idle = nil
	conns := make([]C, 0, len(p.all))
	for c := range p.all {
		conns = append(conns, c)
	}
	for len(p.waits) > 0 {
		p.wake()
	}
	p.mu.Unlock()
	for _, c := range conns {
		c.Kill()
	}
}

// Authority is the address and port as a Host field names them.
func (h *Host[C]) Authority(port uint16) []byte {
	return netip.AddrPortFrom(h.Addr, port).AppendTo(nil)
}
