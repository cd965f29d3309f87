//go:build linux

// Package epoll is what the load generator and the backend share of the kernel's interface: non-blocking loopback sockets
// and edge-triggered readiness, used by one thread. It spends as little as it can, so that one core of it can load a proxy
// on the other.
package epoll

import (
	"fmt"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Readable and Writable are the bits of an Event's Events that mean: read, and write. An error shows when reading.
const (
	Readable = unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLHUP | unix.EPOLLERR
	Writable = unix.EPOLLOUT
	Ended    = unix.EPOLLRDHUP | unix.EPOLLHUP | unix.EPOLLERR
)

// Event names a descriptor and what it is ready for.
type Event = unix.EpollEvent

// Poller waits for many descriptors. Everything but Wake belongs to one goroutine.
type Poller struct {
	fd, wake int
	events   [256]Event
}

// New makes a Poller.
func New() (*Poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll_create1: %w", err)
	}
	p := &Poller{fd: fd}
	if p.wake, err = unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	if err := p.Add(p.wake); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// Add begins to watch fd in both directions. Each change of its state is reported once. Closing fd ends the watch.
func (p *Poller) Add(fd int) error {
	e := Event{Events: unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET, Fd: int32(fd)}
	if err := unix.EpollCtl(p.fd, unix.EPOLL_CTL_ADD, fd, &e); err != nil {
		return fmt.Errorf("epoll_ctl: %w", err)
	}
	return nil
}

// Wait returns the events there are, and waits for the first of them no longer than timeout; below 0: for ever. The slice
// is valid until the next call. It may hold events of a descriptor that was closed, and even of the one that has its
// number now: users must bear a report of readiness that is not there.
func (p *Poller) Wait(timeout time.Duration) ([]Event, error) {
	var ts *unix.Timespec
	if timeout >= 0 {
		t := unix.NsecToTimespec(int64(timeout))
		ts = &t
	}
	// epoll_pwait2, for arrivals fall between milliseconds.
	n, _, errno := unix.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(p.fd), uintptr(unsafe.Pointer(&p.events)), uintptr(len(p.events)),
		uintptr(unsafe.Pointer(ts)), 0, 0)
	switch errno {
	case 0:
	case unix.EINTR:
		return nil, nil
	default:
		return nil, fmt.Errorf("epoll_pwait2: %w", errno)
	}
	events := p.events[:n]
	for i := range events {
		if events[i].Fd == int32(p.wake) {
			var count [8]byte
			unix.Read(p.wake, count[:])
			events[i] = events[n-1]
			return events[:n-1], nil
		}
	}
	return events, nil
}

// Wake makes Wait return. Any goroutine may call it until Close.
func (p *Poller) Wake() { unix.Write(p.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0}) }

// Close ends the Poller.
func (p *Poller) Close() {
	unix.Close(p.fd)
	unix.Close(p.wake)
}
