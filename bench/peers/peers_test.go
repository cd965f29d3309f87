//go:build linux

package peers

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/fasthttp/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/dovakiin0/agent-sandbox/bench/backend"
	"github.com/dovakiin0/agent-sandbox/bench/fleet"
)

// TestMain lets this binary be the processes that the package starts from itself.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "proxy":
			exit(proxyMain(os.Args[2:]))
		case "backend":
			exit(backendMain())
		}
	}
	goleak.VerifyTestMain(m)
}

func exit(err error) {
	if err != nil {
		io.WriteString(os.Stderr, err.Error())
		os.Exit(1)
	}
	os.Exit(0)
}

func proxyMain(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	httpPort, err := strconv.Atoi(args[1])
	backendPort, berr := strconv.Atoi(args[2])
	sandboxes, serr := strconv.Atoi(args[3])
	if err := errors.Join(err, berr, serr); err != nil {
		return err
	}
	return ServeBuiltin(ctx, args[0], uint16(httpPort), uint16(backendPort), sandboxes)
}

func backendMain() error {
	s, err := backend.Listen(0)
	if err != nil {
		return err
	}
	io.WriteString(os.Stdout, strconv.Itoa(int(s.Port))+"\n")
	return s.Serve()
}

const sandboxes = 20

// all are the contestants that need no router.
func all(t *testing.T) []Contestant {
	every, err := All("no router")
	require.NoError(t, err)
	var found []Contestant
	for _, c := range every {
		if !c.Own {
			found = append(found, c)
		}
	}
	return found
}

func startBackend(t *testing.T) uint16 {
	b, err := StartBackend(0)
	require.NoError(t, err)
	t.Cleanup(b.Stop)
	return b.Port
}

func TestContestantsFindEachSandbox(t *testing.T) {
	port := startBackend(t)
	for _, c := range all(t) {
		t.Run(c.Name, func(t *testing.T) {
			if why := c.Missing(); why != "" {
				t.Skip(why)
			}
			p, err := Start(context.Background(), &c, sandboxes, port, 0)
			require.NoError(t, err)
			defer p.Stop()
			assert.NotEmpty(t, p.Pids)
			assert.Positive(t, p.Ready)
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 30 * time.Second}
			for i := range sandboxes {
				req, err := http.NewRequest(http.MethodGet, "http://"+p.Addr().String()+"/fixed/64", nil)
				require.NoError(t, err)
				req.Header["X-Sandbox-ID"] = []string{fleet.ID(i)}
				resp, err := client.Do(req)
				require.NoError(t, err)
				body, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				require.NoError(t, err)
				mark := fleet.Mark(fleet.Addr(i, 0))
				require.Len(t, body, 64)
				assert.Equal(t, string(mark[:]), string(body[:fleet.MarkSize]))
			}
			ws, _, err := (&websocket.Dialer{HandshakeTimeout: 30 * time.Second}).Dial(
				"ws://"+p.Addr().String()+"/ws", http.Header{"X-Sandbox-ID": {fleet.ID(3)}})
			require.NoError(t, err)
			defer ws.Close()
			require.NoError(t, ws.WriteMessage(websocket.BinaryMessage, []byte("hello")))
			_, got, err := ws.ReadMessage()
			require.NoError(t, err)
			assert.Equal(t, "hello", string(got))
		})
	}
}

func TestContestantsDrain(t *testing.T) {
	port := startBackend(t)
	for _, c := range all(t) {
		t.Run(c.Name, func(t *testing.T) {
			if why := c.Missing(); why != "" || c.Drain == 0 {
				t.Skip(why)
			}
			p, err := Start(context.Background(), &c, sandboxes, port, 0)
			require.NoError(t, err)
			defer p.Stop()
			require.NoError(t, p.DrainNow())
			select {
			case <-p.Exited():
			case <-time.After(time.Minute):
				t.Fatal("it does not end")
			}
		})
	}
}

func TestStopEndsTheWholeGroupAndRemovesItsFiles(t *testing.T) {
	port := startBackend(t)
	self, err := os.Executable()
	require.NoError(t, err)
	c := Contestant{Name: "group", Command: []string{"sh", "-c", self + " proxy fasthttp {http} {backend} {sandboxes} & wait"}}
	p, err := Start(context.Background(), &c, sandboxes, port, 0)
	require.NoError(t, err)
	require.Len(t, p.Pids, 2)
	p.Stop()
	for _, pid := range p.Pids {
		assert.Eventually(t, func() bool { return gone(pid) }, time.Minute, time.Millisecond)
	}
	assert.NoDirExists(t, p.Dir)
}

// gone reports whether a process has ended; what is left of it may wait for its parent.
func gone(pid int) bool {
	content, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	return err != nil || len(content) == 0
}

func TestAProcessThatEndsSaysWhy(t *testing.T) {
	c := Contestant{Name: "broken", Command: []string{"sh", "-c", "echo no such thing >&2; exit 3"}}
	_, err := Start(context.Background(), &c, 1, 1, 0)
	require.ErrorContains(t, err, "exit status 3")
	assert.ErrorContains(t, err, "no such thing")
}

func TestStartEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	c := Contestant{Name: "silent", Command: []string{"sleep", "600"}}
	_, err := Start(ctx, &c, 1, 1, 0)
	assert.ErrorIs(t, err, context.Canceled)
}

func TestParse(t *testing.T) {
	c, err := Parse("old=/bin/old --http={http}  --routes={routes}")
	require.NoError(t, err)
	assert.Equal(t, "old", c.Name)
	assert.Equal(t, []string{"/bin/old", "--http={http}", "--routes={routes}"}, c.Command)
	assert.True(t, c.Follows)
	for _, s := range []string{"", "name", "name=", "=cmd"} {
		_, err := Parse(s)
		assert.Error(t, err, "%q", s)
	}
}

func TestExpand(t *testing.T) {
	s := Site{Dir: "/d", HTTP: 1, Admin: 2, Probe: 3, Backend: 4, Sandboxes: 5}
	assert.Equal(t, "1 2 3 4 5 /d /d/routes.yaml", s.expand("{http} {admin} {probe} {backend} {sandboxes} {dir} {routes}"))
}

func TestMissing(t *testing.T) {
	c := Contestant{Command: []string{"no-such-program"}}
	assert.Contains(t, c.Missing(), "no-such-program is not installed")
}

func TestVariantsDoNotShareArguments(t *testing.T) {
	base := Ours("router")
	n := len(base.Command)
	a, b := base.Variant("a", "--a"), base.Variant("b", "--b")
	assert.Equal(t, "--a", a.Command[n])
	assert.Equal(t, "--b", b.Command[n])
	assert.Len(t, base.Command, n)
}
