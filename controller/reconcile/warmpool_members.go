package reconcile

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/dovakiin0/agent-sandbox/proto"
	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
	ext "github.com/dovakiin0/agent-sandbox/proto/extensions/v1beta1"
)

// poolMembers is what a pass makes of the sandboxes with the pool's label.
type poolMembers struct {
	active      []*agents.Sandbox
	incomplete  []*agents.Sandbox // lack the launch type or an owner, active once they have it
	stale       []*agents.Sandbox // to be deleted
	terminating int
}

// sort puts one sandbox where it belongs. Current is nil when the template does not exist, and then nothing is stale.
func (m *poolMembers) sort(pool *ext.SandboxWarmPool, sandbox *agents.Sandbox, current *revision) {
	owned := controlledBy(sandbox, pool.UID)
	orphan := controllerOf(sandbox) == nil
	switch {
	case !sandbox.DeletionTimestamp.IsZero():
		if owned {
			m.terminating++
		}
	case !owned && !orphan: // somebody else's
	case current != nil && (orphan || recreates(pool)) && current.stale(sandbox):
		m.stale = append(m.stale, sandbox)
	case orphan && current == nil:
		// Whether it fits the pool cannot be told now.
	case orphan || sandbox.Labels[proto.LabelLaunchType] != proto.LaunchWarm:
		m.incomplete = append(m.incomplete, sandbox)
	default:
		m.active = append(m.active, sandbox)
	}
}

// excess returns the n members that a shrinking pool loses first: those that are not Ready, then the newest.
func (m *poolMembers) excess(n int) []*agents.Sandbox {
	sorted := slices.Clone(m.active)
	slices.SortStableFunc(sorted, func(a, b *agents.Sandbox) int {
		return cmp.Or(trueFirst(!isReady(a), !isReady(b)), b.CreationTimestamp.Compare(a.CreationTimestamp.Time))
	})
	return sorted[:n]
}

// recreates reports whether the pool deletes stale members. Every other strategy keeps them.
func recreates(pool *ext.SandboxWarmPool) bool {
	return pool.Spec.UpdateStrategy != nil && pool.Spec.UpdateStrategy.Type == ext.UpdateRecreate
}

func desiredReplicas(pool *ext.SandboxWarmPool) int {
	if pool.Spec.Replicas == nil {
		return 1
	}
	return int(*pool.Spec.Replicas)
}

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

// owningPool returns the pool that controls the sandbox, which may be nil. The name is "" when there is none.
func owningPool(sandbox *agents.Sandbox) types.NamespacedName {
	if sandbox == nil || !controllerKind(sandbox, warmPoolGVK.Group, warmPoolGVK.Kind) {
		return types.NamespacedName{}
	}
	return types.NamespacedName{Namespace: sandbox.Namespace, Name: controllerOf(sandbox).Name}
}

// adoptable reports whether a claim may adopt the sandbox, which may be nil: it waits in a pool and is not going away.
// Whether it is Ready is no matter here.
func adoptable(sandbox *agents.Sandbox) bool {
	return owningPool(sandbox).Name != "" && sandbox.DeletionTimestamp.IsZero() &&
		sandbox.Labels[proto.LabelWarmPool] != "" && sandbox.Labels[proto.LabelTemplateRefHash] != ""
}

// adoptableFrom reports whether the sandbox may be adopted by claims on the pool.
func adoptableFrom(pool string, sandbox *agents.Sandbox) bool {
	return adoptable(sandbox) && owningPool(sandbox).Name == pool
}

// queueMember makes the sandbox a candidate for claims, if it may be one.
func (s *shared) queueMember(sandbox *agents.Sandbox) {
	if adoptable(sandbox) {
		s.candidates.add(owningPool(sandbox), sandbox.Name, sandbox.Status.NodeName)
	}
}
