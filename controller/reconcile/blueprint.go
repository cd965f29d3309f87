package reconcile

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/dovakiin0/agent-sandbox/proto"
	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
	ext "github.com/dovakiin0/agent-sandbox/proto/extensions/v1beta1"
)

// Name servers of sandboxes under the default egress rules, which do not reach the cluster's own DNS.
var publicNameservers = []string{"8.8.8.8", "1.1.1.1"}

// applySecureDefaults closes what a template leaves open in the pods made from it: the service account token, and the
// cluster's DNS where the default NetworkPolicy holds.
func applySecureDefaults(pod *corev1.PodSpec, template *ext.SandboxTemplateSpec) {
	if pod.AutomountServiceAccountToken == nil {
		pod.AutomountServiceAccountToken = new(false)
	}
	managed := template.NetworkPolicyManagement == "" || template.NetworkPolicyManagement == ext.NetworkPolicyManaged
	if managed && template.NetworkPolicy == nil && pod.DNSPolicy == "" {
		pod.DNSPolicy = corev1.DNSNone
		pod.DNSConfig = &corev1.PodDNSConfig{Nameservers: append([]string(nil), publicNameservers...)}
	}
}

// sandboxBlueprint is a copy of the template's blueprint with the secure defaults, ready to be the spec of a Sandbox.
func sandboxBlueprint(template *ext.SandboxTemplate) agents.SandboxBlueprint {
	blueprint := *template.Spec.SandboxBlueprint.DeepCopy()
	applySecureDefaults(&blueprint.PodTemplate.Spec, &template.Spec)
	return blueprint
}

// blueprintHash is the value of LabelTemplateHash. It is empty when the blueprint cannot be marshalled.
func blueprintHash(template *ext.SandboxTemplate) string {
	return jsonHash(&template.Spec.SandboxBlueprint)
}

// podTemplateHash is the value of LabelPodTemplateHash.
func podTemplateHash(template *ext.SandboxTemplate) string {
	return jsonHash(&template.Spec.PodTemplate)
}

func jsonHash(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return proto.NameHash(string(text))
}

// revision is a template as pool members are compared with it. It serves one pass.
type revision struct {
	refHash   string // of the template's name
	hash      string // of the blueprint
	blueprint agents.SandboxBlueprint
	differs   map[string]bool // by LabelTemplateHash: members with one hash were made from one blueprint
}

func newRevision(template *ext.SandboxTemplate) *revision {
	return &revision{
		refHash:   proto.NameHash(template.Name),
		hash:      blueprintHash(template),
		blueprint: sandboxBlueprint(template),
		differs:   map[string]bool{},
	}
}

// stale reports whether a pool member no longer is what the pool's template describes.
func (r *revision) stale(sandbox *agents.Sandbox) bool {
	if sandbox.Labels[proto.LabelTemplateRefHash] != r.refHash {
		return true
	}
	if controllerOf(sandbox) == nil {
		// Nobody vouches for the hash label of an orphan.
		return !sameBlueprint(&sandbox.Spec.SandboxBlueprint, &r.blueprint)
	}
	return r.outdated(sandbox)
}

// outdated is stale without regard to the template's name: what matters to a claim is what it gets.
func (r *revision) outdated(sandbox *agents.Sandbox) bool {
	hash := sandbox.Labels[proto.LabelTemplateHash]
	if hash == r.hash || r.hash == "" {
		return false
	}
	differs, known := r.differs[hash]
	if !known || hash == "" {
		// Another hash is no proof: another version of this controller may compute it in another way.
		differs = !sameBlueprint(&sandbox.Spec.SandboxBlueprint, &r.blueprint)
		r.differs[hash] = differs
	}
	return differs
}

// sameBlueprint compares what shapes a sandbox: the pod's spec, the volumes by name and spec, and the service flag.
// Metadata does not count.
func sameBlueprint(a, b *agents.SandboxBlueprint) bool {
	if len(a.VolumeClaimTemplates) != len(b.VolumeClaimTemplates) || !equality.Semantic.DeepEqual(a.Service, b.Service) {
		return false
	}
	for i := range a.VolumeClaimTemplates {
		x, y := &a.VolumeClaimTemplates[i], &b.VolumeClaimTemplates[i]
		if x.Metadata.Name != y.Metadata.Name || !equality.Semantic.DeepEqual(x.Spec, y.Spec) {
			return false
		}
	}
	return equality.Semantic.DeepEqual(a.PodTemplate.Spec, b.PodTemplate.Spec)
}
