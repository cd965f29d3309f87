package wire

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// domainFlags have hosts below example.com name sandboxes.
var domainFlags = []string{"--route-domain=example.com", "--route-domain-namespace=team"}

// TestRouteDomain: the host names the port and the sandbox, and may name its namespace. The sandbox sees the Host as it was.
func TestRouteDomain(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		routes := numberedRoutes(3)
		routes[0].Namespace, routes[1].Namespace, routes[2].ID = "team", "other", "s0" // s0 in default, too
		r := p.ownRouter(t, routes, domainFlags...)
		team, other := r.sandbox(t), r.sandbox(t)
		plain := listen(t, "s0", sandboxAddress(2))
		for _, row := range []struct {
			name, host, lines string
			sandbox           *sandbox
		}{
			{"without a namespace", "{port}-s0.example.com", "", team},
			{"with a namespace", "{port}-s1.other.example.com", "", other},
			{"with the default one", "{port}-s0.default.example.com", "", plain},
			{"with a port of the router's", "{port}-s0.example.com:8080", "", team},
			{"domain in other case", "{port}-s0.Example.COM", "", team},
			{"handshake", "{port}-s0.example.com", handshakeLines, team},
			{"X-Sandbox-Namespace counts for more", "{port}-s1.team.example.com", "X-Sandbox-Namespace: other⏎", other},
			{"X-Sandbox-Port counts for more", "1-s0.example.com", "X-Sandbox-Port: {port}⏎", team},
			{"X-Sandbox-ID counts for more, and the host for nothing", "1-s1.other.example.com", "X-Sandbox-ID: s0⏎X-Sandbox-Port: {port}⏎", plain},
			{"X-Sandbox-ID counts for more than a bad host", "what.ever.it.is.example.com", "X-Sandbox-ID: s0⏎X-Sandbox-Port: {port}⏎", plain},
			{"a host elsewhere is only a host", "{port}-s0.example.org", "X-Sandbox-ID: s0⏎X-Sandbox-Port: {port}⏎", plain},
		} {
			t.Run(row.name, func(t *testing.T) {
				host := row.sandbox.fill(row.host)
				c := r.dial(t)
				c.send("GET /healthz HTTP/1.1⏎Host: " + host + "⏎" + row.sandbox.fill(row.lines) + "⏎")
				u := row.sandbox.accept()
				request := u.request()
				require.Equal(t, []string{host}, request.fields.all("Host"))
				require.Equal(t, "/healthz", request.target, "a sandbox is named, so the path is its own")
				requireNoRouting(t, request.fields)
				u.send("HTTP/1.1 200 OK⏎Connection: close⏎Content-Length: 1⏎⏎x")
				require.Equal(t, "x", c.response("GET").text())
			})
		}
		t.Run("absolute form", func(t *testing.T) {
			c := r.dial(t)
			host := team.fill("{port}-s0.example.com")
			c.send("GET http://" + host + "/p HTTP/1.1⏎Host: " + host + "⏎⏎")
			u := team.accept()
			require.Equal(t, "/p", u.request().target)
			u.ok("x")
			require.Equal(t, "x", c.response("GET").text())
		})
	})
}

// TestBadRouteDomainHost: a host below the domain that names no sandbox is refused like the header that it stands for.
func TestBadRouteDomainHost(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.routerWith(t, domainFlags...)
		for _, row := range []struct{ host, detail string }{
			{"example.com", detailIDRequired},
			{".example.com", detailIDRequired},
			{"80-s0example.com", detailIDRequired},
			{"80-s0.example.com.evil.org", detailIDRequired},
			{"80-s0.example.co", detailIDRequired},
			{"s0.example.com", detailInvalidID},
			{"80.example.com", detailInvalidID},
			{"80-.example.com", detailInvalidID},
			{"80--s0.example.com", detailInvalidID},
			{"80-S0.example.com", detailInvalidID},
			{"80-s_0.example.com", detailInvalidID},
			{"80-" + strings.Repeat("a", 64) + ".example.com", detailInvalidID},
			{"-s0.example.com", detailInvalidPort},
			{"0-s0.example.com", detailInvalidPort},
			{"080-s0.example.com", detailInvalidPort},
			{"65536-s0.example.com", detailInvalidPort},
			{"http-s0.example.com", detailInvalidPort},
			{"80-s0..example.com", detailInvalidNamespace},
			{"80-s0.a.b.example.com", detailInvalidNamespace},
			{"80-s0.Team.example.com", detailInvalidNamespace},
			{"80-s0.-team.example.com", detailInvalidNamespace},
		} {
			t.Run(row.host, func(t *testing.T) {
				t.Parallel()
				c := r.dial(t)
				c.send("GET / HTTP/1.1⏎Host: " + row.host + "⏎⏎")
				require.Equal(t, row.detail, ownAnswer(t, c.response("GET"), 400, "invalid_request", false).Detail)
			})
		}
		t.Run("unknown sandbox", func(t *testing.T) {
			t.Parallel()
			c := r.dial(t)
			c.send("GET / HTTP/1.1⏎Host: 80-nobody.example.com⏎⏎")
			require.Contains(t, ownAnswer(t, c.response("GET"), 404, "sandbox_not_found", false).Detail, "nobody")
		})
		t.Run("without the flag a host names nothing", func(t *testing.T) {
			t.Parallel()
			c := p.shared(t).dial(t)
			c.send("GET / HTTP/1.1⏎Host: 80-s0.example.com⏎⏎")
			require.Equal(t, detailIDRequired, ownAnswer(t, c.response("GET"), 400, "invalid_request", false).Detail)
		})
	})
}
