package wire

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Detail phrases that published clients match on (contract/client.md, sections 7.2, 7.4 and 8).
const (
	detailIDRequired       = "X-Sandbox-ID header is required."
	detailInvalidID        = "Invalid sandbox ID format."
	detailInvalidNamespace = "Invalid namespace format."
	detailInvalidPort      = "Invalid port format."
	detailInvalidPodIP     = "Invalid target IP address."
)

// misrouted sends a GET with these header lines to r, and wants status 400 and no connection to the sandbox.
func misrouted(t *testing.T, r *router, lines, detail string) {
	t.Helper()
	s := r.sandbox(t)
	c := r.dial(t)
	c.send(s.fill("GET / HTTP/1.1⏎Host: a⏎" + lines + "⏎"))
	a := ownAnswer(t, c.response("GET"), 400, "invalid_request", false)
	if detail != "" {
		require.Equal(t, detail, a.Detail)
	}
	s.untouched()
}

// TestInvalidRoutingHeader: contract/client.md, section 7.2; a header that is present but empty is invalid (section 8).
func TestInvalidRoutingHeader(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		label64 := strings.Repeat("a", 64)
		id := func(v string) string { return "X-Sandbox-ID: " + v + "⏎X-Sandbox-Port: {port}⏎" }
		namespace := func(v string) string { return "{route}X-Sandbox-Namespace: " + v + "⏎" }
		port := func(v string) string { return "X-Sandbox-ID: {id}⏎X-Sandbox-Port: " + v + "⏎" }
		timeout := func(v string) string { return "{route}X-Sandbox-Timeout: " + v + "⏎" }
		for _, row := range []struct{ name, lines, detail string }{
			{"id absent", "X-Sandbox-Port: {port}⏎", detailIDRequired},
			{"id empty", id(""), ""},
			{"id with a dot", id("a.b"), detailInvalidID},
			{"id with a slash", id("a/../b"), detailInvalidID},
			{"id with a percent sign", id("a%00"), detailInvalidID},
			{"id in upper case", id("A"), detailInvalidID},
			{"id with an underscore", id("a_b"), detailInvalidID},
			{"id with a leading hyphen", id("-a"), detailInvalidID},
			{"id with a trailing hyphen", id("a-"), detailInvalidID},
			{"id of 64 letters", id(label64), detailInvalidID},
			{"id with a letter above ASCII", id("é"), detailInvalidID},
			{"id with a blank", id("a b"), detailInvalidID},
			{"id list", id("{id}, {id}"), detailInvalidID},
			{"id that is an address", id("127.0.0.1:80"), detailInvalidID},
			{"namespace empty", namespace(""), detailInvalidNamespace},
			{"namespace with a dot", namespace("a.b"), detailInvalidNamespace},
			{"namespace in upper case", namespace("Default"), detailInvalidNamespace},
			{"namespace of 64 letters", namespace(label64), detailInvalidNamespace},
			{"namespace with a slash", namespace("a/b"), detailInvalidNamespace},
			{"port empty", port(""), detailInvalidPort},
			{"port 0", port("0"), detailInvalidPort},
			{"port 65536", port("65536"), detailInvalidPort},
			{"port with leading zero", port("08"), detailInvalidPort},
			{"port with plus", port("+80"), detailInvalidPort},
			{"negative port", port("-1"), detailInvalidPort},
			{"port with a letter", port("80a"), detailInvalidPort},
			{"hexadecimal port", port("0x50"), detailInvalidPort},
			{"port name", port("http"), detailInvalidPort},
			{"port of many digits", port("99999999999999999999"), detailInvalidPort},
			{"pod IP empty", "{route}X-Sandbox-Pod-IP:⏎", detailInvalidPodIP},
			{"timeout with letters", timeout("abc"), ""},
			{"negative timeout", timeout("-1"), ""},
			{"timeout not a number", timeout("NaN"), ""},
			{"timeout infinite", timeout("inf"), ""},
			{"timeout empty", timeout(""), ""},
			{"timeout with a unit", timeout("1s"), ""},
			{"id before namespace, port and pod IP", "X-Sandbox-Pod-IP: x⏎X-Sandbox-Port: x⏎X-Sandbox-Namespace: X⏎X-Sandbox-ID: X⏎", detailInvalidID},
			{"namespace before port and pod IP", "X-Sandbox-Pod-IP: x⏎X-Sandbox-Port: x⏎X-Sandbox-Namespace: X⏎X-Sandbox-ID: {id}⏎", detailInvalidNamespace},
			{"port before pod IP", "X-Sandbox-Pod-IP: x⏎X-Sandbox-Port: x⏎X-Sandbox-ID: {id}⏎", detailInvalidPort},
		} {
			t.Run(row.name, func(t *testing.T) {
				t.Parallel()
				misrouted(t, p.shared(t), row.lines, row.detail)
			})
		}
	})
}

