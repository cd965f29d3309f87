package reconcile

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovakiin0/agent-sandbox/proto"
	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
	ext "github.com/dovakiin0/agent-sandbox/proto/extensions/v1beta1"
)

// newTemplate returns a template with one container, called "tmpl".
func newTemplate(change ...func(*ext.SandboxTemplate)) *ext.SandboxTemplate {
	template := &ext.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "tmpl", UID: "uid-of-tmpl", Generation: 1}}
	template.Spec.PodTemplate.Spec.Containers = []corev1.Container{{Name: "main", Image: "runtime"}}
	for _, c := range change {
		c(template)
	}
	return template
}

// newPool returns a pool of the template "tmpl" with two replicas, called "pool".
func newPool(change ...func(*ext.SandboxWarmPool)) *ext.SandboxWarmPool {
	pool := &ext.SandboxWarmPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pool", UID: "uid-of-pool", Generation: 1},
		Spec:       ext.SandboxWarmPoolSpec{Replicas: new(int32(2)), TemplateRef: ext.SandboxTemplateRef{Name: "tmpl"}},
	}
	for _, c := range change {
		c(pool)
	}
	return pool
}

func recreate(pool *ext.SandboxWarmPool) {
	pool.Spec.UpdateStrategy = &ext.UpdateStrategy{Type: ext.UpdateRecreate}
}

func replicas(n int32) func(*ext.SandboxWarmPool) {
	return func(pool *ext.SandboxWarmPool) { pool.Spec.Replicas = &n }
}

// newClaim returns a claim on the pool "pool".
func newClaim(name string, change ...func(*ext.SandboxClaim)) *ext.SandboxClaim {
	claim := &ext.SandboxClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-of-" + name), Generation: 1},
		Spec:       ext.SandboxClaimSpec{WarmPoolRef: ext.SandboxWarmPoolRef{Name: "pool"}},
	}
	for _, c := range change {
		c(claim)
	}
	return claim
}

// newPoolMember returns a member of the pool "pool", as the pool makes it of the template.
func newPoolMember(name string, change ...func(*agents.Sandbox)) *agents.Sandbox {
	member := newMember(newPool(), newTemplate(), true)
	member.GenerateName, member.Name, member.UID, member.Generation = "", name, types.UID("uid-of-"+name), 1
	for _, c := range change {
		c(member)
	}
	return member
}

// readyAt makes a sandbox Ready with an address.
func readyAt(ip string) func(*agents.Sandbox) {
	return func(sb *agents.Sandbox) {
		sb.Status.PodIPs = []string{ip}
		sb.Status.NodeName = "node-1"
		sb.Status.Conditions = []metav1.Condition{{
			Type: string(agents.ConditionReady), Status: metav1.ConditionTrue, Reason: reasonDependenciesReady,
			Message: "Pod is Ready", LastTransitionTime: metav1.Unix(1_700_000_000, 0),
		}}
	}
}

// starting makes a sandbox one whose pod has an address and is not Ready.
func starting(ip string) func(*agents.Sandbox) {
	return func(sb *agents.Sandbox) {
		readyAt(ip)(sb)
		sb.Status.Conditions[0].Status = metav1.ConditionFalse
		sb.Status.Conditions[0].Reason = reasonDependenciesNot
		sb.Status.Conditions[0].Message = "Pod is Running but not Ready"
	}
}

// controlledByClaim makes a sandbox the claim's.
func controlledByClaim(claim *ext.SandboxClaim) func(*agents.Sandbox) {
	return func(sb *agents.Sandbox) {
		sb.OwnerReferences = []metav1.OwnerReference{newControllerRef(claim, claimGVK)}
		delete(sb.Labels, proto.LabelWarmPool)
	}
}

// podOf returns the Ready pod of a sandbox.
func podOf(sb *agents.Sandbox) *corev1.Pod {
	pod := ownedBy(sb, runningPod())
	pod.Name, pod.UID = sb.Name, "pod-of-"+sb.UID
	if len(sb.Status.PodIPs) > 0 {
		pod.Status.PodIP = sb.Status.PodIPs[0]
		pod.Status.PodIPs = []corev1.PodIP{{IP: pod.Status.PodIP}}
	}
	return pod
}

// claimFixture is a claim reconciler on an API server in memory. Candidates are the members that exist at the start.
type claimFixture struct {
	*fixture
	r *claimReconciler
}

func newClaimFixture(t *testing.T, objects ...client.Object) *claimFixture {
	f := &claimFixture{fixture: newFixture(t, objects...)}
	f.r = newClaimReconciler(f.shared, DefaultOptions())
	for _, o := range objects {
		if sandbox, ok := o.(*agents.Sandbox); ok {
			f.r.queueMember(sandbox)
		}
	}
	return f
}

func (f *claimFixture) reconcile(name string) (ctrl.Result, error) {
	return f.r.Reconcile(f.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: name}})
}

func (f *claimFixture) claim(name string) *ext.SandboxClaim {
	f.Helper()
	claim := &ext.SandboxClaim{}
	require.True(f, f.get(claim, name), "SandboxClaim %s", name)
	return claim
}

// ready is "status reason message" of the claim's Ready condition.
func (f *claimFixture) ready(name string) string {
	f.Helper()
	for _, c := range f.claim(name).Status.Conditions {
		if c.Type == string(agents.ConditionReady) {
			return conditionText(&c)
		}
	}
	return ""
}

func conditionText(c *metav1.Condition) string {
	return string(c.Status) + " " + c.Reason + " " + c.Message
}

// poolFixture is a pool reconciler on an API server in memory.
type poolFixture struct {
	*fixture
	r *warmPoolReconciler
}

func newPoolFixture(t *testing.T, objects ...client.Object) *poolFixture {
	f := &poolFixture{fixture: newFixture(t, objects...)}
	f.r = newWarmPoolReconciler(f.shared, DefaultOptions())
	return f
}

func (f *poolFixture) reconcile() (ctrl.Result, error) {
	return f.r.Reconcile(f.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "pool"}})
}

// settle reconciles, without error.
func (f *poolFixture) settle() ctrl.Result {
	f.Helper()
	result, err := f.reconcile()
	require.NoError(f, err)
	return result
}

func (f *poolFixture) pool() *ext.SandboxWarmPool {
	f.Helper()
	pool := &ext.SandboxWarmPool{}
	require.True(f, f.get(pool, "pool"), "SandboxWarmPool")
	return pool
}

// sandboxes returns the sandboxes that exist.
func (f *fixture) sandboxes() []agents.Sandbox {
	f.Helper()
	list := &agents.SandboxList{}
	require.NoError(f, f.client.List(f.Context(), list))
	return list.Items
}
