package reconcile

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovakiin0/agent-sandbox/proto"
	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
	ext "github.com/dovakiin0/agent-sandbox/proto/extensions/v1beta1"
)

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

// writeStatus writes the status if it differs. Counts on the move are written once per burst rather than once per
// member; the end of a burst and a new generation are written at once.
func (p *poolPass) writeStatus(ctx context.Context, status ext.SandboxWarmPoolStatus) error {
	if p.pool.Status == status {
		return nil
	}
	desired := int32(desiredReplicas(p.pool))
	moving := status.Replicas != desired || status.ReadyReplicas != desired
	if sameGeneration := p.pool.Status.ObservedGeneration == status.ObservedGeneration; moving && sameGeneration {
		if wait := p.memory.statusAt.Add(statusGap).Sub(p.now()); wait > 0 {
			p.requeueWithin(wait)
			return nil
		}
	}
	fresh, err := applyPatch(ctx, p.client.Status(), p.pool, mergePatch(fields{"status": fields{
		"replicas":           omitZero(status.Replicas),
		"readyReplicas":      omitZero(status.ReadyReplicas),
		"selector":           status.Selector,
		"observedGeneration": status.ObservedGeneration,
	}}))
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	p.memory.statusAt = p.now()
	p.pools.record(fresh)
	return nil
}

// omitZero leaves a count of zero out of the object, as the API type does.
func omitZero(n int32) any {
	if n == 0 {
		return nil
	}
	return n
}
