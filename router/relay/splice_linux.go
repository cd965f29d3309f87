package relay

import (
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	pipeSize = 256 << 10
	// maxPipes bounds descriptors, and takes half of the pages that the kernel lets the pipes of a user without privileges have.
	maxPipes  = 128
	pipeRetry = time.Second      // when the system has no descriptors or pages left for another pipe
	pipeIdle  = 10 * time.Second // after which pipes that nobody needed in the meantime are closed
)

// pipe holds bytes on their way between two sockets. It is used by one goroutine at a time.
type pipe struct {
	r, w  int
	n     int // bytes in it
	errno syscall.Errno
	pour  func(fd uintptr) bool // p.empty, made once
}

// pipePool makes and keeps empty pipes. Bodies that get none are copied.
type pipePool struct {
	mu      sync.Mutex
	idle    []*pipe
	spare   int // the fewest that were idle since trimmed
	trimmed time.Time
	made    int
	failed  time.Time
	refused bool // this system cannot splice sockets
}

var pipes pipePool

// get returns an empty pipe, or nil.
func (s *pipePool) get() *pipe {
	s.mu.Lock()
	defer s.mu.Unlock()
	if last := len(s.idle) - 1; last >= 0 {
		p := s.idle[last]
		s.idle = s.idle[:last]
		s.spare = min(s.spare, last)
		return p
	}
	if s.refused || s.made == maxPipes || !s.failed.IsZero() && time.Since(s.failed) < pipeRetry {
		return nil
	}
	p, err := newPipe()
	if err != nil {
		s.failed = time.Now()
		return nil
	}
	s.made++
	return p
}

// newPipe makes a pipe of pipeSize. What a smaller one saves by not copying, it costs in system calls.
func newPipe() (*pipe, error) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, err
	}
	p := &pipe{r: ends[0], w: ends[1]}
	p.pour = p.empty
	if _, err := unix.FcntlInt(uintptr(p.w), unix.F_SETPIPE_SZ, pipeSize); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *pipe) close() {
	unix.Close(p.r)
	unix.Close(p.w)
}

// put gives a pipe back. One that could not be emptied is closed: its bytes belong to nobody else.
func (s *pipePool) put(p *pipe) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.n > 0 || s.refused {
		s.made--
		p.close()
		return
	}
	s.idle = append(s.idle, p)
}

// trim closes the pipes that nobody has needed since the last trim, which was pipeIdle ago at least.
func (s *pipePool) trim(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.trimmed) < pipeIdle {
		return
	}
	s.closeIdle(s.spare)
	s.trimmed, s.spare = now, len(s.idle)
}

// refuse ends the use of pipes.
func (s *pipePool) refuse() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused = true
	s.closeIdle(len(s.idle))
}

// closeIdle closes n idle pipes, those first that have been idle longest.
func (s *pipePool) closeIdle(n int) {
	for _, p := range s.idle[:n] {
		p.close()
	}
	s.idle = slices.Delete(s.idle, 0, n)
	s.made -= n
	s.spare = min(s.spare, len(s.idle))
}

// splice moves up to n bytes from one descriptor to another. Sockets and pipes do not block, so the scheduler need not know.
func splice(from, to uintptr, n int64) (int, syscall.Errno) {
	moved, _, errno := syscall.RawSyscall6(unix.SYS_SPLICE, from, 0, to, 0, uintptr(n), unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
	if errno != 0 {
		return 0, errno
	}
	return int(moved), 0
}

// fill takes up to most bytes from a socket into the empty pipe.
func (p *pipe) fill(fd uintptr, most int64) (int, syscall.Errno) {
	n, errno := splice(fd, uintptr(p.w), min(most, pipeSize))
	p.n = n
	return n, errno
}

// cannot reports whether errno says that the system has no splice for sockets, or does not allow it.
func cannot(errno syscall.Errno) bool {
	return errno == syscall.EINVAL || errno == syscall.ENOSYS || errno == syscall.EPERM || errno == syscall.EOPNOTSUPP
}

// empty sends what the kernel takes at once. false: there is more.
func (p *pipe) empty(fd uintptr) bool {
	for p.n > 0 {
		n, errno := splice(uintptr(p.r), fd, int64(p.n))
		switch errno {
		case 0:
			p.n -= n
		case syscall.EINTR:
		case syscall.EAGAIN:
			return false
		default:
			p.errno = errno
			return true
		}
	}
	return true
}

// drain sends all that is in p, waiting for the client as long as it takes.
func (c *client) drain(p *pipe) error {
	c.w.Lock()
	defer c.w.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	if !p.empty(c.fd) {
		c.stuck.Store(true)
		defer c.stuck.Store(false)
		if err := c.raw.Write(p.pour); err != nil {
			return err
		}
	}
	if p.n > 0 {
		return p.errno
	}
	return nil
}
