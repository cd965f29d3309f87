package wire

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// staticToken asks for one token that all callers share.
var staticToken = []string{"--authz-mode=static-token", "ROUTER_AUTH_TOKEN=right-token"}

// TestStaticToken: contract/client.md, section 8. What the router consumed does not reach the sandbox, and only that.
func TestStaticToken(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		file := filepath.Join(t.TempDir(), "token")
		require.NoError(t, os.WriteFile(file, []byte("right-token\n"), 0o600))
		routers := map[string]*router{
			"from the environment": p.routerWith(t, staticToken...),
			"from a file":          p.ownRouter(t, numberedRoutes(1), "--authz-mode=static-token", "--authz-static-token-file="+file),
		}
		const missing, invalid = "Missing or invalid Authorization header.", "Invalid token."
		r := routers["from the environment"]
		for _, kind := range []string{"HTTP", "WebSocket"} {
			handshake := ""
			if kind == "WebSocket" {
				handshake = handshakeLines
			}
			for _, row := range []struct{ name, lines, detail string }{
				{"nothing", "", missing},
				{"another scheme", "Authorization: Basic eDp5⏎", missing},
				{"scheme alone", "Authorization: Bearer⏎", missing},
				{"token without a scheme", "Authorization: right-token⏎", missing},
				{"empty Authorization", "Authorization:⏎", missing},
				{"wrong token", "Authorization: Bearer wrong-token⏎", invalid},
				{"longer token", "Authorization: Bearer right-token2⏎", invalid},
				{"shorter token", "Authorization: Bearer right-toke⏎", invalid},
				{"token in other case", "Authorization: Bearer RIGHT-TOKEN⏎", invalid},
				{"wrong X-Sandbox-Token", "X-Sandbox-Token: wrong-token⏎", invalid},
				{"wrong X-Sandbox-Token beside a right Authorization", "X-Sandbox-Token: wrong-token⏎Authorization: Bearer right-token⏎", invalid},
				{"underscore twin", "X_Sandbox_Token: right-token⏎", missing},
				{"cookie", "Cookie: token=right-token⏎", missing},
			} {
				t.Run(kind+" refused: "+row.name, func(t *testing.T) {
					t.Parallel()
					s := r.sandbox(t)
					c := r.dial(t)
					c.send("GET / HTTP/1.1⏎Host: app⏎" + s.route() + handshake + row.lines + "⏎")
					resp := c.response("GET")
					a := ownAnswer(t, resp, 401, "unauthenticated", false)
					require.Equal(t, row.detail, a.Detail)
					require.Contains(t, resp.fields.get("WWW-Authenticate"), "Bearer", "RFC 9110, section 15.5.2")
					require.False(t, resp.fields.has("Location"))
					s.untouched()
				})
			}
			for _, row := range []struct {
				name, lines string
				want        []string // Authorization at the sandbox
			}{
				{"Authorization consumed", "Authorization: Bearer right-token⏎", nil},
				{"scheme in other case", "authorization: bearer right-token⏎", nil},
				{"X-Sandbox-Token consumed", "X-Sandbox-Token: right-token⏎", nil},
				{"X-Sandbox-Token, the application's own Authorization passes", "X-Sandbox-Token: right-token⏎Authorization: Bearer app⏎", []string{"Bearer app"}},
				{"X-Sandbox-Token, the application's own scheme passes", "Authorization: Basic eDp5⏎X-Sandbox-Token: right-token⏎", []string{"Basic eDp5"}},
			} {
				t.Run(kind+" admitted: "+row.name, func(t *testing.T) {
					t.Parallel()
					s := r.sandbox(t)
					c := r.dial(t)
					c.send("GET / HTTP/1.1⏎Host: app⏎" + s.route() + handshake + row.lines + "Cookie: a=1⏎⏎")
					u := s.accept()
					fs := u.request().fields
					require.Equal(t, row.want, fs.all("Authorization"))
					require.Equal(t, "a=1", fs.get("Cookie"))
					requireNoRouting(t, fs)
					for _, f := range fs {
						require.NotContains(t, f.value, "right-token")
					}
					u.ok("x")
					require.Equal(t, "x", c.response("GET").text())
				})
			}
		}
		t.Run("from a file", func(t *testing.T) {
			t.Parallel()
			r := routers["from a file"]
			s := r.sandbox(t)
			c := r.dial(t)
			c.send(s.get("/", "Authorization: Bearer right-token"))
			u := s.accept()
			require.False(t, u.request().fields.has("Authorization"))
			u.ok("x")
			require.Equal(t, "x", c.response("GET").text())
			c.send(s.get("/", "Authorization: Bearer wrong-token"))
			ownAnswer(t, c.response("GET"), 401, "unauthenticated", false)
		})
		t.Run("each request of a connection", func(t *testing.T) {
			t.Parallel()
			s := r.sandbox(t)
			c := r.dial(t)
			c.send(s.get("/", "Authorization: Bearer right-token"))
			u := s.accept()
			u.request()
			u.ok("x")
			require.Equal(t, "x", c.response("GET").text())
			c.send(s.get("/"))
			ownAnswer(t, c.response("GET"), 401, "unauthenticated", false)
		})
		t.Run("in a trailer", func(t *testing.T) {
			t.Parallel()
			s := r.sandbox(t)
			c := r.dial(t)
			c.send("POST / HTTP/1.1⏎Host: a⏎" + s.route() + "Transfer-Encoding: chunked⏎⏎0⏎Authorization: Bearer right-token⏎X-Sandbox-Token: right-token⏎⏎")
			ownAnswer(t, c.response("POST"), 401, "unauthenticated", false)
			s.untouched()
		})
		t.Run("existence is not revealed", func(t *testing.T) {
			t.Parallel()
			c := r.dial(t)
			c.send("GET / HTTP/1.1⏎Host: a⏎X-Sandbox-ID: nobody⏎⏎")
			ownAnswer(t, c.response("GET"), 401, "unauthenticated", false)
		})
		t.Run("two Authorization fields", func(t *testing.T) {
			t.Parallel()
			s := r.sandbox(t)
			c := r.dial(t)
			c.send(s.get("/", "Authorization: Bearer wrong-token", "Authorization: Bearer right-token"))
			require.Contains(t, []int{400, 401}, c.response("GET").status)
			s.untouched()
		})
		t.Run("health needs no credential", func(t *testing.T) {
			t.Parallel()
			r.dial(t).settle()
		})
	})
}

