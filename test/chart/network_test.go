package chart

import (
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/dovakiin0/agent-sandbox/proto"
)

// place is a pod, or with an address alone something outside of the cluster.
type place struct {
	namespace string
	labels    map[string]string
	ip        string
}

func outside(ip string) place { return place{ip: ip} }

// network decides about connections as a CNI plugin does that enforces NetworkPolicies.
type network []*networkingv1.NetworkPolicy

// allows tells whether both ends let a TCP connection through.
func (n network) allows(from, to place, port int32) bool {
	return n.passes(from, to, port, corev1.ProtocolTCP)
}

func (n network) passes(from, to place, port int32, protocol corev1.Protocol) bool {
	egress := n.side(from, networkingv1.PolicyTypeEgress, func(p *networkingv1.NetworkPolicy) bool {
		return slices.ContainsFunc(p.Spec.Egress, func(rule networkingv1.NetworkPolicyEgressRule) bool {
			return portAllowed(rule.Ports, port, protocol) && peerAllowed(rule.To, to, p.Namespace)
		})
	})
	return egress && n.side(to, networkingv1.PolicyTypeIngress, func(p *networkingv1.NetworkPolicy) bool {
		return slices.ContainsFunc(p.Spec.Ingress, func(rule networkingv1.NetworkPolicyIngressRule) bool {
			return portAllowed(rule.Ports, port, protocol) && peerAllowed(rule.From, from, p.Namespace)
		})
	})
}

// side is what the policies of one end say: everything if none selects it, else what any of them admits.
func (n network) side(end place, direction networkingv1.PolicyType, admits func(*networkingv1.NetworkPolicy) bool) bool {
	selected := false
	for _, p := range n {
		if p.Namespace != end.namespace || !slices.Contains(p.Spec.PolicyTypes, direction) || !matches(&p.Spec.PodSelector, end.labels) {
			continue
		}
		selected = true
		if admits(p) {
			return true
		}
	}
	return !selected
}

func portAllowed(ports []networkingv1.NetworkPolicyPort, port int32, protocol corev1.Protocol) bool {
	return len(ports) == 0 || slices.ContainsFunc(ports, func(p networkingv1.NetworkPolicyPort) bool {
		allowed := corev1.ProtocolTCP
		if p.Protocol != nil {
			allowed = *p.Protocol
		}
		return allowed == protocol && (p.Port == nil || p.Port.IntVal == port)
	})
}

func peerAllowed(peers []networkingv1.NetworkPolicyPeer, end place, home string) bool {
	return len(peers) == 0 || slices.ContainsFunc(peers, func(p networkingv1.NetworkPolicyPeer) bool {
		if p.IPBlock != nil {
			in := func(cidr string) bool { return netip.MustParsePrefix(cidr).Contains(netip.MustParseAddr(end.ip)) }
			return in(p.IPBlock.CIDR) && !slices.ContainsFunc(p.IPBlock.Except, in)
		}
		if end.namespace == "" {
			return false
		}
		inNamespace := end.namespace == home
		if p.NamespaceSelector != nil {
			inNamespace = matches(p.NamespaceSelector, map[string]string{corev1.LabelMetadataName: end.namespace})
		}
		return inNamespace && (p.PodSelector == nil || matches(p.PodSelector, end.labels))
	})
}

// matches is unlike selects in that an empty selector matches everything, as in NetworkPolicies.
func matches(selector *metav1.LabelSelector, set map[string]string) bool {
	s, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && s.Matches(labels.Set(set))
}

// Pods of a cluster beside ours.
var (
	kubeDNS  = place{"kube-system", map[string]string{"k8s-app": "kube-dns"}, "10.0.0.10"}
	stranger = place{"elsewhere", map[string]string{"app": "stranger"}, "10.0.3.1"}
)

func (r *rendered) network() network { return every[networkingv1.NetworkPolicy](r, "NetworkPolicy") }

func (r *rendered) routerPod() place {
	return place{r.router().Namespace, r.router().Spec.Template.Labels, "10.0.1.1"}
}

// sandboxPod is a pod of the template, with a label that the controller gives it.
func (r *rendered) sandboxPod() place {
	template := r.template()
	set := maps.Clone(template.Spec.PodTemplate.Metadata.Labels)
	set[proto.LabelSandboxNameHash] = "00000000"
	return place{template.Namespace, set, "10.0.2.1"}
}

var networkSets = expectations{
	"network-off": func(r *rendered) { assert.Empty(r, r.all("NetworkPolicy")) },
	"network-closed": func(r *rendered) {
		n, router, sandbox := r.network(), r.routerPod(), r.sandboxPod()
		assert.True(r, n.allows(router, sandbox, 8888))
		assert.False(r, n.allows(sandbox, outside("203.0.113.1"), 443))
		assert.False(r, n.passes(sandbox, kubeDNS, 53, corev1.ProtocolUDP))
		assert.Equal(r, corev1.DNSNone, r.template().Spec.PodTemplate.Spec.DNSPolicy, "rather than a resolver that times out")
		assert.True(r, n.allows(place{r.namespace, map[string]string{"app": "orchestrator"}, "10.0.3.2"}, router, 8080))
		assert.False(r, n.allows(stranger, router, 8080))
		monitoring := place{"monitoring", nil, "10.0.3.3"}
		assert.True(r, n.allows(monitoring, router, 9090))
		assert.False(r, n.allows(monitoring, router, 8080))
		assert.False(r, n.allows(stranger, router, 9090))
		assert.True(r, n.allows(router, outside("192.0.2.10"), 6443))
		assert.False(r, n.allows(router, outside("192.0.2.11"), 6443))
	},
	"network-public-dns": func(r *rendered) {
		n, sandbox := r.network(), r.sandboxPod()
		for _, server := range []string{"9.9.9.9", "2620:fe::fe"} {
			assert.True(r, n.passes(sandbox, outside(server), 53, corev1.ProtocolUDP), server)
			assert.False(r, n.allows(sandbox, outside(server), 443), server)
		}
		assert.False(r, n.passes(sandbox, kubeDNS, 53, corev1.ProtocolUDP))
		assert.Equal(r, []string{"9.9.9.9", "2620:fe::fe"}, r.template().Spec.PodTemplate.Spec.DNSConfig.Nameservers)
	},
}

