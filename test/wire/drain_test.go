package wire

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// draining starts a router, has a case prepare open exchanges on it, and sends SIGTERM.
func draining(t *testing.T, p port, flags []string, prepare func(r *router)) *router {
	t.Helper()
	r := p.ownRouter(t, numberedRoutes(8), flags...)
	prepare(r)
	r.terminate(t)
	eventually(t, "an unready router", func() bool { return r.Probe("/readyz") == http.StatusServiceUnavailable })
	return r
}

// TestDrain: after SIGTERM the router is unready at once and serves as before while that spreads. Then it refuses new
// tunnels, ends client connections with their next answer and idle ones at once, lets exchanges finish, and exits with
// code 0.
func TestDrain(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		var s *sandbox
		var busy, idle, u *conn
		r := draining(t, p, []string{"--drain-delay=1s", "--shutdown-timeout=20s"}, func(r *router) {
			s = r.sandbox(t)
			busy, idle = r.dial(t), r.dial(t)
			busy.send(s.get("/long"))
			u = s.accept()
			u.request()
			idle.exchangeAnywhere(s, "before")
			idle.settle()
		})
		require.Equal(t, 200, r.Probe("/healthz"), "alive until the end")
		idle.eof() // the delay is over
		require.Equal(t, 503, r.Probe("/readyz"))

		upgrade := r.dial(t)
		upgrade.send(s.handshake())
		ownAnswer(t, upgrade.response("GET"), 503, "router_draining", false)

		late, other := r.dial(t), r.sandbox(t)
		late.send(other.get("/late"))
		w := other.accept()
		w.request()
		w.ok("late")
		resp := late.response("GET")
		require.Equal(t, "late", resp.text())
		require.Equal(t, "close", resp.fields.get("Connection"))
		late.gone()

		u.ok("finished")
		resp = busy.response("GET")
		require.Equal(t, "finished", resp.text())
		require.Equal(t, "close", resp.fields.get("Connection"))
		busy.gone()
		require.Equal(t, 0, r.exit(t))
	})
}

// TestDrainLetsStreamsFinish: an exchange whose response began before the signal is not cut while the budget lasts.
func TestDrainLetsStreamsFinish(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		var u *conn
		var download, upload *response
		var uploaded *request
		var uploader, w *conn
		r := draining(t, p, []string{"--drain-delay=100ms", "--shutdown-timeout=20s"}, func(r *router) {
			s := r.sandbox(t)
			c := r.dial(t)
			c.send(s.get("/"))
			u = s.accept()
			u.request()
			u.send("HTTP/1.1 200 OK⏎Transfer-Encoding: chunked⏎⏎1⏎a⏎")
			download = c.response("GET")
			require.Equal(t, "a", download.body.next(1))

			uploader = r.dial(t)
			uploader.send("POST / HTTP/1.1⏎Host: a⏎" + s.route() + "Content-Length: 10⏎⏎hello")
			w = s.accept()
			uploaded = w.request()
			require.Equal(t, "hello", uploaded.body.next(5))
		})
		time.Sleep(500 * time.Millisecond) // past the delay
		u.send("1⏎b⏎0⏎⏎")
		require.Equal(t, "b", download.text())
		uploader.send("world")
		require.Equal(t, "world", uploaded.text())
		w.ok("x")
		upload = uploader.response("POST")
		require.Equal(t, "x", upload.text())
		require.Equal(t, 0, r.exit(t))
	})
}

// TestDrainEndsHungRequests: a request that outlasts the budget is ended with it, and the exit is still in time.
func TestDrainEndsHungRequests(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		var c, u *conn
		r := draining(t, p, []string{"--drain-delay=100ms", "--shutdown-timeout=1s"}, func(r *router) {
			s := r.sandbox(t)
			c = r.dial(t)
			c.send(s.get("/"))
			u = s.accept()
			u.request()
		})
		require.Equal(t, 0, r.exit(t))
		u.gone()
		data, _ := c.rest()
		require.False(t, strings.HasPrefix(string(data), "HTTP/1.1 200"), "%q", data)
	})
}

