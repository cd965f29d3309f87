package wire

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestProxyTimeout: --proxy-timeout bounds the whole exchange, however busy it is, and so does X-Sandbox-Timeout.
func TestProxyTimeout(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		const operators, callers = "--proxy-timeout", "X-Sandbox-Timeout"
		for _, row := range []struct{ setting, lines string }{{operators, ""}, {callers, callers + ": 1⏎"}} {
			r := p.shared(t)
			if row.setting == operators {
				r = p.routerWith(t, "--proxy-timeout=1s")
			}
			t.Run(row.setting+", no answer", func(t *testing.T) {
				t.Parallel()
				s := r.sandbox(t)
				c := r.dial(t)
				c.send("POST / HTTP/1.1⏎Host: app⏎" + s.route() + row.lines + "Content-Length: 5⏎⏎hello")
				u := s.accept()
				require.Equal(t, "hello", u.request().text())
				a := ownAnswer(t, c.response("POST"), 504, "timeout", true)
				require.True(t, strings.HasPrefix(a.Detail, "Timed out waiting for the backend sandbox: "+s.id), a.Detail)
				require.Contains(t, a.Detail, row.setting)
				u.gone()
				s.untouched()
			})
			t.Run(row.setting+", an answer that goes on and on", func(t *testing.T) {
				t.Parallel()
				s := r.sandbox(t)
				c := r.dial(t)
				c.send("GET / HTTP/1.1⏎Host: app⏎" + s.route() + row.lines + "⏎")
				u := s.accept()
				u.request()
				u.send("HTTP/1.1 200 OK⏎Transfer-Encoding: chunked⏎⏎")
				go u.drip("1\r\na\r\n")
				c.response("GET").cut()
			})
			t.Run(row.setting+", an upload that goes on and on", func(t *testing.T) {
				t.Parallel()
				s := r.sandbox(t)
				c := r.dial(t)
				c.send("POST / HTTP/1.1⏎Host: app⏎" + s.route() + row.lines + "Transfer-Encoding: chunked⏎⏎")
				go c.drip("1\r\na\r\n")
				u := s.accept()
				request := u.request()
				ownAnswer(t, c.response("POST"), 504, "timeout", true)
				_, complete := request.body.all()
				require.False(t, complete)
			})
		}
		t.Run("held", func(t *testing.T) {
			t.Parallel()
			r := p.ownRouter(t, []Route{{ID: "starting", UID: "u", State: "Starting", Endpoints: []Endpoint{}}}, "--route-wait=1m", "--proxy-timeout=500ms")
			c := r.dial(t)
			c.send("GET / HTTP/1.1⏎Host: app⏎X-Sandbox-ID: starting⏎⏎")
			ownAnswer(t, c.response("GET"), 503, "sandbox_starting", false) // within the patience of this suite
		})
		t.Run("each exchange has its own", func(t *testing.T) {
			t.Parallel()
			r := p.routerWith(t, "--proxy-timeout=3s")
			s := r.sandbox(t)
			c := r.dial(t)
			var u *conn
			for range 4 {
				c.send(s.get("/"))
				if u == nil {
					u = s.accept()
				}
				u.request()
				time.Sleep(time.Second)
				u.ok("x")
				require.Equal(t, "x", c.response("GET").text())
			}
		})
	})
}
