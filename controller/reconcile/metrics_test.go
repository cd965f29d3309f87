package reconcile

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/dovakiin0/agent-sandbox/proto"
	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
	ext "github.com/dovakiin0/agent-sandbox/proto/extensions/v1beta1"
)

func readySandbox(name string, change ...func(*agents.Sandbox)) *agents.Sandbox {
	sb := newSandbox(name, change...)
	sb.Status = sandboxStatus(sb, children{pod: ownedBy(sb, runningPod())}, "d", time.Unix(100, 0))
	return sb
}

func TestSandboxGauge(t *testing.T) {
	warm := func(sb *agents.Sandbox) {
		sb.Labels = map[string]string{proto.LabelLaunchType: proto.LaunchWarm, proto.LabelCreatedBy: "go-client"}
		sb.Annotations = map[string]string{proto.AnnotationTemplateRef: "tmpl"}
	}
	gone := newSandbox("c")
	gone.Status = expiredStatus(gone, gone.Status, time.Now())
	f := newFixture(t,
		readySandbox("a", ownedByKind("SandboxClaim", "c"), warm), readySandbox("b", ownedByKind("SandboxClaim", "d"), warm),
		newSandbox("p", ownedByKind("SandboxWarmPool", "p")), gone)
	registry := prometheus.NewRegistry()
	require.NoError(t, registerSandboxGauge(registry, f.client))
	assert.Equal(t, map[string]float64{
		"agent_sandboxes created_by=go-client expired=false launch_type=warm namespace=ns owned_by=SandboxClaim ready_condition=true sandbox_template=tmpl":      2,
		"agent_sandboxes created_by=unknown expired=false launch_type=cold namespace=ns owned_by=SandboxWarmPool ready_condition=false sandbox_template=unknown": 1,
		"agent_sandboxes created_by=unknown expired=true launch_type=cold namespace=ns owned_by=None ready_condition=false sandbox_template=unknown":             1,
	}, gather(t, registry))
}

// gather returns the value of every series, and the sum of every histogram, by "name label=value ...".
func gather(t *testing.T, from prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := from.Gather()
	require.NoError(t, err)
	series := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			name := family.GetName()
			for _, l := range m.GetLabel() { // sorted
				name += " " + l.GetName() + "=" + l.GetValue()
			}
			series[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + m.GetHistogram().GetSampleSum()
		}
	}
	return series
}

func TestClaimMetrics(t *testing.T) {
	for _, metric := range []interface{ Reset() }{claimStartup, claimControllerStartup, claimClientStartup, sandboxCreation, claimCreation} {
		metric.Reset() // of an earlier run
	}
	now := time.Unix(1000, 0).UTC()
	claim := &ext.SandboxClaim{}
	claim.Namespace = "metrics"
	claim.Labels = map[string]string{proto.LabelCreatedBy: "python-client"}
	claim.Annotations = map[string]string{
		proto.AnnotationWebhookFirstObserved: now.Add(-300 * time.Millisecond).Format(time.RFC3339Nano),
		proto.AnnotationClientFirstRequested: now.Add(-2 * time.Second).In(time.FixedZone("", 0)).Format("2006-01-02T15:04:05.000000-07:00"), // as Python writes it
	}
	sb := readySandbox("m", func(sb *agents.Sandbox) {
		sb.Namespace = "metrics"
		sb.Labels = map[string]string{proto.LabelLaunchType: proto.LaunchWarm}
		sb.Annotations = map[string]string{proto.AnnotationTemplateRef: "metrics-template"}
		sb.CreationTimestamp = metav1.NewTime(time.Unix(99, 0))
	})

	countClaim(claim, sb, "pool")
	countClaim(claim, newSandbox("x"), "pool")
	observeClaimReady(claim, sb, now.Add(-time.Second), now)

	future := claim.DeepCopy()
	future.Annotations[proto.AnnotationClientFirstRequested] = now.Add(time.Hour).Format(time.RFC3339Nano)
	delete(future.Annotations, proto.AnnotationWebhookFirstObserved)
	observeClaimReady(future, nil, time.Time{}, now)

	got := map[string]float64{}
	for series, value := range gather(t, metrics.Registry) {
		if strings.Contains(series, "=metrics") || strings.Contains(series, "launch_type=unknown") {
			got[series] = value
		}
	}
	const pool = " pod_condition=ready sandbox_template=metrics-template warmpool_name=pool"
	assert.Equal(t, map[string]float64{
		"agent_sandbox_claim_creation_total created_by=python-client launch_type=warm namespace=metrics" + pool:                                                                  1,
		"agent_sandbox_claim_creation_total created_by=python-client launch_type=cold namespace=metrics pod_condition=not_ready sandbox_template=__unknown__ warmpool_name=pool": 1,
		"agent_sandbox_claim_startup_latency_ms launch_type=warm sandbox_template=metrics-template":                                                                              300,
		"agent_sandbox_claim_controller_startup_latency_ms launch_type=warm sandbox_template=metrics-template":                                                                   1000,
		"agent_sandbox_client_claim_startup_latency_ms launch_type=warm sandbox_template=metrics-template":                                                                       2000,
		"agent_sandbox_creation_latency_ms launch_type=warm namespace=metrics sandbox_template=metrics-template":                                                                 1000,
	}, got, "times that are missing or still to come are left out")
}
