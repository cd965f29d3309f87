package reconcile

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovakiin0/agent-sandbox/proto"
	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
	ext "github.com/dovakiin0/agent-sandbox/proto/extensions/v1beta1"
)

// coldStart makes a Sandbox for the claim.
func (p *claimPass) coldStart(ctx context.Context, template *ext.SandboxTemplate) (*agents.Sandbox, error) {
	// The lock of this write proves that no earlier pass gave the claim a Sandbox.
	if err := p.writeStamp(ctx); err != nil {
		return nil, err
	}
	sandbox, err := coldSandbox(p.claim, template)
	if err != nil {
		return nil, err
	}
	err = p.client.Create(ctx, sandbox)
	if apierrors.IsAlreadyExists(err) {
		return p.existing(ctx)
	}
	if err != nil {
		return nil, err
	}
	p.sandboxes.record(sandbox)
	p.event("SandboxProvisioned", "Provisioning", fmt.Sprintf("Created Sandbox %q", sandbox.Name))
	countClaim(p.claim, sandbox, p.claim.Spec.WarmPoolRef.Name)
	return sandbox, nil
}

// existing returns the Sandbox that stood in the way of a creation, if it is the claim's own.
func (p *claimPass) existing(ctx context.Context) (*agents.Sandbox, error) {
	sandbox, err := p.readLive(ctx, p.claim.Name)
	switch {
	case err != nil:
		return nil, err
	case sandbox == nil:
		return nil, createPending()
	case !controlledBy(sandbox, p.claim.UID):
		return nil, notControlled(p.claim)
	}
	p.sandboxes.record(sandbox)
	return sandbox, nil
}

// coldSandbox builds the Sandbox of a claim that no pool member serves.
func coldSandbox(claim *ext.SandboxClaim, template *ext.SandboxTemplate) (*agents.Sandbox, error) {
	blueprint := sandboxBlueprint(template)
	volumes, err := mergeVolumes(blueprint.VolumeClaimTemplates, claim.Spec.VolumeClaimTemplates, template.Spec.VolumeClaimTemplatesPolicy)
	if err != nil {
		return nil, volumesRejected(err)
	}
	blueprint.VolumeClaimTemplates = volumes
	if err := injectEnv(&blueprint.PodTemplate.Spec, claim.Spec.Env, template.Spec.EnvVarsInjectionPolicy); err != nil {
		return nil, err
	}
	if blueprint.PodTemplate.Metadata, err = claimedPodMetadata(claim, template); err != nil {
		return nil, err
	}
	sandbox := &agents.Sandbox{
		ObjectMeta: metav1.ObjectMeta{
			Name:      claim.Name,
			Namespace: claim.Namespace,
			Labels: map[string]string{
				proto.LabelClaimUID:        string(claim.UID),
				proto.LabelLaunchType:      proto.LaunchCold,
				proto.LabelTemplateRefHash: proto.NameHash(template.Name),
			},
			Annotations: map[string]string{
				proto.AnnotationTemplateRef: template.Name,
				proto.AnnotationPodName:     claim.Name, // the pod will have the name of its Sandbox
			},
			OwnerReferences: []metav1.OwnerReference{newControllerRef(claim, claimGVK)},
		},
		Spec: agents.SandboxSpec{SandboxBlueprint: blueprint},
	}
	if by := claim.Labels[proto.LabelCreatedBy]; by != "" {
		sandbox.Labels[proto.LabelCreatedBy] = by
	}
	if trace := claim.Annotations[proto.AnnotationTraceContext]; trace != "" {
		sandbox.Annotations[proto.AnnotationTraceContext] = trace
	}
	return sandbox, nil
}
