//go:build linux

package epoll

import (
	"fmt"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Read reads what is there. 0 bytes without an error is the end of the stream; unix.EAGAIN: nothing is there. It spares the
// scheduler's bookkeeping of a system call, which is right because the descriptor never blocks.
func Read(fd int, b []byte) (int, unix.Errno) {
	for {
		n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
		switch errno {
		case 0:
			return int(n), 0
		case unix.EINTR:
		default:
			return 0, errno
		}
	}
}

// Send writes what the kernel takes, which may be nothing.
func Send(fd int, b []byte) (int, unix.Errno) {
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)),
			unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT, 0, 0)
		switch errno {
		case 0:
			return int(n), 0
		case unix.EAGAIN:
			return 0, 0
		case unix.EINTR:
		default:
			return 0, errno
		}
	}
}

// Listen listens on a port of every address of 127.0.0.0/8; port 0 takes a free one. A socket for each of thousands of
// addresses would cost as many descriptors, so it is one socket for all addresses of the loopback device, and of no other.
func Listen(port uint16) (fd int, bound uint16, err error) {
	fd, err = socket()
	if err != nil {
		return 0, 0, err
	}
	defer func() {
		if err != nil {
			unix.Close(fd)
		}
	}()
	if err = unix.BindToDevice(fd, "lo"); err != nil {
		return 0, 0, fmt.Errorf("binding to the loopback device: %w", err)
	}
	if err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return 0, 0, fmt.Errorf("SO_REUSEADDR: %w", err)
	}
	if err = unix.Bind(fd, &unix.SockaddrInet4{Port: int(port)}); err != nil {
		return 0, 0, fmt.Errorf("bind to port %d: %w", port, err)
	}
	if err = unix.Listen(fd, 4096); err != nil {
		return 0, 0, fmt.Errorf("listen: %w", err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		return 0, 0, fmt.Errorf("getsockname: %w", err)
	}
	return fd, uint16(name.(*unix.SockaddrInet4).Port), nil
}

// Accept returns the next connection and the address that its client asked for. unix.EAGAIN: there is none.
func Accept(listener int) (fd int, local netip.Addr, err error) {
	fd, _, err = unix.Accept4(listener, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
	if err != nil {
		return 0, netip.Addr{}, err
	}
	unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	name, err := unix.Getsockname(fd)
	if err != nil {
		unix.Close(fd)
		return 0, netip.Addr{}, err
	}
	return fd, netip.AddrFrom4(name.(*unix.SockaddrInet4).Addr), nil
}

// Dial begins to connect from one loopback address to another. The connection stands when fd becomes writable and
// ConnectError is nil. Rotating from makes room for more connections to one address than there are ports.
func Dial(from netip.Addr, to netip.AddrPort) (fd int, err error) {
	fd, err = socket()
	if err != nil {
		return 0, err
	}
	// The port is chosen when both ends are known, so that it may serve one connection to each of many ends.
	unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
	unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	if err = unix.Bind(fd, &unix.SockaddrInet4{Addr: from.As4()}); err != nil {
		unix.Close(fd)
		return 0, fmt.Errorf("bind to %s: %w", from, err)
	}
	err = unix.Connect(fd, &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())})
	if err != nil && err != unix.EINPROGRESS {
		unix.Close(fd)
		return 0, err
	}
	return fd, nil
}

// ConnectError returns why the connection of a descriptor from Dial failed, if it did.
func ConnectError(fd int) error {
	n, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil {
		return err
	}
	if n != 0 {
		return unix.Errno(n)
	}
	return nil
}

func socket() (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("socket: %w", err)
	}
	return fd, nil
}
