package reconcile

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/dovakiin0/agent-sandbox/proto"
	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
	ext "github.com/dovakiin0/agent-sandbox/proto/extensions/v1beta1"
)

// sandbox returns the claim's Sandbox: the one it has, else the one it is committed to, else a new one.
func (p *claimPass) sandbox(ctx context.Context) (*agents.Sandbox, error) {
	if err := p.checkMetadata(); err != nil {
		return nil, err
	}
	if name := p.claim.Status.Sandbox.Name; name != "" {
		sandbox, err := p.readThrough(ctx, name)
		if err != nil {
			return nil, err
		}
		if sandbox != nil && controlledBy(sandbox, p.claim.UID) {
			return p.keep(ctx, sandbox)
		}
	}
	if name := assignedSandbox(p.claim); name != "" {
		sandbox, err := p.resume(ctx, name)
		if sandbox != nil || err != nil {
			return sandbox, err
		}
	}
	return p.acquire(ctx)
}

func (p *claimPass) checkMetadata() error {
	extra := &p.claim.Spec.AdditionalPodMetadata
	if !hasPodMetadata(extra) {
		return nil
	}
	domains, err := readLabelDomains(p.labelDomains)
	if err != nil {
		return fmt.Errorf("read the allowed label domains: %w", err)
	}
	if err := checkPodMetadata(extra, domains); err != nil {
		return &problem{reason: reasonInvalidMetadata, message: err.Error()}
	}
	return nil
}

// resume goes on with the Sandbox that an earlier pass committed the claim to. If the claim cannot have it, the
// commitment is undone and the result is nil.
func (p *claimPass) resume(ctx context.Context, name string) (*agents.Sandbox, error) {
	sandbox, err := p.readThrough(ctx, name)
	switch {
	case err != nil:
		return nil, err
	case sandbox == nil:
		return nil, p.unassign(ctx, name)
	case controlledBy(sandbox, p.claim.UID):
		p.migrateAssignment(ctx, name)
		return p.keep(ctx, sandbox)
	}
	if !adoptableFrom(p.claim.Spec.WarmPoolRef.Name, sandbox) {
		err := p.unassign(ctx, name)
		if err == nil {
			p.queueMember(sandbox) // another claim may have it
		}
		return nil, err
	}
	return p.adopt(ctx, sandbox)
}

// migrateAssignment moves a commitment from the label of older controllers to the annotation. A failure leaves it for
// the next pass.
func (p *claimPass) migrateAssignment(ctx context.Context, name string) {
	if p.claim.Labels[proto.LabelAssignedSandboxName] == "" {
		return
	}
	if err := p.writeMetadata(ctx, func(claim *ext.SandboxClaim) {
		metav1.SetMetaDataAnnotation(&claim.ObjectMeta, proto.AnnotationAssignedSandboxName, name)
		delete(claim.Labels, proto.LabelAssignedSandboxName)
	}); err != nil {
		logf.FromContext(ctx).Error(err, "cannot move the assigned sandbox from the label to the annotation")
	}
}

// acquire finds the claim a Sandbox, in the knowledge that it is not known to have one.
func (p *claimPass) acquire(ctx context.Context) (*agents.Sandbox, error) {
	sandbox, err := p.ownNamed(ctx)
	if sandbox != nil || err != nil {
		return sandbox, err
	}
	pool, err := p.warmPool(ctx)
	if err != nil {
		return nil, err
	}
	template, templateErr := p.template(ctx, pool.Spec.TemplateRef.Name)
	if templateErr != nil && !isMissing(templateErr) {
		return nil, templateErr
	}
	if len(p.claim.Spec.Env) == 0 && len(p.claim.Spec.VolumeClaimTemplates) == 0 {
		sandbox, err := p.adoptCandidate(ctx, pool, template)
		if sandbox != nil || err != nil {
			return sandbox, err
		}
	}
	if templateErr != nil {
		return nil, templateErr
	}
	return p.coldStart(ctx, template)
}

// ownNamed returns the Sandbox of the claim's own name, which a cold start makes.
//
// A pass that acquires a Sandbox must know what earlier passes did. The first pass is told by the claim, which has no
// stamp yet, and its first write proves by its lock that this was the newest claim. Later passes ask the API server.
func (p *claimPass) ownNamed(ctx context.Context) (*agents.Sandbox, error) {
	read := p.readThrough
	if p.first {
		read = p.readCached
	} else if err := p.confirmNewest(ctx); err != nil {
		return nil, err
	}
	sandbox, err := read(ctx, p.claim.Name)
	if sandbox == nil || err != nil {
		return nil, err
	}
	if !controlledBy(sandbox, p.claim.UID) {
		return nil, notControlled(p.claim)
	}
	return p.keep(ctx, sandbox)
}

func notControlled(claim *ext.SandboxClaim) error {
	return fmt.Errorf("sandbox %q is not controlled by claim %q. Please use a different claim name or delete the sandbox manually",
		claim.Name, claim.Name)
}

