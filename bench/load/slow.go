//go:build linux

package load

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dovakiin0/agent-sandbox/bench/wire"
)

// Slow are clients on bad lines: they send a few bytes at a time and read the answer a little at a time. There are few
// of them and they do little, so each has a goroutine.
type Slow struct {
	Proxy    netip.AddrPort
	Requests []Request
	Clients  int
	Pace     time.Duration // between two pieces
}

// Sizes of the pieces.
const (
	slowSend = 16
	slowRead = 4 << 10
)

// SlowResult is what became of them.
type SlowResult struct{ Answered, Failed int64 }

// Run lets them go on until ctx ends. A request that is under way then counts as neither answered nor failed.
func (s *Slow) Run(ctx context.Context) SlowResult {
	var answered, failed atomic.Int64
	var all sync.WaitGroup
	for k := range s.Clients {
		all.Go(func() {
			for n := k; ctx.Err() == nil; n++ {
				err := s.exchange(ctx, k, &s.Requests[n%len(s.Requests)])
				switch {
				case err == nil:
					answered.Add(1)
				case ctx.Err() == nil:
					failed.Add(1)
					pause(ctx, s.Pace)
				}
			}
		})
	}
	all.Wait()
	return SlowResult{answered.Load(), failed.Load()}
}

func (s *Slow) exchange(ctx context.Context, client int, r *Request) error {
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(sourceAddr(uint16(client)), 0))}
	c, err := d.DialContext(ctx, "tcp4", s.Proxy.String())
	if err != nil {
		return err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	if err := c.(*net.TCPConn).SetReadBuffer(slowRead); err != nil { // else the kernel reads for us
		return err
	}
	for b := r.Bytes; len(b) > 0; pause(ctx, s.Pace) {
		n := min(slowSend, len(b))
		if _, err := c.Write(b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	var answer []byte
	buf := make([]byte, slowRead)
	for {
		n, err := c.Read(buf)
		if err != nil {
			return err
		}
		answer = append(answer, buf[:n]...)
		if h, ok := wire.ParseHead(answer); ok {
			if h.Status() != 200 {
				return fmt.Errorf("status %d", h.Status())
			}
			if int64(len(answer)-h.Size) >= h.Length {
				return nil
			}
		}
		pause(ctx, s.Pace)
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
