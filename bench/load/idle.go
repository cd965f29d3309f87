//go:build linux

package load

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dovakiin0/agent-sandbox/bench/epoll"
	"github.com/dovakiin0/agent-sandbox/bench/wire"
)

// Idle are connections that carried one request each and then stay open.
type Idle struct{ fds []int }

// idleTimeout is how long one step of opening a connection may take.
const idleTimeout = 10 * time.Second

// OpenIdle opens n connections, one after another. Each sends one of the requests and takes its answer; a WebSocket
// handshake makes it a tunnel.
func OpenIdle(ctx context.Context, proxy netip.AddrPort, requests []Request, n int) (*Idle, error) {
	i := &Idle{fds: make([]int, 0, n)}
	buf := make([]byte, 64<<10)
	for k := range n {
		if err := ctx.Err(); err != nil {
			i.Close()
			return nil, err
		}
		fd, err := openOne(sourceAddr(uint16(k)), proxy, requests[k%len(requests)].Bytes, buf)
		if err != nil {
			i.Close()
			return nil, fmt.Errorf("idle connection %d of %d: %w", k+1, n, err)
		}
		i.fds = append(i.fds, fd)
	}
	return i, nil
}

func openOne(from netip.Addr, proxy netip.AddrPort, request, buf []byte) (fd int, err error) {
	fd, err = epoll.Dial(from, proxy)
	if err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			unix.Close(fd)
		}
	}()
	if err = await(fd, unix.POLLOUT); err != nil {
		return 0, err
	}
	if err = epoll.ConnectError(fd); err != nil {
		return 0, err
	}
	if n, errno := epoll.Send(fd, request); errno != 0 || n < len(request) {
		return 0, fmt.Errorf("sending: %d of %d bytes: %w", n, len(request), errno)
	}
	for got := 0; ; {
		if err = await(fd, unix.POLLIN); err != nil {
			return 0, err
		}
		n, errno := epoll.Read(fd, buf[got:])
		if errno != 0 {
			return 0, errno
		}
		if n == 0 {
			return 0, errors.New("closed before the answer was whole")
		}
		got += n
		h, ok := wire.ParseHead(buf[:got])
		if !ok {
			continue
		}
		if status := h.Status(); status != 200 && status != 101 {
			return 0, fmt.Errorf("status %d", status)
		}
		if int64(got-h.Size) >= h.Length {
			return fd, nil
		}
	}
}

func await(fd int, what int16) error {
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: what}}, int(idleTimeout.Milliseconds()))
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return err
		case n == 0:
			return errors.New("timed out")
		}
		return nil
	}
}

// Ended counts the connections that the proxy has closed since.
func (i *Idle) Ended() (n int) {
	var one [1]byte
	for _, fd := range i.fds {
		if got, _, err := unix.Recvfrom(fd, one[:], unix.MSG_PEEK|unix.MSG_DONTWAIT); err != unix.EAGAIN && got <= 0 {
			n++
		}
	}
	return n
}

// Close closes the connections.
func (i *Idle) Close() {
	for _, fd := range i.fds {
		unix.Close(fd)
	}
	i.fds = nil
}
