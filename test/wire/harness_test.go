package wire

import (
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dovakiin0/agent-sandbox/test/certs"
	"github.com/dovakiin0/agent-sandbox/test/sources"
)

// plenty and some are how many sandboxes the routes file of a shared router lists: that with the default flags serves
// most cases. No sandbox serves two of them. A router that has given away half is succeeded by a fresh one (-count=10);
// the other half is for cases that hold the old one already.
const plenty, some = 8192, 512

// base holds what the cases of this process share.
var base struct {
	dir     string
	binary  func() (string, error)
	clients *tls.Config // of clients that believe the certificate of every router

	mu    sync.Mutex
	slots map[string]*slot // by the flags of their routers
}

// slot is where cases with the same flags find their router.
type slot struct {
	mu      sync.Mutex
	current *instance
	all     []*instance
}

// Files of the routers' certificate, below base.dir.
const certFile, keyFile = "tls.crt", "tls.key"

func TestMain(m *testing.M) {
	flag.Parse()
	// Cases mostly wait for the network, so far more than one per core may run at once.
	if !isSet("test.parallel") {
		_ = flag.Set("test.parallel", "48") // the flag exists and takes numbers
	}
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	if base.dir, err = os.MkdirTemp("", "wire"); err != nil {
		return 1, err
	}
	defer os.RemoveAll(base.dir)
	if err := makeCertificate(); err != nil {
		return 1, err
	}
	base.binary = sync.OnceValues(func() (string, error) {
		if err := sources.Record("../..", "router"); err != nil {
			return "", err
		}
		return Build(base.dir, raceBuilt())
	})
	base.slots = map[string]*slot{}

	code = m.Run()
	for _, s := range base.slots {
		for _, r := range s.all {
			err = errors.Join(err, r.Kill())
		}
	}
	return code, err
}

func makeCertificate() error {
	authority, err := certs.NewAuthority()
	if err != nil {
		return err
	}
	base.clients = &tls.Config{RootCAs: authority.Pool(), ServerName: "localhost"}
	return writeCertificate(authority, base.dir)
}

// writeCertificate makes a certificate for a router and writes it to certFile and keyFile in dir.
func writeCertificate(authority *certs.Authority, dir string) error {
	cert, key, err := authority.Sign("router")
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(dir, certFile), cert, 0o600), os.WriteFile(filepath.Join(dir, keyFile), key, 0o600))
}

// certificateFlags open the TLS port with the certificate in dir.
func certificateFlags(dir string) []string {
	return []string{"--tls-cert-file=" + filepath.Join(dir, certFile), "--tls-key-file=" + filepath.Join(dir, keyFile)}
}

func isSet(name string) (set bool) {
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == name })
	return set
}

// raceBuilt reports whether this test binary has the race detector; then the router gets it too.
func raceBuilt() bool {
	info, _ := debug.ReadBuildInfo()
	for _, setting := range info.Settings {
		if setting.Key == "-race" {
			return setting.Value == "true"
		}
	}
	return false
}

// instance is a router process and the sandboxes of its routes file that no case has taken yet.
type instance struct {
	*Router
	routesFile string
	listed     int32
	taken      atomic.Int32
}

// port is one of the router's two ports for traffic. On Linux the router waits for plain connections to become readable
// before it reads them, and reads TLS connections with calls that block. Both ways must obey all rules.
type port struct {
	name string
	tls  bool
}

var ports = []port{{name: "plain"}, {name: "tls", tls: true}}

// eachPort runs a case through both ports.
func eachPort(t *testing.T, test func(t *testing.T, p port)) {
	t.Parallel()
	for _, p := range ports {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			test(t, p)
		})
	}
}

// router is an instance as a case sees it: through one of the ports.
type router struct {
	*instance
	port port
}

// shared returns the router with the default flags.
func (p port) shared(t testing.TB) *router {
	t.Helper()
	return p.routerWith(t)
}

// routerWith returns the router with these flags, which all cases that ask for the same flags share. Words that are no
// flags are environment settings.
func (p port) routerWith(t testing.TB, flags ...string) *router {
	t.Helper()
	key := strings.Join(flags, " ")
	base.mu.Lock()
	s := base.slots[key]
	if s == nil {
		s = &slot{}
		base.slots[key] = s
	}
	base.mu.Unlock()

	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.current; i == nil || i.taken.Load() >= i.listed/2 {
		listed := some
		if key == "" {
			listed = plenty
		}
		s.current = launch(t, numberedRoutes(listed), flags)
		s.all = append(s.all, s.current)
	}
	return &router{s.current, p}
}

