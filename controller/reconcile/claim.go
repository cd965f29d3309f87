package reconcile

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/dovakiin0/agent-sandbox/proto"
	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
	ext "github.com/dovakiin0/agent-sandbox/proto/extensions/v1beta1"
)

// claimReconciler gives each SandboxClaim one Sandbox.
type claimReconciler struct {
	*shared
	options      Options
	labelDomains string // file with the domains of labels that claims may set
	observed     *firstObserved

	// claims holds what this process wrote to claims and the cache does not show yet.
	claims *ownWrites[*ext.SandboxClaim]
}

// claimPass is one pass over one claim.
type claimPass struct {
	*claimReconciler
	claim *ext.SandboxClaim // as last read or written; shared, never changed in place
	first bool              // no pass has written anything before, provided that this claim is the newest
	stamp map[string]string // annotations that wait for the next write to the claim
}

// Reconcile implements reconcile.Reconciler.
func (r *claimReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	cached := &ext.SandboxClaim{}
	if err := r.client.Get(ctx, req.NamespacedName, cached, client.UnsafeDisableDeepCopy); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	claim, _ := r.claims.newest(req.NamespacedName, cached, true)
	r.deleteLegacyPolicy(ctx, claim)
	if !claim.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	ctx, span := startSpan(ctx, "ReconcileSandboxClaim", claim)
	defer span.End()
	p := &claimPass{claimReconciler: r, claim: claim}
	if r.options.ClaimObservabilityAnnotations {
		p.prepareStamp(ctx)
	}
	if claim.Status.Sandbox.Name == "" {
		defer r.claimsInFlight.enter(poolOf(claim))()
	}
	result, err := p.run(ctx)
	if errors.Is(err, errStaleClaim) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return ctrl.Result{}, nil // another pass follows, or the namespace takes the claim with it
	}
	return result, err
}

func (p *claimPass) run(ctx context.Context) (ctrl.Result, error) {
	if claimExpired(p.claim.Spec.Lifecycle, p.claim.Status.Conditions, p.now()) {
		return p.expire(ctx)
	}
	sandbox, err := p.sandbox(ctx)
	if errors.Is(err, errStaleClaim) {
		return ctrl.Result{}, err
	}
	if wait := (*noAddressYet)(nil); errors.As(err, &wait) {
		return ctrl.Result{RequeueAfter: wait.retryAfter}, p.writeStamp(ctx)
	}
	if err == nil && p.turnsReady(sandbox) {
		// Ready means routable.
		err = p.routes.Publish(ctx, sandbox)
	}
	status := claimStatus(p.claim, claimOutcome{sandbox: sandbox, err: err}, p.now())
	if claimExpired(p.claim.Spec.Lifecycle, status.Conditions, p.now()) {
		// The Sandbox has just been seen to be finished, and there is no time to live after that.
		return p.markExpired(ctx, sandbox)
	}
	if err := p.writeStatus(ctx, status, sandbox); err != nil {
		return ctrl.Result{}, err
	}
	return p.next(err)
}

// next says when to come back.
func (p *claimPass) next(err error) (ctrl.Result, error) {
	known := (*problem)(nil)
	if !errors.As(err, &known) {
		known = &problem{backOff: err != nil}
	}
	if known.backOff {
		return ctrl.Result{}, err
	}
	after := known.retryAfter
	if expiry := claimExpiry(p.claim.Spec.Lifecycle, p.claim.Status.Conditions); !expiry.IsZero() {
		left := max(expiry.Sub(p.now()), expiryStep)
		if after == 0 || left < after {
			after = left
		}
	}
	return ctrl.Result{RequeueAfter: after}, nil
}

// turnsReady reports whether this pass is about to say for the first time that the claim is Ready with this sandbox.
func (p *claimPass) turnsReady(sandbox *agents.Sandbox) bool {
	return sandbox != nil && isReady(sandbox) && !(claimIsReady(p.claim) && p.claim.Status.Sandbox.Name == sandbox.Name)
}

// deleteLegacyPolicy deletes the NetworkPolicy that older controllers made for each claim. It is in nobody's way, so a
// failure does not hold up the claim.
func (r *claimReconciler) deleteLegacyPolicy(ctx context.Context, claim *ext.SandboxClaim) {
	policy := &networkingv1.NetworkPolicy{}
	key := types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name + "-network-policy"}
	err := r.client.Get(ctx, key, policy, client.UnsafeDisableDeepCopy)
	if err == nil && controllerKind(policy, claimGVK.Group, claimGVK.Kind) && controlledBy(policy, claim.UID) {
		err = r.client.Delete(ctx, policy, client.Preconditions{UID: &policy.UID})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		logf.FromContext(ctx).Error(err, "cannot delete the NetworkPolicy of an older controller", "networkPolicy", key.Name)
	}
}

func (p *claimPass) event(reason, action, note string) {
	if p.options.ClaimEvents {
		p.recorder.Eventf(p.claim, nil, corev1.EventTypeNormal, reason, action, "%s", note)
	}
}

// poolOf is the key of the pool that a claim refers to.
func poolOf(claim *ext.SandboxClaim) types.NamespacedName {
	return types.NamespacedName{Namespace: claim.Namespace, Name: claim.Spec.WarmPoolRef.Name}
}

// assignedSandbox is the name of the Sandbox that a pass has committed the claim to, "" when there is none.
func assignedSandbox(claim *ext.SandboxClaim) string {
	if name := claim.Annotations[proto.AnnotationAssignedSandboxName]; name != "" {
		return name
	}
	return claim.Labels[proto.LabelAssignedSandboxName]
}
