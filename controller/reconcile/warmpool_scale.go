package reconcile

import (
	"context"
	"errors"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
)

// maxParallel bounds the writes that a pool has in flight. The API server is busy long before.
const maxParallel = 16

// scale creates what the pool lacks or deletes what it has too many of. Terminating members count until they are gone,
// so that a pool never takes more room than it was given.
func (p *poolPass) scale(ctx context.Context, members *poolMembers) error {
	desired, current := desiredReplicas(p.pool), len(members.active)
	total := current + members.terminating
	hold := p.memory.replenishHold(current, desired, p.options.WarmPoolReplenishDelay, p.now())
	switch {
	case total < desired && p.template != nil && hold > 0:
		p.requeueWithin(hold)
	case total < desired && p.template != nil && p.yields():
		p.requeueWithin(yieldStep)
	case total < desired && p.template != nil:
		return p.create(ctx, min(desired-total, p.options.WarmPoolMaxBatch))
	case current > desired && !p.expectations.settled(p.pool.UID):
		p.requeueWithin(settleRecheck)
	case current > desired:
		_, err := p.deleteAll(ctx, members.excess(min(current-desired, p.options.WarmPoolMaxBatch)))
		return err
	}
	return nil
}

// yields reports whether new members should wait for the claims in flight: the API server is the bottleneck of both, and
// somebody waits for a claim. Only as long as there are enough members for these claims, though.
func (p *poolPass) yields() bool {
	key := client.ObjectKeyFromObject(p.pool)
	claims := p.claimsInFlight.count(key)
	if claims == 0 || claims > p.candidates.count(key) {
		p.memory.yieldingSince = time.Time{}
		return false
	}
	if p.memory.yieldingSince.IsZero() {
		p.memory.yieldingSince = p.now()
	}
	return p.now().Sub(p.memory.yieldingSince) < yieldMax
}

// create makes up to n members, as many as the refill rate allows.
func (p *poolPass) create(ctx context.Context, n int) error {
	granted, wait := p.memory.takeTokens(n, p.options.WarmPoolMaxRefillRate, p.now())
	if granted == 0 {
		p.requeueWithin(wait)
		return nil
	}
	if !p.expectations.expectCreations(p.pool.UID, granted) {
		p.memory.refundTokens(granted)
		p.requeueWithin(settleRecheck)
		return nil
	}
	if granted < n {
		p.requeueWithin(wait)
	}
	prototype := newMember(p.pool, p.template, p.options.WarmPoolEviction)
	started, err := slowStart(granted, func(int) error {
		return p.createMember(ctx, prototype.DeepCopy())
	})
	p.expectations.lowerCreations(p.pool.UID, granted-started)
	return err
}

// createMember gives the member a name like the API server would, so that after an error it can be asked whether the
// member is there nevertheless. If it is, or if that cannot be told, the pool goes on expecting it.
func (p *poolPass) createMember(ctx context.Context, member *agents.Sandbox) error {
	nameMember(member)
	key := client.ObjectKeyFromObject(member)
	err := p.client.Create(ctx, member)
	if err == nil {
		return nil
	}
	if apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(p.live.Get(ctx, key, &agents.Sandbox{})) {
		p.expectations.lowerCreations(p.pool.UID, 1)
	}
	return err
}

// deleteAll deletes sandboxes and returns the UIDs of those that are gone. One that has changed since it was read, which
// may mean that a claim has just adopted it, is left for the pass that the change brings.
func (p *poolPass) deleteAll(ctx context.Context, sandboxes []*agents.Sandbox) (map[types.UID]bool, error) {
	var mu sync.Mutex
	deleted := map[types.UID]bool{}
	_, err := slowStart(len(sandboxes), func(i int) error {
		sandbox := sandboxes[i]
		gone, err := p.delete(ctx, sandbox)
		if gone {
			mu.Lock()
			defer mu.Unlock()
			deleted[sandbox.UID] = true
		}
		return err
	})
	return deleted, err
}

func (p *poolPass) delete(ctx context.Context, sandbox *agents.Sandbox) (gone bool, err error) {
	owned := controlledBy(sandbox, p.pool.UID)
	if owned {
		p.expectations.expectDeletion(p.pool.UID, sandbox.UID)
	}
	err = p.client.Delete(ctx, sandbox, client.Preconditions{UID: &sandbox.UID, ResourceVersion: &sandbox.ResourceVersion})
	if err == nil {
		return true, nil
	}
	if owned {
		p.expectations.lowerDeletion(p.pool.UID, sandbox.UID)
	}
	if apierrors.IsConflict(err) {
		return false, nil
	}
	return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
}

// slowStart calls do for 0 to n-1 in batches that double from 1, so that a request which cannot succeed is not made n
// times. It stops after the first batch with an error and returns the number of calls.
func slowStart(n int, do func(i int) error) (int, error) {
	called := 0
	for size := 1; called < n; size = min(2*size, maxParallel) {
		batch := min(size, n-called)
		errs := make([]error, batch)
		var wait sync.WaitGroup
		for i := range batch {
			wait.Go(func() { errs[i] = do(called + i) })
		}
		wait.Wait()
		called += batch
		if err := errors.Join(errs...); err != nil {
			return called, err
		}
	}
	return called, nil
}
