//go:build !linux

package dial

import (
	"context"
	"net"
	"net/netip"
	"time"
)

// connect makes one attempt. It ends at until, if that is not zero, and when cancel is closed.
func connect(addr netip.AddrPort, until time.Time, cancel <-chan struct{}) (Transport, error) {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() {
		select {
		case <-cancel:
			stop()
		case <-ctx.Done():
		}
	}()
	d := net.Dialer{Deadline: until, KeepAlive: -1} // tunnels turn it on
	c, err := d.DialContext(ctx, "tcp", addr.String())
	if err != nil {
		return nil, err
	}
	return c.(*net.TCPConn), nil
}
