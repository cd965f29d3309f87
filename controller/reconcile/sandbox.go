package reconcile

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/dovakiin0/agent-sandbox/proto"
	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
)

// fieldOwner is the field manager of all writes to Sandboxes and what they own.
const fieldOwner = "sandbox-controller"

// maxWriteBehind bounds the write-behind window: an adopted Pod must lose its eviction mark within a second.
const maxWriteBehind = time.Second

// sandboxReconciler keeps the Pod, the PersistentVolumeClaims, the Service and the route of every Sandbox.
type sandboxReconciler struct {
	*shared
	clusterDomain string
	writeBehind   time.Duration

	pods     *ownWrites[*corev1.Pod]
	services *ownWrites[*corev1.Service]
	pvcs     *ownWrites[*metav1.PartialObjectMetadata]

	lateMetadata *deferrals // by Pod
	lateStatus   *deferrals // by Sandbox
}

func newSandboxReconciler(s *shared, o Options) *sandboxReconciler {
	own := *s
	own.client = client.WithFieldOwner(s.client, fieldOwner)
	return &sandboxReconciler{
		shared:        &own,
		clusterDomain: o.ClusterDomain,
		writeBehind:   min(o.WriteBehindWindow, maxWriteBehind),
		pods:          newOwnWrites[*corev1.Pod](s.now),
		services:      newOwnWrites[*corev1.Service](s.now),
		pvcs:          newOwnWrites[*metav1.PartialObjectMetadata](s.now),
		lateMetadata:  newDeferrals(),
		lateStatus:    newDeferrals(),
	}
}

func setupSandbox(mgr ctrl.Manager, o Options, s *shared) error {
	r := newSandboxReconciler(s, o)
	// Zones of routes come from Nodes. Asked for before the start, the cache is filled before the first pass.
	if _, err := mgr.GetCache().GetInformer(context.Background(), nodeMetadata()); err != nil {
		return fmt.Errorf("watch nodes: %w", err)
	}
	owned := func(forget func(types.NamespacedName)) handler.EventHandler {
		return forgetDeleted{
			EventHandler: handler.WithLowPriorityWhenUnchanged(handler.EnqueueRequestForOwner(
				mgr.GetScheme(), mgr.GetRESTMapper(), &agents.Sandbox{}, handler.OnlyControllerOwner())),
			forget: forget,
		}
	}
	tracked := builder.WithPredicates(predicate.NewPredicateFuncs(func(o client.Object) bool {
		return o.GetLabels()[proto.LabelSandboxNameHash] != ""
	}))
	return ctrl.NewControllerManagedBy(mgr).
		Named("sandbox").
		For(&agents.Sandbox{}).
		Watches(&corev1.Pod{}, owned(r.pods.forget), tracked).
		Watches(&corev1.Service{}, owned(r.services.forget), tracked).
		Watches(&discoveryv1.EndpointSlice{}, owned(r.routes.slices.forget), builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(event.CreateEvent) bool { return false }, // ours, or about to be corrected anyway
		})).
		WithOptions(controller.Options{MaxConcurrentReconciles: o.SandboxWorkers}).
		Complete(r)
}

// forgetDeleted drops what is remembered of a deleted object before its owner's pass.
type forgetDeleted struct {
	handler.EventHandler
	forget func(types.NamespacedName)
}

// Delete implements handler.EventHandler.
func (h forgetDeleted) Delete(ctx context.Context, e event.DeleteEvent, q workqueue.TypedRateLimitingInterface[ctrl.Request]) {
	h.forget(client.ObjectKeyFromObject(e.Object))
	h.EventHandler.Delete(ctx, e, q)
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

// Reconcile implements reconcile.Reconciler.
func (r *sandboxReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	cached := &agents.Sandbox{}
	if err := r.client.Get(ctx, req.NamespacedName, cached, client.UnsafeDisableDeepCopy); err != nil {
		if client.IgnoreNotFound(err) == nil {
			r.sandboxes.forget(req.NamespacedName)
			r.lateStatus.done(req.NamespacedName)
			r.lateMetadata.done(req.NamespacedName)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	sb, _ := r.sandboxes.newest(req.NamespacedName, cached, true)
	if !sb.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil // the garbage collector removes what it owns
	}
	ctx, span := startSpan(ctx, "ReconcileSandbox", sb)
	defer span.End()
	p := &pass{sb: sb}
	if value := traceContext(ctx, sb); value != "" {
		var change metaChange
		change.setAnnotation(proto.AnnotationTraceContext, value)
		if err := r.patchSandbox(ctx, p, change); err != nil {
			return ctrl.Result{}, err
		}
	}
	if expired(sb, r.now()) {
		return r.expire(ctx, p)
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

// reconcileChildren goes through all that the Sandbox owns. An error in one step does not stop the others.
func (r *sandboxReconciler) reconcileChildren(ctx context.Context, p *pass) children {
	var c children
	pvcErr := r.reconcilePVCs(ctx, p.sb)
	c.pod, c.podErr = r.reconcilePod(ctx, p)
	switch {
	case isMultiplePods(c.podErr): // nothing is chosen, so nothing is routed, and the Service stays as it is
		c.err = errors.Join(pvcErr, r.routes.publish(ctx, p.sb, nil))
	case c.pod == nil && c.podErr != nil: // nothing is known of the Pod, so the route stays as it is
		svc, err := r.reconcileService(ctx, p.sb)
		c.service, c.err = svc, errors.Join(pvcErr, c.podErr, err)
	default:
		svc, err := r.reconcileService(ctx, p.sb)
		c.service, c.err = svc, errors.Join(pvcErr, c.podErr, err, r.routes.publish(ctx, p.sb, c.owned(p.sb)))
	}
	return c
}
