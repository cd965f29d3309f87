package relay

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/dovakiin0/agent-sandbox/router/accept"
	"github.com/dovakiin0/agent-sandbox/router/auth"
	"github.com/dovakiin0/agent-sandbox/router/dial"
	"github.com/dovakiin0/agent-sandbox/router/parse"
	"github.com/dovakiin0/agent-sandbox/router/record"
	"github.com/dovakiin0/agent-sandbox/router/route"
)

// patience bounds every wait for something that must happen.
const patience = 20 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// id is a sandbox id of 63 bytes: conversions of short ones cost no allocation and would hide some.
var id = strings.Repeat("s", 62) + "1"

// router is the data path in this process, without discovery: tests write the table.
type router struct {
	*Relay
	table  *Table
	addr   string
	opened chan *upstream // the router's connections to sandboxes, as they are made
}

// setup is what a test may change of the router before it starts.
type setup struct {
	Config
	dial.Dialer
	gate   auth.Gate
	access *record.AccessLog
	graves int // deleted sandboxes that the table remembers; 0: the default
}

// start runs a router until the end of the test, whose last act is that every connection has ended.
func start(t testing.TB, edit ...func(*setup)) *router {
	t.Helper()
	access, err := record.NewAccessLog(io.Discard, "errors")
	require.NoError(t, err)
	with := &setup{
		Config: Config{
			Addressing: parse.Addressing{Loopback: true}, KeepHost: true,
			MaxHeader: 64 << 10, Total: time.Minute, ResponseHeader: time.Minute, StreamIdle: time.Minute,
			ClientHeader: 10 * time.Second, ClientIdle: time.Minute, UpstreamIdle: time.Minute,
			RouteWait: 5 * time.Second, UnknownWait: 50 * time.Millisecond,
		},
		Dialer: dial.Dialer{Timeout: 5 * time.Second, Retries: 1, InitialDelay: time.Millisecond, MaxDelay: 10 * time.Millisecond, MaxWaits: 64},
		gate:   auth.AllowAll{},
		access: access,
	}
	for _, e := range edit {
		e(with)
	}
	r := &router{opened: make(chan *upstream, 1024)}
	r.table = route.New(route.Options[*Host]{
		Make: func(e *route.Endpoint[*Host]) *Host {
			return dial.NewHost(e.Address, &with.Dialer, false, func(tcp dial.Transport, pool *dial.Pool[*upstream]) *upstream {
				u := r.Open(tcp, pool)
				select {
				case r.opened <- u:
				default:
				}
				return u
			})
		},
		Retire:  (*Host).Retire,
		MaxGone: with.graves,
	})
	r.Relay = New(with.Config, r.table, with.gate, record.NewMeter("test"), with.access)
	r.table.SetSynced()

	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		r.Run(ctx)
		close(ended)
	}()
	l, err := accept.Listen("127.0.0.1:0", "http-bind-address", nil)
	require.NoError(t, err)
	go l.Run(r.Serve, zerolog.Nop())
	r.addr = l.Addr().String()
	t.Cleanup(func() {
		l.Close()
		r.Abort()
		wait, stop := context.WithTimeout(context.Background(), patience)
		defer stop()
		r.Wait(wait)
		cancel()
		<-ended
	})
	return r
}

// connections counts the router's, to callers and to sandboxes.
func (r *router) connections() (n int) {
	r.dog.each(func(watched) { n++ })
	return n
}

// publish makes id a sandbox at address.
func (r *router) publish(address, podUID string) {
	r.table.Publish(&route.Record{
		Namespace: "default", Name: id, UID: "uid",
		Endpoints: []route.Address{{Addr: netip.MustParseAddr(address), PodUID: podUID}},
	})
}

// sandbox is a raw TCP server, which plays what a test wants.
type sandbox struct {
	net.Listener
	port string
}

// serve runs serve for every connection to a new server at 127.0.0.1, and makes it the sandbox id.
func (r *router) serve(t testing.TB, serve func(net.Conn, *bufio.Reader)) *sandbox {
	t.Helper()
	s := listen(t, "127.0.0.1:0", serve)
	r.publish("127.0.0.1", "pod")
	return s
}

func listen(t testing.TB, addr string, serve func(net.Conn, *bufio.Reader)) *sandbox {
	t.Helper()
	l, err := net.Listen("tcp", addr)
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
				serve(c, bufio.NewReader(c))
			}()
		}
	}()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return &sandbox{Listener: l, port: port}
}

// caller is a client connection.
type caller struct {
	*net.TCPConn
	in *bufio.Reader
}

func (r *router) dial(t testing.TB) *caller {
	t.Helper()
	c, err := net.Dial("tcp", r.addr)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	return &caller{TCPConn: c.(*net.TCPConn), in: bufio.NewReaderSize(c, 64<<10)}
}

// send writes a request head for the sandbox at port, with more lines and a body behind it.
func (c *caller) send(t testing.TB, line, port string, rest ...string) {
	t.Helper()
	_, err := io.WriteString(c, head(line, port)+strings.Join(rest, ""))
	require.NoError(t, err)
}

// head is a request head without its last, blank line.
func head(line, port string) string {
	return fmt.Sprintf("%s\r\nHost: example.com\r\nX-Sandbox-ID: %s\r\nX-Sandbox-Port: %s\r\n", line, id, port)
}

// readHead reads up to and with a blank line.
func readHead(in *bufio.Reader) (string, error) {
	var b strings.Builder
	for {
		line, err := in.ReadString('\n')
		b.WriteString(line)
		if err != nil || line == "\r\n" {
			return b.String(), err
		}
	}
}

// eventually waits until ok.
func eventually(t testing.TB, ok func() bool, what string) {
	t.Helper()
	require.Eventually(t, ok, patience, 5*time.Millisecond, what)
}
