package accept

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/dovakiin0/agent-sandbox/test/certs"
)

// TestMain finds leaked goroutines, but for those of fasthttp that outlive its servers.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"))
}

// patience bounds every wait for something that must happen.
const patience = 10 * time.Second

func newAuthority(t *testing.T) *certs.Authority {
	t.Helper()
	a, err := certs.NewAuthority()
	require.NoError(t, err)
	return a
}

// secret is a folder with tls.crt, tls.key and ca.crt.
type secret struct{ cert, key, ca string }

func newSecret(t *testing.T, a *certs.Authority, name string) secret {
	t.Helper()
	dir := t.TempDir()
	s := secret{filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), filepath.Join(dir, "ca.crt")}
	s.renew(t, a, name)
	require.NoError(t, os.WriteFile(s.ca, a.PEM(), 0o600))
	return s
}

// renew writes a new pair.
func (s secret) renew(t *testing.T, a *certs.Authority, name string) {
	t.Helper()
	cert, key, err := a.Sign(name)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(s.cert, cert, 0o600))
	require.NoError(t, os.WriteFile(s.key, key, 0o600))
}

// listen serves on a port of its own until the end of the test.
func listen(t *testing.T, cfg *tls.Config, serve Serve) *Listener {
	t.Helper()
	l, err := Listen("127.0.0.1:0", "http-bind-address", cfg)
	require.NoError(t, err)
	ended := make(chan struct{})
	go func() {
		l.Run(serve, zerolog.Nop())
		close(ended)
	}()
	t.Cleanup(func() {
		l.Close()
		<-ended
	})
	return l
}

// echo sends back what it gets.
func echo(conn net.Conn, _ *net.TCPConn) {
	io.Copy(conn, conn)
	conn.Close()
}

func TestListen(t *testing.T) {
	type pair struct {
		conn net.Conn
		tcp  *net.TCPConn
	}
	got := make(chan pair, 1)
	l := listen(t, nil, func(conn net.Conn, tcp *net.TCPConn) {
		got <- pair{conn, tcp}
		echo(conn, tcp)
	})
	c, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	p := <-got
	assert.Same(t, p.tcp, p.conn, "without TLS they are one")

	_, err = Listen(l.Addr().String(), "https-bind-address", nil)
	assert.ErrorContains(t, err, "--https-bind-address")

	l.Close()
	_, err = net.Dial("tcp", l.Addr().String())
	assert.Error(t, err)
	_, err = c.Write([]byte("x"))
	require.NoError(t, err)
	_, err = io.ReadFull(c, make([]byte, 1))
	assert.NoError(t, err, "connections outlive the listener")
}

