package e2e

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovakiin0/agent-sandbox/proto"
	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
	extensions "github.com/dovakiin0/agent-sandbox/proto/extensions/v1beta1"
	"github.com/dovakiin0/agent-sandbox/test/env"
)

func TestWarmPool(t *testing.T) {
	e := env.Get(t)
	e.StartController(t)
	for name, test := range map[string]func(*sandboxes){
		"members":              testPoolMembers,
		"scale":                testPoolScale,
		"refill":               testPoolRefill,
		"template comes later": testPoolTemplateComesLater,
		"recreate":             testPoolRecreate,
		"on replenish":         testPoolOnReplenish,
		"orphans":              testPoolOrphans,
		"deletion":             testPoolDeletion,
		"services":             testPoolServices,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(on(t, e))
		})
	}
}

// members returns the sandboxes of a pool that are not going away.
func (s *sandboxes) members(pool *extensions.SandboxWarmPool) []agents.Sandbox {
	s.Helper()
	var list agents.SandboxList
	require.NoError(s, s.Client.List(s.Context(), &list, client.InNamespace(s.ns),
		client.MatchingLabels{proto.LabelWarmPool: proto.NameHash(pool.Name)}))
	return slices.DeleteFunc(list.Items, func(sb agents.Sandbox) bool {
		return !sb.DeletionTimestamp.IsZero() || !metav1.IsControlledBy(&sb, pool)
	})
}

func (s *sandboxes) memberUIDs(pool *extensions.SandboxWarmPool) (uids []types.UID) {
	s.Helper()
	for _, sb := range s.members(pool) {
		uids = append(uids, sb.UID)
	}
	return uids
}

// waitMembers waits until the pool is full of members that are as wanted.
func (s *sandboxes) waitMembers(pool *extensions.SandboxWarmPool, what string, wanted func(*agents.Sandbox) bool) {
	s.Helper()
	s.WaitFor(s, pool, "to have members "+what, func() bool {
		members := s.members(pool)
		for i := range members {
			if !wanted(&members[i]) || !meta.IsStatusConditionTrue(members[i].Status.Conditions, "Ready") {
				return false
			}
		}
		return len(members) == int(*pool.Spec.Replicas)
	})
	s.waitFull(pool)
}

func testPoolMembers(s *sandboxes) {
	s.template("t", func(t *extensions.SandboxTemplate) {
		t.Spec.PodTemplate.Metadata.Labels = map[string]string{"team": "a"}
	})
	pool := s.pool("p", "t", 2)
	assert.Equal(s, extensions.SandboxWarmPoolStatus{
		Replicas: 2, ReadyReplicas: 2, ObservedGeneration: 1,
		Selector: "agents.x-k8s.io/warm-pool-sandbox=" + proto.NameHash("p"),
	}, pool.Status)
	for _, sb := range s.members(pool) {
		assert.Regexp(s, `^p-[a-z0-9]{5}$`, sb.Name)
		assert.Equal(s, "p-", sb.GenerateName)
		assert.Equal(s, []metav1.OwnerReference{{
			APIVersion: "extensions.agents.x-k8s.io/v1beta1", Kind: "SandboxWarmPool", Name: "p", UID: pool.UID,
			Controller: new(true), BlockOwnerDeletion: new(true),
		}}, sb.OwnerReferences)
		assert.Equal(s, "warm", sb.Labels[proto.LabelLaunchType])
		assert.Equal(s, "controller", sb.Labels[proto.LabelCreatedBy])
		assert.Equal(s, "t", sb.Annotations[proto.AnnotationTemplateRef])
		assert.Equal(s, sb.Name, sb.Annotations[proto.AnnotationPodName])
		assert.False(s, *sb.Spec.PodTemplate.Spec.AutomountServiceAccountToken)

		pod := read(s, s.pod(sb.Name))
		assert.Equal(s, map[string]string{
			"team": "a", proto.LabelSandboxNameHash: proto.NameHash(sb.Name), proto.LabelWarmPool: proto.NameHash("p"),
			proto.LabelTemplateRefHash: proto.NameHash("t"), proto.LabelCreatedBy: "controller",
		}, ownLabels(pod))
		assert.Equal(s, "true", pod.Annotations[proto.AnnotationSafeToEvict])
		assert.Equal(s, corev1.DNSNone, pod.Spec.DNSPolicy)
	}
}

