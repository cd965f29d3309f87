package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// client keeps no connections, which the leak check would find.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// testServer is a server on a real listener with a fresh base directory.
type testServer struct {
	*server
	addr string // host:port
	url  string
	dir  string
	stop func() // ends it as SIGTERM does; the test's end does so too
}

func startServer(t *testing.T, change ...func(*config)) testServer {
	t.Helper()
	cfg := config{baseDir: t.TempDir(), execTimeout: patience}
	for _, c := range change {
		c(&cfg)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := newServer(cfg, zerolog.New(zerolog.NewTestWriter(t)))
	served := make(chan error, 1)
	go func() { served <- s.http.Serve(listener) }()
	ctx, stop := context.WithCancel(context.Background())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		<-ctx.Done()
		s.shutdown()
		<-served
	}()
	stopAndWait := func() { stop(); <-stopped }
	t.Cleanup(stopAndWait)
	addr := listener.Addr().String()
	return testServer{server: s, addr: addr, url: "http://" + addr, dir: cfg.baseDir, stop: stopAndWait}
}

// reply is a response as it came over the wire.
type reply struct {
	status int
	header http.Header
	body   string
}

// send sends a request whose target reaches the server byte by byte as given.
func (s testServer) send(t *testing.T, method, target, body string, header ...string) reply {
	t.Helper()
	conn, err := net.Dial("tcp", s.addr)
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	return exchange(t, conn, bufio.NewReader(conn), method, target, body, append(header, "Connection: close")...)
}

func exchange(t *testing.T, conn io.Writer, reader *bufio.Reader, method, target, body string, header ...string) reply {
	t.Helper()
	var request bytes.Buffer
	request.WriteString(method + " " + target + " HTTP/1.1\r\nHost: sandbox\r\n")
	if body != "" {
		header = append(header, "Content-Length: "+itoa(len(body)))
	}
	for _, line := range header {
		request.WriteString(line + "\r\n")
	}
	request.WriteString("\r\n" + body)
	_, err := conn.Write(request.Bytes())
	require.NoError(t, err)
	response, err := http.ReadResponse(reader, &http.Request{Method: method})
	require.NoError(t, err)
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return reply{response.StatusCode, response.Header, string(content)}
}

func TestHealth(t *testing.T) {
	s := startServer(t)
	r := s.send(t, "GET", "/", "")
	assert.Equal(t, 200, r.status)
	assert.Equal(t, `{"status":"ok","message":"Sandbox Runtime is active."}`, r.body)
	assert.Equal(t, "application/json", r.header.Get("Content-Type"))
}

func TestUnknownPathsAndMethods(t *testing.T) {
	s := startServer(t)
	for _, target := range []string{"/nope", "/execute/", "/upload/x", "/download", "/list", "/exists", "//", "//list/", "/exec/", "/list%3F"} {
		r := s.send(t, "GET", target, "")
		assert.Equal(t, 404, r.status, target)
		assert.JSONEq(t, `{"detail":"Not Found"}`, r.body, target)
	}
	for target, allow := range map[string]string{
		"/": "GET, HEAD", "/execute": "POST", "/upload": "POST", "/exec": "GET",
		"/download/x": "GET, HEAD", "/list/": "GET, HEAD", "/exists/": "GET, HEAD",
	} {
		for _, method := range []string{"DELETE", "OPTIONS", "GE"} {
			r := s.send(t, method, target, "")
			assert.Equal(t, 405, r.status, target)
			assert.JSONEq(t, `{"detail":"Method Not Allowed"}`, r.body, target)
			assert.Equal(t, allow, r.header.Get("Allow"), target)
		}
	}
	assert.Equal(t, 405, s.send(t, "GET", "/execute", "").status)
	assert.Equal(t, 405, s.send(t, "POST", "/", "").status)
}

// The path is matched decoded and in both forms of a request target.
func TestPathsAreMatchedAsTheyMean(t *testing.T) {
	s := startServer(t)
	for _, target := range []string{
		"/exists/", "/%65xists/", "/exists%2F", "/exists/?query=/", "/exists/#x", "http://sandbox/exists/", "http://sandbox/exists/?x",
	} {
		r := s.send(t, "GET", target, "")
		assert.Equal(t, 200, r.status, target)
		assert.JSONEq(t, `{"path":"","exists":true}`, r.body, target)
	}
	assert.Equal(t, 200, s.send(t, "GET", "http://sandbox", "").status)
}

func TestHeadSendsTheHeadOfGet(t *testing.T) {
	s := startServer(t)
	writeFile(t, s.dir, "file", "content")
	for _, target := range []string{"/", "/list/", "/exists/file", "/download/file", "/download/missing"} {
		get, head := s.send(t, "GET", target, ""), s.send(t, "HEAD", target, "")
		assert.Equal(t, get.status, head.status, target)
		assert.Empty(t, head.body, target)
		for _, name := range []string{"Content-Length", "Content-Type", "Etag", "Last-Modified", "Content-Disposition"} {
			assert.Equal(t, get.header.Get(name), head.header.Get(name), "%s %s", target, name)
		}
		assert.Equal(t, itoa(len(get.body)), head.header.Get("Content-Length"), target)
	}
}

// A refused request leaves the connection usable, however long its body was.
func TestConnectionsOutliveRefusals(t *testing.T) {
	s := startServer(t)
	conn, err := net.Dial("tcp", s.addr)
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	reader := bufio.NewReader(conn)

	body, contentType := form(t, "file", "../outside", strings.Repeat("x", 2<<20))
	r := exchange(t, conn, reader, "POST", "/upload", body, "Content-Type: "+contentType)
	assert.Equal(t, 403, r.status)
	for range 3 {
		r = exchange(t, conn, reader, "POST", "/execute", `{"command":5}`)
		assert.Equal(t, 422, r.status)
		r = exchange(t, conn, reader, "GET", "/download/missing", "")
		assert.Equal(t, 404, r.status)
	}
}
