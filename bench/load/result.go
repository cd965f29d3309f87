//go:build linux

package load

import (
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Kinds of errors, beside "status N".
const (
	Refused    = "refused"    // no connection
	Reset      = "reset"      // the connection was reset while an answer was due
	Closed     = "closed"     // the connection ended before the first byte of an answer
	Truncated  = "truncated"  // the connection ended within an answer
	Malformed  = "malformed"  // the answer is no HTTP, or no WebSocket frame
	WrongBody  = "wrong body" // the answer is not of the sandbox that was asked, or not whole
	Unexpected = "unexpected" // bytes came that no request asked for
	Timeout    = "timeout"    // no whole answer in time, or no connection to send the request on
)

// Result is what was measured. Counts are of the measured time, except Errors, which are of the whole run.
type Result struct {
	Answered int64         // right answers
	Elapsed  time.Duration // of the measured time
	Sent     int64         // bytes, heads included
	Received int64         // bytes of bodies
	Latency  *Histogram    // of requests that started in the measured time
	Events   *Histogram    // age of events when they came
	Errors   map[string]int64

	// Lag is how late requests of an open loop were sent although they were due and a connection was free: the generator's
	// own delay.
	Lag *Histogram
	// Busy is the share of a core that the generator used.
	Busy float64
	// Offered is the rate that was asked for; 0: a closed loop.
	Offered float64
	// Left counts the connections that were not replaced.
	Left int
}

// Failed counts all errors.
func (r *Result) Failed() (n int64) {
	for _, count := range r.Errors {
		n += count
	}
	return n
}

// Rate is right answers per second.
func (r *Result) Rate() float64 { return float64(r.Answered) / r.Elapsed.Seconds() }

// Thresholds of Limited: a generator that uses more of its core than this, or that is later than this, measures itself.
const (
	limitBusy = 0.9
	limitLag  = 2 * time.Millisecond
)

// Limited says why the figures tell more of the generator than of the proxy; "": they don't.
func (r *Result) Limited() string {
	switch lag := r.Lag.Percentile(99); {
	case r.Busy > limitBusy:
		return fmt.Sprintf("the generator used %.0f %% of its core", 100*r.Busy)
	case r.Offered > 0 && lag > limitLag:
		return fmt.Sprintf("the generator sent 1 %% of its requests more than %s late", lag.Round(100*time.Microsecond))
	}
	return ""
}

// Histogram counts durations from a microsecond to a minute with three significant digits.
type Histogram struct{ h *hdrhistogram.Histogram }

// NewHistogram returns an empty histogram.
func NewHistogram() *Histogram {
	return &Histogram{hdrhistogram.New(1, time.Minute.Microseconds(), 3)}
}

const minute = int64(time.Minute / time.Microsecond)

// Record counts a duration. One goroutine at a time may do so.
func (h *Histogram) Record(d time.Duration) { h.h.RecordValue(min(d.Microseconds(), minute)) }

// Percentile returns the duration that p percent do not exceed.
func (h *Histogram) Percentile(p float64) time.Duration {
	return time.Duration(h.h.ValueAtPercentile(p)) * time.Microsecond
}

// Max returns the longest duration.
func (h *Histogram) Max() time.Duration { return time.Duration(h.h.Max()) * time.Microsecond }

// Count returns how many durations were recorded.
func (h *Histogram) Count() int64 { return h.h.TotalCount() }
