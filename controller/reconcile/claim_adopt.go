package reconcile

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovakiin0/agent-sandbox/proto"
	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
	ext "github.com/dovakiin0/agent-sandbox/proto/extensions/v1beta1"
)

const (
	addressGrace    = 2 * time.Second        // age up to which a claim waits for the addresses of its candidates
	addressRecheck  = 500 * time.Millisecond // how often it looks
	adoptionRetries = 5                      // attempts against concurrent writes to the candidate
)

// adoptCandidate adopts a waiting member of the pool. The result is nil when there is none to adopt. The template is the
// pool's, nil when it does not exist.
//
// The claim is committed to one member before that member is touched, and an adoption is one write. So whenever the
// controller dies, the next one sees either a claim that may choose freely or a claim that must finish what it began,
// and of two claims that want one member the API server lets one have it.
func (p *claimPass) adoptCandidate(ctx context.Context, pool *ext.SandboxWarmPool, template *ext.SandboxTemplate) (*agents.Sandbox, error) {
	member, waiting, err := p.pick(ctx, pool, template)
	if err != nil {
		return nil, err
	}
	if member == nil {
		if age := p.now().Sub(p.claim.CreationTimestamp.Time); waiting && age < addressGrace {
			return nil, &noAddressYet{retryAfter: min(addressRecheck, addressGrace-age)}
		}
		return nil, nil
	}
	if err := p.commit(ctx, member); err != nil {
		p.queueMember(member)
		return nil, err
	}
	return p.adopt(ctx, member)
}

// pick takes the best candidate off the queue. Waiting says that there are some which only lack an address.
func (p *claimPass) pick(ctx context.Context, pool *ext.SandboxWarmPool, template *ext.SandboxTemplate) (member *agents.Sandbox, waiting bool, err error) {
	var current *revision // nil unless the pool insists on the template of today
	recreate := recreates(pool)
	if recreate && template != nil {
		current = newRevision(template)
	}
	judge := func(name string) verdict {
		sandbox, readErr := p.readCached(ctx, name)
		if readErr != nil {
			err = readErr
			return verdictSkip
		}
		if sandbox == nil {
			return verdictDrop
		}
		if owner, adoptable := memberOf(sandbox); !adoptable || owner != pool.Name {
			return verdictDrop
		}
		if current != nil && current.outdated(sandbox) {
			return verdictDrop // the pool is about to delete it
		}
		switch {
		case len(sandbox.Status.PodIPs) == 0:
			waiting = true
			return verdictSkip
		case recreate && current == nil, meta.IsStatusConditionTrue(sandbox.Status.Conditions, string(agents.ConditionFinished)):
			return verdictSkip
		case isReady(sandbox):
			member = sandbox
			return verdictTake
		case member == nil:
			member = sandbox
		}
		return verdictHold
	}
	p.candidates.take(poolOf(p.claim), p.prefersNode(ctx), judge)
	if member != nil {
		return member, waiting, nil
	}
	return nil, waiting, err
}

// prefersNode tells whether a node is in the zone that the claim asks for.
func (p *claimPass) prefersNode(ctx context.Context) func(string) bool {
	zone := p.claim.Annotations[proto.AnnotationPreferredZone]
	return func(name string) bool {
		if zone == "" {
			return false
		}
		node := nodeMetadata()
		err := p.client.Get(ctx, types.NamespacedName{Name: name}, node, client.UnsafeDisableDeepCopy)
		return err == nil && node.Labels[corev1.LabelTopologyZone] == zone
	}
}

// commit writes down which member the claim is about to adopt, once it is clear that the claim's wishes go with it.
func (p *claimPass) commit(ctx context.Context, member *agents.Sandbox) error {
	if _, err := p.adoptionPatch(ctx, member); err != nil {
		return err
	}
	change := &metaChange{}
	change.setAnnotation(proto.AnnotationAssignedSandboxName, member.Name)
	return p.patchMetadata(ctx, change)
}

