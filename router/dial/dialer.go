// Package dial makes and keeps the connections to sandboxes. It knows addresses and endpoint identities, not sandboxes
// or HTTP.
package dial

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"time"
)

// Failures of Pool.Acquire. Each of them means that no byte was sent.
var (
	ErrRefused     = errors.New("connection refused") // a host is there, the port is closed
	ErrUnreachable = errors.New("host unreachable")
	ErrTimeout     = errors.New("dial timeout")
	ErrRetired     = errors.New("the endpoint left the route table")
	ErrTooMany     = errors.New("too many requests wait for a connection")
	ErrCanceled    = errors.New("the caller left")
)

// Dialer are the rules for making connections. They hold for the whole process.
type Dialer struct {
	Timeout      time.Duration // for one attempt
	Retries      int           // attempts after the first one that failed
	InitialDelay time.Duration // before the second attempt, doubled for each further one
	MaxDelay     time.Duration
	// Grace goes on trying past Retries while the endpoint is younger than this: a pod may be Ready a moment before it listens.
	Grace     time.Duration
	Translate Translation
	MaxConns  int // open connections for one port of one endpoint; 0: no limit
	MaxWaits  int // callers that may wait for one of them
	Retried   func()
}

// dial makes one attempt. It ends at until, if that is not zero, and when the caller leaves.
func (d *Dialer) dial(addr netip.AddrPort, until time.Time, cancel <-chan struct{}) (Transport, error) {
	now := time.Now()
	if !until.IsZero() && !now.Before(until) {
		return nil, ErrTimeout
	}
	if end := now.Add(d.Timeout); d.Timeout > 0 && (until.IsZero() || end.Before(until)) {
		until = end
	}
	t, err := connect(addr, until, cancel)
	if err != nil {
		return nil, classify(err)
	}
	return t, nil
}

// classify tells refused from unreachable from timed out: the first leaves the host alive, the others do not say so.
func classify(err error) error {
	var timeout net.Error
	switch {
	case err == ErrCanceled, errors.Is(err, context.Canceled):
		return ErrCanceled
	case errors.Is(err, syscall.ECONNREFUSED):
		return ErrRefused
	case errors.Is(err, syscall.ETIMEDOUT), errors.As(err, &timeout) && timeout.Timeout():
		return ErrTimeout
	}
	return ErrUnreachable
}

// pause waits before attempt number n+1, n counted from 1. It fails when the caller left, or until would pass.
func (d *Dialer) pause(n int, until time.Time, cancel <-chan struct{}) error {
	delay := d.MaxDelay
	if n < 16 {
		delay = min(delay, d.InitialDelay<<(n-1))
	}
	if !until.IsZero() && time.Now().Add(delay).After(until) {
		return ErrTimeout
	}
	t := time.NewTimer(delay)
	defer t.Stop()
	select {
	case <-t.C:
		if d.Retried != nil {
			d.Retried()
		}
		return nil
	case <-cancel:
		return ErrCanceled
	}
}

// Translation maps addresses of one prefix to another of the same length when they are dialled. It exists for the local
// control plane, whose API server refuses loopback addresses; it comes after every check of an address.
type Translation struct{ From, To netip.Prefix }

// Of returns the address to dial for a.
func (t Translation) Of(a netip.Addr) netip.Addr {
	if !t.From.IsValid() || !t.From.Contains(a) {
		return a
	}
	src, dst := a.AsSlice(), t.To.Addr().AsSlice()
	for bit := t.From.Bits(); bit < len(src)*8; bit++ {
		mask := byte(0x80) >> (bit % 8)
		dst[bit/8] = dst[bit/8]&^mask | src[bit/8]&mask
	}
	out, _ := netip.AddrFromSlice(dst)
	return out
}

// ParseTranslation reads <prefix>=<prefix>; "" is no translation.
func ParseTranslation(s string) (Translation, error) {
	if s == "" {
		return Translation{}, nil
	}
	from, to, ok := cut(s)
	if !ok || from.Bits() != to.Bits() || from.Addr().Is4() != to.Addr().Is4() {
		return Translation{}, errors.New("want <prefix>=<prefix>, both of one family and length")
	}
	return Translation{From: from.Masked(), To: to.Masked()}, nil
}

func cut(s string) (from, to netip.Prefix, ok bool) {
	for i := range len(s) {
		if s[i] == '=' {
			a, err1 := netip.ParsePrefix(s[:i])
			b, err2 := netip.ParsePrefix(s[i+1:])
			return a, b, err1 == nil && err2 == nil
		}
	}
	return from, to, false
}
