package chart

import (
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dovakiin0/agent-sandbox/proto"
)

// alert is a rule of alerts/rules.yaml.
type alert struct {
	Alert, Expr, For string
	Labels           map[string]string
	Annotations      map[string]string
}

func alerts(t *testing.T) []alert {
	t.Helper()
	rules := readYAML[struct {
		Groups []struct{ Rules []alert }
	}](t, filepath.Join(chartDir(), "alerts/rules.yaml"))
	var all []alert
	for _, group := range rules.Groups {
		all = append(all, group.Rules...)
	}
	require.NotEmpty(t, all)
	return all
}

// TestAlertsHelp: whoever is woken learns what is wrong and what to do.
func TestAlertsHelp(t *testing.T) {
	seen := map[string]bool{}
	for _, a := range alerts(t) {
		assert.False(t, seen[a.Alert], a.Alert)
		seen[a.Alert] = true
		assert.Contains(t, []string{"warning", "critical"}, a.Labels["severity"], a.Alert)
		assert.Greater(t, len(a.Annotations["summary"]), 20, a.Alert)
		assert.Greater(t, len(a.Annotations["runbook"]), 40, a.Alert)
		assert.Contains(t, a.Expr, `namespace="$NAMESPACE"`, "%s: only this release", a.Alert)
		assert.Equal(t, strings.Count(a.Expr, "("), strings.Count(a.Expr, ")"), a.Alert)
		if a.For != "" {
			_, err := time.ParseDuration(a.For)
			assert.NoError(t, err, a.Alert)
		}
	}
}

// dashboard is what these tests read of a Grafana dashboard.
type dashboard struct {
	UID, Title string
	Panels     []struct {
		ID          int
		Type, Title string
		GridPos     struct{ X, Y, W, H int }
		Targets     []struct{ Expr string }
	}
}

func dashboards(t *testing.T) map[string]dashboard {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(chartDir(), "dashboards/*.json"))
	require.NoError(t, err)
	all := map[string]dashboard{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		var d dashboard
		require.NoError(t, json.Unmarshal(text, &d), file)
		all[filepath.Base(file)] = d
	}
	require.NotEmpty(t, all)
	return all
}

// TestDashboardsAreWhole: panels have ids of their own, lie within the grid and do not cover each other.
func TestDashboardsAreWhole(t *testing.T) {
	for file, d := range dashboards(t) {
		assert.NotEmpty(t, d.UID, file)
		ids, cells := map[int]bool{}, map[[2]int]string{}
		for _, p := range d.Panels {
			assert.False(t, ids[p.ID], "%s: %s", file, p.Title)
			ids[p.ID] = true
			assert.Equal(t, p.Type == "row", len(p.Targets) == 0, "%s: %s", file, p.Title)
			assert.LessOrEqual(t, p.GridPos.X+p.GridPos.W, 24, p.Title)
			for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
				for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
					assert.Empty(t, cells[[2]int{x, y}], "%s: %s covers a panel", file, p.Title)
					cells[[2]int{x, y}] = p.Title
				}
			}
		}
	}
}

// checkMetrics compares what alerts and dashboards ask for with what the running programs expose.
func checkMetrics(t *testing.T, i *installed, token string) {
	i.failToDial(token)
	exposed := map[string]map[string]bool{} // labels by metric
	for _, component := range []string{"router", "controller"} {
		for _, pod := range i.pods(component) {
			readMetrics(i.metrics(&pod), exposed)
		}
	}
	require.Contains(t, exposed, "sandbox_router_build_info")
	require.Contains(t, exposed, "agent_sandbox_build_info")
	check := func(where, expr string) {
		metrics, labels := queried(expr)
		require.NotEmpty(t, metrics, "%s: %s", where, expr)
		known := map[string]bool{"namespace": true, "pod": true} // those of the scraped pod
		for _, metric := range metrics {
			assert.Contains(t, exposed, metric, "%s asks for a metric that nobody exposes", where)
			for label := range exposed[metric] {
				known[label] = true
				known["exported_"+label] = true
			}
		}
		for _, label := range labels {
			assert.True(t, known[label], "%s: no metric of %s has the label %s", where, expr, label)
		}
	}
	for _, a := range alerts(t) {
		check(a.Alert, a.Expr)
	}
	for file, d := range dashboards(t) {
		for _, p := range d.Panels {
			for _, target := range p.Targets {
				check(file+": "+p.Title, target.Expr)
			}
		}
	}
	for _, name := range []string{"sandbox_router_inflight_requests"} { // what the HorizontalPodAutoscaler asks for
		assert.Contains(t, exposed, name)
	}
}

