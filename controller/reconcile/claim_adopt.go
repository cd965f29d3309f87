package reconcile

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
			// A short wait costs less than a cold start.
			return nil, &problem{message: "no candidate has an address yet", retryAfter: min(addressRecheck, addressGrace-age)}
		}
		return nil, nil
	}
	if err := p.commit(ctx, member); err != nil {
		p.queueMember(member)
		return nil, err
	}
	return p.adopt(ctx, member)
}

// pick takes the best candidate off the queue: the first that is Ready, else the first with an address. Waiting says that
// there are some which only lack an address.
func (p *claimPass) pick(ctx context.Context, pool *ext.SandboxWarmPool, template *ext.SandboxTemplate) (member *agents.Sandbox, waiting bool, err error) {
	var current *revision // nil unless the pool insists on the template of today
	recreate := recreates(pool)
	if recreate && template != nil {
		current = newRevision(template)
	}
	key := poolOf(p.claim)
	var starting []*agents.Sandbox
	for _, name := range p.candidates.order(key, p.prefersNode(ctx)) {
		sandbox, readErr := p.readCached(ctx, name)
		switch {
		case readErr != nil:
			err = readErr
		case sandbox == nil || !adoptableFrom(pool.Name, sandbox), current != nil && current.outdated(sandbox):
			p.candidates.remove(key, name) // never adoptable again: it is gone, or the pool is about to delete it
		case len(sandbox.Status.PodIPs) == 0:
			waiting = true
		case recreate && current == nil, meta.IsStatusConditionTrue(sandbox.Status.Conditions, string(agents.ConditionFinished)):
			// Not now.
		case !isReady(sandbox):
			starting = append(starting, sandbox)
		case p.candidates.remove(key, name):
			return sandbox, waiting, nil
		}
	}
	for _, sandbox := range starting {
		if p.candidates.remove(key, sandbox.Name) {
			return sandbox, waiting, nil
		}
	}
	return nil, waiting, err
}

// prefersNode tells whether a node is in the zone that the claim asks for.
func (p *claimPass) prefersNode(ctx context.Context) func(string) bool {
	zone := p.claim.Annotations[proto.AnnotationPreferredZone]
	return func(name string) bool {
		return zone != "" && nodeZone(ctx, p.client, name) == zone
	}
}

// commit writes down which member the claim is about to adopt, once it is clear that the claim's wishes go with it.
func (p *claimPass) commit(ctx context.Context, member *agents.Sandbox) error {
	if _, err := p.adoptedPodMetadata(ctx, member); err != nil {
		return err
	}
	return p.writeMetadata(ctx, func(claim *ext.SandboxClaim) {
		metav1.SetMetaDataAnnotation(&claim.ObjectMeta, proto.AnnotationAssignedSandboxName, member.Name)
	})
}

// unassign undoes the commitment to this Sandbox. The claim's version guards against undoing another one.
func (p *claimPass) unassign(ctx context.Context, name string) error {
	return p.writeMetadata(ctx, func(claim *ext.SandboxClaim) {
		if claim.Annotations[proto.AnnotationAssignedSandboxName] == name {
			delete(claim.Annotations, proto.AnnotationAssignedSandboxName)
		}
		if claim.Labels[proto.LabelAssignedSandboxName] == name {
			delete(claim.Labels, proto.LabelAssignedSandboxName)
		}
	})
}

// adopt makes the pool member that the claim is committed to the claim's own. The answer of the API server is all that
// the pass needs to know about it from here on.
func (p *claimPass) adopt(ctx context.Context, member *agents.Sandbox) (*agents.Sandbox, error) {
	for range adoptionRetries {
		pod, err := p.adoptedPodMetadata(ctx, member)
		if err != nil {
			return nil, err
		}
		adopted, err := patch(ctx, p.client, member, locked, func(sb *agents.Sandbox) { transfer(sb, p.claim, pod) })
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
			p.client.remember(member, true)
			return member, nil // an earlier attempt got through
		}
		if !adoptableFrom(p.claim.Spec.WarmPoolRef.Name, member) {
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

// adoptedPodMetadata is what the pod metadata of a member becomes when the claim adopts it.
func (p *claimPass) adoptedPodMetadata(ctx context.Context, member *agents.Sandbox) (agents.PodMetadata, error) {
	template, err := p.templateOf(ctx, member)
	switch {
	case err == nil:
		return claimedPodMetadata(p.claim, template)
	case isMissing(err):
		return editedPodMetadata(p.claim, member)
	}
	return agents.PodMetadata{}, err
}

// transfer moves a pool member to the claim: owner, labels and pod metadata at once, so that it is never without an owner
// and never with two.
func transfer(sb *agents.Sandbox, claim *ext.SandboxClaim, pod agents.PodMetadata) {
	sb.OwnerReferences = []metav1.OwnerReference{newControllerRef(claim, claimGVK)}
	sb.Spec.PodTemplate.Metadata = pod
	for key, value := range map[string]string{
		proto.LabelWarmPool:        "",
		proto.LabelPodTemplateHash: "",
		proto.LabelTemplateHash:    "",
		proto.LabelLaunchType:      proto.LaunchWarm,
		proto.LabelClaimUID:        string(claim.UID),
		proto.LabelTemplateRefHash: pod.Labels[proto.LabelTemplateRefHash],
		proto.LabelCreatedBy:       claim.Labels[proto.LabelCreatedBy],
	} {
		setOrDelete(&sb.Labels, key, value)
	}
	// Clients read it as soon as the Sandbox is Ready and theirs.
	metav1.SetMetaDataAnnotation(&sb.ObjectMeta, proto.AnnotationPodName, podNameOf(sb))
	if trace := claim.Annotations[proto.AnnotationTraceContext]; trace != "" {
		sb.Annotations[proto.AnnotationTraceContext] = trace
	}
}
