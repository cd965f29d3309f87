package reconcile

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovakiin0/agent-sandbox/proto"
	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
	ext "github.com/dovakiin0/agent-sandbox/proto/extensions/v1beta1"
)

func TestSecureDefaults(t *testing.T) {
	public := &corev1.PodDNSConfig{Nameservers: []string{"8.8.8.8", "1.1.1.1"}}
	for name, c := range map[string]struct {
		template  func(*ext.SandboxTemplate)
		token     bool
		dnsPolicy corev1.DNSPolicy
		dnsConfig *corev1.PodDNSConfig
	}{
		"nothing set":           {func(*ext.SandboxTemplate) {}, false, corev1.DNSNone, public},
		"managed by name":       {func(x *ext.SandboxTemplate) { x.Spec.NetworkPolicyManagement = ext.NetworkPolicyManaged }, false, corev1.DNSNone, public},
		"unmanaged":             {func(x *ext.SandboxTemplate) { x.Spec.NetworkPolicyManagement = ext.NetworkPolicyUnmanaged }, false, "", nil},
		"rules of its own":      {func(x *ext.SandboxTemplate) { x.Spec.NetworkPolicy = &ext.NetworkPolicySpec{} }, false, "", nil},
		"DNS policy of its own": {func(x *ext.SandboxTemplate) { x.Spec.PodTemplate.Spec.DNSPolicy = corev1.DNSClusterFirst }, false, corev1.DNSClusterFirst, nil},
		"token wanted":          {func(x *ext.SandboxTemplate) { x.Spec.PodTemplate.Spec.AutomountServiceAccountToken = new(true) }, true, corev1.DNSNone, public},
		"token unwanted":        {func(x *ext.SandboxTemplate) { x.Spec.PodTemplate.Spec.AutomountServiceAccountToken = new(false) }, false, corev1.DNSNone, public},
	} {
		t.Run(name, func(t *testing.T) {
			template := newTemplate(c.template)
			before := template.DeepCopy()
			pod := sandboxBlueprint(template).PodTemplate.Spec
			assert.Equal(t, c.token, *pod.AutomountServiceAccountToken)
			assert.Equal(t, c.dnsPolicy, pod.DNSPolicy)
			assert.Equal(t, c.dnsConfig, pod.DNSConfig)
			assert.Nil(t, pod.SecurityContext, "nothing else is injected")
			assert.Equal(t, before, template, "the template is shared")
		})
	}
}

func TestStale(t *testing.T) {
	claimSpec := corev1.PersistentVolumeClaimSpec{StorageClassName: new("fast")}
	volume := func(name string, spec corev1.PersistentVolumeClaimSpec, labels map[string]string) agents.PersistentVolumeClaimTemplate {
		return agents.PersistentVolumeClaimTemplate{Metadata: agents.PersistentVolumeClaimMetadata{Name: name, Labels: labels}, Spec: spec}
	}
	old := newTemplate(func(x *ext.SandboxTemplate) {
		x.Spec.VolumeClaimTemplates = volumeTemplates{volume("data", claimSpec, nil)}
		x.Spec.Service = new(true)
	})
	member := func(change ...func(*agents.Sandbox)) *agents.Sandbox {
		sb := newMember(newPool(), old, true)
		for _, c := range change {
			c(sb)
		}
		return sb
	}
	orphan := func(sb *agents.Sandbox) { sb.OwnerReferences = nil }
	otherHash := func(sb *agents.Sandbox) { sb.Labels[proto.LabelTemplateHash] = "another" }
	otherImage := func(x *ext.SandboxTemplate) { x.Spec.PodTemplate.Spec.Containers[0].Image = "runtime:2" }

	for name, c := range map[string]struct {
		template func(*ext.SandboxTemplate)
		sandbox  *agents.Sandbox
		want     bool
	}{
		"unchanged":              {nil, member(), false},
		"pod spec":               {otherImage, member(), true},
		"pod spec, hash unknown": {otherImage, member(func(sb *agents.Sandbox) { delete(sb.Labels, proto.LabelTemplateHash) }), true},
		"volume spec":            {func(x *ext.SandboxTemplate) { x.Spec.VolumeClaimTemplates[0].Spec.StorageClassName = new("slow") }, member(), true},
		"volume name":            {func(x *ext.SandboxTemplate) { x.Spec.VolumeClaimTemplates[0].Metadata.Name = "other" }, member(), true},
		"volume labels": {func(x *ext.SandboxTemplate) {
			x.Spec.VolumeClaimTemplates[0].Metadata.Labels = map[string]string{"a": "b"}
		}, member(), false},
		"volume more": {func(x *ext.SandboxTemplate) {
			x.Spec.VolumeClaimTemplates = append(x.Spec.VolumeClaimTemplates, volume("more", claimSpec, nil))
		}, member(), true},
		"service flag":                 {func(x *ext.SandboxTemplate) { x.Spec.Service = new(false) }, member(), true},
		"service unset":                {func(x *ext.SandboxTemplate) { x.Spec.Service = nil }, member(), true},
		"metadata only":                {func(x *ext.SandboxTemplate) { x.Spec.PodTemplate.Metadata.Labels = map[string]string{"a": "b"} }, member(), false},
		"policies":                     {func(x *ext.SandboxTemplate) { x.Spec.EnvVarsInjectionPolicy = ext.EnvVarsAllowed }, member(), false},
		"network policy, defaults too": {func(x *ext.SandboxTemplate) { x.Spec.NetworkPolicyManagement = ext.NetworkPolicyUnmanaged }, member(otherHash), true},
		"other hash, same content":     {nil, member(otherHash), false},
		"renamed template":             {func(x *ext.SandboxTemplate) { x.Name = "identical-twin" }, member(), true},
		"orphan, same":                 {nil, member(orphan, otherHash), false},
		"orphan, hash lies":            {nil, member(orphan, func(sb *agents.Sandbox) { sb.Spec.PodTemplate.Spec.Containers[0].Image = "evil" }), true},
		"owned, hash is believed":      {nil, member(func(sb *agents.Sandbox) { sb.Spec.PodTemplate.Spec.Containers[0].Image = "edited" }), false},
	} {
		t.Run(name, func(t *testing.T) {
			template := old.DeepCopy()
			if c.template != nil {
				c.template(template)
			}
			assert.Equal(t, c.want, newRevision(template).stale(c.sandbox))
		})
	}

	t.Run("a hash that cannot be computed makes nothing stale", func(t *testing.T) {
		revision := newRevision(newTemplate(otherImage))
		revision.hash = ""
		assert.False(t, revision.stale(member()))
	})
	t.Run("claims do not mind the name of the template", func(t *testing.T) {
		twin := old.DeepCopy()
		twin.Name = "identical-twin"
		assert.False(t, newRevision(twin).outdated(member()))
	})
	t.Run("one comparison for each hash", func(t *testing.T) {
		revision := newRevision(newTemplate(otherImage))
		assert.True(t, revision.stale(member()))
		same := member()
		same.Spec.SandboxBlueprint = revision.blueprint
		assert.True(t, revision.stale(same), "known by its hash")
	})
}