// unassign undoes the commitment to this Sandbox. The claim's version guards against undoing another one.
func (p *claimPass) unassign(ctx context.Context, name string) error {
	change := &metaChange{}
	if p.claim.Annotations[proto.AnnotationAssignedSandboxName] == name {
		change.deleteAnnotation(proto.AnnotationAssignedSandboxName)
	}
	if p.claim.Labels[proto.LabelAssignedSandboxName] == name {
		change.deleteLabel(proto.LabelAssignedSandboxName)
	}
	return p.patchMetadata(ctx, change)
}

// adopt makes the pool member that the claim is committed to the claim's own. The answer of the API server is all that
// the pass needs to know about it from here on.
func (p *claimPass) adopt(ctx context.Context, member *agents.Sandbox) (*agents.Sandbox, error) {
	for range adoptionRetries {
		body, err := p.adoptionPatch(ctx, member)
		if err != nil {
			return nil, err
		}
		adopted, err := p.patchSandbox(ctx, member, body)
		if err == nil {
			p.event("SandboxAdopted", "Adoption", fmt.Sprintf("Adopted warm pool Sandbox %q", adopted.Name))
			countClaim(p.claim, adopted, p.claim.Spec.WarmPoolRef.Name)
			return adopted, nil
		}
		if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return nil, err
		}
		name := member.Name
		if member, err = p.readLive(ctx, name); err != nil {
			return nil, err
		}
		if member == nil {
			return nil, p.giveUp(ctx, name, "was deleted before adoption completed")
		}
		if controlledBy(member, p.claim.UID) {
			p.sandboxes.record(member)
			return member, nil // an earlier attempt got through
		}
		if owner, adoptable := memberOf(member); !adoptable || owner != p.claim.Spec.WarmPoolRef.Name {
			return nil, p.giveUp(ctx, name, "is no longer pool-owned")
		}
	}
	return nil, adoptionConflict("sandbox %q kept changing during adoption", member.Name)
}

// giveUp frees the claim of a member that it cannot have. Another one is for the next pass: switching in this one would
// rest on a view that has just been proven wrong.
func (p *claimPass) giveUp(ctx context.Context, name, why string) error {
	if err := p.unassign(ctx, name); err != nil {
		return err
	}
	return adoptionConflict("sandbox %q %s", name, why)
}

// adoptionPatch is the body of the merge patch that moves a pool member to the claim: owner, labels and pod metadata at
// once, so that it is never without an owner and never with two.
func (p *claimPass) adoptionPatch(ctx context.Context, member *agents.Sandbox) (fields, error) {
	claim := p.claim
	var pod agents.PodMetadata
	template, err := p.templateOf(ctx, member)
	switch {
	case err == nil:
		pod, err = claimedPodMetadata(claim, template)
	case isMissing(err):
		pod, err = editedPodMetadata(claim, member)
	}
	if err != nil {
		return nil, err
	}
	change := &metaChange{
		owners:          []metav1.OwnerReference{newControllerRef(claim, claimGVK)},
		resourceVersion: member.ResourceVersion,
	}
	change.deleteLabel(proto.LabelWarmPool)
	change.deleteLabel(proto.LabelPodTemplateHash)
	change.deleteLabel(proto.LabelTemplateHash)
	change.setLabel(proto.LabelLaunchType, proto.LaunchWarm)
	change.setLabel(proto.LabelClaimUID, string(claim.UID))
	change.setLabel(proto.LabelTemplateRefHash, pod.Labels[proto.LabelTemplateRefHash])
	setOrDelete(change, proto.LabelCreatedBy, claim.Labels[proto.LabelCreatedBy])
	// Clients read it as soon as the Sandbox is Ready and theirs.
	change.setAnnotation(proto.AnnotationPodName, podNameOf(member))
	if trace := claim.Annotations[proto.AnnotationTraceContext]; trace != "" {
		change.setAnnotation(proto.AnnotationTraceContext, trace)
	}
	return sandboxPatch(change, podMetadataChanges(&member.Spec.PodTemplate.Metadata, &pod)), nil
}
