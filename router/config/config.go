// Package config reads the router's settings: flags, a YAML file of the same keys, and the environment of older routers, in
// this order of precedence. Every error names its setting.
package config

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/dovakiin0/agent-sandbox/router/dial"
	"github.com/dovakiin0/agent-sandbox/router/watch"
)

// Config are the settings, checked.
type Config struct {
	HTTP, HTTPS, Metrics, Probes string

	TLSCert, TLSKey, TLSClientCA, MTLS string

	Discovery, RoutesFile, Namespace, Zone, Kubeconfig string

	ProxyTimeout, ResponseHeaderTimeout, StreamIdleTimeout                   time.Duration
	ClientHeaderTimeout, ClientIdleTimeout, UpstreamIdleTimeout, DialTimeout time.Duration
	ShutdownTimeout, DrainDelay, RouteWait, UnknownWait                      time.Duration
	RetryInitialDelay, RetryMaxDelay                                         time.Duration
	MaxRetries                                                               int

	MaxHeaderBytes                        int
	MaxBodyBytes, MinBodyRate             int64
	MaxConnsPerSandbox, MaxInflight       int
	WebSocketIdle, WebSocketLifetime      time.Duration
	WebSocketPerClient                    int
	AuthzMode, StaticTokenFile            string
	StaticToken                           string // of the environment or the file
	ScopedSecretFile                      string
	ScopedSecret                          []byte // of the file
	AccessLog, LogLevel, UpstreamHost     string
	TrustedProxies                        []netip.Prefix
	AllowLoopback, Pprof, Version         bool
	DialTranslate                         dial.Translation
	RouteDomain, RouteDomainNamespace     string
	trustedProxies, dialTranslate, source string
}

// Authorization modes.
const (
	AllowAll    = "allow-all"
	StaticToken = "static-token"
	ScopedToken = "scoped-token"
)

