//go:build linux

package load

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/dovakiin0/agent-sandbox/bench/backend"
	"github.com/dovakiin0/agent-sandbox/bench/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func serveBackend(t *testing.T) netip.AddrPort {
	s, err := backend.Listen(0)
	require.NoError(t, err)
	done := make(chan error)
	go func() { done <- s.Serve() }()
	t.Cleanup(func() {
		s.Close()
		assert.NoError(t, <-done)
	})
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 16, 0, 1}), s.Port)
}

// serve runs a handler that is slow, or wrong, in a way the test knows.
func serve(t *testing.T, h http.HandlerFunc) netip.AddrPort {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return netip.MustParseAddrPort(s.Listener.Addr().String())
}

// serveBytes answers each connection's first request with raw bytes and closes it.
func serveBytes(t *testing.T, answer string) netip.AddrPort {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if n, _ := c.Read(make([]byte, 1000)); n > 0 {
				io.WriteString(c, answer)
			}
			c.Close()
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
	})
	return netip.MustParseAddrPort(l.Addr().String())
}

func get(path string, want Want) []Request {
	return []Request{{Bytes: []byte("GET " + path + " HTTP/1.1\r\nHost: a\r\n\r\n"), Want: want}}
}

func run(t *testing.T, p Plan) *Result {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	r, err := Run(ctx, p)
	require.NoError(t, err)
	require.NoError(t, ctx.Err(), "the run hangs")
	return r
}

func TestExchanges(t *testing.T) {
	proxy := serveBackend(t)
	big := strings.Repeat("b", 300_000)
	chunkedBody := "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
	for name, r := range map[string]Request{
		"fixed":   get("/fixed/64", Want{[]byte("100001"), 64})[0],
		"large":   get("/fixed/1000000", Want{[]byte("100001"), 1_000_000})[0],
		"chunked": get("/chunked/5/100", Want{[]byte("100001"), 500})[0],
		"closing": get("/close", Want{[]byte("100001"), 64})[0],
		"echo":    {Bytes: []byte("POST /echo HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello"), Want: Want{[]byte("hello"), 5}},
		"chunks":  {Bytes: []byte("POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + chunkedBody), Want: Want{[]byte("abcde"), 5}},
		"upload":  {Bytes: []byte("POST /sink HTTP/1.1\r\nContent-Length: 300000\r\n\r\n"), Rest: []byte(big), Want: Want{nil, 64}},
	} {
		t.Run(name, func(t *testing.T) {
			res := run(t, Plan{Proxy: proxy, Requests: []Request{r}, Connections: 4, Count: 100})
			assert.Empty(t, res.Errors)
			assert.GreaterOrEqual(t, res.Answered, int64(100))
			assert.Equal(t, res.Answered, res.Latency.Count())
			assert.EqualValues(t, int64(len(r.Bytes)+len(r.Rest))*res.Answered, res.Sent)
			assert.EqualValues(t, r.Want.Length*res.Answered, res.Received)
		})
	}
}

func TestCountIsExact(t *testing.T) {
	res := run(t, Plan{Proxy: serveBackend(t), Requests: get("/fixed/64", Want{Length: 64}), Connections: 16, Count: 1000})
	assert.EqualValues(t, 1000, res.Answered)
}

func TestEveryRequestHasItsTurn(t *testing.T) {
	var requests []Request
	for i := range 50 {
		requests = append(requests, get(fmt.Sprintf("/%d", i), Want{Length: -1})...)
	}
	var seen [50]atomic.Int64
	proxy := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		var i int
		fmt.Sscanf(r.URL.Path, "/%d", &i)
		seen[i].Add(1)
	})
	run(t, Plan{Proxy: proxy, Requests: requests, Connections: 3, Count: 100})
	for i := range seen {
		assert.EqualValues(t, 2, seen[i].Load(), "request %d", i)
	}
}

