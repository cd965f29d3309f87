//go:build linux

package backend

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fasthttp/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/dovakiin0/agent-sandbox/bench/fleet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start runs a backend and returns the base URL of sandbox 7.
func start(t *testing.T) (host string, client *http.Client) {
	s, err := Listen(0)
	require.NoError(t, err)
	done := make(chan error)
	go func() { done <- s.Serve() }()
	client = &http.Client{Transport: &http.Transport{}, Timeout: 30 * time.Second}
	t.Cleanup(func() {
		client.CloseIdleConnections()
		s.Close()
		assert.NoError(t, <-done)
	})
	return fmt.Sprintf("%s:%d", fleet.Addr(7, 0), s.Port), client
}

func TestAnswers(t *testing.T) {
	host, client := start(t)
	m := fleet.Mark(fleet.Addr(7, 0))
	mark := string(m[:])
	long := strings.Repeat("long ", 5000)
	for _, c := range []struct {
		path, send, want string
		chunked          bool
	}{
		{path: "/fixed/64", want: mark + strings.Repeat("x", 58)},
		{path: "/fixed/1000000", want: mark + strings.Repeat("x", 1000000-6)},
		{path: "/anything", want: mark + strings.Repeat("x", 58)},
		{path: "/echo", send: "hello", want: "hello"},
		{path: "/echo", send: "hello", want: "hello", chunked: true},
		{path: "/echo", send: long, want: long},
		{path: "/echo", send: long, want: long, chunked: true},
		{path: "/echo"},
		{path: "/sink", send: strings.Repeat(long, 40), want: mark + strings.Repeat("x", 58)},
		{path: "/chunked/3/10", want: strings.Replace(strings.Repeat("x", 30), "xxxxxx", mark, 1)},
		{path: "/slow/1", want: mark + strings.Repeat("x", 58)},
		{path: "/close", want: mark + strings.Repeat("x", 58)},
	} {
		t.Run(c.path+" of "+fmt.Sprint(len(c.send)), func(t *testing.T) {
			var body io.Reader = strings.NewReader(c.send)
			if c.chunked {
				body = io.MultiReader(body) // of a length that the client does not know
			}
			for range 2 { // the second time on the same connection
				req, err := http.NewRequest(http.MethodPost, "http://"+host+c.path, body)
				require.NoError(t, err)
				resp, err := client.Do(req)
				require.NoError(t, err)
				got, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				require.NoError(t, err)
				assert.Equal(t, 200, resp.StatusCode)
				assert.Equal(t, c.path == "/close", resp.Close)
				assert.Equal(t, c.want, string(got))
				_, err = http.ParseTime(resp.Header.Get("Date"))
				assert.NoError(t, err)
				if c.send != "" {
					break
				}
			}
		})
	}
}

func TestPipelinedRequestsAreAnsweredInOrder(t *testing.T) {
	host, _ := start(t)
	c, err := net.Dial("tcp4", host)
	require.NoError(t, err)
	defer c.Close()
	_, err = io.WriteString(c, "GET /slow/5 HTTP/1.1\r\n\r\nGET /fixed/10 HTTP/1.1\r\n\r\n")
	require.NoError(t, err)
	r := bufio.NewReader(c)
	for _, length := range []int64{64, 10} {
		resp, err := http.ReadResponse(r, nil)
		require.NoError(t, err)
		assert.Equal(t, length, resp.ContentLength)
		_, err = io.Copy(io.Discard, resp.Body)
		require.NoError(t, err)
	}
}

func TestEvents(t *testing.T) {
	host, client := start(t)
	begin := time.Now()
	resp, err := client.Get("http://" + host + "/sse/3/10")
	require.NoError(t, err)
	defer resp.Body.Close()
	assert.Equal(t, "text/event-stream", resp.Header.Get("Content-Type"))
	got, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	assert.Equal(t, 3, strings.Count(string(got), "data: "))
	assert.GreaterOrEqual(t, time.Since(begin), 20*time.Millisecond)
}

func TestWebSocket(t *testing.T) {
	host, _ := start(t)
	d := websocket.Dialer{HandshakeTimeout: 10 * time.Second}
	ws, _, err := d.DialContext(context.Background(), "ws://"+host+"/ws", nil)
	require.NoError(t, err)
	defer ws.Close()
	for _, message := range []string{"a", strings.Repeat("b", 70000)} {
		require.NoError(t, ws.WriteMessage(websocket.TextMessage, []byte(message)))
		kind, got, err := ws.ReadMessage()
		require.NoError(t, err)
		assert.Equal(t, websocket.TextMessage, kind)
		assert.Equal(t, message, string(got))
	}
	require.NoError(t, ws.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(1000, "")))
	_, _, err = ws.ReadMessage()
	assert.True(t, websocket.IsCloseError(err, 1000), "%v", err)
}

func TestStats(t *testing.T) {
	host, client := start(t)
	for range 2 {
		resp, err := client.Get("http://" + host + "/fixed/64")
		require.NoError(t, err)
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	resp, err := client.Get("http://" + host + "/stats")
	require.NoError(t, err)
	defer resp.Body.Close()
	var got Stats
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&got))
	assert.Equal(t, Stats{Connections: 1, Requests: 2}, got)
}
