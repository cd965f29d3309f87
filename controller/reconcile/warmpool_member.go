package reconcile

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/dovakiin0/agent-sandbox/proto"
	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
	ext "github.com/dovakiin0/agent-sandbox/proto/extensions/v1beta1"
)

// newMember builds a sandbox of the pool. With evictable its pod does not keep the cluster autoscaler from removing a
// node, unless the template has a word on that.
func newMember(pool *ext.SandboxWarmPool, template *ext.SandboxTemplate, evictable bool) *agents.Sandbox {
	poolLabels := map[string]string{
		proto.LabelWarmPool:        proto.NameHash(pool.Name),
		proto.LabelTemplateRefHash: proto.NameHash(template.Name),
		proto.LabelPodTemplateHash: podTemplateHash(template),
		proto.LabelTemplateHash:    blueprintHash(template),
	}
	member := &agents.Sandbox{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: pool.Name + "-",
			Namespace:    pool.Namespace,
			Labels: map[string]string{
				proto.LabelLaunchType: proto.LaunchWarm,
				proto.LabelCreatedBy:  "controller",
			},
			Annotations:     map[string]string{proto.AnnotationTemplateRef: template.Name},
			OwnerReferences: []metav1.OwnerReference{newControllerRef(pool, warmPoolGVK)},
		},
		Spec: agents.SandboxSpec{SandboxBlueprint: sandboxBlueprint(template)},
	}
	pod := &member.Spec.PodTemplate.Metadata
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	for key, value := range poolLabels {
		member.Labels[key] = value
		pod.Labels[key] = value
	}
	if _, decided := pod.Annotations[proto.AnnotationSafeToEvict]; evictable && !decided {
		if pod.Annotations == nil {
			pod.Annotations = map[string]string{}
		}
		pod.Annotations[proto.AnnotationSafeToEvict] = "true"
	}
	return member
}

// nameMember names a member after its pool. The name of its pod is known with it.
func nameMember(member *agents.Sandbox) {
	const maxBase, suffix = 58, 5 // as the API server's own generator has it
	member.Name = member.GenerateName[:min(len(member.GenerateName), maxBase)] + rand.String(suffix)
	member.Annotations[proto.AnnotationPodName] = member.Name
}

// memberOf returns the name of the pool that controls an adoptable sandbox: one that waits in a pool and is not going
// away. Whether it is Ready is no matter here.
func memberOf(sandbox *agents.Sandbox) (pool string, adoptable bool) {
	if !sandbox.DeletionTimestamp.IsZero() ||
		sandbox.Labels[proto.LabelWarmPool] == "" || sandbox.Labels[proto.LabelTemplateRefHash] == "" ||
		!controllerKind(sandbox, warmPoolGVK.Group, warmPoolGVK.Kind) {
		return "", false
	}
	return controllerOf(sandbox).Name, true
}