// closeFrame takes a WebSocket Close frame with status 1001 (RFC 6455, sections 5.5.1 and 7.4.1).
func closeFrame(c *conn, masked bool) {
	c.t.Helper()
	frame := c.take(2)
	require.Equal(c.t, byte(0x88), frame[0], "FIN and opcode of a Close frame")
	n := int(frame[1] & 0x7f)
	require.Equal(c.t, masked, frame[1]&0x80 != 0, "frames to a server are masked, those to a client are not")
	var mask []byte
	if masked {
		mask = c.take(4)
	}
	payload := c.take(n)
	for i := range mask {
		for j := i; j < len(payload); j += 4 {
			payload[j] ^= mask[i]
		}
	}
	require.GreaterOrEqual(c.t, n, 2)
	require.Equal(c.t, 1001, int(payload[0])<<8|int(payload[1]))
}

// TestDrainClosesTunnels: tunnels live until the budget ends; then each side gets a Close frame, but never inside a
// frame that is on its way.
func TestDrainClosesTunnels(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		const hello = "\x81\x05hello"
		const helloMasked = "\x81\x85\x00\x00\x00\x00hello"
		type tunnel struct{ c, u *conn }
		var silent, used, middle, middleHeader, ending tunnel
		open := func(r *router) tunnel {
			c, u := r.tunnel(t, r.sandbox(t))
			return tunnel{c, u}
		}
		r := draining(t, p, []string{"--drain-delay=100ms", "--shutdown-timeout=3s"}, func(r *router) {
			silent = open(r)
			used = open(r)
			used.u.write([]byte(hello))
			require.Equal(t, hello, string(used.c.take(len(hello))))
			used.c.write([]byte(helloMasked))
			require.Equal(t, helloMasked, string(used.u.take(len(helloMasked))))
			middle = open(r)
			middle.u.write([]byte(hello + "\x81\x05he"))
			require.Equal(t, hello+"\x81\x05he", string(middle.c.take(11)))
			middleHeader = open(r)
			middleHeader.u.write([]byte(hello + "\x81"))
			require.Equal(t, hello+"\x81", string(middleHeader.c.take(8)))
			ending = open(r)
			ending.u.write([]byte("\x81\x05he"))
			require.Equal(t, "\x81\x05he", string(ending.c.take(4)))
		})
		// The tunnels still work while the drain goes on, and a frame that ends in time is no obstacle.
		used.c.write([]byte(helloMasked))
		require.Equal(t, helloMasked, string(used.u.take(len(helloMasked))))
		ending.u.write([]byte("llo"))
		require.Equal(t, "llo", string(ending.c.take(3)))

		for _, whole := range []tunnel{silent, used, ending} {
			closeFrame(whole.c, false)
			whole.c.gone()
			closeFrame(whole.u, true)
			whole.u.gone()
		}
		for _, half := range []tunnel{middle, middleHeader} {
			half.c.gone() // not one byte inside the frame
			closeFrame(half.u, true)
			half.u.gone()
		}
		require.Equal(t, 0, r.exit(t))
	})
}

