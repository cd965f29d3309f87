//go:build linux

package peers

import (
	"bytes"
	"context"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/dovakiin0/agent-sandbox/bench/epoll"
	"github.com/dovakiin0/agent-sandbox/bench/fleet"
	"github.com/dovakiin0/agent-sandbox/bench/wire"
)

// limit is no proxy to be used: it forwards bytes as they came, checks nothing, counts nothing, and ends both connections at
// the first surprise. It shows what is left when a proxy does only what cannot be left out: find the end of each message,
// look the sandbox up, and pass the bytes on, with two reads and two writes for each exchange.
type limit struct {
	poll      *epoll.Poller
	listener  int
	ends      []*end // by descriptor
	sandboxes map[string]*pool
	scratch   []byte
}

// pool is the idle connections to one sandbox.
type pool struct {
	addr netip.AddrPort
	idle []*end
}

// end is a connection, a client's or a sandbox's.
type end struct {
	fd     int
	pool   *pool // nil: a client's
	peer   *end  // the other end of the exchange, or of the tunnel
	tunnel bool
	inBody bool
	left   int64 // bytes of the body still to come
	chunks *wire.Chunks
	kept   []byte // a head whose end is still to come
	out    []byte // what the kernel did not take yet
}

func serveLimit(ctx context.Context, httpPort, backend uint16, sandboxes int) error {
	poll, err := epoll.New()
	if err != nil {
		return err
	}
	defer poll.Close()
	defer context.AfterFunc(ctx, poll.Wake)()
	listener, _, err := epoll.Listen(httpPort)
	if err != nil {
		return err
	}
	defer unix.Close(listener)
	if err := poll.Add(listener); err != nil {
		return err
	}
	l := &limit{poll: poll, listener: listener, sandboxes: make(map[string]*pool, sandboxes), scratch: make([]byte, 256<<10)}
	for i := range sandboxes {
		l.sandboxes[fleet.ID(i)] = &pool{addr: netip.AddrPortFrom(fleet.Addr(i, 0), backend)}
	}
	for ctx.Err() == nil {
		events, err := poll.Wait(-1)
		if err != nil {
			return err
		}
		for _, e := range events {
			switch {
			case int(e.Fd) == listener:
				l.accept()
			case l.ends[e.Fd] != nil:
				l.serve(l.ends[e.Fd], e.Events)
			}
		}
	}
	return nil
}

func (l *limit) accept() {
	for {
		fd, _, err := epoll.Accept(l.listener)
		if err != nil {
			return
		}
		l.add(&end{fd: fd})
	}
}

func (l *limit) add(e *end) {
	if e.fd >= len(l.ends) {
		l.ends = append(l.ends, make([]*end, e.fd+256-len(l.ends))...)
	}
	l.ends[e.fd] = e
	if l.poll.Add(e.fd) != nil {
		l.close(e)
	}
}

func (l *limit) serve(e *end, events uint32) {
	if events&epoll.Writable != 0 && len(e.out) > 0 {
		l.send(e, nil)
	}
	for l.ends[e.fd] == e && events&epoll.Readable != 0 {
		kept := copy(l.scratch, e.kept)
		n, errno := epoll.Read(e.fd, l.scratch[kept:])
		if errno == unix.EAGAIN {
			return
		}
		if errno != 0 || n == 0 {
			l.close(e)
			return
		}
		e.kept = e.kept[:0]
		l.forward(e, l.scratch[:kept+n])
		if kept+n < len(l.scratch) && events&epoll.Ended == 0 {
			return
		}
	}
}

// forward passes on what came from e.
func (l *limit) forward(e *end, b []byte) {
	if !e.tunnel && !e.inBody && !l.begin(e, b) {
		return
	}
	whole := !e.tunnel && l.ended(e, b)
	l.send(e.peer, b)
	if whole && e.pool != nil && e.peer != nil { // the answer is whole
		e.peer.peer, e.peer = nil, nil
		e.pool.idle = append(e.pool.idle, e)
	}
}

// begin reads a head. false: there is nothing to pass on.
func (l *limit) begin(e *end, b []byte) bool {
	h, ok := wire.ParseHead(b)
	if !ok {
		e.kept = append(e.kept, b...)
		return false
	}
	if e.pool == nil && (e.peer != nil || !l.connect(e, b)) || e.peer == nil {
		l.close(e)
		return false
	}
	e.inBody, e.left, e.chunks = true, int64(h.Size)+max(0, h.Length), nil
	if h.Chunked {
		e.left, e.chunks = int64(h.Size), &wire.Chunks{}
	}
	if e.pool != nil && h.Status() == 101 {
		e.tunnel, e.peer.tunnel = true, true
	}
	return true
}

var idField = []byte("\r\nX-Sandbox-ID: ")

// connect joins a client with a connection to the sandbox that its request names.
func (l *limit) connect(client *end, b []byte) bool {
	at := bytes.Index(b, idField)
	if at < 0 {
		return false
	}
	id, _, _ := bytes.Cut(b[at+len(idField):], []byte{'\r'})
	p := l.sandboxes[string(id)]
	if p == nil {
		return false
	}
	var up *end
	if n := len(p.idle); n > 0 {
		up, p.idle = p.idle[n-1], p.idle[:n-1]
	} else {
		fd, err := epoll.Dial(loopback, p.addr)
		if err != nil {
			return false
		}
		up = &end{fd: fd, pool: p}
		l.add(up)
	}
	client.peer, up.peer = up, client
	return l.ends[up.fd] == up
}

// ended takes b off what e has still to send. It reports whether the message is whole.
func (l *limit) ended(e *end, b []byte) bool {
	n := min(e.left, int64(len(b)))
	e.left -= n
	if e.chunks == nil {
		e.inBody = e.left > 0
		return !e.inBody
	}
	for b = b[n:]; len(b) > 0; {
		_, used, err := e.chunks.Next(b)
		if err != nil || used == 0 {
			break
		}
		b = b[used:]
	}
	e.inBody = !e.chunks.Done()
	return !e.inBody
}

func (l *limit) send(e *end, b []byte) {
	if e == nil {
		return
	}
	if len(e.out) > 0 {
		b = append(e.out, b...)
	}
	n, errno := epoll.Send(e.fd, b)
	if errno == unix.ENOTCONN { // it is being connected
		errno = 0
	}
	if errno != 0 {
		l.close(e)
		return
	}
	e.out = append([]byte(nil), b[n:]...)
}

// close ends a connection and the one that it is joined with.
func (l *limit) close(e *end) {
	for _, x := range []*end{e, e.peer} {
		if x == nil || l.ends[x.fd] != x {
			continue
		}
		l.ends[x.fd] = nil
		unix.Close(x.fd)
		if x.pool != nil && x.peer == nil {
			for i, idle := range x.pool.idle {
				if idle == x {
					x.pool.idle = append(x.pool.idle[:i], x.pool.idle[i+1:]...)
					break
				}
			}
		}
	}
}
