// Package relay carries requests to sandboxes and their answers back.
//
// Every connection, a client's or a sandbox's, is read by one goroutine for its whole life. The client's goroutine reads
// requests and writes them to the sandbox; the sandbox's goroutine reads the answer and writes it to the client. So both
// directions flow at once, a silent client is watched while its sandbox works, and a pooled connection that ends is noticed
// at once. An exchange joins the two:
//
//	client.consume → begin → parse → auth → route → connect → dispatch ─▶ sandbox
//	client ◀─ finish ◀ body ◀ head ◀─ upstream.got
package relay

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dovakiin0/agent-sandbox/router/auth"
	"github.com/dovakiin0/agent-sandbox/router/dial"
	"github.com/dovakiin0/agent-sandbox/router/parse"
	"github.com/dovakiin0/agent-sandbox/router/record"
	"github.com/dovakiin0/agent-sandbox/router/route"
)

// Host is what the route table keeps for each endpoint: its connections.
type Host = dial.Host[*upstream]

// Table is the route table as the relay reads it.
type Table = route.Table[*Host]

// Config are the relay's limits and choices. Durations of 0 mean no limit, except where another meaning is given.
type Config struct {
	Addressing parse.Addressing
	Trusted    []netip.Prefix // peers whose forwarding fields are believed
	KeepHost   bool           // forward the Host field as received rather than the endpoint's address

	MaxHeader   int   // bytes of a request or response head
	MaxBody     int64 // bytes of a request body; 0: no limit
	MaxInflight int64 // exchanges of one endpoint at a time; 0: no limit

	Total          time.Duration // one exchange from its head to the end of its answer
	ResponseHeader time.Duration // from the dispatch to the head of the answer
	StreamIdle     time.Duration // without a byte in either direction
	ClientHeader   time.Duration // from the first byte of a request head to its last
	ClientIdle     time.Duration // between requests
	ClientMinRate  int64         // bytes per second of an upload, over any 10 seconds; 0: no limit
	UpstreamIdle   time.Duration // a pooled connection; shorter than what servers commonly allow
	RouteWait      time.Duration // for a known sandbox to become reachable
	UnknownWait    time.Duration // for an unknown one to become known

	TunnelIdle      time.Duration
	TunnelLifetime  time.Duration
	TunnelPerClient int // WebSockets of one client address; 0: no limit
}

// Relay serves connections.
type Relay struct {
	cfg   Config
	table *Table
	gate  auth.Gate
	meter *record.Meter
	log   *record.AccessLog
	dog   *watchdog

	ending   atomic.Bool  // answers say Connection: close
	draining atomic.Bool  // and WebSockets are refused
	busy     atomic.Int64 // exchanges between head and end, tunnels not counted
	tunnels  tunnelCount
	clients  sync.WaitGroup
}

// New makes a Relay. Run must be called before connections are served.
func New(cfg Config, table *Table, gate auth.Gate, meter *record.Meter, access *record.AccessLog) *Relay {
	r := &Relay{cfg: cfg, table: table, gate: gate, meter: meter, log: access, dog: newWatchdog()}
	meter.Gauge("sandbox_router_inflight_requests", func() float64 { return float64(r.busy.Load()) })
	meter.Gauge("sandbox_router_websocket_tunnels", func() float64 { return float64(r.tunnels.total.Load()) })
	return r
}

// Run looks after deadlines until ctx ends.
func (r *Relay) Run(ctx context.Context) { r.dog.run(ctx) }

// Open makes the relay's side of a new connection to a sandbox. It fits dial.NewHost.
func (r *Relay) Open(tcp dial.Transport, pool *dial.Pool[*upstream]) *upstream {
	return newUpstream(r, tcp, pool)
}

// Serve relays the requests of one client connection until it ends. tcp is its transport; conn is the same, or TLS over it.
func (r *Relay) Serve(conn net.Conn, tcp *net.TCPConn) {
	r.clients.Add(1)
	defer r.clients.Done()
	newClient(r, conn, tcp).serve()
}

// Announce makes every further answer say Connection: close, so that clients go elsewhere by themselves.
func (r *Relay) Announce() { r.ending.Store(true) }

// Drain begins to end: new WebSockets are refused, and connections end that stay idle.
func (r *Relay) Drain() {
	r.ending.Store(true)
	r.draining.Store(true)
	r.dog.each(func(d watched) {
		if c, ok := d.(*client); ok {
			c.endIfIdle()
		}
	})
}

// Busy counts the exchanges and the WebSockets that are under way.
func (r *Relay) Busy() (exchanges, tunnels int64) { return r.busy.Load(), r.tunnels.total.Load() }

// EndTunnels closes every WebSocket with status 1001 (going away; RFC 6455, section 7.4.1).
func (r *Relay) EndTunnels() {
	r.dog.each(func(d watched) {
		if c, ok := d.(*client); ok {
			c.endTunnel(record.TunnelDrained)
		}
	})
}

// Abort ends every connection at once.
func (r *Relay) Abort() {
	r.dog.each(func(d watched) {
		switch c := d.(type) {
		case *client:
			c.shut()
		case *upstream:
			c.Kill()
		}
	})
}

// Wait waits until every client connection has ended, or ctx.
func (r *Relay) Wait(ctx context.Context) {
	gone := make(chan struct{})
	go func() {
		r.clients.Wait()
		close(gone)
	}()
	select {
	case <-gone:
	case <-ctx.Done():
	}
}

func (r *Relay) trusts(a netip.Addr) bool {
	for _, p := range r.cfg.Trusted {
		if p.Contains(a) {
			return true
		}
	}
	return false
}
