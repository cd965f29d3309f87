package relay

import (
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"net/netip"
	"strconv"

	"github.com/dovakiin0/agent-sandbox/proto"
	"github.com/dovakiin0/agent-sandbox/router/record"
)

// refuseHead answers bytes that are no request.
func (c *client) refuseHead(why record.Reason) {
	c.open()
	c.x.minor = 1
	c.in.use(len(c.in.unread()))
	c.answer(why, false)
}

// refuse answers a request that was not dispatched, and gives s back. The connection goes on if the body of the request, if
// it has one, is already at hand.
func (c *client) refuse(s *scratch, why record.Reason) {
	rest := len(c.in.unread()) - s.req.HeadLen()
	bodyAtHand := s.req.Length >= 0 && int64(rest) >= s.req.Length && !s.req.Continue
	keep := bodyAtHand && s.req.KeepAlive && !why.Answer().Close
	s.put()
	if keep {
		c.in.use(len(c.in.unread()) - rest + int(c.x.length))
	} else {
		c.in.use(len(c.in.unread()))
	}
	c.answer(why, keep)
}

// answer sends the router's own answer from the client's goroutine and ends the exchange.
func (c *client) answer(why record.Reason, keep bool) {
	keep = keep && !c.r.ending.Load() && why != record.ClientGone
	ok := why != record.ClientGone && c.sendAnswer(why, !keep) == nil
	c.over(why)
	c.mu.Lock()
	c.finished(keep && ok)
	c.mu.Unlock()
	if !keep || !ok {
		c.linger()
	}
}

// sendAnswer writes the router's own answer.
func (c *client) sendAnswer(why record.Reason, close bool) error {
	x := &c.x
	a := why.Answer()
	x.status = a.Status
	s := getScratch()
	defer s.put()
	c.ensureRequestID()
	body := c.appendBody(s.out[:0], why, a)
	n := len(body)
	b := append(body, "HTTP/1.1 "...)
	b = strconv.AppendInt(b, int64(a.Status), 10)
	b = append(b, ' ')
	b = append(b, http.StatusText(a.Status)...)
	b = append(b, "\r\nContent-Type: application/json\r\nContent-Length: "...)
	b = strconv.AppendInt(b, int64(n), 10)
	b = append(b, "\r\n"+proto.HeaderDispatched+": "...)
	b = strconv.AppendBool(b, x.dispatched)
	b = append(b, "\r\n"+proto.HeaderRequestID+": "...)
	b = append(b, x.requestID.get()...)
	if a.RetryAfter > 0 {
		b = append(b, "\r\nRetry-After: "...)
		b = strconv.AppendInt(b, int64(a.RetryAfter), 10)
	}
	switch a.Status {
	case http.StatusUnauthorized:
		b = append(b, "\r\nWWW-Authenticate: Bearer"...) // RFC 9110, section 11.6.1
	case http.StatusMethodNotAllowed:
		b = append(b, "\r\nAllow: GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"...) // section 15.5.6
	}
	if close {
		b = append(b, "\r\nConnection: close"...)
	}
	b = append(b, "\r\n\r\n"...)
	if !x.head {
		b = append(b, b[:n]...)
	}
	s.out = b
	return c.send(b[n:])
}

// appendBody appends the JSON of proto.ErrorBody. Ids are labels and request ids were checked, so nothing needs quoting.
func (c *client) appendBody(b []byte, why record.Reason, a *record.Answer) []byte {
	x := &c.x
	b = append(b, `{"detail":"`...)
	b = append(b, a.Detail...)
	if n := len(a.Detail); n > 0 && a.Detail[n-1] == ' ' {
		b = append(b, x.id.get()...)
	}
	b = append(b, c.setting(why)...)
	b = append(b, `","code":"`...)
	b = append(b, a.Code...)
	b = append(b, `","retryable":`...)
	b = strconv.AppendBool(b, a.Retryable && !x.dispatched)
	b = append(b, `,"requestId":"`...)
	b = append(b, x.requestID.get()...)
	return append(b, '"', '}', '\n')
}

// setting names the limit that a timeout was about.
func (c *client) setting(why record.Reason) string {
	switch {
	case why != record.HeaderTimeout && why != record.TotalTimeout:
		return ""
	case c.x.named == byCaller:
		return " (X-Sandbox-Timeout)"
	case why == record.HeaderTimeout:
		return " (--response-header-timeout)"
	}
	return " (--proxy-timeout)"
}

// ensureRequestID makes a request id unless the caller sent one that can stand in a header and in JSON as it is.
func (c *client) ensureRequestID() {
	if id := c.x.requestID.get(); len(id) > 0 && plain(id) {
		return
	}
	var random [8]byte
	var text [2 * len(random)]byte
	rand.Read(random[:])
	hex.Encode(text[:], random[:])
	c.x.requestID.set(text[:])
}

func plain(id []byte) bool {
	for _, c := range id {
		if c <= ' ' || c >= 0x7f || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

const (
	healthyHead = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 16\r\n"
	healthyBody = `{"status":"ok"}` + "\n"
)

// health answers GET /healthz of callers that name no sandbox.
func (c *client) health(s *scratch) bool {
	if string(s.req.Target) != "/healthz" || !c.x.safe || c.x.method == record.OPTIONS {
		return false
	}
	keep := s.req.KeepAlive && !c.r.ending.Load()
	c.in.use(s.req.HeadLen())
	c.x.status = http.StatusOK
	s.out = append(s.out[:0], healthyHead...)
	if !keep {
		s.out = append(s.out, "Connection: close\r\n"...)
	}
	s.out = append(s.out, "\r\n"...)
	if !c.x.head {
		s.out = append(s.out, healthyBody...)
	}
	ok := c.send(s.out) == nil
	s.put()
	c.over(record.OK)
	c.mu.Lock()
	c.finished(keep && ok)
	c.mu.Unlock()
	if !keep || !ok {
		c.linger()
	}
	return true
}

// over ends the bookkeeping of an exchange. It comes before the phase changes, because after that the exchange may be the next one.
func (c *client) over(why record.Reason) {
	x := &c.x
	if x.endpoint != nil {
		x.endpoint.Release()
		x.endpoint = nil
	}
	if x.replay != nil {
		x.replay.put()
		x.replay = nil
	}
	if c.counted.IsValid() {
		c.r.tunnels.leave(c.counted)
		c.counted = netip.Addr{}
	}
	if x.tunnelled {
		c.r.tunnels.total.Add(-1)
	} else {
		c.r.busy.Add(-1)
	}
	e := record.Exchange{
		Started: x.started, Method: x.method, Status: x.status, Reason: why, Zone: int(x.zone), Class: x.class,
		Up: x.up.Load(), Down: x.down, Peer: c.peer, ID: x.id.get(), Path: x.path, UserAgent: x.agent, RequestID: x.requestID.get(),
		Dispatched: x.dispatched, WebSocket: x.webSocket,
	}
	c.r.meter.Observe(&e)
	c.r.log.Write(&e)
}
