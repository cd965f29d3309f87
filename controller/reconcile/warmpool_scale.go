package reconcile

import (
	"context"
	"errors"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
	ext "github.com/dovakiin0/agent-sandbox/proto/extensions/v1beta1"
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
	case total < desired && p.template != nil:
		return p.create(ctx, min(desired-total, p.options.WarmPoolMaxBatch))
	case current > desired:
		return p.deleteAll(ctx, members.excess(min(current-desired, p.options.WarmPoolMaxBatch)))
	}
	return nil
}

// create makes up to n members, as many as the refill rate allows.
func (p *poolPass) create(ctx context.Context, n int) error {
	granted, wait := p.memory.takeTokens(n, p.options.WarmPoolMaxRefillRate, p.now())
	if granted < n {
		p.requeueWithin(wait)
	}
	prototype := newMember(p.pool, p.template, p.options.WarmPoolEviction)
	return slowStart(granted, func(int) error {
		return p.createMember(ctx, prototype.DeepCopy())
	})
}

// createMember gives the member a name like the API server would, so that after an error it can be asked whether the
// member is there nevertheless. If it is, or if that cannot be told, the pool counts it.
func (p *poolPass) createMember(ctx context.Context, member *agents.Sandbox) error {
	nameMember(member)
	err := p.client.Create(ctx, member)
	if err == nil || apierrors.IsAlreadyExists(err) {
		return err
	}
	live, readErr := get[agents.Sandbox](ctx, p.live, client.ObjectKeyFromObject(member))
	switch {
	case readErr != nil:
		p.client.remember(member, true)
	case live != nil:
		p.client.remember(live, true)
	}
	return err
}

// deleteAll deletes sandboxes. One that has changed since it was read, which may mean that a claim has just adopted it, is
// left for the pass that the change brings.
func (p *poolPass) deleteAll(ctx context.Context, sandboxes []*agents.Sandbox) error {
	return slowStart(len(sandboxes), func(i int) error {
		sandbox := sandboxes[i]
		err := p.client.remove(ctx, sandbox, client.Preconditions{UID: &sandbox.UID, ResourceVersion: &sandbox.ResourceVersion})
		if apierrors.IsConflict(err) {
			return nil
		}
		return err
	})
}

// slowStart calls do for 0 to n-1 in batches that double from 1, so that a request which cannot succeed is not made n
// times. It stops after the first batch with an error.
func slowStart(n int, do func(i int) error) error {
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
			return err
		}
	}
	return nil
}

// poolMemory is what the passes over a pool, one at a time, remember from one to the next.
type poolMemory struct {
	stuck  bool      // an event told that members cannot be scheduled
	moving time.Time // since when the counts differ from what is wanted, or when they were last written; zero: they do not

	members  int // active members at the last pass, -1 before the first
	dropAt   time.Time
	tokens   float64 // creations that the refill rate allows now
	tokensAt time.Time
}

func (r *warmPoolReconciler) memoryOf(pool *ext.SandboxWarmPool) *poolMemory {
	memory, _ := r.memories.LoadOrStore(pool.UID, &poolMemory{members: -1})
	return memory.(*poolMemory)
}

// replenishHold notes the number of members and returns how long to hold back new ones: until delay after the last drop.
// The first pass and a full pool hold nothing.
func (m *poolMemory) replenishHold(members, desired int, delay time.Duration, now time.Time) time.Duration {
	dropped := m.members > members
	m.members = members
	switch {
	case members >= desired:
		m.dropAt = time.Time{}
	case dropped:
		m.dropAt = now
	}
	if delay <= 0 || m.dropAt.IsZero() {
		return 0
	}
	return max(m.dropAt.Add(delay).Sub(now), 0)
}

// takeTokens takes up to n tokens of a bucket that holds a second's worth, at least one, and starts full. When it grants
// fewer than n, wait is the time until the next one. A rate of zero is no limit.
func (m *poolMemory) takeTokens(n int, rate float64, now time.Time) (granted int, wait time.Duration) {
	if rate <= 0 {
		return n, 0
	}
	capacity := max(1, rate)
	if m.tokensAt.IsZero() {
		m.tokens = capacity
	} else {
		m.tokens = min(capacity, m.tokens+now.Sub(m.tokensAt).Seconds()*rate)
	}
	m.tokensAt = now
	if m.tokens >= float64(n) { // before any conversion, which a huge rate would overflow
		m.tokens -= float64(n)
		return n, 0
	}
	granted = int(m.tokens)
	m.tokens -= float64(granted)
	return granted, time.Duration((1-m.tokens)/rate*float64(time.Second)) + time.Millisecond
}
