//go:build linux

package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/dovakiin0/agent-sandbox/bench/backend"
	"github.com/dovakiin0/agent-sandbox/bench/load"
	"github.com/dovakiin0/agent-sandbox/bench/peers"
	"github.com/dovakiin0/agent-sandbox/bench/proc"
	"github.com/dovakiin0/agent-sandbox/bench/report"
)

// Bench is what runs have in common.
type Bench struct {
	Backend          uint16 // port
	BackendPid       int
	ProxyCore        int
	SharedCore       bool  // generator and backend have one core together
	Cores            []int // of all of them
	Files            int   // descriptors that a process may have
	Duration, Warmup time.Duration
}

// run is one contestant at one scenario.
type run struct {
	*Bench
	*Scenario
	proxy  *peers.Process
	sample report.Sample

	before, after reading
	stopBeside    context.CancelFunc
	besideDone    chan error
	failed        error // of a hook
}

// reading is what is read when the measured time begins and ends.
type reading struct {
	at      time.Time
	proxy   proc.Usage
	backend proc.Usage
	stats   backend.Stats
	mallocs float64
}

// Run starts a fresh process of a contestant, puts the load of a scenario on it, and ends it.
func (b *Bench) Run(ctx context.Context, s *Scenario, c *peers.Contestant, round int) (report.Sample, error) {
	r := &run{Bench: b, Scenario: s}
	r.sample = report.Sample{Contestant: c.Name, Round: round, Values: map[report.Metric]float64{}, Errors: map[string]int64{}}
	calm, err := proc.Calibrate(b.ProxyCore)
	if err != nil {
		return r.sample, fmt.Errorf("calibration: %w", err)
	}
	r.proxy, err = peers.Start(ctx, c, s.Sandboxes, b.Backend, b.ProxyCore)
	if err != nil {
		return r.sample, err
	}
	err = r.measure(ctx)
	r.proxy.Stop()
	if err != nil {
		return r.sample, fmt.Errorf("%s at %s: %w", c.Name, s.Name, err)
	}
	after, err := proc.Calibrate(b.ProxyCore)
	r.sample.Values[report.Calibration] = float64(calm+after) / 2
	return r.sample, err
}

func (r *run) measure(ctx context.Context) error {
	v := r.sample.Values
	v[report.Ready] = ms(r.proxy.Ready)
	v[report.Base] = float64(proc.Resident(r.proxy.Pids))
	idle, err := r.openIdle(ctx)
	if err != nil {
		return err
	}
	defer idle.Close()
	if r.Rate > 0 || r.Request.events {
		awake, err := proc.KeepAwake(r.Cores)
		if err != nil {
			return err
		}
		defer awake.Stop()
	}
	res, err := load.Run(ctx, r.plan(ctx))
	if r.besideDone != nil {
		r.stopBeside()
		err = errors.Join(err, <-r.besideDone)
	}
	if err = errors.Join(err, r.failed, ctx.Err()); err != nil {
		return err
	}
	r.latencies(res)
	r.errors(res, idle.Ended())
	if r.Ends {
		return nil // there is no process to be asked any more
	}
	r.costs(res)
	return nil
}

// filesAside are the descriptors that are left for everything but idle connections.
const filesAside = 2500

// openIdle opens the connections that stand by, as many of them as descriptors allow.
func (r *run) openIdle(ctx context.Context) (*load.Idle, error) {
	req, n := r.Request, min(r.Idle, max(0, r.Files-filesAside))
	if r.Tunnels { // the proxy has two ends of each
		req, n = request{path: "/ws", webSocket: true}, min(r.Idle, max(0, r.Files-filesAside)/2)
	}
	idle, err := load.OpenIdle(ctx, r.proxy.Addr(), req.build(r.Sandboxes, r.Backend, r.proxy.RequestFields, first), n)
	if err == nil && n > 0 {
		rss := float64(proc.Resident(r.proxy.Pids))
		r.sample.Values[report.Idle] = float64(n)
		r.sample.Values[report.PerIdle] = rss / float64(n)
		r.sample.Values[report.GrowPerIdle] = (rss - r.sample.Values[report.Base]) / float64(n)
	}
	return idle, err
}

func (r *run) plan(ctx context.Context) load.Plan {
	pod := first
	if r.Follows {
		pod = nil // another may have taken over
	}
	p := load.Plan{
		Proxy: r.proxy.Addr(), Requests: r.Request.build(r.Sandboxes, r.Backend, r.proxy.RequestFields, pod),
		Connections: r.Connections, Rate: r.Rate, Count: r.Count, PerConnection: r.PerConnection,
		Warmup: r.Warmup, WarmupAnswers: r.warmupAnswers(), Duration: r.Duration, Events: r.Request.events, Leave: r.Ends,
		Started: func() { r.started(ctx) }, Ended: r.ended,
	}
	if r.Request.webSocket {
		p.Message = message
	}
	if r.Time > 0 {
		p.Duration = r.Time
	}
	if r.Cold || r.Count > 0 {
		p.Warmup = 0
	}
	return p
}

// warmupAnswers is two for each sandbox: then the proxy has its connections. Streams have none of a sandbox's own to keep.
func (r *run) warmupAnswers() int {
	if r.Request.webSocket || r.Request.events {
		return 0
	}
	return 2 * r.Sandboxes
}

// started reads last what the reading itself changes.
func (r *run) started(ctx context.Context) {
	r.before = r.read(true)
	if r.Scenario.Beside == nil {
		return
	}
	ctx, r.stopBeside = context.WithCancel(ctx)
	r.besideDone = make(chan error, 1)
	go func() {
		values, err := r.Scenario.Beside(ctx, r.proxy)
		for m, v := range values {
			r.sample.Values[m] = v
		}
		r.besideDone <- err
	}()
}

func (r *run) ended() {
	if !r.Ends {
		r.after = r.read(false)
	}
	if r.stopBeside != nil {
		r.stopBeside()
	}
}

// read takes a reading. At the beginning CPU is read last, at the end first, so that it is that of the load only.
func (r *run) read(beginning bool) (x reading) {
	usage := func() {
		var err, berr error
		x.at = time.Now()
		x.proxy, err = proc.UsageOf(r.proxy.Pids)
		x.backend, berr = proc.UsageOf([]int{r.BackendPid})
		r.failed = errors.Join(r.failed, err, berr)
	}
	if !beginning {
		usage()
	}
	var err error
	x.stats, err = backendStats(r.Backend)
	r.failed = errors.Join(r.failed, err)
	if r.proxy.GoMetrics {
		x.mallocs, err = mallocs(r.proxy.AdminURL(), beginning)
		r.failed = errors.Join(r.failed, err)
	}
	if beginning {
		usage()
	}
	return x
}

func backendStats(port uint16) (s backend.Stats, err error) {
	resp, err := admin.Get(fmt.Sprintf("http://127.0.0.1:%d/stats", port))
	if err != nil {
		return s, err
	}
	defer resp.Body.Close()
	return s, json.NewDecoder(resp.Body).Decode(&s)
}

// admin keeps no connections: those of a process that ended would be in the way.
var admin = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
func us(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