// numberedRoutes are the routes of the sandboxes that router.sandbox gives out.
func numberedRoutes(n int) []Route {
	routes := make([]Route, n)
	for i := range routes {
		routes[i] = routeTo(sandboxID(i), sandboxAddress(i))
	}
	return routes
}

// ownRouter starts a router for one case, with these routes, and ends it with the case.
func (p port) ownRouter(t testing.TB, routes []Route, flags ...string) *router {
	t.Helper()
	i := launch(t, routes, flags)
	t.Cleanup(func() { assert.NoError(t, i.Kill()) })
	return &router{i, p}
}

var routesFiles atomic.Int32

func launch(t testing.TB, routes []Route, flags []string) *instance {
	t.Helper()
	i := &instance{
		routesFile: filepath.Join(base.dir, fmt.Sprintf("routes-%d.yaml", routesFiles.Add(1))),
		listed:     int32(len(routes)),
	}
	require.NoError(t, WriteRoutes(i.routesFile, routes))
	binary, err := base.binary()
	require.NoError(t, err)
	flags, env := splitEnvironment(flags)
	flags = slices.Concat([]string{
		"--discovery=file", "--routes-file=" + i.routesFile, "--allow-loopback-pod-ip", "--access-log=off",
		"--upstream-idle-timeout=1m", // a stalled machine must not change which connection a case sees
	}, certificateFlags(base.dir), flags)
	i.Router, err = Start(binary, flags, env)
	require.NoError(t, err)
	return i
}

// splitEnvironment tells "--flag=value" from "NAME=value".
func splitEnvironment(words []string) (flags, env []string) {
	for _, word := range words {
		if strings.HasPrefix(word, "--") {
			flags = append(flags, word)
		} else {
			env = append(env, word)
		}
	}
	return flags, env
}

func sandboxID(i int) string      { return fmt.Sprintf("s%d", i) }
func sandboxAddress(i int) string { return fmt.Sprintf("127.77.%d.%d", i>>8, i&0xff) }

// routeTo is the route of a running sandbox with one endpoint.
func routeTo(id, address string) Route {
	return Route{ID: id, UID: "uid-" + id, Endpoints: []Endpoint{{Address: address, Ready: true, UID: "pod-" + id}}}
}

// setRoutes replaces the routes of a case's own router.
func (i *instance) setRoutes(t testing.TB, routes ...Route) {
	t.Helper()
	require.NoError(t, WriteRoutes(i.routesFile, routes))
}

// dial connects a client.
func (r *router) dial(t testing.TB) *conn {
	t.Helper()
	return r.dialFrom(t, "127.0.0.1")
}

// dialFrom connects a client whose address is the given loopback address.
func (r *router) dialFrom(t testing.TB, address string) *conn {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}, Timeout: patience}
	tcp, err := dialer.Dial("tcp", r.address())
	require.NoError(t, err)
	c := newConn(t, "client", tcp.(*net.TCPConn))
	if r.port.tls {
		c.encrypt(base.clients)
	}
	return c
}

// address is that of the port for traffic.
func (r *router) address() string {
	if r.port.tls {
		return r.Secure
	}
	return r.Proxy
}

// scheme is what the sandboxes are told about how the client came.
func (r *router) scheme() string {
	if r.port.tls {
		return "https"
	}
	return "http"
}

// httpClient is an ordinary client that comes through the port.
func (r *router) httpClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{DialContext: (&net.Dialer{Timeout: patience}).DialContext, TLSClientConfig: base.clients},
		Timeout:   patience,
	}
}

// metric adds up all series of a metric on the admin port.
func (r *router) metric(t testing.TB, name string) float64 {
	t.Helper()
	response, err := probes.Get("http://" + r.Admin + "/metrics")
	require.NoError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	sum := 0.0
	for line := range strings.Lines(string(text)) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if plain, _, _ := strings.Cut(series, "{"); plain == name {
			n, err := strconv.ParseFloat(value, 64)
			require.NoError(t, err, line)
			sum += n
		}
	}
	return sum
}

// terminate sends SIGTERM.
func (r *router) terminate(t testing.TB) {
	t.Helper()
	require.NoError(t, r.Signal(syscall.SIGTERM))
}

// exit waits for the end of the process and returns its exit code.
func (r *router) exit(t testing.TB) int {
	t.Helper()
	select {
	case <-r.Done():
		return r.ExitCode()
	case <-time.After(2 * patience):
		require.FailNow(t, "the router did not exit", "%s", r.Output())
		return math.MinInt
	}
}
