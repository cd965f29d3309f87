package reconcile

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/dovakiin0/agent-sandbox/controller/priority"
	"github.com/dovakiin0/agent-sandbox/proto"
	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
)

const (
	// maxWriteBehind bounds the write-behind window: an adopted Pod must lose its eviction mark within a second.
	maxWriteBehind = time.Second
	// soon brings a Sandbox that was just marked expired back for the pass that tears it down.
	soon = time.Millisecond
	// minExpiryWait keeps a Sandbox that is about to expire from coming back again and again.
	minExpiryWait = 2 * time.Second
)

// sandboxReconciler keeps the Pod, the PersistentVolumeClaims, the Service and the route of every Sandbox.
type sandboxReconciler struct {
	*shared
	clusterDomain string
	writeBehind   time.Duration

	// due says when a write must be made at the latest that may wait a little, because a more important one on the same
	// object is likely to follow and make it needless: of the metadata of a Pod, or of the status of a Sandbox. The key is
	// the object's UID. The write itself is computed anew by the pass that makes it, so a crash loses nothing.
	due sync.Map
}

func newSandboxReconciler(s *shared, o Options) *sandboxReconciler {
	return &sandboxReconciler{shared: s, clusterDomain: o.ClusterDomain, writeBehind: min(o.WriteBehindWindow, maxWriteBehind)}
}

func setupSandbox(mgr ctrl.Manager, o Options, s *shared) error {
	r := newSandboxReconciler(s, o)
	// Zones of routes come from Nodes. Asked for before the start, the cache is filled before the first pass.
	if _, err := mgr.GetCache().GetInformer(context.Background(), nodeMetadata()); err != nil {
		return fmt.Errorf("watch nodes: %w", err)
	}
	owner := handler.WithLowPriorityWhenUnchanged(handler.EnqueueRequestForOwner(
		mgr.GetScheme(), mgr.GetRESTMapper(), &agents.Sandbox{}, handler.OnlyControllerOwner()))
	tracked := builder.WithPredicates(predicate.NewPredicateFuncs(func(o client.Object) bool {
		return o.GetLabels()[proto.LabelSandboxNameHash] != ""
	}))
	return ctrl.NewControllerManagedBy(mgr).
		Named("sandbox").
		For(&agents.Sandbox{}).
		Watches(&corev1.Pod{}, owner, tracked).
		Watches(&corev1.Service{}, owner, tracked).
		Watches(&discoveryv1.EndpointSlice{}, owner, builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(event.CreateEvent) bool { return false }, // ours, or about to be corrected anyway
		})).
		WithEventFilter(s.client.forgetDeleted(func(o client.Object) { r.due.Delete(o.GetUID()) })).
		WithOptions(controller.Options{MaxConcurrentReconciles: o.SandboxWorkers}).
		Complete(r)
}

// pass is one reconciliation of one Sandbox.
type pass struct {
	sb      *agents.Sandbox // never changed in place: it may belong to the cache
	requeue time.Duration   // 0 for not at all
}

// requeueWithin asks for another pass after at most d.
func (p *pass) requeueWithin(d time.Duration) {
	if p.requeue == 0 || d < p.requeue {
		p.requeue = d
	}
}

// wait reports whether a write to obj that may wait for at most delay does so. If it does, another pass will look again.
func (r *sandboxReconciler) wait(p *pass, obj client.Object, delay time.Duration) bool {
	due, _ := r.due.LoadOrStore(obj.GetUID(), r.now().Add(delay))
	left := due.(time.Time).Sub(r.now())
	if left > 0 {
		p.requeueWithin(left)
	}
	return left > 0
}

// annotate sets an annotation of the Sandbox, or removes it when the value is "".
func (r *sandboxReconciler) annotate(ctx context.Context, p *pass, key, value string) (err error) {
	p.sb, err = patch(ctx, r.client, p.sb, unlocked, func(sb *agents.Sandbox) { setOrDelete(&sb.Annotations, key, value) })
	return err
}

