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
	return &warmPoolReconciler{shared: s, options: o}
}

func setupWarmPool(mgr ctrl.Manager, o Options, s *shared) error {
	r := newWarmPoolReconciler(s, o)
	return ctrl.NewControllerManagedBy(mgr).
		Named("sandboxwarmpool").
		For(&ext.SandboxWarmPool{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&agents.Sandbox{}, r.memberEvents()).
		Watches(&ext.SandboxTemplate{}, handler.EnqueueRequestsFromMapFunc(r.poolsOfTemplate),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithEventFilter(s.client.forgetDeleted(r.poolDeleted)).
		WithOptions(controller.Options{MaxConcurrentReconciles: o.WarmPoolWorkers}).
		Complete(r)
}

// poolDeleted drops what is remembered of a pool.
func (r *warmPoolReconciler) poolDeleted(obj client.Object) {
	if _, ok := obj.(*ext.SandboxWarmPool); ok {
		r.candidates.dropPool(client.ObjectKeyFromObject(obj))
		r.memories.Delete(obj.GetUID())
	}
}

// memberEvents keeps the queue of candidates, which enqueues no claim, and enqueues pools whose members change.
func (r *warmPoolReconciler) memberEvents() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q workQueue) {
			r.memberEvent(nil, e.Object.(*agents.Sandbox), q)
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q workQueue) {
			r.memberEvent(e.ObjectOld.(*agents.Sandbox), e.ObjectNew.(*agents.Sandbox), q)
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q workQueue) {
			r.memberEvent(e.Object.(*agents.Sandbox), nil, q)
		},
	}
}

type workQueue = workqueue.TypedRateLimitingInterface[ctrl.Request]

// memberEvent is told what a Sandbox was and is, nil for nothing.
func (r *warmPoolReconciler) memberEvent(was, is *agents.Sandbox, q workQueue) {
	oldPool, newPool := owningPool(was), owningPool(is)
	if oldPool.Name != "" && (oldPool != newPool || !adoptable(is)) {
		r.candidates.remove(oldPool, was.Name)
	}
	if adoptable(is) && (oldPool != newPool || !adoptable(was) || was.Status.NodeName != is.Status.NodeName) {
		r.queueMember(is)
	}
	if oldPool == newPool && (newPool.Name == "" || !memberChanged(was, is)) {
		return
	}
	for _, pool := range []types.NamespacedName{oldPool, newPool} {
		if pool.Name != "" {
			q.AddAfter(ctrl.Request{NamespacedName: pool}, memberDelay)
		}
	}
}

// memberChanged reports whether an update may change what its pool makes of a member.
func memberChanged(was, is *agents.Sandbox) bool {
	return isReady(was) != isReady(is) ||
		was.Generation != is.Generation ||
		was.DeletionTimestamp.IsZero() != is.DeletionTimestamp.IsZero() ||
		was.Labels[proto.LabelWarmPool] != is.Labels[proto.LabelWarmPool] ||
		was.Labels[proto.LabelLaunchType] != is.Labels[proto.LabelLaunchType] ||
		was.Labels[proto.LabelTemplateRefHash] != is.Labels[proto.LabelTemplateRefHash] ||
		was.Labels[proto.LabelTemplateHash] != is.Labels[proto.LabelTemplateHash]
}

// poolsOfTemplate lists the pools that refer to the template.
func (s *shared) poolsOfTemplate(ctx context.Context, template client.Object) []ctrl.Request {
	pools, err := list[*ext.SandboxWarmPool](ctx, s.client, &ext.SandboxWarmPoolList{}, template.GetNamespace(), indexTemplate, template.GetName())
	if err != nil {
		logf.FromContext(ctx).Error(err, "cannot list the pools of a template", "template", template.GetName())
	}
	var requests []ctrl.Request
	for _, pool := range pools {
		requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(pool)})
	}
	return requests
}
