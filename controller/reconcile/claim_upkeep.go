package reconcile

import (
	"context"

	"github.com/dovakiin0/agent-sandbox/proto"
	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
	ext "github.com/dovakiin0/agent-sandbox/proto/extensions/v1beta1"
)

// keep brings the metadata of the claim's Sandbox in line with its template and with the claim. The pod's spec never
// changes.
func (p *claimPass) keep(ctx context.Context, sandbox *agents.Sandbox) (*agents.Sandbox, error) {
	template, err := p.templateOf(ctx, sandbox)
	if err != nil {
		extra := &p.claim.Spec.AdditionalPodMetadata
		if len(extra.Labels) > 0 || len(extra.Annotations) > 0 {
			return sandbox, err // what the claim asks for cannot be checked against the template
		}
		template = nil
	}
	body, err := upkeepPatch(p.claim, sandbox, template)
	if err != nil || body == nil {
		return sandbox, err
	}
	fresh, err := p.patchSandbox(ctx, sandbox, body)
	if err != nil {
		return sandbox, err
	}
	return fresh, nil
}

// templateOf returns the template that a Sandbox was made from. That is not always the one of the claim's pool: a pool
// may have been pointed to another since, and a claim to another pool, neither of which concerns this Sandbox.
func (p *claimPass) templateOf(ctx context.Context, sandbox *agents.Sandbox) (*ext.SandboxTemplate, error) {
	if name := sandbox.Annotations[proto.AnnotationTemplateRef]; name != "" {
		return p.template(ctx, name)
	}
	return p.templateOfPool(ctx)
}

// upkeepPatch is the body of the merge patch that a claimed Sandbox needs, nil when it needs none. Without a template
// only the launch type is looked at.
func upkeepPatch(claim *ext.SandboxClaim, sandbox *agents.Sandbox, template *ext.SandboxTemplate) (fields, error) {
	change := &metaChange{}
	if sandbox.Labels[proto.LabelLaunchType] == "" {
		change.setLabel(proto.LabelLaunchType, launchType(claim, sandbox))
	}
	pod := fields{}
	if template != nil {
		want, err := claimedPodMetadata(claim, template)
		if err != nil {
			return nil, err
		}
		pod = podMetadataChanges(&sandbox.Spec.PodTemplate.Metadata, &want)
		if hash := proto.NameHash(template.Name); sandbox.Labels[proto.LabelTemplateRefHash] != hash {
			change.setLabel(proto.LabelTemplateRefHash, hash)
		}
		if by := claim.Labels[proto.LabelCreatedBy]; sandbox.Labels[proto.LabelCreatedBy] != by {
			setOrDelete(change, proto.LabelCreatedBy, by)
		}
	}
	if change.empty() && len(pod) == 0 {
		return nil, nil
	}
	return sandboxPatch(change, pod), nil
}

// launchType tells how a claimed Sandbox without a launch type came about.
func launchType(claim *ext.SandboxClaim, sandbox *agents.Sandbox) string {
	if sandbox.Name != claim.Name || assignedSandbox(claim) == sandbox.Name {
		return proto.LaunchWarm
	}
	return proto.LaunchCold
}

// sandboxPatch is the body of a merge patch that changes the metadata of a Sandbox and of its pod template.
func sandboxPatch(change *metaChange, podMetadata fields) fields {
	body := fields{"metadata": change.body()}
	if len(podMetadata) > 0 {
		body["spec"] = fields{"podTemplate": fields{"metadata": podMetadata}}
	}
	return body
}

// patchSandbox sends the patch, and shows the answer to every reconciler before the cache does.
func (p *claimPass) patchSandbox(ctx context.Context, sandbox *agents.Sandbox, body fields) (*agents.Sandbox, error) {
	fresh, err := applyPatch(ctx, p.client, sandbox, mergePatch(body))
	if err != nil {
		return nil, err
	}
	p.sandboxes.record(fresh)
	return fresh, nil
}

func setOrDelete(change *metaChange, label, value string) {
	if value == "" {
		change.deleteLabel(label)
		return
	}
	change.setLabel(label, value)
}
