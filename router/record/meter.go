package record

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"sort"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/VictoriaMetrics/metrics"
)

// bounds are the upper bounds of the duration histogram, in seconds.
var bounds = [...]float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 180}

// Meter counts exchanges. Counters are found once and then only added to: nothing on the way of a request takes a lock.
type Meter struct {
	set *metrics.Set

	mu         sync.Mutex // held by those who add a namespace
	namespaces atomic.Pointer[map[string]*Namespace]
	unknown    *Namespace // of requests whose sandbox is not known

	zones    [3]*metrics.Counter
	authz    [2]*metrics.Counter // decisions: denied, allowed
	clientRx *metrics.Counter
	clientTx *metrics.Counter
	reloads  [2]*metrics.Counter // of certificates: failed, read
}

// Namespace are the counters of one namespace of sandboxes.
type Namespace struct {
	name    string
	mu      sync.Mutex // held by those who add a series
	series  atomic.Pointer[[]*series]
	errors  [numReasons]atomic.Uint64
	retries atomic.Uint64
}

// series counts the exchanges with one method and status.
type series struct {
	method  Method
	status  int
	buckets [len(bounds) + 1]atomic.Uint64
	nanos   atomic.Int64
}

// NewMeter makes a Meter. version is what build_info says.
func NewMeter(version string) *Meter {
	m := &Meter{set: metrics.NewSet(), unknown: newNamespace("-")}
	m.namespaces.Store(&map[string]*Namespace{"-": m.unknown})
	for i, zone := range []string{"unknown", "same", "cross"} {
		m.zones[i] = m.set.NewCounter(fmt.Sprintf(`sandbox_router_zone_requests_total{zone=%q}`, zone))
	}
	for i, decision := range []string{"denied", "allowed"} {
		// Callers may name any namespace here, so it is no label.
		m.authz[i] = m.set.NewCounter(fmt.Sprintf(`sandbox_router_authz_decisions_total{sandbox_namespace="-",decision=%q}`, decision))
	}
	m.clientRx = m.set.NewCounter("sandbox_router_client_rx_bytes_total")
	m.clientTx = m.set.NewCounter("sandbox_router_client_tx_bytes_total")
	for i, outcome := range []string{"failure", "success"} {
		m.reloads[i] = m.set.NewCounter(fmt.Sprintf(`sandbox_router_cert_reloads_total{outcome=%q}`, outcome))
	}
	commit, date := "unknown", "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				commit = s.Value
			case "vcs.time":
				date = s.Value
			}
		}
	}
	m.Gauge(fmt.Sprintf(`sandbox_router_build_info{git_version=%q,git_commit=%q,build_date=%q,go_version=%q,compiler=%q,platform=%q}`,
		version, commit, date, runtime.Version(), runtime.Compiler, runtime.GOOS+"/"+runtime.GOARCH), func() float64 { return 1 })
	return m
}

func newNamespace(name string) *Namespace {
	n := &Namespace{name: name}
	n.series.Store(&[]*series{})
	return n
}

// Gauge adds a metric that is read when it is asked for. name may carry labels.
func (m *Meter) Gauge(name string, read func() float64) { m.set.NewGauge(name, read) }

// Counter adds a counter that is kept elsewhere.
func (m *Meter) Counter(name string, read func() uint64) {
	m.set.RegisterMetricsWriter(func(w io.Writer) { fmt.Fprintf(w, "%s %d\n", name, read()) })
}

// Retried counts one more attempt at a connection.
func (n *Namespace) Retried() { n.retries.Add(1) }

// CertReloaded counts a reading of changed certificate files.
func (m *Meter) CertReloaded(ok bool) {
	if ok {
		m.reloads[1].Inc()
	} else {
		m.reloads[0].Inc()
	}
}

