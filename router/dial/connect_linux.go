package dial

import (
	"net/netip"
	"os"
	"syscall"
	"time"
	"unsafe"
)

// tcpConn is a connection on Go's poller without what net.Dial does for each one and nobody here asks for: the two addresses,
// broadcast, keep-alive, a context and a goroutine. Half of the cost of a dial is in those.
type tcpConn struct {
	*os.File
	raw syscall.RawConn
}

// connect makes one attempt, as connect(2) on a non-blocking socket. It ends at until, if that is not zero, and when cancel is
// closed. Errors are those of the system, os.ErrDeadlineExceeded and ErrCanceled.
func connect(addr netip.AddrPort, until time.Time, cancel <-chan struct{}) (Transport, error) {
	var to sockaddr
	family := to.set(addr)
	fd, err := syscall.Socket(family, syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	errno := to.connect(fd)
	if errno == syscall.EINPROGRESS {
		errno = to.connect(fd) // on the same host the handshake was done before the first call returned
	}
	pending := errno == syscall.EALREADY || errno == syscall.EINPROGRESS
	if errno != 0 && !pending {
		syscall.Close(fd)
		return nil, errno
	}
	syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1)
	f := os.NewFile(uintptr(fd), "sandbox")
	raw, err := f.SyscallConn()
	if err == nil && pending {
		err = await(f, raw, &to, until, cancel)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return &tcpConn{File: f, raw: raw}, nil
}

// await waits for the end of the handshake.
func await(f *os.File, raw syscall.RawConn, to *sockaddr, until time.Time, cancel <-chan struct{}) error {
	if err := f.SetWriteDeadline(until); err != nil {
		return err
	}
	done, watched := make(chan struct{}), make(chan struct{})
	canceled := false
	go func() {
		defer close(watched)
		select {
		case <-cancel:
			canceled = true
			f.SetWriteDeadline(time.Unix(1, 0))
		case <-done:
		}
	}()
	var errno syscall.Errno
	err := raw.Write(func(fd uintptr) bool {
		errno = to.connect(int(fd))
		return errno != syscall.EALREADY && errno != syscall.EINPROGRESS
	})
	close(done)
	<-watched
	switch {
	case err == nil && errno != 0 && errno != syscall.EISCONN:
		return errno
	case err == nil:
		return f.SetWriteDeadline(time.Time{})
	case canceled:
		return ErrCanceled
	}
	return err
}

// sockaddr is an address as the kernel reads it.
type sockaddr struct {
	v6   syscall.RawSockaddrInet6 // the larger one; an IPv4 address lies at its beginning
	size uintptr
}

// set returns the address family.
func (s *sockaddr) set(a netip.AddrPort) int {
	ip, port := a.Addr().Unmap(), a.Port()
	if ip.Is4() {
		v4 := (*syscall.RawSockaddrInet4)(unsafe.Pointer(&s.v6))
		*v4 = syscall.RawSockaddrInet4{Family: syscall.AF_INET, Port: networkOrder(port), Addr: ip.As4()}
		s.size = syscall.SizeofSockaddrInet4
		return syscall.AF_INET
	}
	s.v6 = syscall.RawSockaddrInet6{Family: syscall.AF_INET6, Port: networkOrder(port), Addr: ip.As16()}
	s.size = syscall.SizeofSockaddrInet6
	return syscall.AF_INET6
}

func networkOrder(port uint16) uint16 {
	b := [2]byte{byte(port >> 8), byte(port)}
	return *(*uint16)(unsafe.Pointer(&b))
}

func (s *sockaddr) connect(fd int) syscall.Errno {
	_, _, errno := syscall.RawSyscall(syscall.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&s.v6)), s.size)
	return errno
}

func (c *tcpConn) SyscallConn() (syscall.RawConn, error) { return c.raw, nil }

func (c *tcpConn) CloseRead() error  { return c.shutdown(syscall.SHUT_RD) }
func (c *tcpConn) CloseWrite() error { return c.shutdown(syscall.SHUT_WR) }

func (c *tcpConn) shutdown(how int) error {
	return c.control(func(fd int) error { return syscall.Shutdown(fd, how) })
}

// SetKeepAlive uses the periods of net's default: a probe after 15 s of silence, then one every 15 s.
func (c *tcpConn) SetKeepAlive(on bool) error {
	return c.control(func(fd int) error {
		v := 0
		if on {
			v = 1
			syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE, 15)
			syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_KEEPINTVL, 15)
			syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_KEEPCNT, 9)
		}
		return syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_KEEPALIVE, v)
	})
}

func (c *tcpConn) SetLinger(seconds int) error {
	return c.control(func(fd int) error {
		return syscall.SetsockoptLinger(fd, syscall.SOL_SOCKET, syscall.SO_LINGER, &syscall.Linger{Onoff: 1, Linger: int32(seconds)})
	})
}

func (c *tcpConn) control(fn func(fd int) error) (err error) {
	if e := c.raw.Control(func(fd uintptr) { err = fn(int(fd)) }); e != nil {
		return e
	}
	return err
}