func testPoolScale(s *sandboxes) {
	s.template("t")
	pool := s.pool("p", "t", 1)
	first := s.members(pool)[0]
	require.Eventually(s, func() bool { return time.Since(first.CreationTimestamp.Time) > 2*time.Second }, patience, pause,
		"creation times have no fractions, so the next member must come later than this second")
	scale := func(replicas int32) {
		s.Helper()
		require.NoError(s, s.Client.SubResource("scale").Update(s.Context(), pool,
			client.WithSubResourceBody(&autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: replicas}})))
		s.WaitFor(s, pool, "to be scaled", func() bool { return *pool.Spec.Replicas == replicas })
		s.waitFull(pool)
		assert.Len(s, s.members(pool), int(replicas))
	}
	scale(4)
	scale(1)
	assert.Equal(s, []types.UID{first.UID}, s.memberUIDs(pool), "the newest go first")
	scale(0)
	seen := &autoscalingv1.Scale{}
	require.NoError(s, s.Client.SubResource("scale").Get(s.Context(), pool, seen))
	assert.Zero(s, seen.Status.Replicas)
	assert.Equal(s, pool.Status.Selector, seen.Status.Selector)
}

func testPoolRefill(s *sandboxes) {
	s.template("t")
	pool := s.pool("p", "t", 3)
	before := s.memberUIDs(pool)
	sb := s.waitClaimReady(s.claim("c", "p"))
	assert.Contains(s, before, sb.UID)
	s.waitMembers(pool, "beside the adopted one", func(member *agents.Sandbox) bool { return member.UID != sb.UID })

	victim := s.members(pool)[0]
	require.NoError(s, s.Client.Delete(s.Context(), &victim))
	s.waitMembers(pool, "beside the deleted one", func(member *agents.Sandbox) bool { return member.UID != victim.UID })
	assert.Len(s, s.members(pool), 3)
}

func testPoolTemplateComesLater(s *sandboxes) {
	pool := &extensions.SandboxWarmPool{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "p"}}
	pool.Spec.Replicas, pool.Spec.TemplateRef.Name = new(int32(2)), "t"
	s.create(pool)
	s.WaitFor(s, pool, "to be looked at", func() bool { return pool.Status.ObservedGeneration == 1 })
	assert.Zero(s, pool.Status.Replicas)
	s.template("t")
	s.waitFull(pool)
}

func recreating(p *extensions.SandboxWarmPool) {
	p.Spec.UpdateStrategy = &extensions.UpdateStrategy{Type: extensions.UpdateRecreate}
}

func image(sb *agents.Sandbox) string { return sb.Spec.PodTemplate.Spec.Containers[0].Image }

const otherImage = `{"podTemplate":{"spec":{"containers":[{"name":"main","image":"pause:2"}]}}}`

// versioned gives the template network rules that say which version of it they were made from, see changeTemplate.
func versioned(t *extensions.SandboxTemplate) { t.Spec.NetworkPolicy = rulesOf(1) }

func rulesOf(version int64) *extensions.NetworkPolicySpec {
	return &extensions.NetworkPolicySpec{Egress: []networkingv1.NetworkPolicyEgressRule{{
		Ports: []networkingv1.NetworkPolicyPort{{Port: new(intstr.FromInt32(int32(version)))}},
	}}}
}

// changeTemplate changes the spec of a versioned template by a JSON merge patch, and returns once the controller knows:
// its watches of two kinds are not ordered, but all reconcilers read templates from the one cache from which the shared
// NetworkPolicy is made.
func (s *sandboxes) changeTemplate(template *extensions.SandboxTemplate, patch string) {
	s.Helper()
	var spec map[string]any
	require.NoError(s, json.Unmarshal([]byte(patch), &spec))
	rules := rulesOf(template.Generation + 1)
	spec["networkPolicy"] = rules
	text, err := json.Marshal(map[string]any{"spec": spec})
	require.NoError(s, err)
	require.NoError(s, s.patch(template, string(text)))
	policy := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: template.Name + "-network-policy"}}
	s.WaitFor(s, policy, "to be that of the changed template", func() bool {
		return len(policy.Spec.Egress) == 1 && *policy.Spec.Egress[0].Ports[0].Port == *rules.Egress[0].Ports[0].Port
	})
}

