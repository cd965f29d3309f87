package relay

import (
	"net/http"
	"time"

	"github.com/dovakiin0/agent-sandbox/router/parse"
	"github.com/dovakiin0/agent-sandbox/router/record"
)

// head reads the head of an answer and begins to pass the answer on.
func (u *upstream) head(c *client) step {
	b := u.in.unread()
	n, limit := parse.HeadEnd(b), u.r.cfg.MaxHeader
	u.begun = true
	if n == 0 && len(b) < limit {
		return more
	}
	if n <= 0 || n > limit {
		return u.bad()
	}
	s := getScratch()
	defer s.put()
	if !s.resp.Parse(b[:n], c.x.head) {
		return u.bad()
	}
	u.in.use(n)
	switch {
	case s.resp.Status == http.StatusSwitchingProtocols:
		return u.upgrade(c, s)
	case s.resp.Status == http.StatusContinue:
		return again // the router has answered the client's expectation itself
	case s.resp.Status < 200:
		if c.x.minor == 1 && c.send(s.resp.AppendTo(s.out[:0], false, false)) != nil {
			u.broke = record.ClientGone
			return stop
		}
		return again
	}
	return u.final(c, s)
}

// final passes the head of the answer on, with as much of the body as is at hand.
func (u *upstream) final(c *client, s *scratch) step {
	x := &c.x
	c.mu.Lock()
	uploaded := c.phase == waiting
	c.mu.Unlock()

	q := &s.resp
	x.status = q.Status
	u.stage, u.framed, u.left, u.chunks, u.keep = inBody, q.Length, max(q.Length, 0), parse.Chunks{}, q.KeepAlive
	delimited := q.Length == parse.Chunked || q.Length == parse.UntilClose
	u.last = !x.keepAlive || !uploaded || delimited && x.minor == 0 || u.r.ending.Load()
	chunked := x.minor == 1 && (delimited || x.head && q.SaysChunked())
	s.out = q.AppendTo(s.out[:0], chunked, u.last)
	return u.recode(c, s)
}

// body passes the next bytes of an answer on.
func (u *upstream) body(c *client) step {
	b := u.in.unread()
	switch {
	case u.framed >= 0:
		n := int(min(int64(len(b)), u.left))
		u.left -= int64(n)
		c.x.down += int64(n)
		u.in.use(n)
		return u.sent(c, b[:n], u.left == 0)
	case u.framed == parse.Chunked && c.x.minor == 1:
		// Chunks without extensions and trailers are passed on as they came.
		probe := u.chunks
		used, complete, ok := 0, false, true
		for used < len(b) && !complete {
			var n int
			if _, n, complete, ok = probe.Next(b[used:]); !ok {
				return u.bad()
			}
			used += n
		}
		if probe.Plain() {
			u.chunks = probe
			c.x.down += int64(used)
			u.in.use(used)
			return u.sent(c, b[:used], complete)
		}
	}
	s := getScratch()
	defer s.put()
	s.out = s.out[:0]
	return u.recode(c, s)
}

// recode appends what the client gets for the unread bytes to s.out, and sends it.
func (u *upstream) recode(c *client, s *scratch) step {
	b := u.in.unread()
	used, complete := 0, false
	switch u.framed {
	case parse.Chunked:
		ok, data := false, 0
		if c.x.minor == 1 {
			s.out, used, data, complete, ok = u.chunks.Strip(s.out, b)
		} else {
			s.out, used, data, complete, ok = u.chunks.Data(s.out, b)
		}
		if !ok {
			return u.bad()
		}
		c.x.down += int64(data)
	case parse.UntilClose:
		used = len(b)
		c.x.down += int64(used)
		if used > 0 && c.x.minor == 1 {
			s.out = parse.AppendChunk(s.out, b)
		} else {
			s.out = append(s.out, b...)
		}
	default:
		used = int(min(int64(len(b)), u.left))
		u.left -= int64(used)
		c.x.down += int64(used)
		complete = u.left == 0
		s.out = append(s.out, b[:used]...)
	}
	u.in.use(used)
	return u.sent(c, s.out, complete)
}

// sent sends b to the client; complete says that the answer ends with it.
func (u *upstream) sent(c *client, b []byte, complete bool) step {
	if !u.passed && !c.answers() {
		return stop
	}
	u.passed = true
	if complete {
		return u.finish(c, b)
	}
	if len(b) > 0 && c.send(b) != nil {
		u.broke = record.ClientGone
		return stop
	}
	return again
}

