package wire

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// patience bounds every wait of a case. It is no measure of speed: a correct router answers long before.
const patience = 10 * time.Second

// notation turns the marks of the case tables into the bytes they stand for, which keeps rows on one line and tells a
// bare CR or LF from a line end.
var notation = strings.NewReplacer("⏎", "\r\n", "␊", "\n", "␍", "\r", "␀", "\x00")

// conn is one TCP connection of a case, either a client's or a sandbox's. It reads only when told to, and ends the
// test when the peer keeps it waiting.
type conn struct {
	t      testing.TB
	side   string       // "client" or "sandbox"
	stream net.Conn     // what is sent and received goes through it: tcp itself, or TLS over it
	tcp    *net.TCPConn // the transport

	buf []byte // received and not yet taken
	err error  // why no more can be received
}

func newConn(t testing.TB, side string, tcp *net.TCPConn) *conn {
	t.Cleanup(func() { _ = tcp.Close() }) // most cases closed it already
	return &conn{t: t, side: side, stream: tcp, tcp: tcp}
}

// encrypt has TLS on the connection from now on.
func (c *conn) encrypt(cfg *tls.Config) {
	c.t.Helper()
	stream := tls.Client(c.tcp, cfg)
	require.NoError(c.t, c.tcp.SetDeadline(time.Now().Add(patience)))
	require.NoError(c.t, stream.Handshake())
	c.stream, c.side = stream, c.side+" over TLS"
}

// send writes text in table notation. Of several pieces each but the last is left to be read by the router before
// the next one goes out.
func (c *conn) send(pieces ...string) {
	c.t.Helper()
	for i, piece := range pieces {
		if i > 0 {
			awaitRead(c.tcp)
		}
		c.write([]byte(notation.Replace(piece)))
	}
}

// write sends bytes as they are.
func (c *conn) write(data []byte) {
	c.t.Helper()
	require.NoError(c.t, c.stream.SetWriteDeadline(time.Now().Add(patience)))
	_, err := c.stream.Write(data)
	require.NoError(c.t, err, "%s: cannot write", c.side)
}

// fill receives once more. It reports whether bytes came, and ends the test when neither bytes nor an end came.
func (c *conn) fill() bool {
	c.t.Helper()
	had := len(c.buf)
	if c.receive(patience); c.err == nil && len(c.buf) == had {
		require.FailNow(c.t, "nothing came", "%s waited for %v; left unread so far: %.2000q", c.side, patience, c.buf)
	}
	return len(c.buf) > had
}

// receive waits for bytes or an end, for at most the given time.
func (c *conn) receive(wait time.Duration) {
	c.t.Helper()
	if c.err != nil {
		return
	}
	require.NoError(c.t, c.stream.SetReadDeadline(time.Now().Add(wait)))
	chunk := make([]byte, 64<<10)
	n, err := c.stream.Read(chunk)
	c.buf = append(c.buf, chunk[:n]...)
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		c.err = err
	}
}

// until takes everything up to and including delim.
func (c *conn) until(delim string) string {
	c.t.Helper()
	for {
		if i := bytes.Index(c.buf, []byte(delim)); i >= 0 {
			return string(c.takeBuffered(i + len(delim)))
		}
		if !c.fill() {
			require.FailNow(c.t, "stream ended", "%s waited for %q but the stream ended (%v) after %.2000q", c.side, delim, c.err, c.buf)
		}
	}
}

// take takes exactly n bytes.
func (c *conn) take(n int) []byte {
	c.t.Helper()
	for len(c.buf) < n {
		if !c.fill() {
			require.FailNow(c.t, "stream ended", "%s waited for %d bytes but the stream ended (%v) after %d: %.2000q", c.side, n, c.err, len(c.buf), c.buf)
		}
	}
	return c.takeBuffered(n)
}

func (c *conn) takeBuffered(n int) []byte {
	taken := c.buf[:n:n]
	c.buf = c.buf[n:]
	return taken
}

