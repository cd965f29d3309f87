package relay

import (
	"time"

	"github.com/dovakiin0/agent-sandbox/router/record"
)

// rateWindow is the time over which the rate of an upload is measured.
const rateWindow = 10 * time.Second

// quietEnd is how long a connection must be silent before a router that shuts down ends it.
const quietEnd = time.Second

// ring sets the next alarm to d after from; 0 is never. The caller holds mu.
func (c *client) ring(from time.Time, d time.Duration) {
	if d == 0 {
		c.bell.at.Store(0)
		return
	}
	c.bell.at.Store(from.Add(d).UnixNano())
}

// watchExchange sets the alarms of an exchange that was dispatched. The caller holds mu.
func (c *client) watchExchange() {
	x := &c.x
	c.ring(x.sentAt, probeEvery)
	left := x.headerBy
	if !x.until.IsZero() {
		if d := x.until.Sub(x.sentAt); left == 0 || d < left {
			left = d
		}
	}
	if left == 0 || left >= precise {
		return
	}
	if c.soon == nil {
		c.soon = time.AfterFunc(left, func() { c.expire(time.Now()) })
		return
	}
	c.soon.Reset(left)
}

// expire looks at the deadlines of the phase that the connection is in.
func (c *client) expire(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch c.phase {
	case reading:
		c.expireReading(now)
	case routing:
		if c.cancel != nil && !c.left && c.hungUp() {
			close(c.cancel)
			c.left = true
		}
		if total := c.r.cfg.Total; total > 0 && now.Sub(c.x.started) > total+lingerMost {
			c.shut() // it does not read the router's own answer
		}
		c.ring(now, probeEvery)
	case uploading, waiting:
		if why := c.overdue(now); why != record.OK {
			c.abandon(why)
		} else if c.phase == waiting && c.eof.IsZero() && c.hungUp() {
			c.eof = now // the end came behind bytes that are not read, or together with the last ones, so that no edge told of it
		}
		c.ring(now, probeEvery)
	case tunnelling:
		c.expireTunnel(now)
	case closing:
		c.shut()
	}
}

// expireReading ends connections that are idle for too long and heads that take too long. The caller holds mu.
func (c *client) expireReading(now time.Time) {
	limit := c.r.cfg.ClientIdle
	switch {
	case c.inHead:
		limit = c.r.cfg.ClientHeader
	case c.r.draining.Load():
		limit = quietEnd
	}
	switch due := limit > 0 && now.Sub(c.since) >= limit; {
	case due && c.inHead:
		c.late = true
		c.kick()
	case c.look() == speaking:
		c.ring(now, probeEvery) // its goroutine is about to read it
	case due || c.look() == over:
		c.shut()
	default:
		c.ring(c.since, limit)
	}
}

// overdue tells which deadline an exchange has missed. The caller holds mu.
func (c *client) overdue(now time.Time) record.Reason {
	x, cfg := &c.x, &c.r.cfg
	silence := now.Sub(time.Unix(0, max(x.active.Load(), x.sentAt.UnixNano())))
	switch {
	case !x.until.IsZero() && !now.Before(x.until):
		return record.TotalTimeout
	case c.phase == waiting && !x.answering && x.headerBy > 0 && now.Sub(x.sentAt) >= x.headerBy:
		return record.HeaderTimeout
	case cfg.StreamIdle > 0 && (x.answering || c.phase == uploading) && silence >= cfg.StreamIdle:
		return record.StreamIdle
	case !c.eof.IsZero() && now.Sub(c.eof) >= halfClosed && silence >= halfClosed:
		return record.ClientGone
	case c.phase == uploading && cfg.ClientMinRate > 0:
		return c.tooSlow(now)
	}
	return record.OK
}

// tooSlow measures the rate of an upload. The caller holds mu.
func (c *client) tooSlow(now time.Time) record.Reason {
	x := &c.x
	if x.ratedAt.IsZero() {
		x.ratedAt = x.sentAt
	}
	passed := now.Sub(x.ratedAt)
	if passed < rateWindow {
		return record.OK
	}
	moved := x.up.Load() - x.rated
	x.rated, x.ratedAt = x.up.Load(), now
	if moved < c.r.cfg.ClientMinRate*int64(passed/time.Second) {
		return record.RequestTimeout
	}
	return record.OK
}

// endIfIdle makes the router's end the end of a connection that is between requests, once it has been silent for a moment: one
// that was just used may have the next request on its way. The answer to that says that it was the last one.
func (c *client) endIfIdle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase == reading && !c.inHead {
		c.ring(c.since, quietEnd)
	}
}