// answers notes that the sandbox's answer begins. false: the exchange was given up before.
func (c *client) answers() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.x.abort != record.OK {
		return false
	}
	c.x.answering = true
	return true
}

// finish sends the end of an answer. The sandbox's connection goes back to its pool before the client's is ready for another
// request, so that this finds it there.
func (u *upstream) finish(c *client, tail []byte) step {
	if len(tail) > 0 && c.send(tail) != nil {
		u.broke = record.ClientGone
		return stop
	}
	c.mu.Lock()
	uploaded := c.phase == waiting
	if uploaded {
		c.x.u = nil // from here on it may carry another exchange, which nothing that happens to this client may end
	}
	c.mu.Unlock()
	last := u.last || !uploaded
	c.over(record.OK)
	u.stage, u.begun, u.passed = atHead, false, false
	clean := u.keep && uploaded && len(u.in.unread()) == 0 && u.why.Load() == 0 && u.written()
	if clean {
		u.client.Store(nil)
		clean = u.rest()
	}
	if !clean {
		u.client.Store(deadEnd)
	}
	c.mu.Lock()
	c.finished(!last)
	c.mu.Unlock()
	if last {
		c.linger()
	}
	if clean {
		return more
	}
	return stop
}

// cut ends an exchange whose answer has begun and cannot be completed: the client must see that a part is missing
// (RFC 9112, section 8).
func (c *client) cut(why record.Reason) {
	if why == record.UpstreamClosed || why == record.BadResponse {
		why = record.ResponseCut
	}
	c.r.meter.UpstreamError(c.x.class, why)
	if c.x.minor == 0 {
		c.abort() // without chunks, and maybe without a length, an orderly end would look complete
	}
	c.over(why)
	c.mu.Lock()
	c.finished(false)
	c.mu.Unlock()
	c.shut()
}

// replay sends a safe request again, because the pooled connection that it went out on had ended before. It runs on the
// goroutine of that connection. false: it was not possible.
func (c *client) replay() bool {
	x := &c.x
	pool := x.endpoint.Payload.Pool(x.port)
	u, err := pool.Dial(x.until, nil)
	if err != nil {
		c.mu.Lock()
		x.dispatched = false
		c.mu.Unlock()
		c.answer(c.dialReason(err, pool), x.keepAlive)
		return true
	}
	u.reused = false
	c.mu.Lock()
	if x.abort != record.OK {
		c.mu.Unlock()
		u.giveBack()
		return false
	}
	x.u = u
	s := x.replay
	s.hold()
	c.mu.Unlock()
	defer s.put()
	attached, _ := u.take(c, s.out) // when the write fails, that connection's goroutine sees why
	return attached
}

// upgrade turns the exchange into a tunnel, if the sandbox agreed to just what the client asked for (RFC 6455, section 4.1).
func (u *upstream) upgrade(c *client, s *scratch) step {
	x := &c.x
	if !x.webSocket || !s.resp.WebSocket || string(s.resp.Accept) != string(x.accept[:]) {
		return u.bad()
	}
	if !c.answers() {
		return stop
	}
	if c.send(s.resp.AppendTo(s.out[:0], false, false)) != nil {
		u.broke = record.ClientGone
		return stop
	}
	x.status = s.resp.Status
	u.stage = inTunnel
	c.mu.Lock()
	defer c.mu.Unlock()
	c.startTunnel(time.Now())
	return again
}

// frames passes what the sandbox sent on to the client.
func (u *upstream) frames(c *client) step {
	b := u.in.unread()
	u.in.use(len(b))
	c.x.down += int64(len(b))
	if !c.pass(b, &c.tunnel.down, c, false) && !c.ending.Load() {
		u.broke = record.ClientGone
		return stop
	}
	return again
}

// endDown ends a tunnel after the sandbox's side of it. An orderly end is passed on, and the other direction goes on until it
// ends too.
func (u *upstream) endDown(c *client, orderly bool) {
	if orderly {
		c.closeWrite()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tunnel.downEnd = true
	if orderly {
		for !c.tunnel.upEnd && c.x.abort == record.OK && u.why.Load() == 0 {
			c.moved.Wait()
		}
	}
	u.client.Store(deadEnd)
	why := c.tunnel.ending
	if why == record.OK {
		why = c.x.abort
	}
	if w := record.Reason(u.why.Load()); why == record.OK && w != record.OK {
		why = w
	}
	c.over(why)
	c.finished(false)
	c.shut()
}
