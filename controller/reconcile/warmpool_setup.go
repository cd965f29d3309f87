package reconcile

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
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

// memberDelay is how long a pool waits after an event of a member for others to join it.
const memberDelay = 100 * time.Millisecond

func newWarmPoolReconciler(s *shared, o Options) *warmPoolReconciler {
	return &warmPoolReconciler{
		shared:       s,
		options:      o,
		expectations: newExpectations(s.now),
		memories:     newPoolMemories(),
		pools:        newOwnWrites[*ext.SandboxWarmPool](s.now),
	}
}

func setupWarmPool(mgr ctrl.Manager, o Options, s *shared) error {
	r := newWarmPoolReconciler(s, o)
	return ctrl.NewControllerManagedBy(mgr).
		Named("sandboxwarmpool").
		For(&ext.SandboxWarmPool{}, builder.WithPredicates(predicate.Funcs{UpdateFunc: r.poolChanged})).
		Watches(&agents.Sandbox{}, r.memberEvents()).
		Watches(&ext.SandboxTemplate{}, handler.EnqueueRequestsFromMapFunc(r.poolsOfTemplate),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: o.WarmPoolWorkers}).
		Complete(r)
}

// poolChanged reports whether an update of a pool is more than the echo of this process's own write.
func (r *warmPoolReconciler) poolChanged(e event.UpdateEvent) bool {
	return !r.pools.echoes(e.ObjectNew.(*ext.SandboxWarmPool))
}

// memberEvents settles expectations, and then enqueues the pool that controls the sandbox or did so until now.
func (r *warmPoolReconciler) memberEvents() handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[ctrl.Request]
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) {
			r.settleCreation(e.Object)
			enqueuePool(q, e.Object)
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			if !e.ObjectNew.GetDeletionTimestamp().IsZero() {
				r.settleDeletion(e.ObjectNew)
			}
			if memberChanged(e.ObjectOld.(*agents.Sandbox), e.ObjectNew.(*agents.Sandbox)) {
				enqueuePool(q, e.ObjectOld)
				enqueuePool(q, e.ObjectNew)
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) {
			r.settleDeletion(e.Object)
			enqueuePool(q, e.Object)
		},
	}
}

func (r *warmPoolReconciler) settleCreation(sandbox client.Object) {
	if pool, ok := owningPool(sandbox); ok {
		r.expectations.lowerCreations(pool, 1)
	}
}

// settleDeletion also does for a sandbox that is still going away: the cache shows it as terminating.
func (r *warmPoolReconciler) settleDeletion(sandbox client.Object) {
	if pool, ok := owningPool(sandbox); ok {
		r.expectations.lowerDeletion(pool, sandbox.GetUID())
	}
}

func owningPool(sandbox client.Object) (types.UID, bool) {
	if !controllerKind(sandbox, warmPoolGVK.Group, warmPoolGVK.Kind) {
		return "", false
	}
	return controllerOf(sandbox).UID, true
}

func enqueuePool(q workqueue.TypedRateLimitingInterface[ctrl.Request], sandbox client.Object) {
	if _, ok := owningPool(sandbox); ok {
		name := types.NamespacedName{Namespace: sandbox.GetNamespace(), Name: controllerOf(sandbox).Name}
		q.AddAfter(ctrl.Request{NamespacedName: name}, memberDelay)
	}
}

// memberChanged reports whether an update may change what the pool makes of its member.
func memberChanged(was, is *agents.Sandbox) bool {
	wasPool, _ := owningPool(was)
	isPool, _ := owningPool(is)
	return wasPool != isPool ||
		isReady(was) != isReady(is) ||
		was.Generation != is.Generation ||
		was.DeletionTimestamp.IsZero() != is.DeletionTimestamp.IsZero() ||
		was.Labels[proto.LabelWarmPool] != is.Labels[proto.LabelWarmPool] ||
		was.Labels[proto.LabelLaunchType] != is.Labels[proto.LabelLaunchType] ||
		was.Labels[proto.LabelTemplateRefHash] != is.Labels[proto.LabelTemplateRefHash] ||
		was.Labels[proto.LabelTemplateHash] != is.Labels[proto.LabelTemplateHash]
}

// poolsOfTemplate lists the pools that refer to the template.
func (s *shared) poolsOfTemplate(ctx context.Context, template client.Object) []ctrl.Request {
	pools := &ext.SandboxWarmPoolList{}
	if err := s.client.List(ctx, pools, client.InNamespace(template.GetNamespace()),
		client.MatchingFields{indexTemplate: template.GetName()}, client.UnsafeDisableDeepCopy); err != nil {
		logf.FromContext(ctx).Error(err, "cannot list the pools of a template", "template", template.GetName())
		return nil
	}
	var requests []ctrl.Request
	for i := range pools.Items {
		requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&pools.Items[i])})
	}
	return requests
}
