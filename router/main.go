// Command router carries HTTP and WebSocket traffic to sandboxes by their id.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/dovakiin0/agent-sandbox/router/accept"
	"github.com/dovakiin0/agent-sandbox/router/auth"
	"github.com/dovakiin0/agent-sandbox/router/config"
	"github.com/dovakiin0/agent-sandbox/router/dial"
	"github.com/dovakiin0/agent-sandbox/router/parse"
	"github.com/dovakiin0/agent-sandbox/router/record"
	"github.com/dovakiin0/agent-sandbox/router/relay"
	"github.com/dovakiin0/agent-sandbox/router/route"
	"github.com/dovakiin0/agent-sandbox/router/watch"
)

// version is set by the linker.
var version = "dev"

func main() {
	c, err := config.Parse(os.Args[1:], os.Getenv, os.Stdout)
	switch {
	case errors.Is(err, config.ErrHelp):
		return
	case err == nil && c.Version:
		fmt.Println(version)
		return
	case err == nil:
		err = run(c)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "router:", err)
		os.Exit(2)
	}
}

func run(c *config.Config) error {
	level, _ := zerolog.ParseLevel(c.LogLevel)
	log := zerolog.New(os.Stderr).Level(level).With().Timestamp().Logger()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	meter := record.NewMeter(version)
	access, err := record.NewAccessLog(os.Stdout, c.AccessLog)
	if err != nil {
		return err
	}
	gate, err := newGate(c)
	if err != nil {
		return err
	}
	gate = wrapGate(gate)
	table, rel := newRelay(c, gate, meter, access)
	source, err := watch.New(watch.Options{
		Discovery: c.Discovery, Namespace: c.Namespace, Kubeconfig: c.Kubeconfig, RoutesFile: c.RoutesFile,
		Zone: c.Zone, AllowLoopback: c.AllowLoopback, Log: log,
	})
	if err != nil {
		return err
	}
	if c.Discovery != watch.File && c.Kubeconfig != "" {
		if err := watch.Reach(ctx, c.Kubeconfig); err != nil {
			return err
		}
	}
	measure(meter, table, source)

	// Every port is bound before the router can be ready.
	proxies, err := listen(c, meter, log)
	if err != nil {
		return err
	}
	admin, err := accept.Listen(c.Metrics, "metrics-bind-address", nil)
	if err != nil {
		return err
	}
	probes, err := accept.Listen(c.Probes, "health-probe-bind-address", nil)
	if err != nil {
		return err
	}

	var draining atomic.Bool
	failed := make(chan error, 3)
	go rel.Run(ctx)
	go func() { failed <- source.Run(ctx, table) }()
	go func() {
		failed <- accept.ServeAdmin(admin, accept.Admin{Metrics: meter.Write, Routes: func(w io.Writer) { dumpRoutes(w, table) }, Pprof: c.Pprof})
	}()
	go func() {
		failed <- accept.ServeProbes(probes, accept.Probes{Ready: func() (bool, string) {
			switch {
			case draining.Load():
				return false, "draining"
			case !table.Synced():
				return false, "starting"
			}
			return true, "ok"
		}})
	}()
	for _, l := range proxies {
		go l.Run(rel.Serve, log)
		log.Info().Stringer("address", l.Addr()).Msg("listening")
	}

	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM, syscall.SIGINT)
	select {
	case err := <-failed:
		return err
	case s := <-term:
		log.Info().Stringer("signal", s).Msg("draining")
	}
	draining.Store(true)
	accept.Drain(rel, accept.Budgets{Delay: c.DrainDelay, Shutdown: c.ShutdownTimeout}, func() {
		for _, l := range proxies {
			l.Close()
		}
	}, log)
	return nil
}

// wrapGate is changed by the build tag slow, which makes every request dearer so that the check of the benchmarks can be checked.
var wrapGate = func(g auth.Gate) auth.Gate { return g }

func newGate(c *config.Config) (auth.Gate, error) {
	switch c.AuthzMode {
	case config.StaticToken:
		return auth.NewStaticToken(c.StaticToken)
	case config.ScopedToken:
		gate, err := auth.NewScopedToken(c.ScopedSecret)
		if err != nil {
			return nil, fmt.Errorf("--authz-scoped-token-secret-file: %w", err)
		}
		return gate, nil
	}
	return auth.AllowAll{}, nil
}