// rest takes everything up to the end of the stream. clean tells a FIN from a reset.
func (c *conn) rest() (data []byte, clean bool) {
	c.t.Helper()
	for c.fill() {
	}
	return c.takeBuffered(len(c.buf)), errors.Is(c.err, io.EOF)
}

// expect takes the next bytes and compares them with text in table notation.
func (c *conn) expect(text string) {
	c.t.Helper()
	want := notation.Replace(text)
	require.Equal(c.t, want, string(c.take(len(want))), "%s", c.side)
}

// readable reports whether bytes or the end of the stream have come and were not taken yet.
func (c *conn) readable() bool {
	c.t.Helper()
	if c.stream == net.Conn(c.tcp) {
		return len(c.buf) > 0 || readable(c.t, c.tcp)
	}
	c.receive(time.Millisecond) // what the socket shows is not what TLS holds
	return len(c.buf) > 0 || c.err != nil
}

// eof wants the peer to end the stream with a FIN and no more bytes.
func (c *conn) eof() {
	c.t.Helper()
	data, clean := c.rest()
	require.Empty(c.t, string(data), "%s: bytes before the end of the stream", c.side)
	require.True(c.t, clean, "%s: %v instead of EOF", c.side, c.err)
}

// gone wants the stream to end, by FIN or reset, with no more bytes.
func (c *conn) gone() {
	c.t.Helper()
	data, _ := c.rest()
	require.Empty(c.t, string(data), "%s: bytes before the end of the stream", c.side)
}

// close ends the connection. The kernel resets it instead if the peer sent bytes that nobody took.
func (c *conn) close() { _ = c.stream.Close() } // the farewell of TLS is of no use to a peer that is gone

// closeWrite ends what is sent, by FIN or the farewell of TLS, and keeps on receiving.
func (c *conn) closeWrite() {
	require.NoError(c.t, c.stream.(interface{ CloseWrite() error }).CloseWrite())
}

// reset ends the connection with an RST.
func (c *conn) reset() {
	require.NoError(c.t, c.tcp.SetLinger(0))
	require.NoError(c.t, c.tcp.Close())
}

// flood writes until total bytes are sent or the peer accepts nothing for stall, and returns how many it took. A stalled TLS
// connection cannot be written to any more; see pour. The bytes are those of Pattern.
func (c *conn) flood(total int, stall time.Duration) (sent int, err error) {
	for sent < total {
		if err := c.stream.SetWriteDeadline(time.Now().Add(stall)); err != nil {
			return sent, err
		}
		n, err := c.stream.Write(Pattern(sent, min(64<<10, total-sent)))
		sent += n
		if err != nil {
			return sent, err
		}
	}
	return sent, nil
}

// pouring is a flood in the background that waits for its reader as long as it takes.
type pouring struct {
	total int
	sent  atomic.Int64
	done  chan error
}

func (c *conn) pour(total int) *pouring {
	c.t.Helper()
	require.NoError(c.t, c.stream.SetWriteDeadline(time.Time{}))
	p := &pouring{total: total, done: make(chan error, 1)}
	go func() {
		for sent := 0; sent < total; {
			n, err := c.stream.Write(Pattern(sent, min(64<<10, total-sent)))
			sent += n
			p.sent.Store(int64(sent))
			if err != nil {
				p.done <- err
				return
			}
		}
		p.done <- nil
	}()
	return p
}

// stops waits until the peer has accepted nothing for stall, and ends the test if that never comes true.
func (p *pouring) stops(t testing.TB, stall time.Duration) {
	t.Helper()
	for before := int64(-1); ; time.Sleep(stall) {
		sent := p.sent.Load()
		require.Less(t, sent, int64(p.total), "the sender was never stopped")
		if sent == before {
			return
		}
		before = sent
	}
}

// drip sends text ten times a second until the connection ends.
func (c *conn) drip(text string) {
	for {
		if _, err := c.stream.Write([]byte(text)); err != nil {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}
