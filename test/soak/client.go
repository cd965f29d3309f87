package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

var serials atomic.Int64

func dial(proxy string) (net.Conn, error) { return net.DialTimeout("tcp4", proxy, patience) }

// client comes and goes until stop is closed: a few exchanges over one connection, then another connection.
func client(proxy string, h *neighbourhood, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		c, err := dial(proxy)
		if err != nil {
			h.tally.failure("cannot connect: " + err.Error())
			return
		}
		in := bufio.NewReader(c)
		for range 1 + rand.IntN(10) {
			if !visit(c, in, h) {
				break
			}
		}
		c.Close()
	}
}

// visit does one exchange and reports whether the connection can carry another one.
func visit(c net.Conn, in *bufio.Reader, h *neighbourhood) bool {
	var a *address
	var tenant *tenancy
	for range 4 { // mostly one that is there
		a = h.addresses[rand.IntN(len(h.addresses))]
		if tenant = a.owner.Load(); tenant.live.Load() {
			break
		}
	}
	e := exchange{conn: c, in: in, address: a, sandbox: tenant.sandbox, tally: h.tally}
	if rand.IntN(20) == 0 {
		e.sandbox = a.names[rand.IntN(2)] // perhaps the one that is not there
	}
	wasLive := tenant.live.Load()
	_ = c.SetDeadline(time.Now().Add(3 * patience))
	keep, err := e.run()
	switch {
	case err == nil:
	case errors.As(err, new(foreign)):
		h.tally.mismatch(fmt.Sprintf("an answer meant for %s: %v", e.sandbox, err))
	case errors.Is(err, errLeft):
		h.tally.left.Add(1)
	case errors.Is(err, errUnexpected):
		h.tally.failure(err.Error())
	case wasLive && tenant.live.Load() && e.sandbox == tenant.sandbox:
		h.tally.failure(fmt.Sprintf("%s was there all the time, but %s: %v", e.sandbox, e.what, err))
	default:
		h.tally.interrupted.Add(1)
	}
	return keep
}

// Ways in which an exchange ends without an answer. errGone wraps what a sandbox that goes away explains.
var (
	errLeft       = errors.New("the client left on purpose")
	errGone       = errors.New("no whole answer")
	errUnexpected = errors.New("unexpected answer")
)

// exchange is one request and its answer.
type exchange struct {
	conn    net.Conn
	in      *bufio.Reader
	address *address
	sandbox string
	tally   *tally
	mark    stamp
	what    string // the kind, for messages
}

// run does an exchange of a random kind.
func (e *exchange) run() (keep bool, err error) {
	e.mark = stamp{e.sandbox, fmt.Sprint(serials.Add(1))}
	size, rounds := randomSize(), rand.IntN(20)
	switch n := rand.IntN(10); {
	case n < 4:
		e.what = fmt.Sprintf("a download of %d bytes", size)
		return e.download(size)
	case n < 8:
		e.what = fmt.Sprintf("an upload of %d bytes", size)
		return e.upload(size)
	}
	e.what = fmt.Sprintf("a WebSocket of %d rounds", rounds)
	return false, e.socket(rounds)
}

// randomSize is mostly small, sometimes more than any buffer on the way.
func randomSize() int {
	if rand.IntN(20) == 0 {
		return rand.IntN(4 << 20)
	}
	return rand.IntN(64 << 10)
}

// head is a request head with these lines behind the routing headers.
func (e *exchange) head(line string, lines ...string) string {
	return line + " HTTP/1.1\r\nHost: soak\r\nX-Sandbox-ID: " + e.sandbox + "\r\nX-Sandbox-Port: " + e.address.port +
		"\r\nMeant-For: " + e.sandbox + "\r\nSerial: " + e.mark.serial + "\r\n" + strings.Join(append(lines, ""), "\r\n") + "\r\n"
}

// leaves ends the connection, by FIN or by RST.
func (e *exchange) leaves() error {
	if rand.IntN(2) == 0 {
		_ = e.conn.(*net.TCPConn).SetLinger(0) // else it is a FIN
	}
	e.conn.Close()
	return errLeft
}

func (e *exchange) download(size int) (bool, error) {
	think := time.Duration(0)
	if rand.IntN(4) == 0 {
		think = time.Duration(rand.IntN(50)) * time.Millisecond
	}
	framing := []string{"length", "chunks"}[rand.IntN(2)]
	request := e.head("GET /download", fmt.Sprint("Size: ", size), fmt.Sprint("Think: ", think), "Framing: "+framing)
	if _, err := io.WriteString(e.conn, request); err != nil {
		return false, fmt.Errorf("%w: %w", errGone, err)
	}
	if rand.IntN(10) == 0 { // before the answer
		return false, e.leaves()
	}
	r, keep, err := e.answer("GET")
	if err != nil {
		return keep, err
	}
	if rand.IntN(10) == 0 { // within the answer
		if _, err := e.mark.check(io.LimitReader(r.Body, rand.Int64N(int64(size)+1)/blockSize*blockSize)); err != nil {
			return false, gone(err)
		}
		return false, e.leaves()
	}
	got, err := e.mark.check(r.Body)
	if err != nil {
		return false, gone(err)
	}
	if got != size {
		return false, fmt.Errorf("%w: %d bytes of %d, and no sign that some are missing", errUnexpected, got, size)
	}
	e.tally.done.Add(1)
	return keep, nil
}

