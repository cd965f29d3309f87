package reconcile

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovakiin0/agent-sandbox/controller/priority"
	"github.com/dovakiin0/agent-sandbox/proto"
	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
	ext "github.com/dovakiin0/agent-sandbox/proto/extensions/v1beta1"
)

const (
	statusGap  = time.Second     // how long counts on the move wait for more to come
	graceSlack = 2 * time.Second // beyond the readiness grace, so that one look is enough
)

// warmPoolReconciler keeps the number of unclaimed sandboxes of each SandboxWarmPool. It never touches pods.
type warmPoolReconciler struct {
	*shared
	options  Options
	memories sync.Map // by UID of the pool: *poolMemory
}

// poolPass is one pass over one pool.
type poolPass struct {
	*warmPoolReconciler
	pool     *ext.SandboxWarmPool // shared, never changed
	template *ext.SandboxTemplate // nil when it does not exist; shared
	memory   *poolMemory
	requeue  time.Duration // 0 for not at all
}

// Reconcile implements reconcile.Reconciler.
func (r *warmPoolReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	pool, err := get[ext.SandboxWarmPool](ctx, r.client, req.NamespacedName)
	if pool == nil || !pool.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, err
	}
	p := &poolPass{warmPoolReconciler: r, pool: pool, memory: r.memoryOf(pool)}
	err = p.run(priority.Background(ctx)) // nobody waits for a member
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return ctrl.Result{}, nil // the namespace takes the pool with it
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: p.requeue}, nil
}

func (p *poolPass) run(ctx context.Context) error {
	members, err := p.members(ctx)
	if err != nil {
		return err
	}
	if err := p.tend(ctx, members); err != nil {
		return err
	}
	if err := p.scale(ctx, members); err != nil {
		return err
	}
	return p.writeStatus(ctx, poolStatus(p.pool, members.active))
}

// members reads the pool's sandboxes and its template, and tells the ones of each kind from the others.
func (p *poolPass) members(ctx context.Context) (*poolMembers, error) {
	template, err := get[ext.SandboxTemplate](ctx, p.client, types.NamespacedName{Namespace: p.pool.Namespace, Name: p.pool.Spec.TemplateRef.Name})
	if err != nil {
		return nil, err
	}
	var current *revision
	if p.template = template; template != nil {
		current = newRevision(template)
	}
	sandboxes, err := list[*agents.Sandbox](ctx, p.client, &agents.SandboxList{}, p.pool.Namespace, indexWarmPool, proto.NameHash(p.pool.Name))
	members := &poolMembers{}
	for _, sandbox := range sandboxes {
		members.sort(p.pool, sandbox, current)
		if p.client.pending(sandbox) {
			p.requeueWithin(ownWriteTTL) // the event of the write should come long before
		}
	}
	return members, err
}

// tend deletes stale and broken members and takes in those that lack something. What is left is active.
func (p *poolPass) tend(ctx context.Context, members *poolMembers) error {
	if err := p.deleteAll(ctx, members.stale); err != nil {
		return err
	}
	for _, sandbox := range members.stale {
		if controlledBy(sandbox, p.pool.UID) {
			members.terminating++ // also if it could not be deleted this time: it takes room until it is gone
		}
	}
	for _, sandbox := range members.incomplete {
		if fresh, err := p.complete(ctx, sandbox); err == nil {
			members.active = append(members.active, fresh)
		} else if !apierrors.IsConflict(err) {
			return err
		}
	}
	return p.checkHealth(ctx, members)
}

// complete gives a member its launch type, and an orphan its owner.
func (p *poolPass) complete(ctx context.Context, sandbox *agents.Sandbox) (*agents.Sandbox, error) {
	return patch(ctx, p.client, sandbox, locked, func(sb *agents.Sandbox) {
		metav1.SetMetaDataLabel(&sb.ObjectMeta, proto.LabelLaunchType, proto.LaunchWarm)
		if controllerOf(sb) == nil {
			sb.OwnerReferences = append(sb.OwnerReferences, newControllerRef(p.pool, warmPoolGVK))
		}
	})
}

