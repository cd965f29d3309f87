package relay

import (
	"io"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

const rawReads = true

// readRaw calls h at every readiness edge and parks in between. RawConn.Read forgets earlier edges only when it is entered,
// and its first call reads at once, so none is lost. A read that does not fill its room has emptied the socket, but the end
// of the connection may have come with the same edge: where that matters, another read looks. Elsewhere the watchdog does.
func (s *socket) readRaw(h reader) error {
	sp, _ := h.(splicer)
	return s.raw.Read(func(fd uintptr) bool {
		for {
			n, full, errno := pull(fd, h, sp)
			switch {
			case errno == syscall.EAGAIN:
				h.pause()
				return false
			case errno == syscall.EINTR:
				continue
			case errno != 0:
				h.ended(errno)
				return true
			case n == 0:
				h.ended(io.EOF)
				return true
			}
			if !h.got(n) {
				return true
			}
			if !full && !h.expects() {
				h.pause()
				return false
			}
		}
	})
}

// pull reads once, to where h wants the bytes. full: there may be more. recvfrom(2) gets to the socket on a shorter way than read(2).
func pull(fd uintptr, h reader, sp splicer) (n int, full bool, errno syscall.Errno) {
	if sp != nil {
		if p, most := sp.pipe(); p != nil {
			n, errno = p.fill(fd, most)
			if cannot(errno) {
				pipes.refuse()
				h.pause() // gives the pipe back
				errno = syscall.EINTR
			}
			return n, true, errno
		}
	}
	room := h.room()
	got, _, errno := syscall.RawSyscall6(syscall.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(unsafe.SliceData(room))), uintptr(len(room)), syscall.MSG_DONTWAIT, 0, 0)
	return int(got), int(got) == len(room), errno
}

// writeRaw sends what the kernel takes at once. RawSyscall spares the scheduler's bookkeeping, which is right because the
// descriptor never blocks. The caller holds w, so the descriptor is open.
func (s *socket) writeRaw(b []byte) (int, error) {
	for len(b) > 0 {
		n, _, errno := syscall.RawSyscall6(syscall.SYS_SENDTO, s.fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), syscall.MSG_NOSIGNAL|syscall.MSG_DONTWAIT, 0, 0)
		switch errno {
		case 0:
			return int(n), nil
		case syscall.EINTR:
		case syscall.EAGAIN:
			return 0, nil
		default:
			return 0, errno
		}
	}
	return 0, nil
}

// peek looks at what the reading goroutine would read next. The caller holds w, so the descriptor is open.
func (s *socket) peek() outlook {
	var one [1]byte
	n, _, errno := syscall.RawSyscall6(syscall.SYS_RECVFROM, s.fd, uintptr(unsafe.Pointer(&one)), 1, syscall.MSG_PEEK|syscall.MSG_DONTWAIT, 0, 0)
	switch {
	case errno == syscall.EAGAIN || errno == syscall.EINTR:
		return silent
	case errno != 0 || n == 0:
		return over
	}
	return speaking
}

// finished asks the kernel whether the end of what the other end sends has come. The caller holds w, so the descriptor is open.
func (s *socket) finished() bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLRDHUP}}, 0)
	return n > 0 && err == nil
}
