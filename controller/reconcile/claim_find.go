package reconcile

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
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
	if len(extra.Labels) == 0 && len(extra.Annotations) == 0 {
		return nil
	}
	domains, err := readLabelDomains(p.labelDomains)
	if err != nil {
		return fmt.Errorf("read the allowed label domains: %w", err)
	}
	if err := checkPodMetadata(extra, domains); err != nil {
		return invalidMetadata(err)
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
	if pool, adoptable := memberOf(sandbox); !adoptable || pool != p.claim.Spec.WarmPoolRef.Name {
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
	change := &metaChange{}
	change.setAnnotation(proto.AnnotationAssignedSandboxName, name)
	change.deleteLabel(proto.LabelAssignedSandboxName)
	if err := p.patchMetadata(ctx, change); err != nil {
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
	key := types.NamespacedName{Namespace: p.claim.Namespace, Name: name}
	sandbox := &agents.Sandbox{}
	if err := p.client.Get(ctx, key, sandbox, client.UnsafeDisableDeepCopy); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	sandbox, _ = p.sandboxes.newest(key, sandbox, true)
	return sandbox, nil
}

// readThrough is readCached, except that only the API server is believed when it says that there is no such Sandbox.
func (p *claimPass) readThrough(ctx context.Context, name string) (*agents.Sandbox, error) {
	sandbox, err := p.readCached(ctx, name)
	if sandbox != nil || err != nil {
		return sandbox, err
	}
	return p.readLive(ctx, name)
}

func (p *claimPass) readLive(ctx context.Context, name string) (*agents.Sandbox, error) {
	sandbox := &agents.Sandbox{}
	if err := p.live.Get(ctx, types.NamespacedName{Namespace: p.claim.Namespace, Name: name}, sandbox); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return sandbox, nil
}

// warmPool returns the claim's pool. The result is shared.
func (p *claimPass) warmPool(ctx context.Context) (*ext.SandboxWarmPool, error) {
	pool := &ext.SandboxWarmPool{}
	err := p.getThrough(ctx, poolOf(p.claim), pool)
	if apierrors.IsNotFound(err) {
		return nil, warmPoolNotFound(p.claim.Spec.WarmPoolRef.Name)
	}
	return pool, err
}

// template returns a template of the claim's namespace. The result is shared.
func (p *claimPass) template(ctx context.Context, name string) (*ext.SandboxTemplate, error) {
	template := &ext.SandboxTemplate{}
	err := p.getThrough(ctx, types.NamespacedName{Namespace: p.claim.Namespace, Name: name}, template)
	if apierrors.IsNotFound(err) {
		return nil, templateNotFound(name)
	}
	return template, err
}

// templateOfPool returns the template of the claim's pool.
func (p *claimPass) templateOfPool(ctx context.Context) (*ext.SandboxTemplate, error) {
	pool, err := p.warmPool(ctx)
	if err != nil {
		return nil, err
	}
	return p.template(ctx, pool.Spec.TemplateRef.Name)
}

// getThrough reads from the cache, and from the API server what the cache does not have: clients give up for good on a
// claim whose pool or template is said not to exist.
func (p *claimPass) getThrough(ctx context.Context, key types.NamespacedName, obj client.Object) error {
	err := p.client.Get(ctx, key, obj, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		return p.live.Get(ctx, key, obj)
	}
	return err
}
