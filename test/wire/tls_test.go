package wire

import (
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dovakiin0/agent-sandbox/test/certs"
)

var secure = ports[1]

// TestTLSVersions: the TLS port speaks TLS 1.2 and 1.3 and HTTP/1.1, and nothing else.
func TestTLSVersions(t *testing.T) {
	t.Parallel()
	r := secure.shared(t)
	for version, ok := range map[uint16]bool{tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true} {
		t.Run(tls.VersionName(version), func(t *testing.T) {
			t.Parallel()
			cfg := base.clients.Clone()
			cfg.MinVersion, cfg.MaxVersion, cfg.NextProtos = version, version, []string{"h2", "http/1.1"}
			c, err := r.handshake(cfg)
			require.Equal(t, ok, err == nil, "%v", err)
			if ok {
				assert.Equal(t, "http/1.1", c.ConnectionState().NegotiatedProtocol)
				c.Close()
			}
		})
	}
	t.Run("none", func(t *testing.T) {
		t.Parallel()
		tcp, err := net.DialTimeout("tcp", r.Secure, patience)
		require.NoError(t, err)
		c := newConn(t, "client", tcp.(*net.TCPConn))
		c.send("GET /healthz HTTP/1.1⏎Host: a⏎⏎")
		data, _ := c.rest()
		require.NotContains(t, string(data), "HTTP/1.1 200")
	})
}

// handshake connects to the TLS port as a client of its own kind. The server's verdict on a client's certificate may come
// only with the first read, so it reads an answer.
func (i *instance) handshake(cfg *tls.Config) (*tls.Conn, error) {
	c, err := tls.DialWithDialer(&net.Dialer{Timeout: patience}, "tcp", i.Secure, cfg)
	if err != nil {
		return nil, err
	}
	if err = c.SetDeadline(time.Now().Add(patience)); err == nil {
		_, err = c.Write([]byte("GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"))
	}
	if err == nil {
		_, err = c.Read(make([]byte, 1024))
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// TestMutualTLS: --mtls-mode says which clients are let in.
func TestMutualTLS(t *testing.T) {
	t.Parallel()
	authority, stranger := newAuthority(t), newAuthority(t)
	file := filepath.Join(t.TempDir(), "ca.crt")
	require.NoError(t, os.WriteFile(file, authority.PEM(), 0o600))
	ours, err := authority.Pair("client")
	require.NoError(t, err)
	theirs, err := stranger.Pair("client")
	require.NoError(t, err)
	clients := map[string]*tls.Certificate{"no certificate": {}, "certificate of the authority": &ours, "certificate of a stranger": &theirs}
	for mode, allowed := range map[string]map[string]bool{
		"off":      {"no certificate": true, "certificate of the authority": true, "certificate of a stranger": true},
		"optional": {"no certificate": true, "certificate of the authority": true, "certificate of a stranger": false},
		"required": {"no certificate": false, "certificate of the authority": true, "certificate of a stranger": false},
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			r := secure.ownRouter(t, nil, "--mtls-mode="+mode, "--tls-client-ca-file="+file)
			for name, certificate := range clients {
				cfg := base.clients.Clone()
				cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return certificate, nil }
				c, err := r.handshake(cfg)
				assert.Equal(t, allowed[name], err == nil, "%s: %v", name, err)
				if err == nil {
					c.Close()
				}
			}
			plain := router{r.instance, ports[0]}
			plain.dial(t).settle() // client certificates are no matter of the plain port
		})
	}
}

func newAuthority(t *testing.T) *certs.Authority {
	t.Helper()
	a, err := certs.NewAuthority()
	require.NoError(t, err)
	return a
}

// TestCertificateIsReadAgain: a new certificate serves new connections without a restart, and the old connections go on.
// Files that cannot be used change nothing.
func TestCertificateIsReadAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	old, next := newAuthority(t), newAuthority(t)
	require.NoError(t, writeCertificate(old, dir))
	r := secure.ownRouter(t, numberedRoutes(1), certificateFlags(dir)...)
	trusting := func(a *certs.Authority) *tls.Config { return &tls.Config{RootCAs: a.Pool(), ServerName: "localhost"} }
	tcp, err := net.DialTimeout("tcp", r.Secure, patience)
	require.NoError(t, err)
	c := newConn(t, "client", tcp.(*net.TCPConn))
	c.encrypt(trusting(old))
	c.settle()

	require.NoError(t, os.WriteFile(filepath.Join(dir, keyFile), []byte("no key"), 0o600))
	const pause = 200 * time.Millisecond // between handshakes, which are dear
	require.Eventually(t, func() bool {
		return served(t, r, trusting(old)) && r.metric(t, "sandbox_router_cert_reloads_total") > 0
	}, 2*patience, pause, "no reload")
	require.True(t, served(t, r, trusting(old)))
	require.NoError(t, writeCertificate(next, dir))
	require.Eventually(t, func() bool { return served(t, r, trusting(next)) }, 2*patience, pause, "no other certificate")
	require.False(t, served(t, r, trusting(old)))
	c.exchangeAnywhere(r.sandbox(t), "still-here")
}

// served reports whether the router has a certificate that the client believes.
func served(t *testing.T, r *router, cfg *tls.Config) bool {
	c, err := r.handshake(cfg)
	if err != nil {
		require.ErrorAs(t, err, new(*tls.CertificateVerificationError))
		return false
	}
	c.Close()
	return true
}

// TestLeavingWithoutFarewell: a TLS client whose connection just ends has left, as one that says so.
func TestLeavingWithoutFarewell(t *testing.T) {
	t.Parallel()
	r := secure.shared(t)
	t.Run("while the sandbox works", func(t *testing.T) {
		t.Parallel()
		s := r.sandbox(t)
		c := r.dial(t)
		c.send(s.get("/"))
		u := s.accept()
		u.request()
		require.NoError(t, c.tcp.CloseWrite())
		u.hangsUp()
	})
	t.Run("in a WebSocket", func(t *testing.T) {
		t.Parallel()
		c, u := r.tunnel(t, r.sandbox(t))
		require.NoError(t, c.tcp.CloseWrite())
		u.gone()
	})
}

// TestEndsWithFarewell: the end of a connection says that nothing is missing only if nothing is (RFC 8446, section 6.1).
func TestEndsWithFarewell(t *testing.T) {
	t.Parallel()
	r := secure.shared(t)
	for _, row := range []struct {
		name  string
		end   func(u *conn)
		clean bool
	}{
		{"whole", (*conn).close, true},
		{"cut", (*conn).reset, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s := r.sandbox(t)
			c := r.dial(t)
			c.send("GET / HTTP/1.0⏎Host: app⏎" + s.route() + "⏎") // the end of the answer is the end of the connection
			u := s.accept()
			u.request()
			u.send("HTTP/1.1 200 OK⏎⏎hello")
			resp := c.response("GET")
			require.Equal(t, "hello", resp.body.next(5))
			row.end(u)
			_, clean := c.rest()
			require.Equal(t, row.clean, clean, "%v", c.err)
		})
	}
}
