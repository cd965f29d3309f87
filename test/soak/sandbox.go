package main

import (
	"context"
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// address is a loopback address and port that two sandboxes own in turn.
type address struct {
	ip    string
	port  string
	names [2]string // ids of the two sandboxes

	owner atomic.Pointer[tenancy]
}

// tenancy is the time in which a sandbox owns an address. A connection belongs to the tenancy whose listener it came to,
// for good: that is what makes a router that reuses it for the next owner visible.
type tenancy struct {
	net.Listener
	sandbox string
	pod     string // UID, different for each tenancy

	live atomic.Bool // the router was seen to serve it, and it has not been told to stop

	mu    sync.Mutex
	open  int
	empty chan struct{} // closed while open is 0
}

// moveIn opens the server of a sandbox at a.
func (a *address) moveIn(sandbox string, n int64) (*tenancy, error) {
	l, err := net.Listen("tcp4", net.JoinHostPort(a.ip, a.port))
	if err != nil {
		return nil, err
	}
	t := &tenancy{Listener: l, sandbox: sandbox, pod: fmt.Sprintf("%s-pod-%d", sandbox, n), empty: make(chan struct{})}
	close(t.empty)
	a.owner.Store(t)
	return t, nil
}

func (t *tenancy) opened() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open == 0 {
		t.empty = make(chan struct{})
	}
	t.open++
}

func (t *tenancy) closed() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open--; t.open == 0 {
		close(t.empty)
	}
}

// abandoned waits until the tenancy has no connection, and reports whether that came true in time.
func (t *tenancy) abandoned(limit time.Duration) bool {
	t.mu.Lock()
	empty := t.empty
	t.mu.Unlock()
	select {
	case <-empty:
		return true
	case <-time.After(limit):
		return false
	}
}

// Accept makes connections know their tenancy.
func (t *tenancy) Accept() (net.Conn, error) {
	c, err := t.Listener.Accept()
	if err != nil {
		return nil, err
	}
	t.opened()
	return &tenantConn{Conn: c, tenancy: t}, nil
}

type tenantConn struct {
	net.Conn
	tenancy *tenancy
	once    sync.Once
}

func (c *tenantConn) Close() error {
	c.once.Do(c.tenancy.closed)
	return c.Conn.Close()
}

// sandboxes is the server that stands for all of them.
type sandboxes struct {
	server http.Server
	tally  *tally
}

type tenancyKey struct{}

func newSandboxes(t *tally) *sandboxes {
	s := &sandboxes{tally: t}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /download", s.download)
	mux.HandleFunc("POST /upload", s.upload)
	mux.HandleFunc("GET /socket", s.socket)
	s.server = http.Server{
		Handler: mux,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, tenancyKey{}, c.(*tenantConn).tenancy)
		},
	}
	return s
}

// meant checks that the request is for the sandbox that owned the address when the connection was made.
func (s *sandboxes) meant(r *http.Request) (stamp, bool) {
	here := r.Context().Value(tenancyKey{}).(*tenancy).sandbox
	there := r.Header.Get("Meant-For")
	if here != there {
		s.tally.mismatch(fmt.Sprintf("a request for %s reached %s", there, here))
	}
	return stamp{here, r.Header.Get("Serial")}, here == there
}

func (s *sandboxes) download(w http.ResponseWriter, r *http.Request) {
	mark, ok := s.meant(r)
	if !ok {
		return
	}
	size, _ := strconv.Atoi(r.Header.Get("Size"))
	think, _ := time.ParseDuration(r.Header.Get("Think"))
	if r.Header.Get("Framing") == "length" {
		w.Header().Set("Content-Length", strconv.Itoa(size))
	} else {
		w.(http.Flusher).Flush()
	}
	select {
	case <-time.After(think):
	case <-r.Context().Done():
		return
	}
	_ = mark.write(w, size) // the caller may have left
}

func (s *sandboxes) upload(w http.ResponseWriter, r *http.Request) {
	mark, ok := s.meant(r)
	if !ok {
		return
	}
	size, err := mark.check(r.Body)
	var wrong foreign
	if errors.As(err, &wrong) {
		s.tally.mismatch("upload to " + mark.sandbox + ": " + wrong.Error())
	}
	if err != nil {
		panic(http.ErrAbortHandler) // an incomplete upload has no answer
	}
	w.Header().Set("Received", strconv.Itoa(size))
	_ = mark.write(w, blockSize) // the caller may have left
}

// socket answers a handshake and then every frame of one block with a frame of one block.
func (s *sandboxes) socket(w http.ResponseWriter, r *http.Request) {
	mark, ok := s.meant(r)
	if !ok {
		return
	}
	c, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer c.Close()
	sum := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	fmt.Fprintf(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n",
		base64.StdEncoding.EncodeToString(sum[:]))
	for index := 0; ; index++ {
		if err := readFrame(buffered, clientFrame, mark, index); err != nil {
			var wrong foreign
			if errors.As(err, &wrong) {
				s.tally.mismatch("frame to " + mark.sandbox + ": " + wrong.Error())
			}
			return
		}
		if err := writeFrame(c, serverFrame, mark, index); err != nil {
			return
		}
	}
}

// Headers of a binary frame of one block (RFC 6455, section 5.2). Clients mask, here with a key of zeros.
const (
	serverFrame = "\x82\x7e\x04\x00"
	clientFrame = "\x82\xfe\x04\x00\x00\x00\x00\x00"
)

func writeFrame(w io.Writer, header string, mark stamp, index int) error {
	var block [blockSize]byte
	mark.block(&block, index)
	_, err := w.Write(append([]byte(header), block[:]...))
	return err
}

func readFrame(r io.Reader, header string, mark stamp, index int) error {
	got := make([]byte, len(header)+blockSize)
	if _, err := io.ReadFull(r, got); err != nil {
		return err
	}
	var block [blockSize]byte
	mark.block(&block, index)
	if want := header + string(block[:]); string(got) != want {
		return foreign{want[:64], string(got[:64])}
	}
	return nil
}
