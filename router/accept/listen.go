// Package accept owns the sockets: it listens, hands connections on, serves the operators' ports, and ends it all in order.
// It takes functions and does not know what they do with a connection.
package accept

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/rs/zerolog"
)

// handshakeTimeout bounds a TLS handshake.
const handshakeTimeout = 10 * time.Second

// Serve is called in a goroutine of its own for each connection, and owns it. conn is tcp itself or TLS over it.
type Serve func(conn net.Conn, tcp *net.TCPConn)

// Listener is a bound port.
type Listener struct {
	tcp *net.TCPListener
	tls *tls.Config
}

// Listen binds addr; flag names the setting in errors. With a tls.Config it speaks TLS.
func Listen(addr, flag string, tls *tls.Config) (*Listener, error) {
	lc := net.ListenConfig{KeepAlive: -1} // idle limits end dead clients; WebSockets turn keep-alive on
	l, err := lc.Listen(context.Background(), "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", flag, err)
	}
	return &Listener{tcp: l.(*net.TCPListener), tls: tls}, nil
}

// Addr is the bound address.
func (l *Listener) Addr() net.Addr { return l.tcp.Addr() }

// Close stops listening. Connections stay.
func (l *Listener) Close() { l.tcp.Close() }

// Run accepts connections until Close. Where the system is out of descriptors or memory it waits a little and goes on.
func (l *Listener) Run(serve Serve, log zerolog.Logger) {
	for pause := time.Duration(0); ; {
		tcp, err := l.tcp.AcceptTCP()
		switch {
		case err == nil:
			pause = 0
			go l.serve(tcp, serve)
		case errors.Is(err, net.ErrClosed):
			return
		default:
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			log.Error().Err(err).Dur("pause", pause).Msg("cannot accept connections")
			time.Sleep(pause)
		}
	}
}

func (l *Listener) serve(tcp *net.TCPConn, serve Serve) {
	if l.tls == nil {
		serve(tcp, tcp)
		return
	}
	conn := tls.Server(tcp, l.tls)
	tcp.SetDeadline(time.Now().Add(handshakeTimeout))
	if conn.Handshake() != nil {
		tcp.Close()
		return
	}
	tcp.SetDeadline(time.Time{})
	serve(conn, tcp)
}
