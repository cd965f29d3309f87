package relay

import (
	"bytes"
	"errors"
	"time"

	"github.com/dovakiin0/agent-sandbox/router/auth"
	"github.com/dovakiin0/agent-sandbox/router/parse"
	"github.com/dovakiin0/agent-sandbox/router/record"
	"github.com/dovakiin0/agent-sandbox/router/route"
)

// begin takes a request from its head to the sandbox, or answers it.
func (c *client) begin(head []byte) {
	s := getScratch()
	c.open()
	why := s.req.Parse(head)
	c.note(s)
	if why == record.OK && !c.r.cfg.Addressing.Names(&s.req) && c.health(s) {
		return
	}
	var identity auth.Decision
	if why == record.OK {
		why = c.r.cfg.Addressing.Read(&s.req, &s.addr)
	}
	if why == record.OK {
		c.x.id.set(s.addr.ID)
		if s.addr.ID == nil {
			c.x.id.set(s.addr.Claim)
		}
		identity, why = c.r.gate.Check(&s.req, &s.addr)
		c.r.meter.Authorized(why == record.OK)
	}
	if why == record.OK {
		why = c.admit(s)
	}
	if why != record.OK {
		c.refuse(s, why)
		return
	}
	c.limits(s)
	if why = c.locate(s); why != record.OK {
		c.refuse(s, why)
		return
	}
	c.carry(s, identity)
}

// open begins an exchange.
func (c *client) open() {
	c.mu.Lock()
	c.x.reset()
	c.inHead, c.late = false, false
	c.to(routing)
	c.ring(c.x.started, probeEvery)
	c.mu.Unlock()
	c.r.busy.Add(1)
}

// reset keeps the memory of an exchange and forgets the rest.
func (x *exchange) reset() {
	*x = exchange{started: time.Now(), path: x.path[:0], agent: x.agent[:0]}
}

// note keeps what the rest of the exchange needs of the head.
func (c *client) note(s *scratch) {
	q, x := &s.req, &c.x
	x.method = record.MethodOf(q.Method)
	x.minor, x.keepAlive, x.webSocket = q.Minor, q.KeepAlive, q.WebSocket
	x.head = x.method == record.HEAD
	x.length, x.left = q.Length, max(q.Length, 0)
	x.safe = q.Length == 0 && !q.WebSocket && x.method.Safe()
	x.requestID.set(q.RequestID)
	if c.r.log.On() {
		path, _, _ := bytes.Cut(q.Target, []byte("?")) // what is behind it may be a secret
		x.path, x.agent = append(x.path, path...), append(x.agent, q.UserAgent()...)
	}
	if q.WebSocket {
		parse.AcceptOf(q.Key, &x.accept)
	}
}

// admit applies the limits that need no sandbox.
func (c *client) admit(s *scratch) record.Reason {
	if limit := c.r.cfg.MaxBody; limit > 0 && s.req.Length > limit {
		return record.BodyTooLarge
	}
	if s.req.WebSocket {
		if c.r.draining.Load() {
			return record.Draining
		}
		caller := c.addr
		if c.trusted {
			if behind := s.req.Origin(c.r.trusts); behind.IsValid() {
				caller = behind
			}
		}
		if !c.r.tunnels.admit(caller, c.r.cfg.TunnelPerClient) {
			return record.TooManyTunnels
		}
		c.counted = caller
	}
	return record.OK
}

// limits works out the deadlines of the exchange. The caller may shorten the operator's and never lengthens them.
func (c *client) limits(s *scratch) {
	x, total, header := &c.x, c.r.cfg.Total, c.r.cfg.ResponseHeader
	if t := s.addr.Timeout; t > 0 {
		if total == 0 || t < total {
			total, x.named = t, byCaller
		}
		if header == 0 || t < header {
			header = t
		}
	}
	if total > 0 && !s.req.WebSocket {
		x.until = x.started.Add(total)
	}
	x.headerBy = header
}

// locate finds the endpoint, holding the request while the sandbox is not reachable yet.
func (c *client) locate(s *scratch) record.Reason {
	q := route.Query{Namespace: s.addr.Namespace, Name: s.addr.ID, Claim: s.addr.Claim, UID: s.addr.UID, Hint: s.addr.PodIP}
	res := c.r.table.Find(&q)
	if res.Verdict == route.Unready || res.Verdict == route.Unknown || res.Verdict == route.Unsynced {
		var why record.Reason
		if res, why = c.hold(s, &q); why != record.OK {
			return why
		}
	}
	if res.Sandbox != nil {
		c.x.class = c.r.meter.Namespace(res.Sandbox.Namespace)
	}
	switch res.Verdict {
	case route.Routable:
	case route.Unready:
		return record.Starting
	case route.Suspended:
		return record.Suspended
	case route.Finished:
		return record.Finished
	case route.Expired:
		return record.Expired
	case route.Gone:
		return record.Gone
	case route.Unsynced:
		return record.RouterStarting
	default:
		return record.NotFound
	}
	if limit := c.r.cfg.MaxInflight; limit > 0 && res.Endpoint.Inflight() >= limit {
		return record.TooManyRequests
	}
	res.Endpoint.Acquire()
	c.x.endpoint, c.x.zone, c.x.port = res.Endpoint, res.Zone, s.addr.Port
	return record.OK
}

