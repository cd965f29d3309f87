package dial

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRetriesUntilItListens(t *testing.T) {
	s := serve(t, "127.83.0.1:0")
	address := s.Addr().String()
	s.Close()
	retried := 0
	d := &Dialer{Timeout: patience, Retries: 3, InitialDelay: time.Millisecond, MaxDelay: 2 * time.Millisecond}
	d.Retried = func() {
		if retried++; retried == 3 {
			serve(t, address)
		}
	}
	h := NewHost(netip.MustParseAddr("127.83.0.1"), d, false, newConn)
	t.Cleanup(func() { closeAll(h) })
	_, reused, err := h.Pool(s.port).Acquire(time.Time{}, nil)
	require.NoError(t, err)
	assert.False(t, reused)
	assert.Equal(t, 3, retried)
}

func TestRetriesAreBounded(t *testing.T) {
	s := serve(t, "127.0.0.1:0")
	s.Close()
	retried := 0
	d := &Dialer{Retries: 2, InitialDelay: time.Microsecond, MaxDelay: time.Millisecond, Retried: func() { retried++ }}
	_, _, err := host(t, d).Pool(s.port).Acquire(time.Time{}, nil)
	assert.ErrorIs(t, err, ErrRefused)
	assert.Equal(t, 2, retried)
}

// TestGrace: a pod may be Ready a moment before it listens.
func TestGrace(t *testing.T) {
	s := serve(t, "127.0.0.1:0")
	s.Close()
	retried := 0
	d := &Dialer{Timeout: patience, InitialDelay: time.Millisecond, MaxDelay: time.Millisecond, Grace: 50 * time.Millisecond, Retried: func() { retried++ }}

	old := NewHost(netip.MustParseAddr("127.0.0.1"), d, false, newConn)
	_, _, err := old.Pool(s.port).Acquire(time.Time{}, nil)
	assert.ErrorIs(t, err, ErrRefused)
	assert.Zero(t, retried)
	assert.False(t, old.Pool(s.port).Fresh())

	fresh := NewHost(netip.MustParseAddr("127.0.0.1"), d, true, newConn)
	assert.True(t, fresh.Pool(s.port).Fresh())
	_, _, err = fresh.Pool(s.port).Acquire(time.Time{}, nil)
	assert.ErrorIs(t, err, ErrRefused)
	assert.Positive(t, retried)
	assert.False(t, fresh.Pool(s.port).Fresh())
}

func TestRetriesEndInTime(t *testing.T) {
	s := serve(t, "127.0.0.1:0")
	s.Close()
	d := &Dialer{Retries: 1000, InitialDelay: time.Hour, MaxDelay: time.Hour}
	p := host(t, d).Pool(s.port)

	_, _, err := p.Acquire(time.Now().Add(time.Minute), nil)
	assert.ErrorIs(t, err, ErrRefused, "the next attempt would be too late")

	cancel := make(chan struct{})
	close(cancel)
	_, _, err = p.Acquire(time.Time{}, cancel)
	assert.ErrorIs(t, err, ErrCanceled)
}

func TestAttemptEndsInTime(t *testing.T) {
	s := serve(t, "127.0.0.1:0")
	addr := s.Addr().(*net.TCPAddr).AddrPort()
	_, err := (&Dialer{Timeout: patience}).dial(addr, time.Now().Add(-time.Second), nil)
	assert.ErrorIs(t, err, ErrTimeout)
}

func TestClassify(t *testing.T) {
	dial := func(err error) error {
		return &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", err)}
	}
	for _, row := range []struct{ err, want error }{
		{dial(syscall.ECONNREFUSED), ErrRefused},
		{dial(syscall.ETIMEDOUT), ErrTimeout},
		{&net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}, ErrTimeout},
		{&net.OpError{Op: "dial", Err: context.Canceled}, ErrCanceled},
		{dial(syscall.EHOSTUNREACH), ErrUnreachable},
		{dial(syscall.ENETUNREACH), ErrUnreachable},
		{dial(syscall.ECONNRESET), ErrUnreachable},
		{dial(syscall.EADDRNOTAVAIL), ErrUnreachable},
		{errors.New("other"), ErrUnreachable},
	} {
		assert.Equal(t, row.want, classify(row.err), row.err)
	}
}

func TestTranslation(t *testing.T) {
	for _, row := range []struct{ rule, address, want string }{
		{"", "10.128.3.7", "10.128.3.7"},
		{"10.128.0.0/9=127.128.0.0/9", "10.128.3.7", "127.128.3.7"},
		{"10.128.0.0/9=127.128.0.0/9", "10.255.255.255", "127.255.255.255"},
		{"10.128.0.0/9=127.128.0.0/9", "10.127.3.7", "10.127.3.7"},
		{"10.128.0.0/9=127.128.0.0/9", "fd00::1", "fd00::1"},
		{"10.130.0.0/9=127.130.0.0/9", "10.128.3.7", "127.128.3.7"},
		{"10.0.0.0/8=127.0.0.0/8", "10.1.2.3", "127.1.2.3"},
		{"0.0.0.0/0=0.0.0.0/0", "10.1.2.3", "10.1.2.3"},
		{"10.1.2.3/32=127.0.0.1/32", "10.1.2.3", "127.0.0.1"},
		{"10.1.2.3/32=127.0.0.1/32", "10.1.2.4", "10.1.2.4"},
		{"fd00::/64=fd01::/64", "fd00::1:2", "fd01::1:2"},
	} {
		tr, err := ParseTranslation(row.rule)
		require.NoError(t, err, row.rule)
		assert.Equal(t, row.want, tr.Of(netip.MustParseAddr(row.address)).String(), row.rule)
	}
	for _, rule := range []string{
		"10.0.0.0/8", "10.0.0.0/8=", "=10.0.0.0/8", "10.0.0.0/8=127.0.0.0/9", "10.0.0.0/8=fd00::/8", "10.0.0.0=127.0.0.0", "a/8=b/8",
	} {
		_, err := ParseTranslation(rule)
		assert.Error(t, err, rule)
	}
}

func TestTranslationIsDialled(t *testing.T) {
	s := serve(t, "127.128.3.7:0")
	tr, err := ParseTranslation("10.128.0.0/9=127.128.0.0/9")
	require.NoError(t, err)
	h := NewHost(netip.MustParseAddr("10.128.3.7"), &Dialer{Timeout: patience, Translate: tr}, false, newConn)
	t.Cleanup(func() { closeAll(h) })
	acquire(t, h.Pool(s.port))
	assert.Eventually(t, func() bool { return s.accepted.Load() == 1 }, patience, time.Millisecond)
	assert.Equal(t, "10.128.3.7:1", string(h.Authority(1)), "nobody else sees the translation")
}