// checkHealth deletes the members that did not turn Ready in time, except those that no node can take: their
// replacements would not fare better.
func (p *poolPass) checkHealth(ctx context.Context, members *poolMembers) error {
	grace := p.options.WarmPoolReadinessGrace
	var kept, broken []*agents.Sandbox
	held, next := 0, time.Duration(0)
	for _, sandbox := range members.active {
		keep := true
		if age := p.now().Sub(sandbox.CreationTimestamp.Time); !isReady(sandbox) && age <= grace {
			if wait := grace - age + graceSlack; next == 0 || wait < next {
				next = wait
			}
		} else if !isReady(sandbox) {
			var err error
			if keep, err = p.unschedulable(ctx, sandbox); err != nil {
				return err
			}
			if keep {
				held++
			}
		}
		if keep {
			kept = append(kept, sandbox)
		} else {
			broken = append(broken, sandbox)
		}
	}
	if err := p.deleteAll(ctx, broken); err != nil {
		return err
	}
	members.active = kept
	members.terminating += len(broken) // as with stale ones
	if next > 0 {
		p.requeueWithin(next + rand.N(next/2+1)) // pools that were filled together need not look together
	}
	p.reportProgress(held)
	return nil
}

// unschedulable reports whether the scheduler finds no node for the pod of sandbox.
func (p *poolPass) unschedulable(ctx context.Context, sandbox *agents.Sandbox) (bool, error) {
	pod, err := get[corev1.Pod](ctx, p.client, types.NamespacedName{Namespace: sandbox.Namespace, Name: podNameOf(sandbox)})
	if pod == nil || !pod.DeletionTimestamp.IsZero() {
		return false, err
	}
	scheduled := podCondition(pod, corev1.PodScheduled)
	return scheduled != nil && scheduled.Status == corev1.ConditionFalse && scheduled.Reason == corev1.PodReasonUnschedulable, nil
}

// reportProgress says once that members cannot be scheduled, and once that they can again.
func (p *poolPass) reportProgress(held int) {
	if held > 0 {
		p.requeueWithin(p.options.WarmPoolUnschedulableRecheck)
	}
	if stuck := held > 0; stuck == p.memory.stuck {
		return
	}
	p.memory.stuck = held > 0
	if held == 0 {
		p.recorder.Eventf(p.pool, nil, corev1.EventTypeNormal, "WarmPoolProgressing", "Reconciling", "Warm pool is progressing again")
		return
	}
	p.recorder.Eventf(p.pool, nil, corev1.EventTypeWarning, "WarmPoolNotProgressing", "Reconciling", "%s", fmt.Sprintf(
		"%d/%d sandboxes are unschedulable past the %s readiness grace period; holding them instead of replacing (replacements would be equally unschedulable)",
		held, desiredReplicas(p.pool), p.options.WarmPoolReadinessGrace))
}

// requeueWithin asks for another pass after at most d.
func (p *poolPass) requeueWithin(d time.Duration) {
	if d > 0 && (p.requeue == 0 || d < p.requeue) {
		p.requeue = d
	}
}

// poolStatus is the status of a pool with these active members.
func poolStatus(pool *ext.SandboxWarmPool, active []*agents.Sandbox) ext.SandboxWarmPoolStatus {
	status := ext.SandboxWarmPoolStatus{
		Replicas:           int32(len(active)),
		Selector:           proto.LabelWarmPool + "=" + proto.NameHash(pool.Name),
		ObservedGeneration: pool.Generation,
	}
	for _, sandbox := range active {
		if isReady(sandbox) {
			status.ReadyReplicas++
		}
	}
	return status
}

// writeStatus writes the status if it differs. Counts on the move are written once per burst rather than once per member, and
// not at all if they are back before statusGap; the end of a burst and a new generation are written at once.
func (p *poolPass) writeStatus(ctx context.Context, status ext.SandboxWarmPoolStatus) error {
	desired := int32(desiredReplicas(p.pool))
	if status.Replicas == desired && status.ReadyReplicas == desired {
		p.memory.moving = time.Time{}
	} else if p.memory.moving.IsZero() {
		p.memory.moving = p.now()
	}
	if p.pool.Status == status {
		return nil
	}
	if moving := p.memory.moving; !moving.IsZero() && p.pool.Status.ObservedGeneration == status.ObservedGeneration {
		if wait := moving.Add(statusGap).Sub(p.now()); wait > 0 {
			p.requeueWithin(wait)
			return nil
		}
		p.memory.moving = p.now()
	}
	_, err := patch(ctx, p.client, p.pool, unlocked, func(pool *ext.SandboxWarmPool) { pool.Status = status })
	return client.IgnoreNotFound(err)
}
