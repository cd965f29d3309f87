package faults

import (
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo starts a server that sends back what it gets.
func echo(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	return l.Addr().String()
}

func start(t *testing.T) *Proxy {
	p, err := New(echo(t))
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

func dial(t *testing.T, p *Proxy) net.Conn {
	c, err := net.Dial("tcp", p.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// ask sends a byte and waits for it.
func ask(c net.Conn, patience time.Duration) error {
	if _, err := c.Write([]byte("x")); err != nil {
		return err
	}
	_ = c.SetReadDeadline(time.Now().Add(patience))
	_, err := io.ReadFull(c, make([]byte, 1))
	return err
}

const (
	long  = 30 * time.Second      // for what must come
	short = 50 * time.Millisecond // for what must not
)

func TestProxyPasses(t *testing.T) {
	p := start(t)
	require.NoError(t, ask(dial(t, p), long))
	require.Equal(t, 1, p.Opened())
}

func TestProxyStalls(t *testing.T) {
	p := start(t)
	c := dial(t, p)
	require.NoError(t, ask(c, long))
	p.Stall()
	p.Stall()
	require.ErrorIs(t, ask(c, short), os.ErrDeadlineExceeded)
	p.Heal()
	require.NoError(t, ask(c, long))
}

func TestProxyCuts(t *testing.T) {
	p := start(t)
	c := dial(t, p)
	require.NoError(t, ask(c, long))
	p.Cut()
	err := ask(c, long)
	require.Error(t, err)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
	require.Error(t, ask(dial(t, p), long))
	p.Heal()
	require.NoError(t, ask(dial(t, p), long))
}

func TestProxyLoses(t *testing.T) {
	p := start(t)
	c := dial(t, p)
	require.NoError(t, ask(c, long))
	p.Lose()
	require.ErrorIs(t, ask(c, short), os.ErrDeadlineExceeded)
	p.Heal()
	require.ErrorIs(t, ask(c, short), os.ErrDeadlineExceeded)
	require.NoError(t, ask(dial(t, p), long), "new connections live")
}

func TestProxyDelays(t *testing.T) {
	p := start(t)
	c := dial(t, p)
	p.Delay(short)
	begin := time.Now()
	require.NoError(t, ask(c, long))
	require.GreaterOrEqual(t, time.Since(begin), 2*short)
}
