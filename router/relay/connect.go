package relay

import (
	"time"

	"github.com/dovakiin0/agent-sandbox/router/dial"
	"github.com/dovakiin0/agent-sandbox/router/record"
)

// connect returns a connection to the endpoint. A reused one is looked at first, whatever the request: what it already has to say
// and its goroutine has not read yet would be taken for the answer, and its end would make the request fail.
func (c *client) connect(s *scratch) (*upstream, record.Reason) {
	x := &c.x
	for range maxEndpoints {
		pool := x.endpoint.Payload.Pool(x.port)
		u, reused, err := pool.Acquire(x.until, c.leaving())
		for err == nil && reused && u.look() != silent {
			u.Kill()
			u, reused, err = pool.Acquire(x.until, c.leaving())
		}
		if err == nil {
			u.reused = reused
			return u, record.OK
		}
		if err != dial.ErrRetired {
			return nil, c.dialReason(err, pool)
		}
		// The endpoint left the table in the meantime: the sandbox may have another by now.
		x.endpoint.Release()
		x.endpoint = nil
		if why := c.locate(s); why != record.OK {
			return nil, why
		}
	}
	return nil, record.Starting
}

// maxEndpoints is how many endpoints that leave the table under it a request follows.
const maxEndpoints = 4

func (c *client) dialReason(err error, pool *dial.Pool[*upstream]) record.Reason {
	why := record.DialUnreachable
	switch err {
	case dial.ErrRefused:
		why = record.DialRefused
		if pool.Fresh() {
			why = record.Starting
		}
	case dial.ErrTimeout:
		why = record.DialTimeout
		if u := c.x.until; !u.IsZero() && !time.Now().Before(u) {
			why = record.TotalTimeout
		}
	case dial.ErrTooMany:
		why = record.TooManyRequests
	case dial.ErrRetired:
		why = record.EndpointGone
	case dial.ErrCanceled:
		why = record.ClientGone
	}
	c.r.meter.UpstreamError(c.x.class, why)
	return why
}