func testPoolRecreate(s *sandboxes) {
	template := s.template("t")
	other := s.template("other", versioned, func(t *extensions.SandboxTemplate) {
		t.Spec.PodTemplate.Spec.Containers[0].Image = "pause:3"
	})
	pool := s.pool("p", "t", 2, recreating)
	bystander := s.pool("bystander", "other", 1, recreating)
	aside := s.memberUIDs(bystander)
	claimed := s.waitClaimReady(s.claim("c", "p"))
	s.waitMembers(pool, "again", func(*agents.Sandbox) bool { return true })
	before := s.memberUIDs(pool)

	require.NoError(s, s.patch(template, `{"spec":{"podTemplate":{"metadata":{"labels":{"team":"a"}}}}}`))
	require.NoError(s, s.patch(template, `{"spec":`+otherImage+`}`))
	s.waitMembers(pool, "of the new template", func(sb *agents.Sandbox) bool {
		return image(sb) == "pause:2" && !slices.Contains(before, sb.UID)
	})
	require.NoError(s, s.patch(pool, `{"spec":{"sandboxTemplateRef":{"name":"other"}}}`))
	s.waitMembers(pool, "of the other template", func(sb *agents.Sandbox) bool {
		return image(sb) == "pause:3" && sb.Annotations[proto.AnnotationTemplateRef] == "other"
	})
	assert.Equal(s, aside, s.memberUIDs(bystander), "other pools are left alone")
	assert.Equal(s, "pause", image(read(s, s.bare(claimed.Name))), "claimed sandboxes too")

	// Metadata alone is no reason: a member that is made afterwards has it, the old ones stay.
	before = s.memberUIDs(pool)
	s.changeTemplate(other, `{"podTemplate":{"metadata":{"labels":{"team":"b"}}}}`)
	require.NoError(s, s.patch(pool, `{"spec":{"replicas":3}}`))
	s.waitFull(pool)
	assert.Subset(s, s.memberUIDs(pool), before)
	for _, sb := range s.members(pool) {
		assert.Equal(s, !slices.Contains(before, sb.UID), sb.Spec.PodTemplate.Metadata.Labels["team"] == "b")
	}
}

func testPoolOnReplenish(s *sandboxes) {
	template := s.template("t", versioned)
	pool := s.pool("p", "t", 2)
	before := s.memberUIDs(pool)
	s.changeTemplate(template, otherImage)
	require.NoError(s, s.patch(pool, `{"spec":{"replicas":3}}`))
	s.waitFull(pool)
	for _, sb := range s.members(pool) {
		want := "pause:2"
		if slices.Contains(before, sb.UID) {
			want = "pause"
		}
		assert.Equal(s, want, image(&sb))
	}
	assert.Subset(s, s.memberUIDs(pool), before)
}

func testPoolOrphans(s *sandboxes) {
	s.template("t")
	pool := s.pool("p", "t", 1)
	member := s.members(pool)[0]
	require.NoError(s, s.patch(&member, `{"metadata":{"ownerReferences":null}}`))
	s.WaitFor(s, pool, "to have taken its orphan in", func() bool {
		return metav1.IsControlledBy(read(s, s.bare(member.Name)), pool) && len(s.members(pool)) == 1
	})
}

func testPoolDeletion(s *sandboxes) {
	s.template("t")
	pool := s.pool("p", "t", 2)
	claim := s.claim("c", "p")
	kept := s.waitClaimReady(claim)
	s.waitFull(pool)
	members := s.members(pool)
	require.NoError(s, s.Client.Delete(s.Context(), pool))
	for i := range members {
		s.WaitGone(s, &members[i])
	}
	assert.Equal(s, kept.UID, read(s, s.bare(kept.Name)).UID)
}

func testPoolServices(s *sandboxes) {
	s.template("t", func(t *extensions.SandboxTemplate) { t.Spec.Service = new(true) })
	pool := s.pool("p", "t", 1)
	read(s, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: s.members(pool)[0].Name}})
}