func dialTLS(l *Listener, cfg *tls.Config) (*tls.Conn, error) {
	cfg.ServerName = "localhost"
	c, err := tls.DialWithDialer(&net.Dialer{Timeout: patience}, "tcp", l.Addr().String(), cfg)
	if err != nil {
		return nil, err
	}
	// With TLS 1.3 the server's verdict about the client's certificate comes with the first read.
	c.SetDeadline(time.Now().Add(patience))
	if _, err = c.Write([]byte("x")); err == nil {
		_, err = io.ReadFull(c, make([]byte, 1))
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func TestTLS(t *testing.T) {
	a := newAuthority(t)
	s := newSecret(t, a, "first")
	cfg, err := TLS(s.cert, s.key, "", "off", zerolog.Nop(), nil)
	require.NoError(t, err)
	l := listen(t, cfg, echo)

	c, err := dialTLS(l, &tls.Config{RootCAs: a.Pool(), NextProtos: []string{"h2", "http/1.1"}})
	require.NoError(t, err)
	assert.Equal(t, "http/1.1", c.ConnectionState().NegotiatedProtocol)
	assert.GreaterOrEqual(t, c.ConnectionState().Version, uint16(tls.VersionTLS12))
	c.Close()

	_, err = dialTLS(l, &tls.Config{RootCAs: a.Pool(), MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11})
	assert.Error(t, err)

	plain, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	plain.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
	plain.SetDeadline(time.Now().Add(patience))
	_, err = io.ReadAll(plain)
	assert.NotErrorIs(t, err, os.ErrDeadlineExceeded, "a failed handshake ends the connection")
	plain.Close()
}

func TestBadTLSFiles(t *testing.T) {
	a := newAuthority(t)
	s := newSecret(t, a, "x")
	for _, row := range []struct{ cert, key, ca, mtls, flag string }{
		{"/nowhere", s.key, "", "off", "--tls-cert-file"},
		{s.cert, "/nowhere", "", "off", "--tls-key-file"},
		{s.key, s.cert, "", "off", "--tls-cert-file"},
		{s.cert, s.key, "/nowhere", "required", "--tls-client-ca-file"},
		{s.cert, s.key, s.key, "optional", "--tls-client-ca-file"},
	} {
		_, err := TLS(row.cert, row.key, row.ca, row.mtls, zerolog.Nop(), nil)
		assert.ErrorContains(t, err, row.flag)
	}
}

func TestMutualTLS(t *testing.T) {
	a, other := newAuthority(t), newAuthority(t)
	s := newSecret(t, a, "server")
	certificate := func(by *certs.Authority) *tls.Certificate {
		pair, err := by.Pair("client")
		require.NoError(t, err)
		return &pair
	}
	ours, foreign := certificate(a), certificate(other)
	for _, row := range []struct {
		mode    string
		client  *tls.Certificate
		allowed bool
	}{
		{"off", nil, true}, {"off", foreign, true},
		{"optional", nil, true}, {"optional", ours, true}, {"optional", foreign, false},
		{"required", nil, false}, {"required", ours, true}, {"required", foreign, false},
	} {
		cfg, err := TLS(s.cert, s.key, s.ca, row.mode, zerolog.Nop(), nil)
		require.NoError(t, err)
		l := listen(t, cfg, echo)
		c, err := dialTLS(l, &tls.Config{RootCAs: a.Pool(), GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if row.client == nil {
				return &tls.Certificate{}, nil
			}
			return row.client, nil
		}})
		assert.Equal(t, row.allowed, err == nil, "%s, %v: %v", row.mode, row.client != nil, err)
		if err == nil {
			c.Close()
		}
	}
}

func TestProbes(t *testing.T) {
	l, err := Listen("127.0.0.1:0", "health-probe-bind-address", nil)
	require.NoError(t, err)
	ready, why := false, "starting"
	served := make(chan error, 1)
	go func() {
		served <- ServeProbes(l, Probes{Ready: func() (bool, string) { return ready, why }})
	}()
	check := func(path string, status int, body string) {
		t.Helper()
		gotStatus, gotBody := get(t, "http://"+l.Addr().String()+path)
		assert.Equal(t, status, gotStatus, path)
		assert.Equal(t, body, gotBody, path)
	}
	check("/healthz", 200, `{"status":"ok"}`+"\n")
	check("/readyz", 503, "starting")
	ready, why = true, "ok"
	check("/readyz", 200, "ok")
	ready, why = false, "draining"
	check("/readyz", 503, "draining")
	check("/healthz", 200, `{"status":"ok"}`+"\n")
	check("/metrics", 404, "not found")
	l.Close()
	<-served
}

func TestAdmin(t *testing.T) {
	for _, pprof := range []bool{false, true} {
		l, err := Listen("127.0.0.1:0", "metrics-bind-address", nil)
		require.NoError(t, err)
		served := make(chan error, 1)
		go func() {
			served <- ServeAdmin(l, Admin{
				Metrics: func(w io.Writer) { io.WriteString(w, "metric 1\n") },
				Routes:  func(w io.Writer) { io.WriteString(w, "{}\n") },
				Pprof:   pprof,
			})
		}()
		base := "http://" + l.Addr().String()
		status, body := get(t, base+"/metrics")
		assert.Equal(t, 200, status)
		assert.Equal(t, "metric 1\n", body)
		status, body = get(t, base+"/routes")
		assert.Equal(t, 200, status)
		assert.Equal(t, "{}\n", body)
		status, _ = get(t, base+"/debug/pprof/cmdline")
		assert.Equal(t, pprof, status == 200)
		status, _ = get(t, base+"/")
		assert.Equal(t, 404, status)
		l.Close()
		<-served
	}
}

// get makes one request on a connection of its own.
func get(t *testing.T, url string) (int, string) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	response, err := client.Get(url)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(body)
}

// fakeRelay notes in which order it is told to end.
type fakeRelay struct {
	calls              []string
	exchanges, tunnels atomic.Int64
	stubborn           bool // tunnels do not end when they are told to
	waited             func(context.Context)
}

func (f *fakeRelay) Drain()    { f.calls = append(f.calls, "drain") }
func (f *fakeRelay) Announce() { f.calls = append(f.calls, "announce") }

func (f *fakeRelay) Busy() (int64, int64) { return f.exchanges.Load(), f.tunnels.Load() }

func (f *fakeRelay) EndTunnels() {
	f.calls = append(f.calls, "end tunnels")
	if !f.stubborn {
		f.tunnels.Store(0)
	}
}

func (f *fakeRelay) Abort() { f.calls = append(f.calls, "abort") }

func (f *fakeRelay) Wait(ctx context.Context) {
	f.calls = append(f.calls, "wait")
	if f.waited != nil {
		f.waited(ctx)
	}
}

func (f *fakeRelay) stop() { f.calls = append(f.calls, "stop listening") }