func TestWebSocket(t *testing.T) {
	handshake := "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
	for _, rate := range []float64{0, 500} {
		res := run(t, Plan{
			Proxy: serveBackend(t), Requests: []Request{{Bytes: []byte(handshake)}}, Connections: 8,
			Message: []byte(strings.Repeat("m", 300)), Rate: rate, Duration: 200 * time.Millisecond,
		})
		assert.Empty(t, res.Errors)
		assert.Greater(t, res.Answered, int64(10))
		assert.GreaterOrEqual(t, res.Latency.Count(), res.Answered)
	}
}

func TestEvents(t *testing.T) {
	res := run(t, Plan{Proxy: serveBackend(t), Requests: get("/sse/5/2", Want{Length: -1}), Connections: 4, Count: 20, Events: true})
	assert.Empty(t, res.Errors)
	assert.EqualValues(t, 100, res.Events.Count())
	assert.GreaterOrEqual(t, res.Latency.Percentile(1), 8*time.Millisecond, "five events, two milliseconds apart")
}

func TestNewConnectionForEachRequest(t *testing.T) {
	var conns atomic.Int64
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") }))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			conns.Add(1)
		}
	}
	s.Start()
	defer s.Close()
	res := run(t, Plan{
		Proxy: netip.MustParseAddrPort(s.Listener.Addr().String()), Requests: get("/", Want{Length: 2}),
		Connections: 4, Count: 40, PerConnection: 1,
	})
	assert.Empty(t, res.Errors)
	assert.GreaterOrEqual(t, conns.Load(), int64(40))
}

func TestErrorsByKind(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	nobody := netip.MustParseAddrPort(l.Addr().String())
	l.Close()
	const head = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n"
	for kind, proxy := range map[string]netip.AddrPort{
		Refused:      nobody,
		Closed:       serveBytes(t, ""),
		Truncated:    serveBytes(t, head+"ab"),
		WrongBody:    serveBytes(t, head+"abcx"),
		Unexpected:   serveBytes(t, head+"abcdHTTP/1.1 200 OK\r\n"),
		Malformed:    serveBytes(t, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
		"status 502": serveBytes(t, "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n"),
	} {
		t.Run(kind, func(t *testing.T) {
			// The rate leaves connections alone between requests, so that unexpected bytes are that.
			res := run(t, Plan{Proxy: proxy, Requests: get("/", Want{[]byte("abcd"), 4}), Connections: 1, Rate: 100, Duration: 100 * time.Millisecond, Timeout: time.Second})
			assert.NotZero(t, res.Errors[kind], "%v", res.Errors)
			if kind == Refused { // there never was a connection, so what was due was never sent
				delete(res.Errors, Timeout)
			}
			assert.Len(t, res.Errors, 1)
		})
	}
}

func TestLateAnswersAreErrors(t *testing.T) {
	release := make(chan struct{})
	proxy := serve(t, func(http.ResponseWriter, *http.Request) { <-release })
	defer close(release)
	res := run(t, Plan{Proxy: proxy, Requests: get("/", Want{}), Connections: 2, Duration: 10 * time.Millisecond, Timeout: 20 * time.Millisecond})
	assert.Equal(t, map[string]int64{Timeout: 2}, res.Errors)
	assert.Zero(t, res.Answered)
}

func TestClientsLeave(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
		io.WriteString(w, "ok")
	}))
	proxy := netip.MustParseAddrPort(s.Listener.Addr().String())
	res := run(t, Plan{
		Proxy: proxy, Requests: get("/", Want{Length: 2}), Connections: 5, Duration: 30 * time.Second, Leave: true,
		Started: func() { go s.Close() },
	})
	assert.Equal(t, 5, res.Left)
	assert.Less(t, res.Elapsed, 30*time.Second, "the run ends when all have left")
}

