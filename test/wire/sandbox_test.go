package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

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
