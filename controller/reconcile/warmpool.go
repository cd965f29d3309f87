package reconcile

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovakiin0/agent-sandbox/proto"
	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
	ext "github.com/dovakiin0/agent-sandbox/proto/extensions/v1beta1"
)

const (
	yieldStep = 50 * time.Millisecond // how often a pool looks whether the claims in flight are through
	yieldMax  = time.Second           // longest time that a pool makes way for claims
	statusGap = time.Second           // least time between two writes of counts that are still on the move
	// settleRecheck is when a pool looks again that waits for its own writes to show; events wake it sooner.
	settleRecheck = 30 * time.Second
	graceSlack    = 2 * time.Second // beyond the readiness grace, so that one look is enough
)

// warmPoolReconciler keeps the number of unclaimed sandboxes of each SandboxWarmPool. It never touches pods.
type warmPoolReconciler struct {
	*shared
	options      Options
	expectations *expectations
	memories     *poolMemories

	// pools holds what this process wrote to pools and the cache does not show yet.
	pools *ownWrites[*ext.SandboxWarmPool]
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
	cached := &ext.SandboxWarmPool{}
	err := r.client.Get(ctx, req.NamespacedName, cached, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) || err == nil && !cached.DeletionTimestamp.IsZero() {
		r.forget(req.NamespacedName)
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	pool, _ := r.pools.newest(req.NamespacedName, cached, true)
	p := &poolPass{warmPoolReconciler: r, pool: pool, memory: r.memories.of(pool)}
	err = p.run(ctx)
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return ctrl.Result{}, nil // the namespace takes the pool with it
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: p.requeue}, nil
}

func (r *warmPoolReconciler) forget(key types.NamespacedName) {
	if uid, known := r.memories.forget(key); known {
		r.expectations.forget(uid)
	}
	r.pools.forget(key)
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
	template := &ext.SandboxTemplate{}
	key := types.NamespacedName{Namespace: p.pool.Namespace, Name: p.pool.Spec.TemplateRef.Name}
	err := p.client.Get(ctx, key, template, client.UnsafeDisableDeepCopy)
	if client.IgnoreNotFound(err) != nil {
		return nil, err
	}
	var current *revision
	if err == nil {
		p.template = template
		current = newRevision(template)
	}
	list := &agents.SandboxList{}
	if err := p.client.List(ctx, list, client.InNamespace(p.pool.Namespace),
		client.MatchingFields{indexWarmPool: proto.NameHash(p.pool.Name)}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	members := &poolMembers{}
	for i := range list.Items {
		sandbox, _ := p.sandboxes.newest(client.ObjectKeyFromObject(&list.Items[i]), &list.Items[i], true)
		members.sort(p.pool, sandbox, current, p.expectations.deleting(p.pool.UID, sandbox.UID))
	}
	return members, nil
}

// tend deletes stale and broken members and takes in those that lack something. What is left is active.
func (p *poolPass) tend(ctx context.Context, members *poolMembers) error {
	if _, err := p.deleteAll(ctx, members.stale); err != nil {
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
	change := &metaChange{resourceVersion: sandbox.ResourceVersion}
	change.setLabel(proto.LabelLaunchType, proto.LaunchWarm)
	if controllerOf(sandbox) == nil {
		change.owners = append(sandbox.DeepCopy().OwnerReferences, newControllerRef(p.pool, warmPoolGVK))
	}
	fresh, err := applyPatch(ctx, p.client, sandbox, change.patch())
	if err != nil {
		return nil, err
	}
	p.sandboxes.record(fresh)
	return fresh, nil
}

// checkHealth deletes the members that did not turn Ready in time, except those that no node can take: their
// replacements would not fare better.
func (p *poolPass) checkHealth(ctx context.Context, members *poolMembers) error {
	grace := p.options.WarmPoolReadinessGrace
	var broken []*agents.Sandbox
	held, next := 0, time.Duration(0)
	for _, sandbox := range members.active {
		if isReady(sandbox) {
			continue
		}
		age := p.now().Sub(sandbox.CreationTimestamp.Time)
		if age <= grace {
			if wait := grace - age + graceSlack; next == 0 || wait < next {
				next = wait
			}
			continue
		}
		unschedulable, err := p.unschedulable(ctx, sandbox)
		if err != nil {
			return err
		}
		if unschedulable {
			held++
		} else {
			broken = append(broken, sandbox)
		}
	}
	deleted, err := p.deleteAll(ctx, broken)
	if err != nil {
		return err
	}
	members.dropDeleted(deleted)
	if next > 0 {
		p.requeueWithin(next + rand.N(next/2+1)) // pools that were filled together need not look together
	}
	p.reportProgress(held)
	return nil
}

// unschedulable reports whether the scheduler finds no node for the pod of sandbox.
func (p *poolPass) unschedulable(ctx context.Context, sandbox *agents.Sandbox) (bool, error) {
	pod := &corev1.Pod{}
	key := types.NamespacedName{Namespace: sandbox.Namespace, Name: podNameOf(sandbox)}
	if err := p.client.Get(ctx, key, pod, client.UnsafeDisableDeepCopy); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	if !pod.DeletionTimestamp.IsZero() {
		return false, nil
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled {
			return condition.Status == corev1.ConditionFalse && condition.Reason == corev1.PodReasonUnschedulable, nil
		}
	}
	return false, nil
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
