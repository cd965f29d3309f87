// Package faults is a TCP proxy that does to connections what networks do: stall, cut, lose and delay them.
package faults

import (
	"errors"
	"net"
	"sync"
	"time"
)

// Proxy passes connections on to a target. Its methods are for any goroutine.
type Proxy struct {
	target   string
	listener net.Listener
	work     sync.WaitGroup

	mu      sync.Mutex
	links   map[*link]struct{}
	stalled chan struct{} // closed while bytes pass
	cut     bool
	delay   time.Duration
	opened  int
}

// link is one connection through the proxy.
type link struct {
	client, server net.Conn
	lost           chan struct{} // closed when neither side hears of the other any more
	ended          chan struct{}
	endOnce        sync.Once
}

// New starts a proxy on a loopback port.
func New(target string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{target: target, listener: l, links: map[*link]struct{}{}, stalled: closed()}
	p.work.Go(p.accept)
	return p, nil
}

func closed() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// Addr is the address that the proxy listens on.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Opened is the number of connections that were opened through the proxy so far.
func (p *Proxy) Opened() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.opened
}

// Stall stops the bytes of all connections, old and new, until Heal.
func (p *Proxy) Stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.stalled:
		p.stalled = make(chan struct{})
	default:
	}
}

// Cut ends all connections, and new ones at once, until Heal.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = true
	for l := range p.links {
		l.end()
	}
}

// Lose makes the open connections silent for good, without a FIN: neither Heal nor time brings them back.
func (p *Proxy) Lose() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		select {
		case <-l.lost:
		default:
			close(l.lost)
		}
	}
}

// Delay has every piece of data wait for d, both ways.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Heal ends Stall, Cut and Delay.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut, p.delay = false, 0
	select {
	case <-p.stalled:
	default:
		close(p.stalled)
	}
}

// Close ends the proxy and its connections.
func (p *Proxy) Close() {
	p.listener.Close()
	p.Cut()
	p.work.Wait()
}

func (p *Proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			p.work.Go(func() { p.serve(c) })
		}
	}
}

func (p *Proxy) serve(client net.Conn) {
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		client.Close()
		return
	}
	l := &link{client: client, server: server, lost: make(chan struct{}), ended: make(chan struct{})}
	p.mu.Lock()
	p.opened++
	p.links[l] = struct{}{}
	if p.cut {
		l.end()
	}
	p.mu.Unlock()

	p.work.Go(func() { p.pump(l, server, client) })
	p.pump(l, client, server)
	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
}

// pump passes bytes one way until either side ends or the link does.
func (p *Proxy) pump(l *link, to, from net.Conn) {
	defer l.end()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil || !p.pass(l) {
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// pass waits until bytes may go on, and reports whether they ever may.
func (p *Proxy) pass(l *link) bool {
	p.mu.Lock()
	stalled, delay := p.stalled, p.delay
	p.mu.Unlock()
	select {
	case <-l.ended:
		return false
	case <-stalled:
	}
	if delay > 0 {
		select {
		case <-l.ended:
			return false
		case <-time.After(delay):
		}
	}
	select {
	case <-l.lost:
		<-l.ended
		return false
	default:
		return true
	}
}

func (l *link) end() {
	l.endOnce.Do(func() {
		close(l.ended)
		l.client.Close()
		l.server.Close()
	})
}
