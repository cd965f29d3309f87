package wire

import (
	"encoding/binary"
	"net"
	"net/netip"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// awaitRead waits until the application at the other end of c has read everything sent on c so far. That is what makes
// "in two pieces" mean two reads of the router. It gives up after a moment: a router may be right not to read, and
// then the split is merely not observable.
func awaitRead(c *net.TCPConn) {
	for deadline := time.Now().Add(200 * time.Millisecond); time.Now().Before(deadline); time.Sleep(50 * time.Microsecond) {
		if queued, err := unread(c.RemoteAddr(), c.LocalAddr()); err != nil || queued == 0 {
			return
		}
	}
}

// unread is the number of bytes that wait in the receive queue of the IPv4 TCP socket with the given two ends. It asks
// the kernel for that one socket (sock_diag(7)).
func unread(local, remote net.Addr) (uint32, error) {
	const (
		headerSize  = 16 // struct nlmsghdr
		requestSize = 56 // struct inet_diag_req_v2
		byFamily    = 20 // SOCK_DIAG_BY_FAMILY
		queueOffset = 56 // idiag_rqueue in struct inet_diag_msg
	)
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_INET_DIAG)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)

	message := make([]byte, headerSize+requestSize)
	binary.NativeEndian.PutUint32(message[0:], uint32(len(message)))
	binary.NativeEndian.PutUint16(message[4:], byFamily)
	binary.NativeEndian.PutUint16(message[6:], unix.NLM_F_REQUEST)
	request := message[headerSize:]
	request[0], request[1] = unix.AF_INET, unix.IPPROTO_TCP
	binary.NativeEndian.PutUint32(request[4:], 0xffffffff) // any state
	id := request[8:]
	putEnd(id[0:], id[4:], local)
	putEnd(id[2:], id[20:], remote)
	binary.NativeEndian.PutUint64(id[40:], 0xffffffffffffffff) // no cookie
	if err := unix.Sendto(fd, message, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, err
	}

	reply := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, reply, 0)
	if err != nil {
		return 0, err
	}
	if n < headerSize+queueOffset+4 || binary.NativeEndian.Uint16(reply[4:]) != byFamily {
		return 0, unix.ENOENT // an error message: the socket is gone
	}
	return binary.NativeEndian.Uint32(reply[headerSize+queueOffset:]), nil
}

// putEnd writes the port and the address of one end, both in network byte order.
func putEnd(port, address []byte, end net.Addr) {
	at := netip.MustParseAddrPort(end.String())
	binary.BigEndian.PutUint16(port, at.Port())
	ip := at.Addr().Unmap().As4()
	copy(address, ip[:])
}

// readable reports whether a read or an accept on the socket would return at once.
func readable(t testing.TB, socket syscall.Conn) bool {
	t.Helper()
	raw, err := socket.SyscallConn()
	require.NoError(t, err)
	ready := 0
	require.NoError(t, raw.Control(func(fd uintptr) {
		for {
			ready, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
			if err != unix.EINTR {
				return
			}
		}
	}))
	require.NoError(t, err)
	return ready > 0
}

// deafListener is a listener at address that lets connections begin and never completes them: its queue is full.
func deafListener(t testing.TB, address string) (ip, port string) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	at := netip.MustParseAddr(address)
	require.NoError(t, unix.Bind(fd, &unix.SockaddrInet4{Addr: at.As4()}))
	require.NoError(t, unix.Listen(fd, 0))
	bound, err := unix.Getsockname(fd)
	require.NoError(t, err)
	listener := netip.AddrPortFrom(at, uint16(bound.(*unix.SockaddrInet4).Port))
	for { // a queue for 0 connections still takes one or two
		c, err := net.DialTimeout("tcp4", listener.String(), 300*time.Millisecond)
		if err != nil {
			return address, strconv.Itoa(int(listener.Port()))
		}
		t.Cleanup(func() { _ = c.Close() })
	}
}