// hold waits for a sandbox to become reachable: a known one, or a claim, for as long as pods need to start; an unknown
// name only as long as the news of it may be on the way.
func (c *client) hold(s *scratch, q *route.Query) (route.Result[*Host], record.Reason) {
	now := time.Now()
	h := route.Hold{
		Until:   c.before(now.Add(c.r.cfg.RouteWait)),
		Unknown: c.before(now.Add(c.r.cfg.UnknownWait)),
		Cancel:  c.leaving(),
		Bytes:   len(c.in.buf) + cap(s.out),
	}
	if s.addr.Claim != nil {
		h.Unknown = h.Until
	}
	res, err := c.r.table.Wait(q, h)
	switch {
	case errors.Is(err, route.ErrTooManyWaiters):
		return res, record.TooManyWaiting
	case errors.Is(err, route.ErrCanceled):
		return res, record.ClientGone
	}
	return res, record.OK
}

// before is the earlier of t and the end of the exchange.
func (c *client) before(t time.Time) time.Time {
	if u := c.x.until; !u.IsZero() && u.Before(t) {
		return u
	}
	return t
}

// leaving is closed when the client is seen to leave while its request is held or connected.
func (c *client) leaving() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cancel == nil {
		c.cancel = make(chan struct{})
	}
	return c.cancel
}

// carry connects to the endpoint and sends the request.
func (c *client) carry(s *scratch, identity auth.Decision) {
	x := &c.x
	whole, n, why := c.assemble(s, identity)
	if why != record.OK {
		c.refuse(s, why)
		return
	}
	for {
		u, why := c.connect(s)
		if why != record.OK {
			c.refuse(s, why)
			return
		}
		if s.req.Continue {
			s.req.Continue = false // the decision is made: the client may send its body (RFC 9110, section 10.1.1)
			if c.send(continued) != nil {
				u.giveBack()
				c.refuse(s, record.ClientGone)
				return
			}
		}
		c.mu.Lock()
		x.u, x.dispatched = u, true
		if x.safe {
			x.replay = s
			s.hold()
		}
		x.sentAt = time.Now()
		if whole {
			c.to(waiting)
		} else {
			c.to(uploading)
		}
		c.watchExchange()
		c.mu.Unlock()
		if attached, err := u.take(c, s.out); attached {
			x.broken = err != nil // the sandbox's goroutine sees the end of the connection and decides
			c.in.use(n)
			s.put()
			return
		}
		// It ended between the pool and here, and nothing was sent.
		c.mu.Lock()
		x.u, x.dispatched = nil, false
		if x.replay != nil {
			x.replay = nil
			s.put()
		}
		c.to(routing)
		c.mu.Unlock()
	}
}

var continued = []byte("HTTP/1.1 100 Continue\r\n\r\n")

// assemble builds the sandbox's head in s.out, with the part of the body that is at hand behind it. whole: the request is
// complete; n: how many unread bytes it used.
func (c *client) assemble(s *scratch, identity auth.Decision) (whole bool, n int, why record.Reason) {
	f := parse.Forwarding{Peer: c.peer, Proto: c.proto, Trusted: c.trusted, Consumed: identity.Authorization}
	if !c.r.cfg.KeepHost {
		f.Host = c.x.endpoint.Payload.Authority(c.x.port)
	}
	s.out = s.req.AppendTo(s.out[:0], &f)
	n = s.req.HeadLen()
	rest := c.in.unread()[n:]
	used := 0
	s.out, used, whole, why = c.x.encode(s.out, rest, c.r.cfg.MaxBody)
	return whole, n + used, why
}

// upload sends the next bytes of a body.
func (c *client) upload(u *upstream) {
	x := &c.x
	b := c.in.unread()
	var used int
	var whole bool
	var err error
	why := record.OK
	if x.length > 0 {
		used = int(min(int64(len(b)), x.left))
		x.left -= int64(used)
		x.up.Add(int64(used))
		whole = x.left == 0
		err = c.pour(u, b[:used], whole)
	} else {
		s := getScratch()
		s.out, used, whole, why = x.encode(s.out[:0], b, c.r.cfg.MaxBody)
		if why == record.OK {
			err = c.pour(u, s.out, whole)
		}
		s.put()
	}
	c.in.use(used)
	if err != nil {
		x.broken = true // the answer may still come, or be under way (RFC 9112, section 9.5): go on taking the body
	}
	if why == record.OK {
		return
	}
	c.in.use(len(c.in.unread()))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.abandon(why)
	for c.phase == uploading {
		c.moved.Wait()
	}
}

// pour sends the next bytes of a request. It holds the right to write from before the exchange moves on until its last bytes are
// out: another exchange on the connection would otherwise come before them, or find itself behind them.
func (c *client) pour(u *upstream, b []byte, whole bool) error {
	u.w.Lock()
	defer u.w.Unlock()
	c.uploaded(whole)
	if c.x.broken || len(b) == 0 {
		return nil
	}
	return u.write(b)
}

// uploaded moves on once the whole request is in the router's hands. It comes before the last bytes are sent, because the answer
// may be there before the send returns.
func (c *client) uploaded(whole bool) {
	if !whole {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase == uploading {
		c.to(waiting)
		c.x.sentAt = time.Now()
		c.watchExchange()
	}
}

// encode appends to out what the sandbox gets for the body bytes b. It returns how many of them it used and whether the body is
// complete. limit is the largest body, 0 for any.
func (x *exchange) encode(out, b []byte, limit int64) ([]byte, int, bool, record.Reason) {
	if x.length >= 0 {
		used := int(min(int64(len(b)), x.left))
		x.left -= int64(used)
		x.up.Add(int64(used))
		return append(out, b[:used]...), used, x.left == 0, record.OK
	}
	out, used, data, whole, ok := x.body.Strip(out, b)
	switch {
	case !ok:
		return out, used, false, record.BadChunk
	case x.up.Add(int64(data)) > limit && limit > 0:
		return out, used, false, record.BodyTooLarge
	}
	return out, used, whole, record.OK
}
