package reconcile

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// inFlight counts, for each pool, the claims that are being given a Sandbox right now. Pools make way for them. Safe for
// concurrent use.
type inFlight struct {
	mu     sync.Mutex
	claims map[types.NamespacedName]int
}

func newInFlight() *inFlight {
	return &inFlight{claims: map[types.NamespacedName]int{}}
}

// enter counts a claim on the pool until leave is called.
func (f *inFlight) enter(pool types.NamespacedName) (leave func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.claims[pool]++
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.claims[pool]--; f.claims[pool] == 0 {
			delete(f.claims, pool)
		}
	}
}

// count returns how many claims are in flight on the pool.
func (f *inFlight) count(pool types.NamespacedName) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.claims[pool]
}
