package record

import (
	"bufio"
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sample is one line of the Prometheus text format.
var sample = regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{((?:[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\\\|\\"|\\n)*",? ?)*)\})? (\S+)$`)

// scrape reads what m writes, by series, and fails the test where a scraper would.
func scrape(t *testing.T, m *Meter) map[string]float64 {
	t.Helper()
	var out bytes.Buffer
	m.Write(&out)
	require.True(t, bytes.HasSuffix(out.Bytes(), []byte("\n")))
	series := map[string]float64{}
	typed := map[string]bool{}
	for lines := bufio.NewScanner(&out); lines.Scan(); {
		line := lines.Text()
		if words := strings.Fields(line); line == "" || words[0] == "#" {
			if len(words) > 2 && words[1] == "TYPE" {
				require.False(t, typed[words[2]], "TYPE twice: %s", line)
				typed[words[2]] = true
				require.Contains(t, []string{"counter", "gauge", "histogram", "summary", "untyped"}, words[3])
			}
			continue
		}
		parts := sample.FindStringSubmatch(line)
		if parts == nil {
			require.Fail(t, "no sample", line)
		}
		value, err := strconv.ParseFloat(parts[3], 64)
		require.NoError(t, err, line)
		key := parts[1]
		if parts[2] != "" {
			key += "{" + parts[2] + "}"
		}
		_, twice := series[key]
		require.False(t, twice, "twice: %s", line)
		series[key] = value
	}
	return series
}

func TestRequestsAreCounted(t *testing.T) {
	m := NewMeter("v1")
	ns := m.Namespace("team-a")
	assert.Same(t, ns, m.Namespace("team-a"))
	for _, e := range []Exchange{
		{Method: GET, Status: 200, Class: ns, Dispatched: true, Zone: 1, Up: 1, Down: 10},
		{Method: GET, Status: 200, Class: ns, Dispatched: true, Zone: 2, Up: 2, Down: 20},
		{Method: POST, Status: 502, Class: ns, Dispatched: true, Reason: UpstreamClosed},
		{Method: OTHER, Status: 404, Reason: NotFound},
		{Method: GET, Status: 0, Class: ns, Reason: ClientGone},
	} {
		e.Started = time.Now()
		m.Observe(&e)
		assert.NotEmpty(t, e.Namespace)
		assert.Positive(t, e.Took)
	}
	m.UpstreamError(ns, UpstreamClosed)
	m.UpstreamError(nil, DialRefused)
	ns.Retried()
	m.UpstreamError(ns, ClientGone)
	m.Authorized(true)
	m.Authorized(false)
	m.CertReloaded(true)
	m.CertReloaded(false)
	m.Gauge("sandbox_router_test_gauge", func() float64 { return 2.5 })
	m.Counter("sandbox_router_test_total", func() uint64 { return 7 })

	got := scrape(t, m)
	for series, want := range map[string]float64{
		`sandbox_router_requests_total{method="GET",code="200",sandbox_namespace="team-a"}`:                           2,
		`sandbox_router_requests_total{method="POST",code="502",sandbox_namespace="team-a"}`:                          1,
		`sandbox_router_requests_total{method="OTHER",code="404",sandbox_namespace="-"}`:                              1,
		`sandbox_router_requests_total{method="GET",code="499",sandbox_namespace="team-a"}`:                           1,
		`sandbox_router_request_duration_seconds_count{method="GET",code="200",sandbox_namespace="team-a"}`:           2,
		`sandbox_router_request_duration_seconds_bucket{method="GET",code="200",sandbox_namespace="team-a",le="180"}`: 2,
		`sandbox_router_upstream_errors_total{sandbox_namespace="team-a",reason="upstream_closed"}`:                   1,
		`sandbox_router_upstream_errors_total{sandbox_namespace="-",reason="dial_refused"}`:                           1,
		`sandbox_router_zone_requests_total{zone="same"}`:                                                             1,
		`sandbox_router_zone_requests_total{zone="cross"}`:                                                            1,
		`sandbox_router_zone_requests_total{zone="unknown"}`:                                                          1,
		`sandbox_router_client_rx_bytes_total`:                                                                        3,
		`sandbox_router_client_tx_bytes_total`:                                                                        30,
		`sandbox_router_upstream_retries_total{sandbox_namespace="team-a"}`:                                           1,
		`sandbox_router_authz_decisions_total{sandbox_namespace="-",decision="allowed"}`:                              1,
		`sandbox_router_authz_decisions_total{sandbox_namespace="-",decision="denied"}`:                               1,
		`sandbox_router_cert_reloads_total{outcome="success"}`:                                                        1,
		`sandbox_router_cert_reloads_total{outcome="failure"}`:                                                        1,
		`sandbox_router_test_gauge`: 2.5,
		`sandbox_router_test_total`: 7,
	} {
		assert.Equal(t, want, got[series], series)
	}
	build := 0
	for series := range got {
		if strings.HasPrefix(series, "sandbox_router_build_info{") {
			build++
			for _, label := range []string{`git_version="v1"`, "git_commit=", "build_date=", "go_version=", "compiler=", "platform="} {
				assert.Contains(t, series, label)
			}
		}
	}
	assert.Equal(t, 1, build)
}

// TestHistogram checks what a scraper relies on: the buckets of upstream's contract, cumulative, up to +Inf = count.
func TestHistogram(t *testing.T) {
	m := NewMeter("v1")
	s := m.unknown.of(GET, 200)
	durations := []time.Duration{0, 5 * time.Millisecond, 5*time.Millisecond + 1, 70 * time.Millisecond, time.Second, 3 * time.Minute, time.Hour}
	for _, d := range durations {
		s.observe(d)
	}
	got := scrape(t, m)
	const labels = `method="GET",code="200",sandbox_namespace="-"`
	want := map[string]float64{
		"0.005": 2, "0.01": 3, "0.025": 3, "0.05": 3, "0.1": 4, "0.25": 4, "0.5": 4, "1": 5, "2.5": 5, "5": 5, "10": 5, "30": 5, "60": 5,
		"180": 6, "+Inf": 7,
	}
	for le, n := range want {
		assert.Equal(t, n, got[fmt.Sprintf(`sandbox_router_request_duration_seconds_bucket{%s,le="%s"}`, labels, le)], le)
	}
	buckets := 0
	for series := range got {
		if strings.HasPrefix(series, "sandbox_router_request_duration_seconds_bucket{") {
			buckets++
		}
	}
	assert.Equal(t, len(want), buckets)
	assert.EqualValues(t, len(durations), got["sandbox_router_request_duration_seconds_count{"+labels+"}"])
	var sum time.Duration
	for _, d := range durations {
		sum += d
	}
	assert.InDelta(t, sum.Seconds(), got["sandbox_router_request_duration_seconds_sum{"+labels+"}"], 0.001)
	assert.EqualValues(t, len(durations), got["sandbox_router_requests_total{"+labels+"}"])
}

// TestNothingOfACallerIsALabel: ids, paths and invented methods would make as many series as a caller likes.
func TestNothingOfACallerIsALabel(t *testing.T) {
	m := NewMeter("v1")
	m.Observe(&Exchange{
		Started: time.Now(), Method: MethodOf([]byte("INVENTED")), Status: 200, ID: []byte("secret-id"), Path: []byte("/secret-path"),
		Peer: []byte("10.9.9.9"), RequestID: []byte("secret-request"),
	})
	for series := range scrape(t, m) {
		for _, word := range []string{"secret", "INVENTED", "10.9.9.9"} {
			assert.NotContains(t, series, word)
		}
	}
}

func TestMeterUnderLoad(t *testing.T) {
	m := NewMeter("v1")
	var load sync.WaitGroup
	for i := range 8 {
		load.Go(func() {
			for n := range 500 {
				ns := m.Namespace(fmt.Sprintf("n%d", n%10))
				m.Observe(&Exchange{Started: time.Now(), Method: Method(n % int(numMethods)), Status: 200 + n%7, Class: ns, Dispatched: true, Zone: i % 3})
			}
		})
	}
	for range 10 {
		scrape(t, m)
	}
	load.Wait()
	total := 0.0
	for series, n := range scrape(t, m) {
		if strings.HasPrefix(series, "sandbox_router_requests_total{") {
			total += n
		}
	}
	assert.EqualValues(t, 8*500, total)
}

func TestMethods(t *testing.T) {
	for name, want := range map[string]Method{
		"GET": GET, "HEAD": HEAD, "OPTIONS": OPTIONS, "POST": POST, "PUT": PUT, "PATCH": PATCH, "DELETE": DELETE,
		"get": OTHER, "": OTHER, "OTHER": OTHER, "PROPFIND": OTHER, "GETS": OTHER,
	} {
		assert.Equal(t, want, MethodOf([]byte(name)), name)
	}
	for m := OTHER; m < numMethods; m++ {
		assert.Equal(t, m == GET || m == HEAD || m == OPTIONS, m.Safe(), m)
		assert.Equal(t, m, MethodOf([]byte(m.String())), m)
	}
}

// TestEveryReasonHasAnAnswer: a reason without a name, or an answer without a code, is one that somebody forgot.
func TestEveryReasonHasAnAnswer(t *testing.T) {
	seen := map[string]Reason{}
	for r := OK; r < numReasons; r++ {
		if r == lastAnswer {
			continue
		}
		require.NotEmpty(t, r.String(), int(r))
		other, twice := seen[r.String()]
		require.False(t, twice, "%d and %d are both %s", r, other, r)
		seen[r.String()] = r
		a := r.Answer()
		assert.GreaterOrEqual(t, a.Status, 400, r)
		assert.NotEmpty(t, a.Code, r)
		assert.NotEmpty(t, a.Detail, r)
		assert.NotContains(t, a.Detail, `"`, "it stands in JSON as it is")
		if a.Status == 503 || a.Status == 429 {
			assert.Positive(t, a.RetryAfter, r)
			assert.True(t, a.Retryable, r)
		}
	}
	assert.Equal(t, "unknown", numReasons.String())
}