// confirmNewest fails with errStaleClaim unless the API server has the claim as this pass knows it.
func (p *claimPass) confirmNewest(ctx context.Context) error {
	live := &ext.SandboxClaim{}
	if err := p.live.Get(ctx, client.ObjectKeyFromObject(p.claim), live); err != nil {
		return staleIfRefused(err)
	}
	if live.ResourceVersion != p.claim.ResourceVersion {
		return errStaleClaim
	}
	return nil
}

// readCached returns a Sandbox as this process knows it, nil when it does not. The result is shared.
func (p *claimPass) readCached(ctx context.Context, name string) (*agents.Sandbox, error) {
	return get[agents.Sandbox](ctx, p.client, p.key(name))
}

// readThrough is readCached, except that only the API server is believed when it says that there is no such Sandbox.
func (p *claimPass) readThrough(ctx context.Context, name string) (*agents.Sandbox, error) {
	return getThrough[agents.Sandbox](ctx, p.client, p.key(name))
}

// readLive reads a Sandbox from the API server.
func (p *claimPass) readLive(ctx context.Context, name string) (*agents.Sandbox, error) {
	return get[agents.Sandbox](ctx, p.live, p.key(name))
}

func (p *claimPass) key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: p.claim.Namespace, Name: name}
}

// warmPool returns the claim's pool. The result is shared.
func (p *claimPass) warmPool(ctx context.Context) (*ext.SandboxWarmPool, error) {
	pool, err := getThrough[ext.SandboxWarmPool](ctx, p.client, poolOf(p.claim))
	if err == nil && pool == nil {
		err = warmPoolNotFound(p.claim.Spec.WarmPoolRef.Name)
	}
	return pool, err
}

// template returns a template of the claim's namespace. The result is shared.
func (p *claimPass) template(ctx context.Context, name string) (*ext.SandboxTemplate, error) {
	template, err := getThrough[ext.SandboxTemplate](ctx, p.client, p.key(name))
	if err == nil && template == nil {
		err = &problem{reason: reasonTemplateNotFound, message: fmt.Sprintf("SandboxTemplate %q not found", name), retryAfter: missingRecheck}
	}
	return template, err
}

// templateOf returns the template that a Sandbox was made from. That is not always the one of the claim's pool: a pool
// may have been pointed to another since, and a claim to another pool, neither of which concerns this Sandbox.
func (p *claimPass) templateOf(ctx context.Context, sandbox *agents.Sandbox) (*ext.SandboxTemplate, error) {
	if name := sandbox.Annotations[proto.AnnotationTemplateRef]; name != "" {
		return p.template(ctx, name)
	}
	pool, err := p.warmPool(ctx)
	if err != nil {
		return nil, err
	}
	return p.template(ctx, pool.Spec.TemplateRef.Name)
}

// getThrough is get, except that it asks the API server for what the cache does not have: clients give up for good on a
// claim whose pool or template is said not to exist.
func getThrough[T any, P apiObject[T]](ctx context.Context, s *store, key client.ObjectKey) (P, error) {
	obj, err := get[T, P](ctx, s, key)
	if obj != nil || err != nil {
		return obj, err
	}
	return get[T, P](ctx, s.live, key)
}

// keep brings the metadata of the claim's Sandbox in line with its template and with the claim. The pod's spec never
// changes.
func (p *claimPass) keep(ctx context.Context, sandbox *agents.Sandbox) (*agents.Sandbox, error) {
	template, err := p.templateOf(ctx, sandbox)
	if err != nil && hasPodMetadata(&p.claim.Spec.AdditionalPodMetadata) {
		return sandbox, err // what the claim asks for cannot be checked against the template
	}
	var pod agents.PodMetadata
	if err == nil {
		if pod, err = claimedPodMetadata(p.claim, template); err != nil {
			return sandbox, err
		}
	}
	return patch(ctx, p.client, sandbox, unlocked, func(sb *agents.Sandbox) {
		if sb.Labels[proto.LabelLaunchType] == "" {
			metav1.SetMetaDataLabel(&sb.ObjectMeta, proto.LabelLaunchType, launchType(p.claim, sb))
		}
		if template != nil {
			sb.Spec.PodTemplate.Metadata = pod
			sb.Labels[proto.LabelTemplateRefHash] = proto.NameHash(template.Name)
			setOrDelete(&sb.Labels, proto.LabelCreatedBy, p.claim.Labels[proto.LabelCreatedBy])
		}
	})
}

// launchType tells how a claimed Sandbox without a launch type came about.
func launchType(claim *ext.SandboxClaim, sandbox *agents.Sandbox) string {
	if sandbox.Name != claim.Name || assignedSandbox(claim) == sandbox.Name {
		return proto.LaunchWarm
	}
	return proto.LaunchCold
}