// TestRepeatedRoutingHeader: two values could be read as either, so both are refused, even when they agree.
func TestRepeatedRoutingHeader(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		for _, row := range []struct{ name, lines string }{
			{"id", "{route}X-Sandbox-ID: other⏎"},
			{"id that agrees", "{route}X-Sandbox-ID: {id}⏎"},
			{"id in other case", "{route}x-sandbox-id: {id}⏎"},
			{"id before, empty", "X-Sandbox-ID:⏎{route}"},
			{"namespace", "{route}X-Sandbox-Namespace: default⏎X-Sandbox-Namespace: default⏎"},
			{"port", "{route}X-Sandbox-Port: {port}⏎"},
			{"uid", "{route}X-Sandbox-UID: uid-{id}⏎X-Sandbox-UID: uid-{id}⏎"},
			{"pod IP", "{route}X-Sandbox-Pod-IP: 127.0.0.1⏎X-Sandbox-Pod-IP: 127.0.0.1⏎"},
			{"timeout", "{route}X-Sandbox-Timeout: 5⏎X-Sandbox-Timeout: 5⏎"},
			{"token", "{route}X-Sandbox-Token: a⏎X-Sandbox-Token: a⏎"},
			{"claim", "X-Sandbox-Claim: c⏎X-Sandbox-Claim: c⏎X-Sandbox-Port: {port}⏎"},
		} {
			t.Run(row.name, func(t *testing.T) {
				t.Parallel()
				misrouted(t, p.shared(t), row.lines, "")
			})
		}
	})
}

// TestForbiddenPodIP: X-Sandbox-Pod-IP is at most a hint; addresses that no pod has are refused.
func TestForbiddenPodIP(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.routerWith(t, "--allow-loopback-pod-ip=false")
		for _, ip := range []string{
			"127.0.0.1", "127.77.0.1", "::1", "::ffff:127.0.0.1", "169.254.169.254", "::ffff:169.254.169.254", "fe80::1",
			"fe80::1%eth0", "0.0.0.0", "::", "::ffff:0.0.0.0", "224.0.0.1", "239.1.2.3", "ff02::1", "2130706433",
			"0x7f.1", "0x7f000001", "0177.0.0.1", "127.1", "10.0.0.01", "localhost", "kubernetes.default.svc",
			"10.0.0.1,10.0.0.2", "10.0.0.1:80", "10.0.0.1.", "[::1]", "10.0.0.1/8", "10.0.0", "10.0.0.256", "-1",
		} {
			t.Run(ip, func(t *testing.T) {
				t.Parallel()
				misrouted(t, r, "{route}X-Sandbox-Pod-IP: "+ip+"⏎", detailInvalidPodIP)
			})
		}
	})
}

// TestPodIPIsOnlyAHint: whatever address the caller names, the sandbox's own endpoint is dialled.
func TestPodIPIsOnlyAHint(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		for _, row := range []struct{ name, ip string }{
			{"foreign IPv4", "10.0.0.1"},
			{"foreign IPv6", "fd00::1"},
			{"loopback, allowed by flag", "127.0.0.1"},
		} {
			t.Run(row.name, func(t *testing.T) {
				t.Parallel()
				s := r.sandbox(t)
				c := r.dial(t)
				c.send(s.get("/", "X-Sandbox-Pod-IP: "+row.ip))
				u := s.accept()
				require.False(t, u.request().fields.has("X-Sandbox-Pod-IP"))
				u.ok("own")
				require.Equal(t, "own", c.response("GET").text())
			})
		}
		t.Run("of another sandbox", func(t *testing.T) {
			t.Parallel()
			s, other := r.sandbox(t), r.sandbox(t)
			c := r.dial(t)
			c.send(s.get("/", "X-Sandbox-Pod-IP: "+other.address))
			u := s.accept()
			u.request()
			u.ok("own")
			require.Equal(t, "own", c.response("GET").text())
			other.untouched()
		})
	})
}