// scopedSecret signs the tokens of scopedToken.
var scopedSecret = strings.Repeat("k", 40)

// scopedTokens are the flags of a router that believes scopedSecret.
func scopedTokens(t *testing.T) []string {
	file := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(file, []byte(scopedSecret+"\n"), 0o600))
	return []string{"--authz-mode=scoped-token", "--authz-scoped-token-secret-file=" + file}
}

func scopedToken(namespace, name string, life time.Duration) string {
	payload := base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"ns":%q,"name":%q,"exp":%d}`, namespace, name, time.Now().Add(life).Unix()))
	mac := hmac.New(sha256.New, []byte(scopedSecret))
	mac.Write([]byte("agent-sandbox/scoped-token/v1." + payload))
	return "v1." + payload + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// TestErrorForbidden: a scoped token opens the sandbox that it names and no other (contract/client.md, section 7.5).
func TestErrorForbidden(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		r := p.ownRouter(t, numberedRoutes(2), scopedTokens(t)...)
		s, other := r.sandbox(t), r.sandbox(t)
		good := scopedToken("default", s.id, time.Hour)

		c := r.dial(t)
		c.send(s.get("/", "Authorization: Bearer "+good))
		u := s.accept()
		require.False(t, u.request().fields.has("Authorization"))
		u.ok("x")
		require.Equal(t, "x", c.response("GET").text())

		for _, row := range []struct {
			name, request string
			status        int
			code          string
		}{
			{"of another sandbox", other.get("/", "Authorization: Bearer "+good), 403, "forbidden"},
			{"of another namespace", s.get("/", "Authorization: Bearer "+scopedToken("other", s.id, time.Hour)), 403, "forbidden"},
			{"of an unknown sandbox", "GET / HTTP/1.1⏎Host: a⏎X-Sandbox-ID: nobody⏎Authorization: Bearer " + good + "⏎⏎", 403, "forbidden"},
			{"with a pod IP", s.get("/", "X-Sandbox-Pod-IP: "+s.address, "Authorization: Bearer "+good), 403, "forbidden"},
			{"with a UID", s.get("/", "X-Sandbox-UID: uid-"+s.id, "Authorization: Bearer "+good), 403, "forbidden"},
			{"expired", s.get("/", "Authorization: Bearer "+scopedToken("default", s.id, -time.Minute)), 401, "unauthenticated"},
			{"forged", s.get("/", "Authorization: Bearer "+good[:len(good)-6]+"AAAAAA"), 401, "unauthenticated"},
			{"of another version", s.get("/", "Authorization: Bearer v2"+good[2:]), 401, "unauthenticated"},
			{"no token", s.get("/"), 401, "unauthenticated"},
		} {
			t.Run(row.name, func(t *testing.T) {
				c := r.dial(t)
				c.send(row.request)
				ownAnswer(t, c.response("GET"), row.status, row.code, false)
				s.untouched()
				other.untouched()
			})
		}
	})
}