func (c *Config) flags(out io.Writer) *flag.FlagSet {
	fs := flag.NewFlagSet("router", flag.ContinueOnError)
	fs.SetOutput(out)
	fs.StringVar(&c.HTTP, "http-bind-address", ":8080", "address of the proxy")
	fs.StringVar(&c.HTTPS, "https-bind-address", "", "address of the proxy over TLS; empty: none")
	fs.StringVar(&c.Metrics, "metrics-bind-address", ":9090", "address of metrics and other things for operators")
	fs.StringVar(&c.Probes, "health-probe-bind-address", ":8081", "address of /healthz and /readyz")

	fs.StringVar(&c.TLSCert, "tls-cert-file", "", "certificate for --https-bind-address, PEM; read again when it changes")
	fs.StringVar(&c.TLSKey, "tls-key-file", "", "its key")
	fs.StringVar(&c.TLSClientCA, "tls-client-ca-file", "", "authorities of client certificates, PEM")
	fs.StringVar(&c.MTLS, "mtls-mode", "off", "client certificates: off, optional or required")

	fs.StringVar(&c.Discovery, "discovery", watch.EndpointSlices, "where routes come from: endpointslices, pods or file")
	fs.StringVar(&c.RoutesFile, "routes-file", "", "YAML file of routes for --discovery=file; read again when it changes")
	fs.StringVar(&c.Namespace, "namespace", "", "watch only this namespace; empty: all")
	fs.StringVar(&c.Zone, "zone", "", "the router's own zone; empty: from its node")
	fs.StringVar(&c.Kubeconfig, "kubeconfig", "", "kubeconfig file; empty: the service account of the pod")

	fs.DurationVar(&c.ProxyTimeout, "proxy-timeout", 180*time.Second, "longest exchange, from the request's head to the end of the answer; WebSockets are not bound by it; 0: no limit")
	fs.DurationVar(&c.ResponseHeaderTimeout, "response-header-timeout", 0, "longest wait for the head of the answer; 0: --proxy-timeout")
	fs.DurationVar(&c.StreamIdleTimeout, "stream-idle-timeout", time.Hour, "longest silence within a body; 0: no limit")
	fs.DurationVar(&c.ClientHeaderTimeout, "client-header-timeout", 10*time.Second, "longest time for a client to send a request head")
	fs.DurationVar(&c.ClientIdleTimeout, "client-idle-timeout", 2*time.Minute, "longest idle time of a client connection")
	fs.Int64Var(&c.MinBodyRate, "client-min-body-rate", 0, "slowest upload in bytes per second, over ten seconds; 0: no limit")
	fs.DurationVar(&c.UpstreamIdleTimeout, "upstream-idle-timeout", 4*time.Second, "longest idle time of a pooled connection; keep it below the keep-alive time of the servers in the sandboxes")
	fs.DurationVar(&c.DialTimeout, "dial-timeout", 5*time.Second, "longest attempt to connect to a sandbox")
	fs.IntVar(&c.MaxRetries, "upstream-max-retries", 3, "attempts to connect after a failed one")
	fs.DurationVar(&c.RetryInitialDelay, "upstream-retry-initial-delay", 200*time.Millisecond, "wait before the second attempt, doubled for each further one")
	fs.DurationVar(&c.RetryMaxDelay, "upstream-retry-max-delay", 800*time.Millisecond, "longest wait between attempts")
	fs.DurationVar(&c.ShutdownTimeout, "shutdown-timeout", 30*time.Second, "time for exchanges and WebSockets to end, after --drain-delay")
	fs.DurationVar(&c.DrainDelay, "drain-delay", 3*time.Second, "time between becoming unready and draining, for the news to spread")
	fs.DurationVar(&c.RouteWait, "route-wait", 5*time.Second, "longest hold of a request for a known sandbox that is not reachable yet")
	fs.DurationVar(&c.UnknownWait, "unknown-wait", 300*time.Millisecond, "longest hold of a request for an unknown sandbox")

	fs.IntVar(&c.MaxHeaderBytes, "max-header-bytes", 64<<10, "largest head of a request or an answer")
	fs.Int64Var(&c.MaxBodyBytes, "max-request-body-bytes", 0, "largest request body; 0: no limit")
	fs.IntVar(&c.MaxConnsPerSandbox, "max-connections-per-sandbox", 0, "most connections to one port of a sandbox; 0: no limit")
	fs.IntVar(&c.MaxInflight, "max-inflight-per-sandbox", 0, "most exchanges of a sandbox at a time; 0: no limit")
	fs.DurationVar(&c.WebSocketIdle, "websocket-idle-timeout", time.Hour, "longest silence of a WebSocket in both directions; 0: no limit")
	fs.DurationVar(&c.WebSocketLifetime, "websocket-max-lifetime", 24*time.Hour, "longest life of a WebSocket; 0: no limit")
	fs.IntVar(&c.WebSocketPerClient, "websocket-max-connections-per-client", 0, "most WebSockets of one client address; 0: no limit")

	fs.StringVar(&c.AuthzMode, "authz-mode", AllowAll, "who may call: allow-all, static-token or scoped-token")
	fs.StringVar(&c.StaticTokenFile, "authz-static-token-file", "", "file with the token of static-token; else ROUTER_AUTH_TOKEN")
	fs.StringVar(&c.ScopedSecretFile, "authz-scoped-token-secret-file", "", "file with the secret that scoped tokens are signed with")
	fs.StringVar(&c.AccessLog, "access-log", "errors", "exchanges to log: off, errors or all")
	fs.StringVar(&c.LogLevel, "log-level", "info", "debug, info, warn or error")
	fs.StringVar(&c.trustedProxies, "trusted-proxy-cidrs", "", "proxies whose X-Forwarded-* are believed, comma-separated prefixes")
	fs.BoolVar(&c.AllowLoopback, "allow-loopback-pod-ip", false, "let sandboxes have loopback addresses; for tests")
	fs.StringVar(&c.dialTranslate, "dial-translate", "", "dial <prefix>=<prefix> instead; for the local control plane")
	fs.StringVar(&c.UpstreamHost, "upstream-host", "preserve", "the Host that sandboxes see: preserve or address")
	fs.StringVar(&c.RouteDomain, "route-domain", "", "hosts <port>-<id>[.<namespace>].<domain> name a sandbox")
	fs.StringVar(&c.RouteDomainNamespace, "route-domain-namespace", "", "namespace of such hosts without one; empty: default")
	fs.BoolVar(&c.Pprof, "enable-pprof", false, "serve /debug/pprof on --metrics-bind-address")
	fs.StringVar(&c.source, "config", "", "YAML file with the same keys as the flags; else SANDBOX_ROUTER_CONFIG")
	fs.BoolVar(&c.Version, "version", false, "print the version and exit")
	return fs
}

