package reconcile

import (
	"context"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/dovakiin0/agent-sandbox/proto"
	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
	ext "github.com/dovakiin0/agent-sandbox/proto/extensions/v1beta1"
)

// startupBuckets are the upper bounds of the claim latency histograms, in milliseconds.
var startupBuckets = []float64{
	100, 250, 500, 750, 1000, 1250, 1500, 2000, 2500, 5000, 10000, 30000, 60000, 120000, 240000,
}

var (
	claimStartup = startupHistogram("agent_sandbox_claim_startup_latency_ms",
		"Time from the first sight of a claim by an admission webhook to Ready, in milliseconds.")
	claimControllerStartup = startupHistogram("agent_sandbox_claim_controller_startup_latency_ms",
		"Time from the first sight of a claim by the controller to Ready, in milliseconds.")
	claimClientStartup = startupHistogram("agent_sandbox_client_claim_startup_latency_ms",
		"Time from the client's request for a claim to Ready, in milliseconds.")
	sandboxCreation = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "agent_sandbox_creation_latency_ms",
		Help:    "Time from the creation of a claimed Sandbox to Ready, in milliseconds, in steps of a second.",
		Buckets: []float64{50, 100, 250, 500, 1000, 2500, 5000, 10000, 30000, 60000, 120000, 240000, 300000, 600000},
	}, []string{"namespace", "launch_type", "sandbox_template"})
	claimCreation = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "agent_sandbox_claim_creation_total",
		Help: "Claims that were given a Sandbox, adopted or new.",
	}, []string{"namespace", "sandbox_template", "launch_type", "warmpool_name", "pod_condition", "created_by"})
)

func init() {
	metrics.Registry.MustRegister(claimStartup, claimControllerStartup, claimClientStartup, sandboxCreation, claimCreation)
}

func startupHistogram(name, help string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: startupBuckets},
		[]string{"launch_type", "sandbox_template"})
}

// countClaim counts a claim that was given sb: on adoption, or when a cold start created sb.
func countClaim(claim *ext.SandboxClaim, sb *agents.Sandbox, poolName string) {
	condition := "not_ready"
	if isReady(sb) {
		condition = "ready"
	}
	claimCreation.WithLabelValues(claim.Namespace, templateLabel(sb), launchLabel(sb), poolName, condition,
		normalizeCreatedBy(claim.Labels[proto.LabelCreatedBy])).Inc()
}

// observeClaimReady records how long a claim took to its first Ready. firstObserved is when this controller first saw the
// claim; sb may be nil.
func observeClaimReady(claim *ext.SandboxClaim, sb *agents.Sandbox, firstObserved, now time.Time) {
	launch, template := launchLabel(sb), templateLabel(sb)
	observe := func(h *prometheus.HistogramVec, since time.Time) {
		if !since.IsZero() && !since.After(now) {
			h.WithLabelValues(launch, template).Observe(milliseconds(now.Sub(since)))
		}
	}
	observe(claimStartup, annotationTime(claim, proto.AnnotationWebhookFirstObserved))
	observe(claimControllerStartup, firstObserved)
	observe(claimClientStartup, annotationTime(claim, proto.AnnotationClientFirstRequested))
	if sb == nil {
		return
	}
	if ready := meta.FindStatusCondition(sb.Status.Conditions, string(agents.ConditionReady)); ready != nil {
		if d := ready.LastTransitionTime.Sub(sb.CreationTimestamp.Time); d >= 0 {
			sandboxCreation.WithLabelValues(sb.Namespace, launch, template).Observe(milliseconds(d))
		}
	}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// annotationTime reads a time that a client, a webhook or this controller wrote, the zero time when there is none.
func annotationTime(obj client.Object, key string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, obj.GetAnnotations()[key])
	if err != nil {
		return time.Time{}
	}
	return t
}

func isReady(sb *agents.Sandbox) bool {
	return meta.IsStatusConditionTrue(sb.Status.Conditions, string(agents.ConditionReady))
}

func launchLabel(sb *agents.Sandbox) string {
	switch {
	case sb == nil:
		return "unknown"
	case sb.Labels[proto.LabelLaunchType] == proto.LaunchWarm:
		return proto.LaunchWarm
	}
	return proto.LaunchCold
}

func templateLabel(sb *agents.Sandbox) string {
	if sb != nil {
		if name := sb.Annotations[proto.AnnotationTemplateRef]; name != "" {
			return name
		}
	}
	return "__unknown__"
}

// sandboxGauge counts Sandboxes at scrape time.
type sandboxGauge struct {
	cache client.Reader
	desc  *prometheus.Desc
}

// scrapeTimeout bounds the wait for a cache that is not filled yet.
const scrapeTimeout = 5 * time.Second

func registerSandboxGauge(registry prometheus.Registerer, cache client.Reader) error {
	return registry.Register(&sandboxGauge{cache: cache, desc: prometheus.NewDesc(
		"agent_sandboxes", "Sandboxes by state.",
		[]string{"namespace", "ready_condition", "expired", "launch_type", "sandbox_template", "owned_by", "created_by"}, nil,
	)})
}

// Describe implements prometheus.Collector.
func (g *sandboxGauge) Describe(ch chan<- *prometheus.Desc) { ch <- g.desc }

// Collect implements prometheus.Collector.
func (g *sandboxGauge) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	var list agents.SandboxList
	if err := g.cache.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		ch <- prometheus.NewInvalidMetric(g.desc, err)
		return
	}
	counts := map[[7]string]int{}
	for i := range list.Items {
		counts[gaugeLabels(&list.Items[i])]++
	}
	for labels, n := range counts {
		ch <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, float64(n), labels[:]...)
	}
}

func gaugeLabels(sb *agents.Sandbox) [7]string {
	template := sb.Annotations[proto.AnnotationTemplateRef]
	if template == "" {
		template = "unknown"
	}
	owner := "None"
	for _, kind := range []string{claimGVK.Kind, warmPoolGVK.Kind} {
		if controllerKind(sb, proto.GroupExtensions, kind) {
			owner = kind
		}
	}
	return [7]string{
		sb.Namespace, strconv.FormatBool(isReady(sb)), strconv.FormatBool(markedExpired(sb)),
		launchLabel(sb), template, owner, normalizeCreatedBy(sb.Labels[proto.LabelCreatedBy]),
	}
}
