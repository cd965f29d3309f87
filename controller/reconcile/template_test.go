package reconcile

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovakiin0/agent-sandbox/proto"
	ext "github.com/dovakiin0/agent-sandbox/proto/extensions/v1beta1"
)

func bareTemplate(change ...func(*ext.SandboxTemplate)) *ext.SandboxTemplate {
	template := &ext.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "t", UID: "uid-of-t"}}
	for _, c := range change {
		c(template)
	}
	return template
}

func TestDefaultNetworkPolicy(t *testing.T) {
	policy := buildNetworkPolicy(bareTemplate())
	assert.Equal(t, "t-network-policy", policy.Name)
	assert.Equal(t, networkingv1.NetworkPolicySpec{
		PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"agents.x-k8s.io/sandbox-template-ref-hash": proto.NameHash("t")}},
		PolicyTypes: []networkingv1.PolicyType{"Ingress", "Egress"},
		Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": "agent-sandbox-system"}},
			PodSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{"app": "sandbox-router"}},
		}}}},
		Egress: []networkingv1.NetworkPolicyEgressRule{{To: []networkingv1.NetworkPolicyPeer{
			{IPBlock: &networkingv1.IPBlock{CIDR: "0.0.0.0/0", Except: []string{"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16"}}},
			{IPBlock: &networkingv1.IPBlock{CIDR: "::/0", Except: []string{"fc00::/7", "fe80::/10"}}},
		}}},
	}, policy.Spec)
}

func TestCustomNetworkPolicy(t *testing.T) {
	port := intstr.FromInt32(53)
	template := bareTemplate(func(s *ext.SandboxTemplate) {
		s.Spec.NetworkPolicy = &ext.NetworkPolicySpec{Egress: []networkingv1.NetworkPolicyEgressRule{
			{Ports: []networkingv1.NetworkPolicyPort{{Port: &port}}},
		}}
	})
	spec := buildNetworkPolicy(template).Spec
	assert.Empty(t, spec.Ingress, "an empty list admits nothing")
	assert.Equal(t, []networkingv1.PolicyType{"Ingress", "Egress"}, spec.PolicyTypes)
	require.Len(t, spec.Egress, 1)
	assert.Equal(t, &port, spec.Egress[0].Ports[0].Port)
	assert.Equal(t, corev1.ProtocolTCP, *spec.Egress[0].Ports[0].Protocol, "as the API server would default it")
	assert.Nil(t, template.Spec.NetworkPolicy.Egress[0].Ports[0].Protocol, "the template is not changed")
}

func TestReconcileTemplate(t *testing.T) {
	labelled := func(s *ext.SandboxTemplate) {
		s.Labels = map[string]string{proto.LabelTemplateRefHash: proto.NameHash("t")}
	}
	unmanaged := func(s *ext.SandboxTemplate) { s.Spec.NetworkPolicyManagement = ext.NetworkPolicyUnmanaged }
	deleting := func(s *ext.SandboxTemplate) {
		s.DeletionTimestamp, s.Finalizers = new(metav1.Now()), []string{"test/hold"}
	}
	policy := func(change ...func(*networkingv1.NetworkPolicy)) *networkingv1.NetworkPolicy {
		p := buildNetworkPolicy(bareTemplate())
		for _, c := range change {
			c(p)
		}
		return p
	}
	foreign := func(p *networkingv1.NetworkPolicy) { p.OwnerReferences = nil }
	drifted := func(p *networkingv1.NetworkPolicy) { p.Spec.Egress = nil }

	for name, c := range map[string]struct {
		template []func(*ext.SandboxTemplate)
		policy   *networkingv1.NetworkPolicy
		writes   []string
		err      string
	}{
		"new":                 {nil, nil, []string{"patch SandboxTemplate", "create NetworkPolicy"}, ""},
		"labelled":            {[]func(*ext.SandboxTemplate){labelled}, nil, []string{"create NetworkPolicy"}, ""},
		"in step":             {[]func(*ext.SandboxTemplate){labelled}, policy(), nil, ""},
		"drifted":             {[]func(*ext.SandboxTemplate){labelled}, policy(drifted), []string{"update NetworkPolicy"}, ""},
		"not ours":            {[]func(*ext.SandboxTemplate){labelled}, policy(foreign, drifted), nil, `refusing to update NetworkPolicy "t-network-policy": it is not controlled by SandboxTemplate "t"`},
		"unmanaged":           {[]func(*ext.SandboxTemplate){labelled, unmanaged}, policy(), []string{"delete NetworkPolicy"}, ""},
		"unmanaged, not ours": {[]func(*ext.SandboxTemplate){labelled, unmanaged}, policy(foreign), nil, ""},
		"unmanaged, none":     {[]func(*ext.SandboxTemplate){labelled, unmanaged}, nil, nil, ""},
		"deleting":            {[]func(*ext.SandboxTemplate){deleting}, nil, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			objects := []client.Object{bareTemplate(c.template...)}
			if c.policy != nil {
				objects = append(objects, c.policy)
			}
			f := newFixture(t, objects...)
			r := &templateReconciler{f.shared}
			_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "t"}})
			if c.err != "" {
				assert.EqualError(t, err, c.err)
			} else {
				assert.NoError(t, err)
			}
			assert.Equal(t, c.writes, f.wrote())
		})
	}
}
