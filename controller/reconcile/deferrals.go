package reconcile

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// deferrals remembers writes that may wait a little, because a more important one on the same object is likely to follow
// and make them needless. Nothing is stored but the moment each is due: the write itself is computed anew by the pass
// that makes it, so a crash loses nothing. Safe for concurrent use.
type deferrals struct {
	mu  sync.Mutex
	due map[types.NamespacedName]time.Time
}

func newDeferrals() *deferrals {
	return &deferrals{due: map[types.NamespacedName]time.Time{}}
}

// wait returns how long the write for key may still wait, at most delay after the first call; 0 when it is due.
func (d *deferrals) wait(key types.NamespacedName, delay time.Duration, now time.Time) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	due, ok := d.due[key]
	if !ok {
		due = now.Add(delay)
		d.due[key] = due
	}
	if due.After(now) {
		return due.Sub(now)
	}
	delete(d.due, key)
	return 0
}

// done forgets the write for key: it was made, or is no longer needed.
func (d *deferrals) done(key types.NamespacedName) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.due, key)
}
