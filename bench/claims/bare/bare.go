package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/dovakiin0/agent-sandbox/proto"
	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
	ext "github.com/dovakiin0/agent-sandbox/proto/extensions/v1beta1"
)

var (
	sandboxKind = agents.GroupVersion.WithKind("Sandbox")
	claimKind   = ext.GroupVersion.WithKind("SandboxClaim")
	poolKind    = ext.GroupVersion.WithKind("SandboxWarmPool")
)

// bare is the controller. Its cache is behind its writes, so it counts members itself: no pool grows too large, and no member
// is given away twice.
type bare struct {
	client.Client
	changed chan event.TypedGenericEvent[types.NamespacedName] // pools that won or lost a member

	mu    sync.Mutex
	pools map[types.NamespacedName]*pool
	taken map[types.NamespacedName]member // by claim
}

// pool holds the members that no claim has taken.
type pool struct {
	starting map[string]bool
	ready    []member // the oldest first

	// Of the pool's reconciler alone.
	generation int64
	named      int      // members, all that ever were
	creating   []string // members that may not be created yet
	written    counts
	due        time.Time // of a status that does not say that the pool is full
}

// member is a Sandbox that is Ready.
type member struct {
	name   string
	podIPs []string
}

// counts is the status of a pool.
type counts struct {
	Replicas      int `json:"replicas"`
	ReadyReplicas int `json:"readyReplicas"`
}

// reconcileSandbox is called when a Sandbox was created, and when its Pod became Ready.
func (b *bare) reconcileSandbox(ctx context.Context, req reconcile.Request) (done reconcile.Result, err error) {
	sandbox, pod := &agents.Sandbox{}, &corev1.Pod{}
	if err := b.Get(ctx, req.NamespacedName, sandbox); err != nil {
		return done, client.IgnoreNotFound(err)
	}
	if err := b.Get(ctx, req.NamespacedName, pod); apierrors.IsNotFound(err) {
		template := &sandbox.Spec.PodTemplate
		pod.ObjectMeta = metadata(req.NamespacedName, controlledBy(sandbox, sandboxKind), template.Metadata.Labels)
		pod.Annotations, pod.Spec = template.Metadata.Annotations, template.Spec
		return done, client.IgnoreAlreadyExists(b.Create(ctx, pod))
	} else if err != nil || !podReady(pod) {
		return done, err
	}
	m := member{name: req.Name}
	for _, ip := range pod.Status.PodIPs {
		m.podIPs = append(m.podIPs, ip.IP)
	}
	if err := b.patch(ctx, sandboxKind, req.NamespacedName, fields{"status": fields{"podIPs": m.podIPs, "conditions": conditions()}}); err != nil {
		return done, err
	}
	owner := metav1.GetControllerOf(sandbox)
	if owner == nil {
		return done, nil
	}
	key := types.NamespacedName{Namespace: req.Namespace, Name: owner.Name}
	if owner.Kind == claimKind.Kind {
		return done, b.serve(ctx, key, m)
	}
	b.offer(key, m)
	b.wake(ctx, key)
	return done, nil
}

// reconcileClaim is called when a claim was created. If no member is Ready, the claim gets a Sandbox of its own name and is
// served when that is.
func (b *bare) reconcileClaim(ctx context.Context, req reconcile.Request) (done reconcile.Result, err error) {
	claim := &ext.SandboxClaim{}
	if err := b.Get(ctx, req.NamespacedName, claim); err != nil {
		return done, client.IgnoreNotFound(err)
	}
	pool := types.NamespacedName{Namespace: req.Namespace, Name: claim.Spec.WarmPoolRef.Name}
	owner := controlledBy(claim, claimKind)
	m := b.take(pool, req.NamespacedName)
	if m.name == "" {
		return done, b.create(ctx, pool, metadata(req.NamespacedName, owner, map[string]string{proto.LabelClaimUID: string(claim.UID)}))
	}
	sandbox := types.NamespacedName{Namespace: req.Namespace, Name: m.name}
	if err := b.patch(ctx, sandboxKind, sandbox, fields{"metadata": fields{
		"ownerReferences": owner, "labels": fields{proto.LabelWarmPool: nil, proto.LabelClaimUID: claim.UID},
	}}); err != nil {
		return done, err
	}
	if err := b.serve(ctx, req.NamespacedName, m); err != nil {
		return done, err
	}
	b.wake(ctx, pool)
	return done, nil
}

// serve tells a claim its Sandbox.
func (b *bare) serve(ctx context.Context, claim types.NamespacedName, m member) error {
	return b.patch(ctx, claimKind, claim, fields{"status": fields{"sandbox": fields{"name": m.name, "podIPs": m.podIPs}, "conditions": conditions()}})
}