func TestHashes(t *testing.T) {
	a, b := newTemplate(), newTemplate(func(x *ext.SandboxTemplate) { x.Spec.Service = new(true) })
	assert.Regexp(t, `^[0-9a-f]{8}$`, blueprintHash(a))
	assert.NotEqual(t, blueprintHash(a), blueprintHash(b))
	assert.Equal(t, podTemplateHash(a), podTemplateHash(b), "the service is no part of the pod template")
}

func TestNewMember(t *testing.T) {
	template := newTemplate(func(x *ext.SandboxTemplate) {
		x.Spec.PodTemplate.Metadata.Labels = map[string]string{"team": "a"}
		x.Spec.Service = new(true)
	})
	pool := newPool()
	member := newMember(pool, template, true)
	pooled := map[string]string{
		proto.LabelWarmPool:        proto.NameHash("pool"),
		proto.LabelTemplateRefHash: proto.NameHash("tmpl"),
		proto.LabelTemplateHash:    blueprintHash(template),
		proto.LabelPodTemplateHash: podTemplateHash(template),
	}
	assert.Equal(t, "pool-", member.GenerateName)
	assert.Equal(t, "ns", member.Namespace)
	assert.Equal(t, merged(pooled, map[string]string{
		proto.LabelLaunchType: "warm", proto.LabelCreatedBy: "controller",
	}), member.Labels)
	assert.Equal(t, map[string]string{proto.AnnotationTemplateRef: "tmpl"}, member.Annotations)
	assert.Equal(t, []metav1.OwnerReference{{
		APIVersion: "extensions.agents.x-k8s.io/v1beta1", Kind: "SandboxWarmPool", Name: "pool", UID: "uid-of-pool",
		Controller: new(true), BlockOwnerDeletion: new(true),
	}}, member.OwnerReferences)
	assert.Equal(t, merged(pooled, map[string]string{"team": "a"}), member.Spec.PodTemplate.Metadata.Labels)
	assert.Equal(t, map[string]string{proto.AnnotationSafeToEvict: "true"}, member.Spec.PodTemplate.Metadata.Annotations)
	assert.True(t, *member.Spec.Service)
	assert.False(t, *member.Spec.PodTemplate.Spec.AutomountServiceAccountToken)

	assert.Empty(t, newMember(pool, template, false).Spec.PodTemplate.Metadata.Annotations, "eviction off")
	template.Spec.PodTemplate.Metadata.Annotations = map[string]string{proto.AnnotationSafeToEvict: "false"}
	assert.Equal(t, "false", newMember(pool, template, true).Spec.PodTemplate.Metadata.Annotations[proto.AnnotationSafeToEvict],
		"the template's word counts")
	assert.Equal(t, map[string]string{"team": "a"}, template.Spec.PodTemplate.Metadata.Labels, "the template is shared")
}

func merged(maps ...map[string]string) map[string]string {
	all := map[string]string{}
	for _, m := range maps {
		for k, v := range m {
			all[k] = v
		}
	}
	return all
}

func TestAdoptable(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*agents.Sandbox)
		want   bool
	}{
		"member":               {func(*agents.Sandbox) {}, true},
		"old version of owner": {func(sb *agents.Sandbox) { sb.OwnerReferences[0].APIVersion = "extensions.agents.x-k8s.io/v1alpha1" }, true},
		"deleting":             {func(sb *agents.Sandbox) { sb.DeletionTimestamp = new(metav1.Now()) }, false},
		"no pool label":        {func(sb *agents.Sandbox) { delete(sb.Labels, proto.LabelWarmPool) }, false},
		"no template label":    {func(sb *agents.Sandbox) { delete(sb.Labels, proto.LabelTemplateRefHash) }, false},
		"orphan":               {func(sb *agents.Sandbox) { sb.OwnerReferences = nil }, false},
		"other group":          {func(sb *agents.Sandbox) { sb.OwnerReferences[0].APIVersion = "example.com/v1beta1" }, false},
		"claimed":              {controlledByClaim(newClaim("c")), false},
	} {
		t.Run(name, func(t *testing.T) {
			member := newPoolMember("m", c.change)
			assert.Equal(t, c.want, adoptable(member))
			assert.Equal(t, c.want, adoptableFrom("pool", member))
			assert.False(t, adoptableFrom("other", member))
		})
	}
}
