package wire

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// situation is a row of the table of errors in the design: what goes wrong, and what the caller is told.
type situation struct {
	name    string
	router  func(t *testing.T, p port) *router // nil: the shared one
	before  func(r *router, s *sandbox)        // what happens before the request; nil: nothing
	request string                             // with {route}, {id} and {port}; empty: a plain GET
	play    func(u *conn)                      // what the sandbox does with the request; nil: it is not dispatched

	status int
	code   string
	detail string // a phrase that clients match on, with {id}; empty: any
}

// TestErrorTable: every row, with its status, code, detail and X-Sandbox-Dispatched. Other cases look closer at each.
func TestErrorTable(t *testing.T) {
	with := func(flags ...string) func(*testing.T, port) *router {
		return func(t *testing.T, p port) *router { return p.routerWith(t, flags...) }
	}
	inState := func(state string) func(*testing.T, port) *router {
		return func(t *testing.T, p port) *router {
			route := Route{ID: sandboxID(0), UID: "u", State: state, Endpoints: []Endpoint{}}
			return p.ownRouter(t, []Route{route}, "--route-wait=100ms")
		}
	}
	scoped := func(t *testing.T, p port) *router { return p.ownRouter(t, numberedRoutes(1), scopedTokens(t)...) }
	silent := func(*conn) {}
	const get, post = "GET / HTTP/1.1⏎Host: a⏎{route}", "POST / HTTP/1.1⏎Host: a⏎{route}"
	const missing, invalid = "Missing or invalid Authorization header.", "Invalid token."
	const timedOut, cannotConnect = "Timed out waiting for the backend sandbox: {id}", "Could not connect to the backend sandbox: {id}"

	rows := []situation{
		{name: "no routing header", request: "GET / HTTP/1.1⏎Host: a⏎⏎", status: 400, code: "invalid_request", detail: detailIDRequired},
		{name: "bad id", request: "GET / HTTP/1.1⏎Host: a⏎X-Sandbox-ID: A⏎⏎", status: 400, code: "invalid_request", detail: detailInvalidID},
		{name: "bad namespace", request: get + "X-Sandbox-Namespace: A⏎⏎", status: 400, code: "invalid_request", detail: detailInvalidNamespace},
		{name: "bad port", request: "GET / HTTP/1.1⏎Host: a⏎X-Sandbox-ID: {id}⏎X-Sandbox-Port: 0⏎⏎", status: 400, code: "invalid_request", detail: detailInvalidPort},
		{name: "bad pod IP", request: get + "X-Sandbox-Pod-IP: x⏎⏎", status: 400, code: "invalid_request", detail: detailInvalidPodIP},
		{name: "repeated routing header", request: get + "X-Sandbox-ID: {id}⏎⏎", status: 400, code: "invalid_request"},
		{name: "no credential", router: with(staticToken...), status: 401, code: "unauthenticated", detail: missing},
		{name: "bad credential", router: with(staticToken...), request: get + "X-Sandbox-Token: x⏎⏎", status: 401, code: "unauthenticated", detail: invalid},
		{name: "credential for another sandbox", router: scoped, status: 403, code: "forbidden",
			request: get + "X-Sandbox-Token: " + scopedToken("default", "other", time.Hour) + "⏎⏎"},
		{name: "unknown sandbox", request: "GET / HTTP/1.1⏎Host: a⏎X-Sandbox-ID: nobody⏎⏎", status: 404, code: "sandbox_not_found"},
		{name: "known in another namespace", request: get + "X-Sandbox-Namespace: elsewhere⏎⏎", status: 404, code: "sandbox_not_found"},
		{name: "deleted", router: deletedSandbox, status: 410, code: "sandbox_gone"},
		{name: "suspended", router: inState("Suspended"), status: 503, code: "sandbox_suspended"},
		{name: "starting", router: inState("Starting"), status: 503, code: "sandbox_starting"},
		{name: "router draining", router: drainingRouter, request: get + handshakeLines + "⏎", status: 503, code: "router_draining"},
		{name: "router starting", router: startingRouter, status: 503, code: "router_starting"},
		{name: "over a limit", router: with(limits...), before: occupy, status: 429, code: "too_many_requests"},
		{name: "cannot dial", before: goAway, status: 502, code: "dial_failed", detail: cannotConnect},
		{name: "connection ended before a response", play: (*conn).close, status: 502, code: "upstream_closed"},
		{name: "malformed response", play: func(u *conn) { u.send("HTTP/1.1 what⏎⏎") }, status: 502, code: "bad_response"},
		{name: "no head in time", router: with("--response-header-timeout=1s"), play: silent,
			status: 504, code: "timeout", detail: timedOut + " (--response-header-timeout)"},
		{name: "no answer in time", router: with("--proxy-timeout=1s"), play: silent,
			status: 504, code: "timeout", detail: timedOut + " (--proxy-timeout)"},
		{name: "no answer in the caller's time", request: get + "X-Sandbox-Timeout: 0.5⏎⏎", play: silent,
			status: 504, code: "timeout", detail: timedOut + " (X-Sandbox-Timeout)"},
		{name: "body too large", router: with(limits...), request: post + "Content-Length: 1001⏎⏎", status: 413, code: "body_too_large"},
		{name: "header too large", request: get + "A: " + strings.Repeat("x", 64<<10) + "⏎⏎", status: 431, code: "header_too_large"},
	}
	eachPort(t, func(t *testing.T, p port) {
		for _, row := range rows {
			t.Run(row.name, func(t *testing.T) {
				t.Parallel()
				row.check(t, p)
			})
		}
	})
}

