package relay

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/dovakiin0/agent-sandbox/router/dial"
)

// socket is one end of a relay. One goroutine reads it for its whole life; any goroutine may write to it, under w.
type socket struct {
	conn io.ReadWriteCloser
	tcp  dial.Transport  // the transport, under TLS too
	raw  syscall.RawConn // nil: read with blocking calls (TLS, and systems without raw reads)
	fd   uintptr         // of tcp, valid while w is held and closed is false; only with raw reads

	// w is held while bytes are written and while the descriptor is closed, so that no writer can meet a descriptor
	// that has become another connection's.
	w       sync.Mutex
	closed  bool
	aborted atomic.Bool
	stuck   atomic.Bool // a writer waits for the other end to read
}

// reader is who uses the bytes of a socket.
type reader interface {
	room() []byte       // where the next bytes go; never empty
	got(n int) bool     // n bytes came; false ends the reading
	pause()             // nothing more to read for now
	expects() bool      // more bytes, or an end, belong to what was just read
	ended(err error)    // the other end is done (io.EOF) or the connection is broken
	woken() (more bool) // kick was called
}

// splicer is a reader that may want its bytes in a pipe. got is told of them all the same.
type splicer interface {
	pipe() (p *pipe, most int64) // where the next bytes go, and how many at most; nil: to room
}

// init sets s up for conn, which is tcp itself or TLS over it.
func (s *socket) init(conn io.ReadWriteCloser, tcp dial.Transport) {
	s.conn, s.tcp = conn, tcp
	if !rawReads {
		return
	}
	raw, _ := tcp.SyscallConn()
	raw.Control(func(fd uintptr) { s.fd = fd })
	if conn == io.ReadWriteCloser(tcp) {
		s.raw = raw
	}
}

// outlook is what a peek at a socket shows.
type outlook uint8

const (
	silent   outlook = iota // nothing to read
	speaking                // bytes to read
	over                    // the other end closed, or the connection broke
)

// look peeks at a raw socket; others look silent, and so does one that is being written to.
func (s *socket) look() outlook {
	if s.raw == nil || !s.w.TryLock() {
		return silent
	}
	defer s.w.Unlock()
	if s.closed {
		return over
	}
	return s.peek()
}

// hungUp reports whether the other end sends no more. Unlike look it sees that behind unread bytes, and under TLS.
func (s *socket) hungUp() bool {
	if !s.w.TryLock() {
		return false
	}
	defer s.w.Unlock()
	return s.closed || s.finished()
}

// read runs until the connection ends. On a raw socket it waits for readability before it reads, inside one call of
// RawConn.Read, so that no read is made in vain and no buffer is held meanwhile.
func (s *socket) read(h reader) {
	for {
		err := s.readUntilKicked(h)
		if err == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
			if err != nil {
				h.ended(err)
			}
			return
		}
		s.tcp.SetReadDeadline(time.Time{})
		if !h.woken() {
			return
		}
	}
}

func (s *socket) readUntilKicked(h reader) error {
	if s.raw != nil {
		return s.readRaw(h)
	}
	for {
		n, err := s.conn.Read(h.room())
		if n > 0 && !h.got(n) {
			return nil
		}
		if err == io.EOF || err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			h.ended(err)
			return nil
		}
		if err != nil {
			return err
		}
		h.pause()
	}
}

// kick makes the reading goroutine look again: it calls woken, then reads anew.
func (s *socket) kick() { s.tcp.SetReadDeadline(time.Unix(1, 0)) }

// write sends all of b, waiting for the other end as long as it takes. The caller holds w.
func (s *socket) write(b []byte) error {
	if s.closed {
		return net.ErrClosed
	}
	if s.raw != nil {
		n, err := s.writeRaw(b)
		if err != nil || n == len(b) {
			return err
		}
		b = b[n:]
		s.stuck.Store(true)
		defer s.stuck.Store(false)
	}
	_, err := s.conn.Write(b)
	return err
}

// send is write for callers that do not hold w.
func (s *socket) send(b []byte) error {
	s.w.Lock()
	defer s.w.Unlock()
	return s.write(b)
}

// closeWrite tells the other end that nothing more comes, and goes on reading.
func (s *socket) closeWrite() {
	if c, ok := s.conn.(interface{ CloseWrite() error }); ok {
		c.CloseWrite()
	}
}

// shut fails the reader and the writer of this end without waiting. The other end sees nothing of it before close.
func (s *socket) shut() {
	s.tcp.CloseRead()
	s.tcp.SetWriteDeadline(time.Unix(1, 0))
}

// abort makes close, which follows, look like a broken connection rather than like an orderly end.
func (s *socket) abort() {
	s.aborted.Store(true)
	s.tcp.SetLinger(0)
}

// close is for the reading goroutine, when it is done.
func (s *socket) close() {
	s.shut() // fails a writer that waits for the other end
	s.w.Lock()
	s.closed = true
	if s.aborted.Load() {
		s.tcp.Close() // TLS would take its leave
	} else {
		s.conn.Close()
	}
	s.w.Unlock()
}
