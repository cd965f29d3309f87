package reconcile

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// expectationTTL is how long a pool waits for the cache to show its writes before it trusts the cache as it is.
const expectationTTL = 5 * time.Minute

// expectations counts the creations and deletions of a pool that the cache does not show yet, so that a pool decides
// about more of them only on a view that holds its earlier ones. Raise before the write, settle when the event comes
// and before it enqueues the pool. Pools are known by UID. Safe for concurrent use.
type expectations struct {
	now func() time.Time

	mu     sync.Mutex
	byPool map[types.UID]*outstanding
}

type outstanding struct {
	creations int
	deletions map[types.UID]bool
	raisedAt  time.Time
}

func newExpectations(now func() time.Time) *expectations {
	return &expectations{now: now, byPool: map[types.UID]*outstanding{}}
}

// current returns what is outstanding for the pool, nil if nothing is. The caller holds the lock.
func (e *expectations) current(pool types.UID) *outstanding {
	o := e.byPool[pool]
	if o != nil && (o.creations <= 0 && len(o.deletions) == 0 || e.now().Sub(o.raisedAt) >= expectationTTL) {
		delete(e.byPool, pool)
		return nil
	}
	return o
}

func (e *expectations) raise(pool types.UID) *outstanding {
	o := e.current(pool)
	if o == nil {
		o = &outstanding{deletions: map[types.UID]bool{}}
		e.byPool[pool] = o
	}
	o.raisedAt = e.now()
	return o
}

// settled reports whether the cache shows all that the pool did.
func (e *expectations) settled(pool types.UID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.current(pool) == nil
}

// expectCreations records n creations if nothing is outstanding, else it reports false.
func (e *expectations) expectCreations(pool types.UID, n int) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.current(pool) != nil {
		return false
	}
	e.raise(pool).creations = n
	return true
}

// lowerCreations takes back n creations: they were seen, or they failed.
func (e *expectations) lowerCreations(pool types.UID, n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if o := e.current(pool); o != nil {
		o.creations -= n
	}
}

// expectDeletion records that the pool is about to delete a sandbox.
func (e *expectations) expectDeletion(pool, sandbox types.UID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.raise(pool).deletions[sandbox] = true
}

// lowerDeletion takes a deletion back: it was seen, or it failed.
func (e *expectations) lowerDeletion(pool, sandbox types.UID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if o := e.current(pool); o != nil {
		delete(o.deletions, sandbox)
	}
}

// deleting reports whether the pool deleted the sandbox and the cache does not show it yet.
func (e *expectations) deleting(pool, sandbox types.UID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	o := e.current(pool)
	return o != nil && o.deletions[sandbox]
}

// forget drops what is outstanding for a deleted pool.
func (e *expectations) forget(pool types.UID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.byPool, pool)
}
