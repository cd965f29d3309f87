package dial

import (
	"io"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// deaf is a listener whose queue is full, so that the kernel does not answer another handshake until accept is called.
func deaf(t *testing.T) (addr netip.AddrPort, accept func() int) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { syscall.Close(fd) })
	require.NoError(t, syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	require.NoError(t, syscall.Listen(fd, 0))
	name, err := syscall.Getsockname(fd)
	require.NoError(t, err)
	at := name.(*syscall.SockaddrInet4)
	addr = netip.AddrPortFrom(netip.AddrFrom4(at.Addr), uint16(at.Port))
	first, err := connect(addr, time.Time{}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { first.Close() })
	return addr, func() int {
		c, _, err := syscall.Accept(fd)
		require.NoError(t, err)
		t.Cleanup(func() { syscall.Close(c) })
		return c
	}
}

func TestPendingConnect(t *testing.T) {
	addr, accept := deaf(t)
	_, err := (&Dialer{Timeout: 50 * time.Millisecond}).dial(addr, time.Time{}, nil)
	assert.ErrorIs(t, err, ErrTimeout)
	_, err = (&Dialer{}).dial(addr, time.Now().Add(50*time.Millisecond), nil)
	assert.ErrorIs(t, err, ErrTimeout)

	cancel := make(chan struct{})
	close(cancel)
	_, err = (&Dialer{Timeout: patience}).dial(addr, time.Time{}, cancel)
	assert.ErrorIs(t, err, ErrCanceled)

	// The kernel repeats the handshake after a second, and by then there is room.
	accept()
	c, err := (&Dialer{Timeout: patience}).dial(addr, time.Time{}, nil)
	require.NoError(t, err)
	defer c.Close()
	talk(t, c, accept())
}

func TestTransport(t *testing.T) {
	addr, accept := deaf(t)
	accept()
	c, err := (&Dialer{}).dial(addr, time.Time{}, nil)
	require.NoError(t, err)
	peer := accept()
	talk(t, c, peer)

	noDelay := option(t, c, syscall.IPPROTO_TCP, syscall.TCP_NODELAY)
	assert.NotZero(t, noDelay)
	assert.Zero(t, option(t, c, syscall.SOL_SOCKET, syscall.SO_KEEPALIVE))
	require.NoError(t, c.SetKeepAlive(true))
	assert.NotZero(t, option(t, c, syscall.SOL_SOCKET, syscall.SO_KEEPALIVE))
	assert.Equal(t, 15, option(t, c, syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE))

	require.NoError(t, c.CloseWrite())
	n, err := syscall.Read(peer, make([]byte, 1))
	assert.NoError(t, err)
	assert.Zero(t, n, "the peer sees the end of what it is sent")
	_, err = syscall.Write(peer, []byte("late"))
	require.NoError(t, err)
	b := make([]byte, 4)
	_, err = io.ReadFull(c, b)
	assert.NoError(t, err)
	assert.Equal(t, "late", string(b), "and can still be heard")
	require.NoError(t, c.CloseRead())
	_, err = c.Read(b)
	assert.ErrorIs(t, err, io.EOF)
	require.NoError(t, c.Close())
}

func TestAbortedConnectionLooksLikeOne(t *testing.T) {
	addr, accept := deaf(t)
	accept()
	c, err := (&Dialer{}).dial(addr, time.Time{}, nil)
	require.NoError(t, err)
	peer := accept()
	require.NoError(t, c.SetLinger(0))
	require.NoError(t, c.Close())
	_, err = syscall.Read(peer, make([]byte, 1))
	assert.Equal(t, syscall.ECONNRESET, err)
}

// talk sends a byte each way.
func talk(t *testing.T, c Transport, peer int) {
	_, err := c.Write([]byte{1})
	require.NoError(t, err)
	b := make([]byte, 1)
	n, err := syscall.Read(peer, b)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	_, err = syscall.Write(peer, []byte{2})
	require.NoError(t, err)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(patience)))
	_, err = io.ReadFull(c, b)
	require.NoError(t, err)
	require.Equal(t, byte(2), b[0])
}

func option(t *testing.T, c Transport, level, name int) (v int) {
	raw, err := c.SyscallConn()
	require.NoError(t, err)
	require.NoError(t, raw.Control(func(fd uintptr) { v, err = syscall.GetsockoptInt(int(fd), level, name) }))
	require.NoError(t, err)
	return v
}
