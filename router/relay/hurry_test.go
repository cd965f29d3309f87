package relay

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// pair is a client as the relay has it, and the caller's end of its connection.
func pair(t *testing.T) (*client, *net.TCPConn) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	caller, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { caller.Close() })
	conn, err := l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	c := newClient(start(t).Relay, conn, conn.(*net.TCPConn))
	return c, caller.(*net.TCPConn)
}

// An endpoint may leave the table in the moment in which the last bytes of its answer went out. The caller has the whole answer
// then, and its next request is on the way.
func TestConnectionOutlivesTheEndpointOfItsLastAnswer(t *testing.T) {
	c, caller := pair(t)
	u := &upstream{}
	c.x.u, c.x.answering = u, true
	c.lose(u)
	c.mu.Lock()
	c.finished(true)
	c.mu.Unlock()

	require.Equal(t, silent, c.look(), "its goroutine would see an end")
	_, err := io.WriteString(caller, "next")
	require.NoError(t, err)
	b := make([]byte, 4)
	require.NoError(t, c.tcp.SetReadDeadline(time.Now().Add(patience)))
	_, err = io.ReadFull(c.conn, b)
	require.NoError(t, err)
	assert.Equal(t, "next", string(b))

	sent := make(chan error, 1)
	large := strings.Repeat("x", 16<<20) // more than the kernel takes at once
	go func() { sent <- c.send([]byte(large)) }()
	n, err := io.CopyN(io.Discard, caller, int64(len(large)))
	assert.NoError(t, err)
	assert.EqualValues(t, len(large), n)
	assert.NoError(t, <-sent)
}

// A caller that does not read its answer does not hold up the end of the sandbox's connection.
func TestEndOfAnEndpointFailsAWriterThatWaits(t *testing.T) {
	c, _ := pair(t)
	u := &upstream{}
	c.x.u, c.x.answering = u, true
	sent := make(chan error, 1)
	go func() { sent <- c.send([]byte(strings.Repeat("x", 16<<20))) }()
	eventually(t, c.stuck.Load, "the writer does not wait")
	c.lose(u)
	assert.Error(t, <-sent)
}
