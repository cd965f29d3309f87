// Package size computes how many replicas of the router a load needs, and what each should be given, from what was
// measured.
package size

import (
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/dovakiin0/agent-sandbox/bench/report"
)

// Load is what the replicas have to bear together.
type Load struct {
	Requests    float64 // per second
	Messages    float64 // of WebSockets, both ways counted as one echo, per second
	Connections int     // of clients
	Tunnels     int     // open WebSockets
}

// Limits are the choices of the operator.
type Limits struct {
	Cores       float64 // of a replica
	Utilization float64 // share of them that the load may use
	Spare       int     // replicas that may be missing
}

// Cost is what was measured for the router.
type Cost struct {
	Request    float64 // CPU in µs
	Message    float64 // CPU in µs
	Base       float64 // resident bytes without load
	Connection float64 // resident bytes
	Tunnel     float64 // resident bytes
}

// CostOf reads the costs of a contestant from a report. A fixed rate costs more for each request than a full load does,
// because the process sleeps in between: the dearer one counts. What was not measured is 0.
func CostOf(r *report.Report, contestant string) (c Cost, err error) {
	median := func(scenario string, m report.Metric) float64 {
		if s := r.Summary(scenario, contestant); s != nil {
			return s.Values[m].Median
		}
		return 0
	}
	c.Request = max(median("s1", report.CPU), median("s2", report.CPU), median("rate", report.CPU))
	c.Message = median("s5", report.CPU)
	c.Base = median("s1", report.Resident)
	c.Connection = median("s3", report.GrowPerIdle)
	c.Tunnel = median("tunnels", report.GrowPerIdle)
	if c.Request == 0 || c.Base == 0 {
		return c, errors.New("the report has no s1 of " + contestant)
	}
	return c, nil
}

// Plan is the answer.
type Plan struct {
	Replicas int     // the spare ones included
	Cores    float64 // that the whole load uses
	Memory   float64 // resident bytes of a replica when the spare ones are missing
	Limit    float64 // of its memory, in bytes
}

// headroom is how much more memory a replica is given than it is expected to use: garbage, buffers of bodies on their way,
// connections that are not spread evenly.
const headroom = 1.5

// For computes the plan.
func (c Cost) For(l Load, limits Limits) (p Plan, err error) {
	switch {
	case limits.Cores <= 0 || limits.Utilization <= 0 || limits.Utilization > 1 || limits.Spare < 0:
		return p, errors.New("cores and utilization must be above 0, utilization at most 1, spare at least 0")
	case l.Messages > 0 && c.Message == 0:
		return p, errors.New("messages: the report has no s5")
	case l.Connections > 0 && c.Connection == 0:
		return p, errors.New("connections: the report has no s3")
	case l.Tunnels > 0 && c.Tunnel == 0:
		return p, errors.New("tunnels: the report has no scenario tunnels")
	}
	p.Cores = (l.Requests*c.Request + l.Messages*c.Message) / 1e6
	needed := max(1, int(math.Ceil(p.Cores/(limits.Cores*limits.Utilization))))
	p.Replicas = needed + limits.Spare
	p.Memory = c.Base + (float64(l.Connections)*c.Connection+float64(l.Tunnels)*c.Tunnel)/float64(needed)
	const step = 32 << 20
	p.Limit = math.Ceil(p.Memory*headroom/step) * step
	return p, nil
}

// Write shows the plan and what it rests on.
func (p Plan) Write(w io.Writer, c Cost, l Load, limits Limits, r *report.Report) {
	fmt.Fprintf(w, "load      %.0f requests/s, %.0f messages/s, %d connections, %d tunnels\n", l.Requests, l.Messages, l.Connections, l.Tunnels)
	fmt.Fprintf(w, "cost      %.1f µs a request, %.1f µs a message, %.1f KB a connection, %.1f KB a tunnel, %.0f MB to begin with\n",
		c.Request, c.Message, c.Connection/1e3, c.Tunnel/1e3, c.Base/1e6)
	fmt.Fprintf(w, "measured  %s, commit %s, %d cores of %s\n", r.Date.Format("2006-01-02"), r.Commit, r.Machine.Cores, r.Machine.CPU)
	fmt.Fprintf(w, "cpu       the load uses %.2f cores; a replica has %g and uses %.0f %% of them\n", p.Cores, limits.Cores, 100*limits.Utilization)
	fmt.Fprintf(w, "memory    %.0f MB in a replica when %d are missing; limit %.0f Mi, GOMEMLIMIT %.0fMiB\n",
		p.Memory/1e6, limits.Spare, p.Limit/(1<<20), math.Floor(p.Limit*0.9/(1<<20)))
	fmt.Fprintf(w, "replicas  %d, %d of them spare\n", p.Replicas, limits.Spare)
}