// environment are the variables of older routers. Those that end in _SECONDS hold a number.
var environment = []struct{ variable, flag string }{
	{"KUBECONFIG", "kubeconfig"},
	{"PROXY_TIMEOUT_SECONDS", "proxy-timeout"},
	{"WEBSOCKET_IDLE_TIMEOUT_SECONDS", "websocket-idle-timeout"},
	{"WEBSOCKET_MAX_LIFETIME_SECONDS", "websocket-max-lifetime"},
	{"WEBSOCKET_MAX_CONNECTIONS_PER_CLIENT", "websocket-max-connections-per-client"},
	{"TRUSTED_PROXY_CIDRS", "trusted-proxy-cidrs"},
}

// ErrHelp is returned when help was asked for and printed.
var ErrHelp = flag.ErrHelp

// Parse reads the settings. out gets the help text.
func Parse(args []string, getenv func(string) string, out io.Writer) (*Config, error) {
	c := &Config{}
	fs := c.flags(io.Discard)
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fs.SetOutput(out)
			fs.PrintDefaults()
			return nil, ErrHelp
		}
		return nil, err
	}
	if fs.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	set := map[string]bool{}
	fs.Visit(func(f *flag.Flag) { set[f.Name] = true })
	if c.source == "" {
		c.source = getenv("SANDBOX_ROUTER_CONFIG")
	}
	if c.source != "" {
		if err := readFile(fs, c.source, set); err != nil {
			return nil, err
		}
	}
	if err := readEnvironment(fs, getenv, set); err != nil {
		return nil, err
	}
	if err := c.token(getenv, set); err != nil {
		return nil, err
	}
	return c, c.check()
}

func readFile(fs *flag.FlagSet, path string, set map[string]bool) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	values := map[string]any{}
	numbers := func(d *json.Decoder) *json.Decoder { // as they are written: a float64 would print large ones as 1e+06
		d.UseNumber()
		return d
	}
	if err := yaml.UnmarshalStrict(b, &values, numbers); err != nil {
		return fmt.Errorf("--config: %s: %w", path, err)
	}
	for key, value := range values {
		if fs.Lookup(key) == nil || key == "config" {
			return fmt.Errorf("--config: %s: unknown key %q", path, key)
		}
		switch value.(type) {
		case string, bool, json.Number:
		default:
			return fmt.Errorf("--config: %s: %s: want one plain value", path, key)
		}
		if set[key] {
			continue
		}
		if err := fs.Set(key, fmt.Sprint(value)); err != nil {
			return fmt.Errorf("--config: %s: %s: %w", path, key, err)
		}
		set[key] = true
	}
	return nil
}

func readEnvironment(fs *flag.FlagSet, getenv func(string) string, set map[string]bool) error {
	for _, e := range environment {
		value := getenv(e.variable)
		if value == "" || set[e.flag] {
			continue
		}
		if strings.HasSuffix(e.variable, "_SECONDS") {
			value += "s"
		}
		if err := fs.Set(e.flag, value); err != nil {
			return fmt.Errorf("%s: %w", e.variable, err)
		}
	}
	return nil
}

// token reads the secrets. ROUTER_AUTH_TOKEN turns static-token on where no mode is chosen, as it did in older
// routers, unless ALLOW_UNAUTHENTICATED_ROUTER says otherwise.
func (c *Config) token(getenv func(string) string, set map[string]bool) error {
	c.StaticToken = strings.TrimSpace(getenv("ROUTER_AUTH_TOKEN"))
	if c.StaticToken != "" && !set["authz-mode"] && !truthy(getenv("ALLOW_UNAUTHENTICATED_ROUTER")) {
		c.AuthzMode = StaticToken
	}
	if c.StaticTokenFile != "" {
		b, err := os.ReadFile(c.StaticTokenFile)
		if err != nil {
			return fmt.Errorf("--authz-static-token-file: %w", err)
		}
		c.StaticToken = strings.TrimSpace(string(b))
	}
	if c.ScopedSecretFile != "" {
		b, err := os.ReadFile(c.ScopedSecretFile)
		if err != nil {
			return fmt.Errorf("--authz-scoped-token-secret-file: %w", err)
		}
		c.ScopedSecret = b
	}
	return nil
}

func truthy(s string) bool {
	switch strings.ToLower(s) {
	case "1", "true", "t", "yes", "y", "on":
		return true
	}
	return false
}