// TestPodIPPicksAmongOwnEndpoints: the hint counts when the address belongs to the sandbox.
func TestPodIPPicksAmongOwnEndpoints(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		one, two := freshAddress(), freshAddress()
		r := p.ownRouter(t, []Route{{ID: "pair", UID: "u", Endpoints: []Endpoint{
			{Address: one, Ready: true, UID: "p1"}, {Address: two, Ready: true, UID: "p2"},
		}}})
		first := listen(t, "pair", one)
		second := listenAt(t, "pair", two, first.port)
		for range 4 {
			for _, s := range []*sandbox{first, second} {
				c := r.dial(t)
				c.send(s.get("/", "Connection: close", "X-Sandbox-Pod-IP: "+s.address))
				u := s.accept()
				u.request()
				u.send("HTTP/1.1 204 No Content⏎Connection: close⏎⏎")
				require.Equal(t, http.StatusNoContent, c.response("GET").status)
			}
		}
	})
}

// TestRoutingHeaderSpelling: field names compare without case, and blanks around values do not count.
func TestRoutingHeaderSpelling(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		for _, row := range []struct{ name, lines string }{
			{"lower case", "x-sandbox-id: {id}⏎x-sandbox-port: {port}⏎"},
			{"upper case", "X-SANDBOX-ID: {id}⏎X-SANDBOX-PORT: {port}⏎"},
			{"no blank after the colon", "X-Sandbox-ID:{id}⏎X-Sandbox-Port:{port}⏎"},
			{"blanks and tabs around", "X-Sandbox-ID: \t {id} \t⏎X-Sandbox-Port:\t{port}\t⏎"},
			{"default namespace named", "{route}X-Sandbox-Namespace: default⏎"},
			{"own uid", "{route}X-Sandbox-UID: uid-{id}⏎"},
		} {
			t.Run(row.name, func(t *testing.T) {
				t.Parallel()
				s := r.sandbox(t)
				c := r.dial(t)
				c.send(s.fill("GET / HTTP/1.1⏎Host: a⏎" + row.lines + "⏎"))
				u := s.accept()
				requireNoRouting(t, u.request().fields)
				u.ok("x")
				require.Equal(t, "x", c.response("GET").text())
			})
		}
	})
}

// requireNoRouting wants that no header of the router's own family reached the sandbox, in any spelling.
func requireNoRouting(t testing.TB, fs fields) {
	t.Helper()
	for _, f := range fs {
		name := strings.ReplaceAll(strings.ToLower(f.name), "_", "-")
		require.False(t, strings.HasPrefix(name, "x-sandbox-"), "%s reached the sandbox", f.name)
	}
}

// TestRoutingHeadersStayWithTheRouter: X-Sandbox-* never reaches the sandbox, known name or not.
func TestRoutingHeadersStayWithTheRouter(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		s := r.sandbox(t)
		c := r.dial(t)
		c.send(s.get("/", "X-Sandbox-Namespace: default", "X-Sandbox-UID: uid-"+s.id, "X-Sandbox-Pod-IP: "+s.address,
			"X-Sandbox-Timeout: 30", "X-Sandbox-Token: secret", "X-Sandbox-Unheard-Of: 1", "x-sandbox-dispatched: true", "X-Keep: 1"))
		u := s.accept()
		request := u.request()
		requireNoRouting(t, request.fields)
		require.Equal(t, "1", request.fields.get("X-Keep"))
		u.ok("")
		c.response("GET").text()
	})
}

// TestUnderscoreTwin: names that CGI-like servers read as a routing header neither route nor reach the sandbox.
func TestUnderscoreTwin(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		t.Run("does not route", func(t *testing.T) {
			t.Parallel()
			misrouted(t, r, "X_Sandbox_ID: {id}⏎X_Sandbox_Port: {port}⏎", detailIDRequired)
		})
		t.Run("is dropped", func(t *testing.T) {
			t.Parallel()
			s := r.sandbox(t)
			c := r.dial(t)
			c.send(s.get("/", "X_Sandbox_ID: other", "X-Sandbox_ID: other", "x_sandbox-id: other", "X_Sandbox_Token: t",
				"X_Forwarded_For: 1.2.3.4", "X-Forwarded_Proto: https", "X_Forwarded_Host: evil", "App_Header: 1"))
			u := s.accept()
			fs := u.request().fields
			requireNoRouting(t, fs)
			for _, f := range fs {
				require.False(t, strings.Contains(f.name, "_") && f.name != "App_Header", "%s reached the sandbox", f.name)
			}
			require.Equal(t, "1", fs.get("App_Header"), "an application's own underscore is its own business")
			u.ok("")
			c.response("GET").text()
		})
	})
}

// TestTrailerDoesNotRoute: trailers are never merged into the header section (RFC 9110, section 6.5.1).
func TestTrailerDoesNotRoute(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		s := r.sandbox(t)
		c := r.dial(t)
		c.send(s.fill("POST / HTTP/1.1⏎Host: a⏎Transfer-Encoding: chunked⏎Trailer: X-Sandbox-ID⏎⏎2⏎hi⏎0⏎X-Sandbox-ID: {id}⏎X-Sandbox-Port: {port}⏎⏎"))
		a := ownAnswer(t, c.response("POST"), 400, "invalid_request", false)
		require.Equal(t, detailIDRequired, a.Detail)
		s.untouched()
	})
}