// TestNetworkPolicies follows connections through the policies, whatever the release and its namespace are called.
func TestNetworkPolicies(t *testing.T) {
	for _, where := range []struct{ set, release, namespace string }{
		{"defaults", "agent-sandbox", "agent-sandbox-system"}, {"defaults", "x", "tools"}, {"other-namespace", "rel", "platform"}, {"names", "rel", "platform"},
	} {
		t.Run(where.set+" "+where.namespace, func(t *testing.T) {
			t.Parallel()
			r := renderSet(t, where.set, where.release, where.namespace)
			checkReach(t, r.network(), r.routerPod(), r.sandboxPod())
			checkRules(t, r)
		})
	}
}

// checkReach is what holds with the default policies for a router and a sandbox of one release.
func checkReach(t *testing.T, n network, router, sandbox place) {
	t.Helper()
	for _, port := range []int32{8888, 3000} {
		assert.True(t, n.allows(router, sandbox, port), "the router reaches the sandbox at %d", port)
	}
	imposter := place{"elsewhere", router.labels, "10.0.3.4"}
	other := place{router.namespace, maps.Clone(router.labels), "10.0.3.5"}
	other.labels["app.kubernetes.io/instance"] = "other"
	neighbor := place{sandbox.namespace, sandbox.labels, "10.0.2.2"}
	for name, from := range map[string]place{
		"a stranger": stranger, "a pod that is labelled as the router": imposter, "another release's router": other, "another sandbox": neighbor,
		"something outside": outside("203.0.113.1"),
	} {
		assert.False(t, n.allows(from, sandbox, 8888), "%s reaches the sandbox", name)
	}

	for _, address := range []string{
		"169.254.169.254", "169.254.170.2", "fd00:ec2::254", "64:ff9b::a9fe:a9fe", // metadata
		"10.1.2.3", "172.31.0.1", "192.168.0.1", "100.64.0.1", "100.127.255.254", "127.0.0.1", "0.0.0.0", // not public
		"fd12::1", "fe80::1", "::1", "64:ff9b::a00:1", "64:ff9b::c0a8:1", "ff02::1",
	} {
		assert.False(t, n.allows(sandbox, outside(address), 80), "the sandbox reaches %s", address)
	}
	for _, address := range []string{"203.0.113.1", "8.8.8.8", "172.32.0.1", "2606:4700::1111"} {
		assert.True(t, n.allows(sandbox, outside(address), 443), "the sandbox reaches %s", address)
	}
	for _, protocol := range []corev1.Protocol{corev1.ProtocolUDP, corev1.ProtocolTCP} {
		assert.True(t, n.passes(sandbox, kubeDNS, 53, protocol), "the sandbox resolves names over %s", protocol)
		assert.False(t, n.passes(sandbox, stranger, 53, protocol), "port 53 is no way out")
	}
	assert.False(t, n.allows(sandbox, kubeDNS, 80))
	assert.False(t, n.allows(sandbox, router, 8080), "the sandbox reaches the router")
	assert.False(t, n.allows(sandbox, router, 9090), "the sandbox reads the routes")

	for port, want := range map[int32]bool{8080: true, 9090: true, 8081: false, 22: false} {
		assert.Equal(t, want, n.allows(stranger, router, port), "the router at %d", port)
	}
	for port, want := range map[int32]bool{443: true, 6443: true, 5432: false} {
		assert.Equal(t, want, n.allows(router, outside("10.0.0.1"), port), "the API server at %d", port)
	}
	assert.False(t, n.allows(router, stranger, 8080), "the router reaches what is no sandbox")
}

// checkRules: no rule is wider than it looks.
func checkRules(t *testing.T, r *rendered) {
	t.Helper()
	sandboxes := one[networkingv1.NetworkPolicy](r, "NetworkPolicy", "-sandboxes")
	assert.Len(t, sandboxes.Spec.PolicyTypes, 2)
	for _, rule := range sandboxes.Spec.Ingress {
		require.NotEmpty(t, rule.From, "a rule without peers admits everybody")
		for _, peer := range rule.From {
			require.NotNil(t, peer.NamespaceSelector)
			require.NotNil(t, peer.PodSelector, "whoever can make pods there would be admitted")
			assert.NotEmpty(t, peer.NamespaceSelector.MatchLabels)
		}
	}
	for _, rule := range sandboxes.Spec.Egress {
		assert.NotEmpty(t, rule.To, "a rule without peers leads everywhere")
	}
	for _, p := range r.network() {
		assert.False(t, len(p.Spec.PodSelector.MatchLabels) == 0 && len(p.Spec.PodSelector.MatchExpressions) == 0, "%s is about every pod", p.Name)
	}
}
