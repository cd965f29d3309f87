package dial

import (
	"io"
	"syscall"
	"time"
)

// Transport is what the router needs of a TCP connection. *net.TCPConn is one.
type Transport interface {
	io.ReadWriteCloser
	CloseRead() error
	CloseWrite() error
	SetKeepAlive(on bool) error
	SetLinger(seconds int) error
	SetReadDeadline(t time.Time) error
	SetWriteDeadline(t time.Time) error
	SyscallConn() (syscall.RawConn, error)
}