// reconcilePool is called when a pool's size was set, and when it won or lost a member. A pool grows as fast as it can; what
// claims took is replaced one by one, which leaves the API server to the claims.
func (b *bare) reconcilePool(ctx context.Context, req reconcile.Request) (done reconcile.Result, err error) {
	object := &ext.SandboxWarmPool{}
	if err := b.Get(ctx, req.NamespacedName, object); err != nil {
		return done, client.IgnoreNotFound(err)
	}
	size, owner, creators := int(*object.Spec.Replicas), controlledBy(object, poolKind), 1 // the CRD has a default size
	p, now := b.grow(req.NamespacedName, size)
	if p.generation != object.Generation {
		p.generation, creators = object.Generation, workers
	}
	errs := make([]error, len(p.creating))
	workqueue.ParallelizeUntil(ctx, creators, len(errs), func(i int) {
		member := types.NamespacedName{Namespace: req.Namespace, Name: p.creating[i]}
		errs[i] = b.create(ctx, req.NamespacedName, metadata(member, owner, map[string]string{proto.LabelWarmPool: proto.NameHash(req.Name)}))
	})
	if err := errors.Join(errs...); err != nil {
		return done, err // the others will be found to exist
	}
	p.creating = nil
	if now == p.written {
		p.due = time.Time{}
		return done, nil
	}
	if full := (counts{size, size}); now != full { // most differences are gone within the second, unwritten
		if p.due.IsZero() {
			p.due = time.Now().Add(time.Second)
		}
		if wait := time.Until(p.due); wait > 0 {
			return reconcile.Result{RequeueAfter: wait}, nil
		}
	}
	if err := b.patch(ctx, poolKind, req.NamespacedName, fields{"status": now}); err != nil {
		return done, err
	}
	p.written, p.due = now, time.Time{}
	return done, nil
}

// grow names the members to create for the pool to have its size.
func (b *bare) grow(key types.NamespacedName, size int) (*pool, counts) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.pool(key)
	for len(p.starting)+len(p.ready) < size {
		p.named++
		name := fmt.Sprintf("%s-%d", key.Name, p.named)
		p.starting[name] = true
		p.creating = append(p.creating, name)
	}
	return p, counts{len(p.starting) + len(p.ready), len(p.ready)}
}

// offer makes a member that is Ready available, once.
func (b *bare) offer(key types.NamespacedName, m member) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.pool(key); p.starting[m.name] {
		delete(p.starting, m.name)
		p.ready = append(p.ready, m)
	}
}

// take returns the member for a claim, the same each time it is asked, and one without a name if none was Ready at first.
func (b *bare) take(key, claim types.NamespacedName) member {
	b.mu.Lock()
	defer b.mu.Unlock()
	m, again := b.taken[claim]
	if p := b.pool(key); !again && len(p.ready) > 0 {
		m, p.ready = p.ready[0], p.ready[1:]
	}
	b.taken[claim] = m
	return m
}

// pool returns what is known of a pool. The lock is held.
func (b *bare) pool(key types.NamespacedName) *pool {
	if b.pools[key] == nil {
		b.pools[key] = &pool{starting: map[string]bool{}}
	}
	return b.pools[key]
}

// wake has a pool reconciled.
func (b *bare) wake(ctx context.Context, pool types.NamespacedName) {
	select {
	case b.changed <- event.TypedGenericEvent[types.NamespacedName]{Object: pool}:
	case <-ctx.Done():
	}
}

// create creates a Sandbox as the template of the pool describes it.
func (b *bare) create(ctx context.Context, pool types.NamespacedName, object metav1.ObjectMeta) error {
	p, template := &ext.SandboxWarmPool{}, &ext.SandboxTemplate{}
	if err := b.Get(ctx, pool, p); err != nil {
		return err
	}
	if err := b.Get(ctx, types.NamespacedName{Namespace: pool.Namespace, Name: p.Spec.TemplateRef.Name}, template); err != nil {
		return err
	}
	sandbox := &agents.Sandbox{ObjectMeta: object, Spec: agents.SandboxSpec{SandboxBlueprint: template.Spec.SandboxBlueprint}}
	sandbox.Spec.PodTemplate.Spec.AutomountServiceAccountToken = new(false) // no Pod of bench/claims wants one
	return client.IgnoreAlreadyExists(b.Create(ctx, sandbox))
}

type fields = map[string]any

// patch merges fields into an object, or into its status. It has only the metadata sent back.
func (b *bare) patch(ctx context.Context, kind schema.GroupVersionKind, key types.NamespacedName, change fields) error {
	object := &metav1.PartialObjectMetadata{ObjectMeta: metadata(key, nil, nil)}
	object.SetGroupVersionKind(kind)
	text, err := json.Marshal(change)
	if err != nil {
		return err
	}
	patch := client.RawPatch(types.MergePatchType, text)
	if _, ok := change["status"]; ok {
		return b.Status().Patch(ctx, object, patch)
	}
	return b.Patch(ctx, object, patch)
}

func metadata(key types.NamespacedName, owner []metav1.OwnerReference, labels map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, OwnerReferences: owner, Labels: labels}
}

func controlledBy(owner metav1.Object, kind schema.GroupVersionKind) []metav1.OwnerReference {
	return []metav1.OwnerReference{*metav1.NewControllerRef(owner, kind)}
}

// conditions returns those of what is Ready.
func conditions() []metav1.Condition {
	return []metav1.Condition{{
		Type: string(agents.ConditionReady), Status: metav1.ConditionTrue, Reason: "PodReady", LastTransitionTime: metav1.Now(),
	}}
}

func podReady(object client.Object) bool {
	return slices.ContainsFunc(object.(*corev1.Pod).Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