// TestDrainClosesTunnelInsideLargeFrame: frame lengths of every encoding are kept track of (RFC 6455, section 5.2).
func TestDrainClosesTunnelInsideLargeFrame(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		frames := map[string]string{
			"7 bits":                   "\x82\x7d" + strings.Repeat("x", 125),
			"16 bits":                  "\x82\x7e\x01\x00" + strings.Repeat("x", 256),
			"64 bits":                  "\x82\x7f\x00\x00\x00\x00\x00\x01\x00\x00" + strings.Repeat("x", 65536),
			"empty":                    "\x81\x00",
			"fragments":                "\x01\x01a\x00\x01b\x80\x01c",
			"control inside a message": "\x01\x01a\x89\x00\x80\x01c",
		}
		type tunnel struct {
			c, u *conn
			cut  bool
		}
		tunnels := map[string]tunnel{}
		r := p.ownRouter(t, numberedRoutes(2*len(frames)), "--drain-delay=100ms", "--shutdown-timeout=2s")
		for name, frame := range frames {
			for _, cut := range []bool{false, true} {
				c, u := r.tunnel(t, r.sandbox(t))
				sent := frame
				if cut {
					sent = frame[:len(frame)-1]
				}
				u.write([]byte(sent))
				c.take(len(sent))
				tunnels[fmt.Sprintf("%s, cut %v", name, cut)] = tunnel{c, u, cut}
			}
		}
		r.terminate(t)
		for name, tunnel := range tunnels {
			if tunnel.cut {
				data, _ := tunnel.c.rest()
				require.Empty(t, data, name)
			} else {
				closeFrame(tunnel.c, false)
				tunnel.c.gone()
			}
			tunnel.u.rest()
		}
		require.Equal(t, 0, r.exit(t))
	})
}

// TestDrainUnderLoad: a rollout fails no request. Clients go on until they can connect no more, as behind a load
// balancer that has seen the unreadiness; every request that was accepted is answered.
func TestDrainUnderLoad(t *testing.T) {
	eachPort(t, func(t *testing.T, p port) {
		const clients, tunnels = 16, 8
		var s *sandbox
		var failed, served sync.Map
		var running sync.WaitGroup
		stopping := make(chan struct{})
		var open []*conn
		r := draining(t, p, []string{"--drain-delay=5s", "--shutdown-timeout=3s"}, func(r *router) {
			s = r.sandbox(t)
			backend := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				time.Sleep(5 * time.Millisecond)
				fmt.Fprint(w, q.URL.Path)
			})}
			go func() { _ = backend.Serve(s.listener) }() // until it is closed
			t.Cleanup(func() { _ = backend.Close() })

			quiet := r.sandbox(t)
			for range tunnels {
				c, u := r.tunnel(t, quiet)
				open = append(open, c, u)
			}
			for i := range clients {
				client := r.httpClient()
				running.Go(func() {
					defer client.CloseIdleConnections()
					for n := 0; ; n++ {
						select {
						case <-stopping:
							return
						default:
						}
						path := fmt.Sprintf("/%d-%d", i, n)
						if err := r.askFor(client, s, path); err != nil {
							failed.Store(path, err)
							return
						}
						served.Store(i, n)
					}
				})
			}
			eventually(t, "traffic", func() bool {
				n := 0
				served.Range(func(any, any) bool { n++; return true })
				return n == clients
			})
		})
		// The endpoints controller has noticed: no new requests come, well before the delay is over, even on a busy machine.
		time.Sleep(300 * time.Millisecond)
		close(stopping)
		running.Wait()
		failed.Range(func(path, err any) bool {
			assert.Fail(t, "failed request", "%v: %v", path, err)
			return true
		})
		for i, c := range open {
			closeFrame(c, i%2 == 1)
			c.gone()
		}
		require.Equal(t, 0, r.exit(t))
	})
}

// askFor does one POST, which no client library repeats, and checks the answer.
func (r *router) askFor(client *http.Client, s *sandbox, path string) error {
	request, err := http.NewRequest(http.MethodPost, r.scheme()+"://"+r.address()+path, strings.NewReader("hello"))
	if err != nil {
		return err
	}
	request.Header.Set("X-Sandbox-ID", s.id)
	request.Header.Set("X-Sandbox-Port", s.port)
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body := make([]byte, len(path)+1)
	n, _ := response.Body.Read(body)
	if response.StatusCode != http.StatusOK || string(body[:n]) != path {
		return fmt.Errorf("status %d, body %q", response.StatusCode, body[:n])
	}
	return nil
}
