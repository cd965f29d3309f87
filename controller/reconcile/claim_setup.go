package reconcile

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/dovakiin0/agent-sandbox/proto"
	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
	ext "github.com/dovakiin0/agent-sandbox/proto/extensions/v1beta1"
)

func newClaimReconciler(s *shared, o Options) *claimReconciler {
	return &claimReconciler{shared: s, options: o, labelDomains: labelDomainsFile}
}

func setupClaim(mgr ctrl.Manager, o Options, s *shared) error {
	r := newClaimReconciler(s, o)
	return ctrl.NewControllerManagedBy(mgr).
		Named("sandboxclaim").
		For(&ext.SandboxClaim{}, builder.WithPredicates(r.claimEvents())).
		Owns(&agents.Sandbox{}, builder.WithPredicates(predicate.Funcs{UpdateFunc: ownedSandboxChanged})).
		Watches(&ext.SandboxWarmPool{}, handler.EnqueueRequestsFromMapFunc(r.unboundClaims),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&ext.SandboxTemplate{}, handler.EnqueueRequestsFromMapFunc(r.claimsOfTemplate),
			builder.WithPredicates(predicate.Funcs{
				UpdateFunc: func(event.UpdateEvent) bool { return false },
				DeleteFunc: func(event.DeleteEvent) bool { return false },
			})).
		WithEventFilter(s.client.forgetDeleted()).
		WithOptions(controller.Options{MaxConcurrentReconciles: o.ClaimWorkers}).
		Complete(r)
}

// claimEvents lets all events of claims pass, except the echoes of this process's own writes, of which the pass that made
// them knows already.
func (r *claimReconciler) claimEvents() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool {
			if e.Object.GetAnnotations()[proto.AnnotationControllerFirstObserved] == "" {
				r.observedAt(e.Object.GetUID())
			}
			return true
		},
		UpdateFunc: func(e event.UpdateEvent) bool {
			return !r.client.echoes(e.ObjectNew)
		},
		DeleteFunc: func(e event.DeleteEvent) bool {
			r.claimDeleted(e.Object.(*ext.SandboxClaim))
			return false // the garbage collector does the rest
		},
	}
}

// claimDeleted drops what is remembered of the claim. A pool member that it was committed to and did not adopt is free
// again.
func (r *claimReconciler) claimDeleted(claim *ext.SandboxClaim) {
	r.observed.Delete(claim.UID)
	r.firstReady.Delete(claim.UID)
	key := client.ObjectKey{Namespace: claim.Namespace, Name: assignedSandbox(claim)}
	if member, err := get[agents.Sandbox](context.Background(), r.client, key); err == nil && member != nil {
		r.queueMember(member)
	}
}

// ownedSandboxChanged reports whether an update of a Sandbox may change the status of its claim.
func ownedSandboxChanged(e event.UpdateEvent) bool {
	was, is := e.ObjectOld.(*agents.Sandbox), e.ObjectNew.(*agents.Sandbox)
	same := func(condition agents.ConditionType) bool {
		return equality.Semantic.DeepEqual(
			meta.FindStatusCondition(was.Status.Conditions, string(condition)),
			meta.FindStatusCondition(is.Status.Conditions, string(condition)))
	}
	return was.DeletionTimestamp.IsZero() != is.DeletionTimestamp.IsZero() ||
		!equality.Semantic.DeepEqual(was.Status.PodIPs, is.Status.PodIPs) ||
		!same(agents.ConditionReady) || !same(agents.ConditionFinished)
}

// unboundClaims lists the claims of a pool that have no Sandbox yet.
func (r *claimReconciler) unboundClaims(ctx context.Context, pool client.Object) []ctrl.Request {
	return r.claimsOfPool(ctx, client.ObjectKeyFromObject(pool), func(claim *ext.SandboxClaim) bool {
		return claim.Status.Sandbox.Name == ""
	})
}

// claimsOfTemplate lists the claims of all pools that refer to the template.
func (r *claimReconciler) claimsOfTemplate(ctx context.Context, template client.Object) []ctrl.Request {
	var requests []ctrl.Request
	for _, pool := range r.poolsOfTemplate(ctx, template) {
		requests = append(requests, r.claimsOfPool(ctx, pool.NamespacedName, func(*ext.SandboxClaim) bool { return true })...)
	}
	return requests
}

func (r *claimReconciler) claimsOfPool(ctx context.Context, pool types.NamespacedName, wanted func(*ext.SandboxClaim) bool) []ctrl.Request {
	claims, err := list[*ext.SandboxClaim](ctx, r.client, &ext.SandboxClaimList{}, pool.Namespace, indexPool, pool.Name)
	if err != nil {
		logf.FromContext(ctx).Error(err, "cannot list the claims of a pool", "pool", pool.Name)
	}
	var requests []ctrl.Request
	for _, claim := range claims {
		if claim.DeletionTimestamp.IsZero() && wanted(claim) {
			requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(claim)})
		}
	}
	return requests
}