func (row *situation) check(t *testing.T, p port) {
	r := p.shared(t)
	if row.router != nil {
		r = row.router(t, p)
	}
	s := r.sandbox(t)
	request := row.request
	if request == "" {
		request = "GET / HTTP/1.1⏎Host: a⏎{route}⏎"
	}
	if row.before != nil {
		row.before(r, s)
	}
	c := r.dial(t)
	c.send(s.fill(request))
	if row.play != nil {
		u := s.accept()
		u.request()
		row.play(u)
	}
	a := ownAnswer(t, c.response(strings.Fields(request)[0]), row.status, row.code, row.play != nil)
	if row.detail != "" {
		require.Equal(t, s.fill(row.detail), a.Detail)
	}
	if row.before == nil {
		s.untouched()
	}
}

// occupy keeps the sandbox at work until the end of the test.
func occupy(r *router, s *sandbox) {
	s.t.Helper()
	r.dial(s.t).send(s.get("/"))
	s.accept().request()
}

// goAway leaves nobody listening.
func goAway(_ *router, s *sandbox) {
	s.t.Helper()
	require.NoError(s.t, s.listener.Close())
}

// deletedSandbox is a router whose first sandbox was just deleted.
func deletedSandbox(t *testing.T, p port) *router {
	r := p.ownRouter(t, numberedRoutes(1))
	eventually(t, "the route", func() bool { return r.metric(t, "sandbox_router_routes") == 1 })
	r.setRoutes(t)
	eventually(t, "the deletion", func() bool { return r.metric(t, "sandbox_router_routes") == 0 })
	return r
}

// drainingRouter has had SIGTERM, and opens no new WebSockets any more. An exchange keeps it from its end.
func drainingRouter(t *testing.T, p port) *router {
	r := p.ownRouter(t, numberedRoutes(2), "--drain-delay=10ms", "--shutdown-timeout=1m")
	occupy(r, listen(t, sandboxID(1), sandboxAddress(1)))
	idle := r.dial(t)
	idle.settle()
	r.terminate(t)
	idle.eof() // the delay is over
	return r
}

// startingRouter waits for an API server that takes connections and never answers: an unknown sandbox is no 404 yet.
func startingRouter(t *testing.T, p port) *router {
	silent, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = silent.Close() })
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://%s"}}]
users: [{name: u, user: {}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`, silent.Addr()), 0o600))
	binary, err := base.binary()
	require.NoError(t, err)
	flags := append(certificateFlags(base.dir), "--kubeconfig="+kubeconfig, "--access-log=off", "--route-wait=100ms")
	process, err := Launch(binary, flags, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, process.Kill()) })
	eventually(t, "a live router", func() bool { return process.Probe("/healthz") == http.StatusOK })
	require.Equal(t, http.StatusServiceUnavailable, process.Probe("/readyz"))
	return &router{&instance{Router: process}, p}
}
