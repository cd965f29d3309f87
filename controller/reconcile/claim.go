package reconcile

import (
	"context"
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/dovakiin0/agent-sandbox/controller/priority"
	"github.com/dovakiin0/agent-sandbox/proto"
	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
	ext "github.com/dovakiin0/agent-sandbox/proto/extensions/v1beta1"
)

// claimReconciler gives each SandboxClaim one Sandbox.
type claimReconciler struct {
	*shared
	options      Options
	labelDomains string   // file with the domains of labels that claims may set
	observed     sync.Map // by UID of the claim, when this process first saw it
	firstReady   sync.Map // by UID of the claim, when it was first Ready; until that is written down
}

// claimPass is one pass over one claim.
type claimPass struct {
	*claimReconciler
	claim *ext.SandboxClaim // as last read or written; shared, never changed in place
	first bool              // no pass has written anything before, provided that this claim is the newest
	stamp map[string]string // annotations that wait for the next write to the claim
	ready bool              // this pass has made the claim Ready for the first time
}

// Reconcile implements reconcile.Reconciler.
func (r *claimReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	claim, err := get[ext.SandboxClaim](ctx, r.client, req.NamespacedName)
	if claim == nil {
		return ctrl.Result{}, err
	}
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
	if !claimIsReady(claim) {
		defer r.gate.Urgent()()
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
	if known := problemOf(err); known != nil && known.reason == "" {
		return ctrl.Result{RequeueAfter: known.retryAfter}, p.writeStamp(ctx)
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
	if p.ready {
		return ctrl.Result{RequeueAfter: soon, Priority: new(handler.LowPriority)}, nil // for noteFirstReady, after other claims
	}
	if err := p.noteFirstReady(ctx); err != nil {
		return ctrl.Result{}, err
	}
	return p.next(err)
}

// next says when to come back.
func (p *claimPass) next(err error) (ctrl.Result, error) {
	known := problemOf(err)
	switch {
	case known == nil && err != nil || known != nil && known.backOff:
		return ctrl.Result{}, err
	case known == nil:
		known = &problem{}
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
	key := client.ObjectKey{Namespace: claim.Namespace, Name: claim.Name + "-network-policy"}
	policy, err := get[networkingv1.NetworkPolicy](ctx, r.client, key)
	if policy != nil && controllerKind(policy, claimGVK.Group, claimGVK.Kind) && controlledBy(policy, claim.UID) {
		err = r.client.remove(ctx, policy)
	}
	if err != nil {
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

// Every write to a claim carries the version that the pass has seen, and the pass goes on with the server's answer. So
// no write builds on less than the last one, and a conflict means that somebody else had a say.

// prepareStamp notes what a claim is stamped with that is new to this controller.
func (p *claimPass) prepareStamp(ctx context.Context) {
	p.stamp = map[string]string{}
	if p.claim.Annotations[proto.AnnotationControllerFirstObserved] == "" {
		p.first = true
		p.stamp[proto.AnnotationControllerFirstObserved] = p.observedAt(p.claim.UID).UTC().Format(time.RFC3339Nano)
	}
	if trace := traceContext(ctx, p.claim); trace != "" {
		p.stamp[proto.AnnotationTraceContext] = trace
	}
}

// write changes the claim, and makes the server's answer the base of the rest of the pass and of the next one.
func (p *claimPass) write(ctx context.Context, change func(*ext.SandboxClaim)) (err error) {
	p.claim, err = replace(ctx, p.client, p.claim, change)
	return staleIfRefused(err)
}

// writeMetadata changes the claim's metadata, together with the stamp that waits.
func (p *claimPass) writeMetadata(ctx context.Context, change func(*ext.SandboxClaim)) error {
	err := p.write(ctx, func(claim *ext.SandboxClaim) {
		for key, value := range p.stamp {
			metav1.SetMetaDataAnnotation(&claim.ObjectMeta, key, value)
		}
		change(claim)
	})
	if err == nil {
		p.stamp = nil
	}
	return err
}

// writeStamp writes the stamp if no other write took it along.
func (p *claimPass) writeStamp(ctx context.Context) error {
	return p.writeMetadata(ctx, func(*ext.SandboxClaim) {})
}

// writeStatus writes the status if it differs, and measures how long the claim took if that makes it Ready for the first
// time.
func (p *claimPass) writeStatus(ctx context.Context, status ext.SandboxClaimStatus, sandbox *agents.Sandbox) error {
	if err := p.writeStamp(ctx); err != nil {
		return err
	}
	wasReady := claimIsReady(p.claim)
	if err := p.write(ctx, func(claim *ext.SandboxClaim) { claim.Status = status }); err != nil {
		return err
	}
	if wasReady || !claimIsReady(p.claim) || p.claim.Annotations[proto.AnnotationClaimFirstReady] != "" {
		return nil
	}
	now := p.now()
	if _, known := p.firstReady.LoadOrStore(p.claim.UID, now); known {
		return nil
	}
	p.ready = true
	seen := annotationTime(p.claim, proto.AnnotationControllerFirstObserved)
	if seen.IsZero() {
		seen = p.observedAt(p.claim.UID)
	}
	observeClaimReady(p.claim, sandbox, seen, now)
	return nil
}

// noteFirstReady writes down when the claim was Ready for the first time, so that it counts once in the latency metrics.
// Of a claim that was Ready before this process saw it, the time is not known.
func (p *claimPass) noteFirstReady(ctx context.Context) error {
	if p.claim.Annotations[proto.AnnotationClaimFirstReady] != "" {
		return nil
	}
	value := "unknown"
	if at, known := p.firstReady.Load(p.claim.UID); known {
		value = at.(time.Time).UTC().Format(time.RFC3339Nano)
	} else if !claimIsReady(p.claim) {
		return nil
	}
	err := p.writeMetadata(priority.Background(ctx), func(claim *ext.SandboxClaim) {
		metav1.SetMetaDataAnnotation(&claim.ObjectMeta, proto.AnnotationClaimFirstReady, value)
	})
	if err == nil {
		p.firstReady.Delete(p.claim.UID)
	}
	return err
}

// staleIfRefused turns the refusal of a write to an outdated or deleted claim into errStaleClaim.
func staleIfRefused(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return errStaleClaim
	}
	return err
}

func claimIsReady(claim *ext.SandboxClaim) bool {
	return meta.IsStatusConditionTrue(claim.Status.Conditions, string(agents.ConditionReady))
}

// observedAt returns when the claim was first seen, which is now if it was not.
func (r *claimReconciler) observedAt(claim types.UID) time.Time {
	seen, _ := r.observed.LoadOrStore(claim, r.now())
	return seen.(time.Time)
}
