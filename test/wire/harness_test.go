package wire

import (
	"encoding/json"
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
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// plenty and some are how many sandboxes the routes file of a shared router lists: that with the default flags serves
// most cases. No sandbox serves two of them. A router that has given away half is succeeded by a fresh one (-count=10);
// the other half is for cases that hold the old one already.
const plenty, some = 4096, 512

// base holds what the cases of this process share.
var base struct {
	dir    string
	binary func() (string, error)

	mu    sync.Mutex
	slots map[string]*slot // by the flags of their routers
}

// slot is where cases with the same flags find their router.
type slot struct {
	mu      sync.Mutex
	current *router
	all     []*router
}

func TestMain(m *testing.M) {
	flag.Parse()
	// Cases mostly wait for the network, so far more than one per core may run at once.
	if !isSet("test.parallel") {
		_ = flag.Set("test.parallel", "48") // the flag exists and takes numbers
	}
	os.Exit(run(m))
}

func run(m *testing.M) (code int) {
	dir, err := os.MkdirTemp("", "wire")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := recordSources(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	base.dir = dir
	base.binary = sync.OnceValues(func() (string, error) { return Build(dir, raceBuilt()) })
	base.slots = map[string]*slot{}

	code = m.Run()
	for _, s := range base.slots {
		for _, r := range s.all {
			if err := r.Kill(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				code = 1
			}
		}
	}
	return code
}

// recordSources looks at the sources of the router. go test remembers what a test binary has looked at, so from then on
// a change there makes it run the tests again rather than repeat a result.
func recordSources() error {
	for _, dir := range []string{"../../router", "../../proto"} {
		if err := filepath.WalkDir(dir, func(_ string, _ os.DirEntry, err error) error { return err }); err != nil {
			return err
		}
	}
	_, err := os.Stat("../../go.mod")
	return err
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

// router is a router and the sandboxes of its routes file that no case has taken yet.
type router struct {
	*Router
	routesFile string
	listed     int32
	taken      atomic.Int32
}

// shared returns the router with the default flags.
func shared(t testing.TB) *router {
	t.Helper()
	return routerWith(t)
}

// routerWith returns the router with these flags, which all cases that ask for the same flags share. Words that are no
// flags are environment settings.
func routerWith(t testing.TB, flags ...string) *router {
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
	if r := s.current; r != nil && r.taken.Load() < r.listed/2 {
		return r
	}
	listed := some
	if key == "" {
		listed = plenty
	}
	s.current = launch(t, numberedRoutes(listed), flags)
	s.all = append(s.all, s.current)
	return s.current
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
func ownRouter(t testing.TB, routes []Route, flags ...string) *router {
	t.Helper()
	r := launch(t, routes, flags)
	t.Cleanup(func() { assert.NoError(t, r.Kill()) })
	return r
}

var routesFiles atomic.Int32

func launch(t testing.TB, routes []Route, flags []string) *router {
	t.Helper()
	r := &router{
		routesFile: filepath.Join(base.dir, fmt.Sprintf("routes-%d.yaml", routesFiles.Add(1))),
		listed:     int32(len(routes)),
	}
	require.NoError(t, WriteRoutes(r.routesFile, routes))
	binary, err := base.binary()
	require.NoError(t, err)
	flags = append([]string{
		"--discovery=file", "--routes-file=" + r.routesFile, "--allow-loopback-pod-ip", "--access-log=off",
		"--upstream-idle-timeout=1m", // a stalled machine must not change which connection a case sees
	}, flags...)
	var env []string
	flags, env = splitEnvironment(flags)
	r.Router, err = Start(binary, flags, env)
	require.NoError(t, err)
	return r
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
func (r *router) setRoutes(t testing.TB, routes ...Route) {
	t.Helper()
	require.NoError(t, WriteRoutes(r.routesFile, routes))
}

// dial connects a client to the proxy port.
func (r *router) dial(t testing.TB) *conn {
	t.Helper()
	return r.dialFrom(t, "127.0.0.1")
}

// dialFrom connects a client whose address is the given loopback address.
func (r *router) dialFrom(t testing.TB, address string) *conn {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}, Timeout: patience}
	c, err := dialer.Dial("tcp", r.Proxy)
	require.NoError(t, err)
	return newConn(t, "client", c.(*net.TCPConn))
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

// sandbox is one side of a case: a sandbox the router knows, and the raw TCP server at its address.
type sandbox struct {
	t        testing.TB
	id       string
	address  string
	port     string
	listener *net.TCPListener
}

// sandbox takes a sandbox that no case has used, and listens for it.
func (r *router) sandbox(t testing.TB) *sandbox {
	t.Helper()
	i := int(r.taken.Add(1)) - 1
	return listen(t, sandboxID(i), sandboxAddress(i))
}

// listen opens the server of a sandbox at address, on a free port.
func listen(t testing.TB, id, address string) *sandbox {
	t.Helper()
	return listenAt(t, id, address, "0")
}

// listenAt opens the server of a sandbox at address and port.
func listenAt(t testing.TB, id, address, port string) *sandbox {
	t.Helper()
	n, err := strconv.Atoi(port)
	require.NoError(t, err)
	var l *net.TCPListener
	eventually(t, "a free port", func() bool {
		// A child process that is just being started may hold a copy of the listener that had this port before.
		l, err = net.ListenTCP("tcp4", &net.TCPAddr{IP: net.ParseIP(address), Port: n})
		return !errors.Is(err, syscall.EADDRINUSE)
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() }) // some cases closed it already
	return &sandbox{t, id, address, strconv.Itoa(l.Addr().(*net.TCPAddr).Port), l}
}

// route is the header lines that name the sandbox and its port.
func (s *sandbox) route() string {
	return "X-Sandbox-ID: " + s.id + "⏎X-Sandbox-Port: " + s.port + "⏎"
}

// fill puts the sandbox into text of a case table: {route}, {id} and {port}.
func (s *sandbox) fill(text string) string {
	return strings.NewReplacer("{route}", s.route(), "{id}", s.id, "{port}", s.port).Replace(text)
}

// get is a plain GET of target to the sandbox, with more header lines.
func (s *sandbox) get(target string, lines ...string) string {
	return "GET " + target + " HTTP/1.1⏎Host: app⏎" + s.route() + strings.Join(append(lines, ""), "⏎") + "⏎"
}

// post is a POST of body to the sandbox, with more header lines.
func (s *sandbox) post(target, body string, lines ...string) string {
	return "POST " + target + " HTTP/1.1⏎Host: app⏎" + s.route() + strings.Join(append(lines, ""), "⏎") +
		"Content-Length: " + strconv.Itoa(len(notation.Replace(body))) + "⏎⏎" + body
}

// accept takes the next connection that the router opens.
func (s *sandbox) accept() *conn {
	s.t.Helper()
	require.NoError(s.t, s.listener.SetDeadline(time.Now().Add(patience)))
	c, err := s.listener.AcceptTCP()
	require.NoError(s.t, err, "the router opened no connection to sandbox %s", s.id)
	return newConn(s.t, "sandbox", c)
}

// pending reports whether a connection waits to be accepted. The kernel queues a connection before the router's
// connect returns, so after an answer of the router this is exact.
func (s *sandbox) pending() bool {
	s.t.Helper()
	return readable(s.t, s.listener)
}

// untouched wants that the router opened no further connection.
func (s *sandbox) untouched() {
	s.t.Helper()
	require.False(s.t, s.pending(), "the router opened a connection to sandbox %s", s.id)
}

// ok answers the request head that c received with status 200 and body.
func (c *conn) ok(body string) {
	c.t.Helper()
	c.send(fmt.Sprintf("HTTP/1.1 200 OK⏎Content-Length: %d⏎⏎%s", len(notation.Replace(body)), body))
}

// exchange does one plain GET over the client c and an upstream connection that must be u, and checks the answer.
func (c *conn) exchange(s *sandbox, u *conn, body string) {
	c.t.Helper()
	c.send(s.get("/" + body))
	require.Equal(c.t, "/"+body, u.request().target)
	u.ok(body)
	require.Equal(c.t, body, c.response("GET").text())
}

// settle returns once the router is done with the last exchange of the client c: it has taken up the next request of
// the same connection, so the upstream connection went back to its pool or was closed.
func (c *conn) settle() {
	c.t.Helper()
	c.send("GET /healthz HTTP/1.1⏎Host: app⏎⏎")
	r := c.response("GET")
	require.Equal(c.t, http.StatusOK, r.status)
	r.text()
}

// eventually waits until condition holds.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * patience); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			require.FailNow(t, "waited in vain", "%s", what)
		}
	}
}

// answer is the JSON body of an answer that the router made itself.
type answer struct {
	Detail    string `json:"detail"`
	Code      string `json:"code"`
	Retryable bool   `json:"retryable"`
	RequestID string `json:"requestId"`
}

// ownAnswer takes the body of a response that must be the router's own: status, code and dispatched as given.
func ownAnswer(t testing.TB, r *response, status int, code string, dispatched bool) answer {
	t.Helper()
	text := r.text()
	require.Equal(t, status, r.status, "body %s", text)
	a, err := decodeAnswer(text)
	require.NoError(t, err, "body %s", text)
	require.Equal(t, code, a.Code, "body %s", text)
	requireOwn(t, r, a)
	require.Equal(t, strconv.FormatBool(dispatched), r.fields.get("X-Sandbox-Dispatched"), "X-Sandbox-Dispatched")
	return a
}

// requireOwn checks what all answers of the router have in common.
func requireOwn(t testing.TB, r *response, a answer) {
	t.Helper()
	require.Equal(t, "application/json", r.fields.get("Content-Type"))
	require.NotEmpty(t, a.Detail)
	require.NotEmpty(t, a.RequestID)
	require.Contains(t, []string{"true", "false"}, r.fields.get("X-Sandbox-Dispatched"))
	if r.status == http.StatusServiceUnavailable || r.status == http.StatusTooManyRequests {
		require.True(t, r.fields.has("Retry-After"), "no Retry-After")
		require.True(t, a.Retryable)
	}
}

// decodeAnswer reads the JSON of the router's answers: exactly the four members.
func decodeAnswer(text string) (answer, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &members); err != nil {
		return answer{}, err
	}
	for _, name := range []string{"detail", "code", "retryable", "requestId"} {
		if members[name] == nil {
			return answer{}, errors.New("no member " + name)
		}
	}
	if len(members) != 4 {
		return answer{}, errors.New("more members than the contract has")
	}
	var a answer
	err := json.Unmarshal([]byte(text), &a)
	return a, err
}
