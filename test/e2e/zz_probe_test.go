package e2e

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"sort"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensions "github.com/dovakiin0/agent-sandbox/proto/extensions/v1beta1"
	"github.com/dovakiin0/agent-sandbox/test/env"
)

var reqMetric = regexp.MustCompile(`(?m)^rest_client_requests_total\{code="(\d+)",.*method="(\w+)"\} (\d+)$`)
var cpuMetric = regexp.MustCompile(`(?m)^process_cpu_seconds_total (\S+)$`)

func scrape(t *testing.T, addr string) (map[string]int, float64) {
	r, err := http.Get("http://" + addr + "/metrics")
	require.NoError(t, err)
	defer r.Body.Close()
	b, _ := io.ReadAll(r.Body)
	out := map[string]int{}
	for _, m := range reqMetric.FindAllStringSubmatch(string(b), -1) {
		n, _ := strconv.Atoi(m[3])
		out[m[2]+" "+m[1]] += n
	}
	cpu := 0.0
	if m := cpuMetric.FindStringSubmatch(string(b)); m != nil {
		cpu, _ = strconv.ParseFloat(m[1], 64)
	}
	return out, cpu
}

func diff(a, b map[string]int) map[string]int {
	d := map[string]int{}
	for k, v := range b {
		if v != a[k] {
			d[k] = v - a[k]
		}
	}
	return d
}

func TestZZProbe(t *testing.T) {
	s := on(t, env.Get(t))
	args := []string{}
	if a := os.Getenv("PROBE_ARGS"); a != "" {
		args = append(args, a)
	}
	c := s.StartController(t, args...)
	s.template("t")
	start := time.Now()
	before, cpu0 := scrape(t, c.Metrics)
	pool := s.pool("p", "t", 200)
	after, cpu1 := scrape(t, c.Metrics)
	t.Logf("fill 200: %s writes %v cpu %.2f", time.Since(start), diff(before, after), cpu1-cpu0)

	w, err := s.Client.Watch(t.Context(), &extensions.SandboxClaimList{}, client.InNamespace(s.ns))
	require.NoError(t, err)
	defer w.Stop()
	var mu sync.Mutex
	ready := map[string]time.Time{}
	readyCh := make(chan string, 10000)
	go func() {
		for e := range w.ResultChan() {
			cl, ok := e.Object.(*extensions.SandboxClaim)
			if !ok || !meta.IsStatusConditionTrue(cl.Status.Conditions, "Ready") {
				continue
			}
			mu.Lock()
			if ready[cl.Name].IsZero() {
				ready[cl.Name] = time.Now()
				readyCh <- cl.Name
			}
			mu.Unlock()
		}
	}()
	mk := func(name string) time.Time {
		cl := &extensions.SandboxClaim{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: name}}
		cl.Spec.WarmPoolRef.Name = "p"
		at := time.Now()
		require.NoError(t, s.Client.Create(t.Context(), cl))
		return at
	}
	pct := func(d []time.Duration, p float64) time.Duration {
		sort.Slice(d, func(i, j int) bool { return d[i] < d[j] })
		return d[int(float64(len(d)-1)*p)]
	}
	// one at a time
	before, cpu0 = scrape(t, c.Metrics)
	var lat []time.Duration
	for i := range 40 {
		name := fmt.Sprintf("one-%d", i)
		at := mk(name)
		<-readyCh
		mu.Lock()
		lat = append(lat, ready[name].Sub(at))
		mu.Unlock()
		time.Sleep(50 * time.Millisecond)
	}
	time.Sleep(2 * time.Second)
	s.waitFull(pool)
	after, cpu1 = scrape(t, c.Metrics)
	t.Logf("single: p50 %s p90 %s p99 %s; writes %v cpu/claim %.1fms", pct(lat, .5), pct(lat, .9), pct(lat, .99), diff(before, after), (cpu1-cpu0)*1000/40)
	for round := range 3 {
		before, cpu0 = scrape(t, c.Metrics)
		lat = nil
		starts := map[string]time.Time{}
		var wg sync.WaitGroup
		start = time.Now()
		for wk := range 20 {
			wg.Go(func() {
				for i := wk; i < 100; i += 20 {
					name := fmt.Sprintf("b%d-%d", round, i)
					at := mk(name)
					mu.Lock()
					starts[name] = at
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		created := time.Since(start)
		for range 100 {
			<-readyCh
		}
		all := time.Since(start)
		mu.Lock()
		for n, at := range starts {
			lat = append(lat, ready[n].Sub(at))
		}
		mu.Unlock()
		s.waitFull(pool)
		full := time.Since(start)
		time.Sleep(2 * time.Second)
		after, cpu1 = scrape(t, c.Metrics)
		t.Logf("burst: created %s all ready %s p50 %s p90 %s p99 %s refilled %s; writes %v cpu/claim %.1fms", created, all, pct(lat, .5), pct(lat, .9), pct(lat, .99), full, diff(before, after), (cpu1-cpu0)*1000/100)
	}
}