// check finds what cannot work.
func (c *Config) check() error {
	oneOf := func(flag, value string, allowed ...string) error {
		for _, a := range allowed {
			if value == a {
				return nil
			}
		}
		return fmt.Errorf("--%s: %q is none of %s", flag, value, strings.Join(allowed, ", "))
	}
	err := errors.Join(
		oneOf("mtls-mode", c.MTLS, "off", "optional", "required"),
		oneOf("discovery", c.Discovery, watch.EndpointSlices, watch.Pods, watch.File),
		oneOf("authz-mode", c.AuthzMode, AllowAll, StaticToken, ScopedToken),
		oneOf("access-log", c.AccessLog, "off", "false", "errors", "all", "true"),
		oneOf("log-level", c.LogLevel, "debug", "info", "warn", "error"),
		oneOf("upstream-host", c.UpstreamHost, "preserve", "address"),
	)
	fail := func(flag, format string, args ...any) {
		err = errors.Join(err, fmt.Errorf("--%s: %s", flag, fmt.Sprintf(format, args...)))
	}
	if c.HTTP == "" && c.HTTPS == "" {
		fail("http-bind-address", "needed, unless --https-bind-address is given")
	}
	if c.HTTPS != "" && (c.TLSCert == "" || c.TLSKey == "") {
		fail("https-bind-address", "needs --tls-cert-file and --tls-key-file")
	}
	if c.MTLS != "off" && c.TLSClientCA == "" {
		fail("mtls-mode", "%s needs --tls-client-ca-file", c.MTLS)
	}
	if c.Discovery == watch.File && c.RoutesFile == "" {
		fail("routes-file", "needed with --discovery=file")
	}
	if c.AuthzMode == StaticToken && c.StaticToken == "" {
		fail("authz-mode", "static-token needs --authz-static-token-file or ROUTER_AUTH_TOKEN")
	}
	if c.AuthzMode == ScopedToken && c.ScopedSecretFile == "" {
		fail("authz-mode", "scoped-token needs --authz-scoped-token-secret-file")
	}
	for _, d := range []struct {
		flag  string
		value time.Duration
		least time.Duration
	}{
		{"proxy-timeout", c.ProxyTimeout, 0}, {"response-header-timeout", c.ResponseHeaderTimeout, 0},
		{"stream-idle-timeout", c.StreamIdleTimeout, 0}, {"client-header-timeout", c.ClientHeaderTimeout, time.Millisecond},
		{"client-idle-timeout", c.ClientIdleTimeout, time.Millisecond}, {"upstream-idle-timeout", c.UpstreamIdleTimeout, time.Millisecond},
		{"dial-timeout", c.DialTimeout, time.Millisecond}, {"shutdown-timeout", c.ShutdownTimeout, 0}, {"drain-delay", c.DrainDelay, 0},
		{"route-wait", c.RouteWait, 0}, {"unknown-wait", c.UnknownWait, 0}, {"websocket-idle-timeout", c.WebSocketIdle, 0},
		{"websocket-max-lifetime", c.WebSocketLifetime, 0}, {"upstream-retry-initial-delay", c.RetryInitialDelay, 0},
		{"upstream-retry-max-delay", c.RetryMaxDelay, 0},
	} {
		if d.value < d.least {
			fail(d.flag, "%s is too short", d.value)
		}
	}
	for _, n := range []struct {
		flag         string
		value, least int64
	}{
		{"upstream-max-retries", int64(c.MaxRetries), 0}, {"max-header-bytes", int64(c.MaxHeaderBytes), 1 << 10},
		{"max-request-body-bytes", c.MaxBodyBytes, 0}, {"max-connections-per-sandbox", int64(c.MaxConnsPerSandbox), 0},
		{"max-inflight-per-sandbox", int64(c.MaxInflight), 0}, {"websocket-max-connections-per-client", int64(c.WebSocketPerClient), 0},
		{"client-min-body-rate", c.MinBodyRate, 0},
	} {
		if n.value < n.least {
			fail(n.flag, "%d is below %d", n.value, n.least)
		}
	}
	if c.ResponseHeaderTimeout == 0 {
		c.ResponseHeaderTimeout = c.ProxyTimeout
	}
	var perr error
	if c.DialTranslate, perr = dial.ParseTranslation(c.dialTranslate); perr != nil {
		fail("dial-translate", "%q: %v", c.dialTranslate, perr)
	}
	for _, s := range strings.FieldsFunc(c.trustedProxies, func(r rune) bool { return r == ',' || r == ' ' }) {
		p, perr := netip.ParsePrefix(s)
		if perr != nil {
			fail("trusted-proxy-cidrs", "%v", perr)
			continue
		}
		c.TrustedProxies = append(c.TrustedProxies, p.Masked())
	}
	return err
}