func TestHooksEncloseTheMeasuredTime(t *testing.T) {
	var begin, end time.Time
	res := run(t, Plan{
		Proxy: serveBackend(t), Requests: get("/fixed/64", Want{Length: 64}), Connections: 2,
		Warmup: 20 * time.Millisecond, Duration: 100 * time.Millisecond,
		Started: func() { begin = time.Now() }, Ended: func() { end = time.Now() },
	})
	assert.GreaterOrEqual(t, res.Elapsed, 100*time.Millisecond)
	assert.LessOrEqual(t, res.Elapsed, end.Sub(begin))
}

func TestWarmupLastsUntilItsAnswersCame(t *testing.T) {
	var answers, early atomic.Int64
	proxy := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		answers.Add(1)
		io.WriteString(w, "ok")
	})
	res := run(t, Plan{
		Proxy: proxy, Requests: get("/", Want{Length: 2}), Connections: 2, Warmup: 1, WarmupAnswers: 200, Duration: 20 * time.Millisecond,
		Started: func() { early.Store(answers.Load()) },
	})
	assert.Empty(t, res.Errors)
	assert.GreaterOrEqual(t, early.Load(), int64(200))
}

func TestPlansThatCannotWork(t *testing.T) {
	good := Plan{Requests: get("/", Want{}), Connections: 1, Duration: time.Second}
	for name, spoil := range map[string]func(*Plan){
		"no requests":    func(p *Plan) { p.Requests = nil },
		"no connections": func(p *Plan) { p.Connections = 0 },
		"no end":         func(p *Plan) { p.Duration = 0 },
		"warm count":     func(p *Plan) { p.Count, p.Warmup = 1, 1 },
	} {
		p := good
		spoil(&p)
		_, err := Run(context.Background(), p)
		assert.Error(t, err, name)
	}
}

func TestIdle(t *testing.T) {
	proxy := serveBackend(t)
	i, err := OpenIdle(context.Background(), proxy, get("/fixed/64", Want{}), 100)
	require.NoError(t, err)
	assert.Zero(t, i.Ended())
	i.Close()

	i, err = OpenIdle(context.Background(), proxy, get("/close", Want{}), 3)
	require.NoError(t, err)
	assert.Eventually(t, func() bool { return i.Ended() == 3 }, 30*time.Second, time.Millisecond)
	i.Close()

	_, err = OpenIdle(context.Background(), serveBytes(t, "HTTP/1.1 503 No\r\n\r\n"), get("/", Want{}), 1)
	assert.ErrorContains(t, err, "status 503")
}

func TestSlowClients(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	var requests atomic.Int64
	proxy := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "20000")
		io.WriteString(w, strings.Repeat("s", 20000))
		if requests.Add(1) == 10 {
			cancel()
		}
	})
	s := Slow{Proxy: proxy, Requests: get("/", Want{}), Clients: 2, Pace: time.Millisecond}
	res := s.Run(ctx)
	assert.NotZero(t, res.Answered)
	assert.Zero(t, res.Failed)
}

// FuzzReceive holds that no answer of a proxy breaks the generator.
func FuzzReceive(f *testing.F) {
	f.Add([]byte("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabcd"), 10)
	f.Add([]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n0\r\n\r\n"), 50)
	f.Add(wire.AppendFrame(nil, wire.Binary, []byte("abcd"), nil), 1)
	f.Fuzz(func(t *testing.T, answer []byte, split int) {
		if split < 0 || split > len(answer) {
			return
		}
		for _, s := range []state{atHead, inTunnel} {
			l := &loop{
				plan:   Plan{Requests: get("/", Want{[]byte("abcd"), 4}), Connections: 1, Message: []byte("abcd")},
				result: Result{Latency: NewHistogram(), Events: NewHistogram(), Errors: map[string]int64{}},
				phase:  finishing, base: time.Now(), order: []int32{0},
			}
			c := &conn{fd: -1, state: s, waiting: true, request: &l.plan.Requests[0]}
			for _, piece := range [][]byte{answer[:split], answer[split:]} {
				b := append(c.kept, piece...)
				c.kept = nil
				l.receive(c, b)
			}
		}
	})
}