// TestTrailerDoesNotReroute: a trailer changes neither this request nor the next one on the connection.
func TestTrailerDoesNotReroute(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		s, victim := r.sandbox(t), r.sandbox(t)
		c := r.dial(t)
		c.send("POST / HTTP/1.1⏎Host: a⏎" + s.route() + "Transfer-Encoding: chunked⏎⏎2⏎hi⏎0⏎" + victim.route() + "⏎")
		u := s.accept()
		require.Equal(t, "hi", u.request().text())
		u.ok("one")
		require.Equal(t, "one", c.response("POST").text())
		c.exchange(s, u, "two")
		victim.untouched()
	})
}

// TestUnknownUID: a caller that names the sandbox's UID is never sent to a namesake.
func TestUnknownUID(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		s := r.sandbox(t)
		c := r.dial(t)
		c.send(s.get("/", "X-Sandbox-UID: uid-of-the-predecessor"))
		resp := c.response("GET")
		require.True(t, slices.Contains([]int{404, 409, 410}, resp.status), "status %d", resp.status)
		require.Equal(t, "false", resp.fields.get("X-Sandbox-Dispatched"))
		s.untouched()
	})
}

// TestNamespaceSeparatesSandboxes: the same id in two namespaces is two sandboxes.
func TestNamespaceSeparatesSandboxes(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		one, two := freshAddress(), freshAddress()
		a, b := routeTo("twin", one), routeTo("twin", two)
		b.Namespace, b.UID = "other", "uid-b"
		r := p.ownRouter(t, []Route{a, b})
		first, second := listen(t, "twin", one), listen(t, "twin", two)

		c := r.dial(t)
		c.send(first.get("/"), second.get("/", "X-Sandbox-Namespace: other"), first.get("/", "X-Sandbox-Namespace: third"))
		for _, s := range []*sandbox{first, second} {
			u := s.accept()
			u.request()
			u.ok(s.address)
			require.Equal(t, s.address, c.response("GET").text())
		}
		ownAnswer(t, c.response("GET"), 404, "sandbox_not_found", false)
	})
}

// TestDefaultPort: without X-Sandbox-Port the sandbox is reached on port 8888.
func TestDefaultPort(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		address := freshAddress()
		r := p.ownRouter(t, []Route{routeTo("plain", address)})
		s := listenAt(t, "plain", address, "8888")
		c := r.dial(t)
		c.send("GET / HTTP/1.1⏎Host: a⏎X-Sandbox-ID: plain⏎⏎")
		u := s.accept()
		u.request()
		u.ok("x")
		require.Equal(t, "x", c.response("GET").text())
	})
}

// TestHealthOnTheProxyPort: /healthz is the router's only when no sandbox is named; nothing else is ever its own.
func TestHealthOnTheProxyPort(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.shared(t)
		t.Run("no sandbox named", func(t *testing.T) {
			t.Parallel()
			c := r.dial(t)
			c.send("GET /healthz HTTP/1.1⏎Host: a⏎⏎")
			resp := c.response("GET")
			require.Equal(t, 200, resp.status)
			require.JSONEq(t, `{"status":"ok"}`, resp.text())
		})
		t.Run("sandbox named", func(t *testing.T) {
			t.Parallel()
			s := r.sandbox(t)
			c := r.dial(t)
			c.send(s.get("/healthz"))
			u := s.accept()
			require.Equal(t, "/healthz", u.request().target)
			u.ok("the application's")
			require.Equal(t, "the application's", c.response("GET").text())
		})
		for _, target := range []string{"/readyz", "/metrics", "/", "/healthz/", "/healthzz"} {
			t.Run(target+" needs a sandbox", func(t *testing.T) {
				t.Parallel()
				c := r.dial(t)
				c.send("GET " + target + " HTTP/1.1⏎Host: a⏎⏎")
				a := ownAnswer(t, c.response("GET"), 400, "invalid_request", false)
				require.Equal(t, detailIDRequired, a.Detail)
			})
		}
	})
}

// TestProbePort: liveness and readiness have a port of their own.
func TestProbePort(t *testing.T) {
	t.Parallel()
	r := ports[0].shared(t)
	require.Equal(t, 200, r.Probe("/healthz"))
	require.Equal(t, 200, r.Probe("/readyz"))
}