// Reconcile implements reconcile.Reconciler.
func (r *sandboxReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	sb, err := get[agents.Sandbox](ctx, r.client, req.NamespacedName)
	if sb == nil || !sb.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, err // the garbage collector removes what it owns
	}
	ctx, span := startSpan(ctx, "ReconcileSandbox", sb)
	defer span.End()
	p := &pass{sb: sb}
	if value := traceContext(ctx, sb); value != "" {
		if err := r.annotate(ctx, p, proto.AnnotationTraceContext, value); err != nil {
			return ctrl.Result{}, err
		}
	}
	if expired(sb, r.now()) {
		return r.expire(ctx, p)
	}

	if isUpkeep(sb) {
		ctx = priority.Background(ctx)
	} else {
		defer r.gate.Urgent()()
	}
	c := r.reconcileChildren(ctx, p)
	if apierrors.HasStatusCause(c.err, corev1.NamespaceTerminatingCause) {
		return ctrl.Result{}, nil // the namespace takes the Sandbox with it
	}
	now := r.now()
	status := sandboxStatus(p.sb, c, r.clusterDomain, now)
	if expired(p.sb, now) { // a slow pass
		status = expiredStatus(p.sb, status, now)
		p.requeueWithin(soon)
	} else if p.sb.Spec.ShutdownTime != nil {
		p.requeueWithin(max(p.sb.Spec.ShutdownTime.Sub(now), minExpiryWait))
	}

	if isMultiplePods(c.podErr) && readyReason(&p.sb.Status) != reasonMultiplePods {
		r.recorder.Eventf(p.sb, nil, corev1.EventTypeWarning, reasonMultiplePods, "Reconciling", "%s", c.podErr.Error())
	}
	if err := errors.Join(c.err, r.writeStatus(ctx, p, status)); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: p.requeue}, nil
}

// isUpkeep reports whether nobody waits for what a pass does: sb is a member of a pool, or its claim has it already.
func isUpkeep(sb *agents.Sandbox) bool {
	return unclaimedMember(sb) || claimOf(sb) != "" && isReady(sb) && sb.Spec.OperatingMode != agents.OperatingModeSuspended
}

// reconcileChildren goes through all that the Sandbox owns. An error in one step does not stop the others.
func (r *sandboxReconciler) reconcileChildren(ctx context.Context, p *pass) children {
	var c children
	pvcErr := r.reconcilePVCs(ctx, p.sb)
	c.pod, c.podErr = r.reconcilePod(ctx, p)
	errs := []error{pvcErr}
	multiple := isMultiplePods(c.podErr)
	if !multiple { // else the Service stays as it is
		var err error
		c.service, err = r.reconcileService(ctx, p.sb)
		errs = append(errs, c.podErr, err)
	}
	if multiple || c.pod != nil || c.podErr == nil { // else nothing is known of the Pod, and the route stays as it is
		errs = append(errs, r.routes.publish(ctx, p.sb, c.owned(p.sb)))
	}
	c.err = errors.Join(errs...)
	return c
}

// expired reports whether sb has reached its shutdown time.
func expired(sb *agents.Sandbox, now time.Time) bool {
	return sb.Spec.ShutdownTime != nil && !now.Before(sb.Spec.ShutdownTime.Time)
}

// expire handles a Sandbox past its shutdown time in two passes. The first only says so, since nothing may be torn down
// that still looks alive; the second tears down.
func (r *sandboxReconciler) expire(ctx context.Context, p *pass) (ctrl.Result, error) {
	if !markedExpired(p.sb) {
		return ctrl.Result{RequeueAfter: soon}, r.writeStatus(ctx, p, expiredStatus(p.sb, p.sb.Status, r.now()))
	}
	if err := r.tearDown(ctx, p); err != nil {
		return ctrl.Result{}, err
	}
	if policy := p.sb.Spec.ShutdownPolicy; policy != nil && *policy == agents.ShutdownPolicyDelete {
		return ctrl.Result{}, r.client.remove(ctx, p.sb)
	}
	return ctrl.Result{}, r.writeStatus(ctx, p, agents.SandboxStatus{Conditions: p.sb.Status.Conditions})
}

// tearDown closes the route, then deletes the Pod and the Service that the Sandbox owns. PersistentVolumeClaims stay.
func (r *sandboxReconciler) tearDown(ctx context.Context, p *pass) error {
	if err := r.routes.publish(ctx, p.sb, nil); err != nil {
		return err
	}
	pod, err := r.getPod(ctx, p, podNameOf(p.sb))
	if pod != nil && controlledBy(pod, p.sb.UID) {
		err = r.client.remove(ctx, pod)
	}
	svc, svcErr := get[corev1.Service](ctx, r.client, client.ObjectKeyFromObject(p.sb))
	if svc != nil && controlledBy(svc, p.sb.UID) {
		svcErr = r.client.remove(ctx, svc)
	}
	return errors.Join(err, svcErr)
}
