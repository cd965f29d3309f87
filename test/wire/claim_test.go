package wire

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// claimedBy is the route of a sandbox that serves a claim.
func claimedBy(claim, id, address string) Route {
	r := routeTo(id, address)
	r.Claim = claim
	return r
}

// byClaim are the header lines that name a claim and the port of its sandbox.
func (s *sandbox) byClaim(claim string) string {
	return "X-Sandbox-Claim: " + claim + "⏎X-Sandbox-Port: " + s.port + "⏎"
}

// TestClaim: a request may name the claim instead of the sandbox. The claim's name stays with the router.
func TestClaim(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		here, there := freshAddress(), freshAddress()
		elsewhere := claimedBy("mine", "warm-2", there)
		elsewhere.Namespace = "elsewhere"
		r := p.ownRouter(t, []Route{claimedBy("mine", "warm-1", here), elsewhere}, "--route-wait=300ms")
		s, other := listen(t, "warm-1", here), listen(t, "warm-2", there)
		for _, row := range []struct {
			name, lines string
			sandbox     *sandbox
		}{
			{"in the default namespace", s.byClaim("mine"), s},
			{"in another namespace", other.byClaim("mine") + "X-Sandbox-Namespace: elsewhere⏎", other},
			{"with the UID of its sandbox", s.byClaim("mine") + "X-Sandbox-UID: uid-warm-1⏎", s},
			{"in other case", strings.ToLower(s.byClaim("mine")), s},
			{"handshake", s.byClaim("mine") + handshakeLines, s},
		} {
			t.Run(row.name, func(t *testing.T) {
				c := r.dial(t)
				c.send("GET / HTTP/1.1⏎Host: app⏎Connection: close⏎" + row.lines + "⏎")
				u := row.sandbox.accept()
				requireNoRouting(t, u.request().fields)
				u.send("HTTP/1.1 200 OK⏎Connection: close⏎Content-Length: 1⏎⏎x")
				require.Equal(t, "x", c.response("GET").text())
			})
		}
		for _, row := range []struct {
			name, lines string
			status      int
			code        string
		}{
			{"unknown, after the hold", s.byClaim("yours"), 404, "sandbox_not_found"},
			{"in a namespace without it", s.byClaim("mine") + "X-Sandbox-Namespace: third⏎", 404, "sandbox_not_found"},
			{"the sandbox's name is no claim", s.byClaim("warm-1"), 404, "sandbox_not_found"},
			{"the claim's name is no sandbox", "X-Sandbox-ID: mine⏎X-Sandbox-Port: " + s.port + "⏎", 404, "sandbox_not_found"},
			{"claim and id", s.byClaim("mine") + "X-Sandbox-ID: warm-1⏎", 400, "invalid_request"},
			{"empty", s.byClaim(""), 400, "invalid_request"},
			{"no label", s.byClaim("My.Claim"), 400, "invalid_request"},
			{"underscore twin", "X_Sandbox_Claim: mine⏎X-Sandbox-Port: " + s.port + "⏎", 400, "invalid_request"},
		} {
			t.Run(row.name, func(t *testing.T) {
				c := r.dial(t)
				c.send("GET / HTTP/1.1⏎Host: app⏎" + row.lines + "⏎")
				ownAnswer(t, c.response("GET"), row.status, row.code, false)
			})
		}
		s.untouched()
		other.untouched()
	})
}

// TestClaimHeldUntilBound: a client may send the request together with its claim. It is held until the claim is bound and
// its sandbox reachable.
func TestClaimHeldUntilBound(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.ownRouter(t, nil, "--route-wait=20s", "--unknown-wait=1ms")
		s := r.sandbox(t)
		c := r.dial(t)
		c.send("POST / HTTP/1.1⏎Host: app⏎" + s.byClaim("mine") + "Content-Length: 5⏎⏎hello")
		eventually(t, "a held request", func() bool { return r.metric(t, "sandbox_router_held_requests") == 1 })

		starting := claimedBy("mine", s.id, s.address)
		starting.State, starting.Endpoints = "Starting", []Endpoint{}
		r.setRoutes(t, starting)
		eventually(t, "the route", func() bool { return r.metric(t, "sandbox_router_routes") == 1 })
		s.untouched()

		r.setRoutes(t, claimedBy("mine", s.id, s.address))
		u := s.accept()
		require.Equal(t, "hello", u.request().text())
		u.ok("bound")
		require.Equal(t, "bound", c.response("POST").text())
	})
}

// TestClaimMovesOn: after its sandbox is gone a claim is not gone but unbound, and is served by the next one.
func TestClaimMovesOn(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.ownRouter(t, []Route{claimedBy("mine", "s0", sandboxAddress(0))}, "--route-wait=20s")
		first, second := r.sandbox(t), r.sandbox(t)
		c := r.dial(t)
		c.send("GET / HTTP/1.1⏎Host: app⏎" + first.byClaim("mine") + "⏎")
		u := first.accept()
		u.request()
		u.ok("first")
		require.Equal(t, "first", c.response("GET").text())

		r.setRoutes(t)
		u.gone()
		c.send("GET / HTTP/1.1⏎Host: app⏎" + second.byClaim("mine") + "⏎")
		eventually(t, "a held request", func() bool { return r.metric(t, "sandbox_router_held_requests") == 1 })
		r.setRoutes(t, claimedBy("mine", "s1", sandboxAddress(1)))
		w := second.accept()
		w.request()
		w.ok("second")
		require.Equal(t, "second", c.response("GET").text())
		first.untouched()
	})
}