// failToDial makes every router count an upstream error, so that the metric has its labels.
func (i *installed) failToDial(token string) {
	i.Helper()
	sandbox := i.claim("failing").Status.Sandbox.Name
	for _, router := range i.serving(2) {
		request, err := http.NewRequestWithContext(i.Context(), http.MethodGet, "http://"+router+"/", nil)
		require.NoError(i, err)
		request.Header = http.Header{"Authorization": {"Bearer " + token}}
		request.Header.Set(proto.HeaderID, sandbox)
		request.Header.Set(proto.HeaderNamespace, i.namespace)
		request.Header.Set(proto.HeaderPort, "1")
		response, err := http.DefaultClient.Do(request)
		require.NoError(i, err)
		response.Body.Close()
		require.Equal(i, http.StatusBadGateway, response.StatusCode)
	}
}

var (
	sample   = regexp.MustCompile(`(?m)^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? `)
	label    = regexp.MustCompile(`([a-zA-Z_][a-zA-Z0-9_]*)\s*(?:=~|!~|!=|=)\s*"`)
	quoted   = regexp.MustCompile(`"[^"]*"`)
	grouping = regexp.MustCompile(`\b(?:by|on|without|ignoring)\s*\(([^)]*)\)`)
	window   = regexp.MustCompile(`\[[^\]]*\]`)
	matchers = regexp.MustCompile(`\{([^}]*)\}`)
	word     = regexp.MustCompile(`\b[a-zA-Z_:][a-zA-Z0-9_:]*\s*\(?`)
)

// readMetrics adds the metrics of a text, each with the labels that it has.
func readMetrics(text string, into map[string]map[string]bool) {
	for _, m := range sample.FindAllStringSubmatch(text, -1) {
		if into[m[1]] == nil {
			into[m[1]] = map[string]bool{}
		}
		for _, l := range label.FindAllStringSubmatch(m[2], -1) {
			into[m[1]][l[1]] = true
		}
	}
}

// queried are the metrics and the labels of a PromQL expression.
func queried(expr string) (metrics, labels []string) {
	found := map[string]bool{}
	for _, m := range matchers.FindAllStringSubmatch(expr, -1) {
		for _, l := range label.FindAllStringSubmatch(m[1], -1) {
			found[l[1]] = true
		}
	}
	for _, m := range grouping.FindAllStringSubmatch(expr, -1) {
		for l := range strings.SplitSeq(m[1], ",") {
			found[strings.TrimSpace(l)] = true
		}
	}
	for _, noise := range []*regexp.Regexp{quoted, matchers, window, grouping} {
		expr = noise.ReplaceAllString(expr, " ")
	}
	for _, w := range word.FindAllString(expr, -1) {
		if w = strings.TrimSpace(w); !strings.HasSuffix(w, "(") && !slices.Contains([]string{"and", "or", "unless"}, w) {
			metrics = append(metrics, w)
		}
	}
	return metrics, slices.Sorted(maps.Keys(found))
}

// TestQueried checks the reading of expressions itself, because a reader that finds nothing would find nothing wrong.
func TestQueried(t *testing.T) {
	metrics, labels := queried(`histogram_quantile(0.95, sum by (le, kind) (rate(a_bucket{namespace="x (y)",kind=~"b"}[10m]))) / min(c < 1e15) and on (pod) d`)
	assert.Equal(t, []string{"a_bucket", "c", "d"}, metrics)
	assert.Equal(t, []string{"kind", "le", "namespace", "pod"}, labels)
	exposed := map[string]map[string]bool{}
	readMetrics("# TYPE x counter\nx{a=\"1\",b=\"c d\"} 2\ny 3\n", exposed)
	assert.Equal(t, map[string]map[string]bool{"x": {"a": true, "b": true}, "y": {}}, exposed)
}