// Namespace returns the counters of a namespace.
func (m *Meter) Namespace(name string) *Namespace {
	if n := (*m.namespaces.Load())[name]; n != nil {
		return n
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	old := *m.namespaces.Load()
	if n := old[name]; n != nil {
		return n
	}
	grown := make(map[string]*Namespace, len(old)+1)
	for k, v := range old {
		grown[k] = v
	}
	n := newNamespace(name)
	grown[name] = n
	m.namespaces.Store(&grown)
	return n
}

// Authorized counts a decision about a caller.
func (m *Meter) Authorized(ok bool) {
	if ok {
		m.authz[1].Inc()
	} else {
		m.authz[0].Inc()
	}
}

// UpstreamError counts a failure of a sandbox's connection, and passes over what was the caller's doing. n may be nil.
func (m *Meter) UpstreamError(n *Namespace, why Reason) {
	if !why.upstream() {
		return
	}
	if n == nil {
		n = m.unknown
	}
	n.errors[why].Add(1)
}

// Observe counts an exchange that ended.
func (m *Meter) Observe(e *Exchange) {
	n := e.Class
	if n == nil {
		n = m.unknown
	}
	e.Took = time.Since(e.Started)
	e.Namespace = n.name
	n.of(e.Method, e.Status).observe(e.Took)
	if e.Dispatched {
		m.zones[e.Zone].Inc()
		m.clientRx.AddInt64(e.Up)
		m.clientTx.AddInt64(e.Down)
	}
}

// of finds the series of a method and status. There are few, so looking at each beats a map.
func (n *Namespace) of(method Method, status int) *series {
	for _, s := range *n.series.Load() {
		if s.status == status && s.method == method {
			return s
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	old := *n.series.Load()
	for _, s := range old {
		if s.status == status && s.method == method {
			return s
		}
	}
	s := &series{method: method, status: status}
	grown := append(old[:len(old):len(old)], s)
	n.series.Store(&grown)
	return s
}

func (s *series) observe(d time.Duration) {
	seconds := d.Seconds()
	i := 0
	for i < len(bounds) && seconds > bounds[i] {
		i++
	}
	s.buckets[i].Add(1)
	s.nanos.Add(int64(d))
}

// Write writes all metrics in the Prometheus text format.
func (m *Meter) Write(w io.Writer) {
	all := *m.namespaces.Load()
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	sort.Strings(names)
	fmt.Fprintln(w, "# TYPE sandbox_router_requests_total counter")
	for _, name := range names {
		for _, s := range *all[name].series.Load() {
			fmt.Fprintf(w, "sandbox_router_requests_total{%s} %d\n", s.labels(name), s.count())
		}
	}
	fmt.Fprintln(w, "# TYPE sandbox_router_request_duration_seconds histogram")
	for _, name := range names {
		for _, s := range *all[name].series.Load() {
			s.writeHistogram(w, s.labels(name))
		}
	}
	fmt.Fprintln(w, "# TYPE sandbox_router_upstream_errors_total counter")
	for _, name := range names {
		n := all[name]
		for why := range n.errors {
			if count := n.errors[why].Load(); count > 0 {
				fmt.Fprintf(w, "sandbox_router_upstream_errors_total{sandbox_namespace=%q,reason=%q} %d\n", name, Reason(why), count)
			}
		}
	}
	fmt.Fprintln(w, "# TYPE sandbox_router_upstream_retries_total counter")
	for _, name := range names {
		fmt.Fprintf(w, "sandbox_router_upstream_retries_total{sandbox_namespace=%q} %d\n", name, all[name].retries.Load())
	}
	m.set.WritePrometheus(w)
	metrics.WriteProcessMetrics(w)
}

func (s *series) labels(namespace string) string {
	code := strconv.Itoa(s.status)
	if s.status == 0 {
		code = "499" // the client left; nginx's number for it
	}
	return fmt.Sprintf("method=%q,code=%q,sandbox_namespace=%q", s.method, code, namespace)
}

func (s *series) count() (n uint64) {
	for i := range s.buckets {
		n += s.buckets[i].Load()
	}
	return n
}

func (s *series) writeHistogram(w io.Writer, labels string) {
	var n uint64
	for i := range s.buckets {
		n += s.buckets[i].Load()
		le := "+Inf"
		if i < len(bounds) {
			le = strconv.FormatFloat(bounds[i], 'g', -1, 64)
		}
		fmt.Fprintf(w, "sandbox_router_request_duration_seconds_bucket{%s,le=%q} %d\n", labels, le, n)
	}
	fmt.Fprintf(w, "sandbox_router_request_duration_seconds_sum{%s} %g\n", labels, time.Duration(s.nanos.Load()).Seconds())
	fmt.Fprintf(w, "sandbox_router_request_duration_seconds_count{%s} %d\n", labels, n)
}