// gone marks errors of the connection; foreign bytes stay what they are.
func gone(err error) error {
	if errors.As(err, new(foreign)) {
		return err
	}
	return fmt.Errorf("%w: %w", errGone, err)
}

func (e *exchange) upload(size int) (bool, error) {
	var body io.Writer = e.conn
	framing := fmt.Sprint("Content-Length: ", size)
	if rand.IntN(2) == 0 {
		body, framing = &chunked{e.conn}, "Transfer-Encoding: chunked"
	}
	stop := size
	if rand.IntN(10) == 0 { // within the upload
		stop = rand.IntN(size + 1)
	}
	_, err := io.WriteString(e.conn, e.head("POST /upload", framing))
	if err == nil {
		err = e.mark.write(body, stop)
	}
	if stop < size {
		return false, e.leaves()
	}
	if c, ok := body.(*chunked); ok && err == nil {
		err = c.end()
	}
	// After a write error there may still be an answer, but nothing behind it.
	r, keep, failed := e.answer("POST")
	if failed != nil {
		return keep && err == nil, failed
	}
	if _, failed := e.mark.check(r.Body); failed != nil {
		return false, gone(failed)
	}
	if received := r.Header.Get("Received"); received != fmt.Sprint(size) {
		return false, fmt.Errorf("%w: %s bytes received of %d", errUnexpected, received, size)
	}
	e.tally.done.Add(1)
	return keep && err == nil, nil
}

// chunked frames each write as a chunk.
type chunked struct{ w io.Writer }

func (c *chunked) Write(p []byte) (int, error) {
	if _, err := fmt.Fprintf(c.w, "%x\r\n%s\r\n", len(p), p); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (c *chunked) end() error {
	_, err := io.WriteString(c.w, "0\r\n\r\n")
	return err
}

// socket opens a WebSocket and plays ping-pong with blocks.
func (e *exchange) socket(rounds int) error {
	request := e.head("GET /socket", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==")
	if _, err := io.WriteString(e.conn, request); err != nil {
		return gone(err)
	}
	r, _, err := e.answer("GET")
	if err != nil {
		return err
	}
	if r.StatusCode != http.StatusSwitchingProtocols {
		return fmt.Errorf("%w: status %d to a handshake", errUnexpected, r.StatusCode)
	}
	for index := range rounds {
		if err := writeFrame(e.conn, clientFrame, e.mark, index); err != nil {
			return gone(err)
		}
		if err := readFrame(e.in, serverFrame, e.mark, index); err != nil {
			return gone(err)
		}
	}
	e.tally.sockets.Add(1)
	if rand.IntN(2) == 0 {
		return e.leaves()
	}
	return nil
}

// answer reads the head of an answer. Those that the router makes itself, and a connection that ends before one, are
// errors that wrap errGone.
func (e *exchange) answer(method string) (r *http.Response, keep bool, err error) {
	r, err = http.ReadResponse(e.in, &http.Request{Method: method})
	if err != nil {
		return nil, false, gone(err)
	}
	if r.Header.Get("X-Sandbox-Dispatched") != "" {
		text, err := io.ReadAll(r.Body)
		switch r.StatusCode {
		case http.StatusNotFound, http.StatusGone, http.StatusBadGateway, http.StatusServiceUnavailable:
			return nil, !r.Close && err == nil, fmt.Errorf("%w: %d %s", errGone, r.StatusCode, text)
		}
		return nil, false, fmt.Errorf("%w: %d %s", errUnexpected, r.StatusCode, text)
	}
	if r.StatusCode != http.StatusOK && r.StatusCode != http.StatusSwitchingProtocols {
		return nil, false, fmt.Errorf("%w: %d", errUnexpected, r.StatusCode)
	}
	return r, !r.Close, nil
}

// probe asks for an empty download and returns the status of the answer, whoever made it.
func (e *exchange) probe() (status int, err error) {
	e.mark = stamp{e.sandbox, "probe"}
	_ = e.conn.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(e.conn, e.head("GET /download", "Size: 0", "Framing: length")); err != nil {
		return 0, err
	}
	r, err := http.ReadResponse(bufio.NewReader(e.conn), &http.Request{Method: http.MethodGet})
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, r.Body)
	return r.StatusCode, err
}