// newRelay makes the table and the relay, which know of each other: the table keeps the connections of its endpoints.
func newRelay(c *config.Config, gate auth.Gate, meter *record.Meter, access *record.AccessLog) (*relay.Table, *relay.Relay) {
	dialer := &dial.Dialer{
		Timeout: c.DialTimeout, Retries: c.MaxRetries, InitialDelay: c.RetryInitialDelay, MaxDelay: c.RetryMaxDelay,
		Grace: c.RouteWait, Translate: c.DialTranslate, MaxConns: c.MaxConnsPerSandbox, MaxWaits: maxDialWaits,
	}
	dialers := map[string]*dial.Dialer{} // by namespace; used by the table's only writer
	dialerOf := func(namespace string) *dial.Dialer {
		if dialers[namespace] == nil {
			d := *dialer
			d.Retried = meter.Namespace(namespace).Retried
			dialers[namespace] = &d
		}
		return dialers[namespace]
	}
	var table *relay.Table
	var rel *relay.Relay
	table = route.New(route.Options[*relay.Host]{
		Make: func(e *route.Endpoint[*relay.Host]) *relay.Host {
			return dial.NewHost(e.Address, dialerOf(e.Namespace), table.Synced(), rel.Open)
		},
		Retire: (*relay.Host).Retire,
	})
	rel = relay.New(relay.Config{
		Addressing: parse.Addressing{Loopback: c.AllowLoopback, Domain: c.RouteDomain, DomainNamespace: c.RouteDomainNamespace},
		Trusted:    c.TrustedProxies, KeepHost: c.UpstreamHost == "preserve",
		MaxHeader: c.MaxHeaderBytes, MaxBody: c.MaxBodyBytes, MaxInflight: int64(c.MaxInflight),
		Total: c.ProxyTimeout, ResponseHeader: c.ResponseHeaderTimeout, StreamIdle: c.StreamIdleTimeout,
		ClientHeader: c.ClientHeaderTimeout, ClientIdle: c.ClientIdleTimeout, ClientMinRate: c.MinBodyRate,
		UpstreamIdle: c.UpstreamIdleTimeout, RouteWait: c.RouteWait, UnknownWait: c.UnknownWait,
		TunnelIdle: c.WebSocketIdle, TunnelLifetime: c.WebSocketLifetime, TunnelPerClient: c.WebSocketPerClient,
	}, table, gate, meter, access)
	return table, rel
}

// maxDialWaits is how many requests may wait for one of --max-connections-per-sandbox.
const maxDialWaits = 1024

// listen binds the proxy's ports.
func listen(c *config.Config, meter *record.Meter, log zerolog.Logger) (all []*accept.Listener, err error) {
	var secure *tls.Config
	if c.HTTPS != "" {
		if secure, err = accept.TLS(c.TLSCert, c.TLSKey, c.TLSClientCA, c.MTLS, log, meter.CertReloaded); err != nil {
			return nil, err
		}
	}
	for _, p := range []struct {
		addr, flag string
		tls        *tls.Config
	}{{c.HTTP, "http-bind-address", nil}, {c.HTTPS, "https-bind-address", secure}} {
		if p.addr == "" {
			continue
		}
		l, err := accept.Listen(p.addr, p.flag, p.tls)
		if err != nil {
			return nil, err
		}
		all = append(all, l)
	}
	return all, nil
}

// measure adds what the table and its source know of themselves to the metrics.
func measure(m *record.Meter, t *relay.Table, s *watch.Source) {
	m.Gauge("sandbox_router_routes", func() float64 { return float64(t.Len()) })
	m.Gauge("sandbox_router_ready_endpoints", func() float64 { return float64(t.ReadyEndpoints()) })
	m.Gauge("sandbox_router_held_requests", func() float64 { return float64(t.Waiting()) })
	m.Gauge("sandbox_router_discovery_staleness_seconds", func() float64 { return s.Staleness().Seconds() })
	m.Gauge("sandbox_router_discovery_last_sync_timestamp_seconds", func() float64 {
		if t := s.LastSync(); !t.IsZero() {
			return float64(t.UnixNano()) / float64(time.Second)
		}
		return 0
	})
	m.Counter("sandbox_router_discovery_updates_total", s.Updates)
	m.Counter("sandbox_router_discovery_stale_events_total", s.Stale)
	m.Counter("sandbox_router_discovery_invalid_total", s.Invalid)
	m.Counter("sandbox_router_discovery_doubted_lists_total", s.Doubts)
}
