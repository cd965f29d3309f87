package reconcile

import (
	"cmp"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// candidates holds, for each pool, the sandboxes that claims may adopt, oldest first, and how many claims are being given
// one right now. Only one claim of this process can remove a sandbox, so no two want the same one. Safe for concurrent use.
type candidates struct {
	mu    sync.Mutex
	pools map[types.NamespacedName]*candidateQueue
}

type candidateQueue struct {
	waiting []candidate
	claims  int
}

type candidate struct{ name, node string }

func newCandidates() *candidates {
	return &candidates{pools: map[types.NamespacedName]*candidateQueue{}}
}

// of returns the queue of a pool. The caller holds the lock.
func (c *candidates) of(pool types.NamespacedName) *candidateQueue {
	queue := c.pools[pool]
	if queue == nil {
		queue = &candidateQueue{}
		c.pools[pool] = queue
	}
	return queue
}

// add appends a sandbox of the pool, or notes the node of one that is queued already. The node may be empty.
func (c *candidates) add(pool types.NamespacedName, name, node string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	queue := c.of(pool)
	if at := queue.find(name); at >= 0 {
		queue.waiting[at].node = node
	} else {
		queue.waiting = append(queue.waiting, candidate{name, node})
	}
}

// remove drops a sandbox, and reports whether it was queued.
func (c *candidates) remove(pool types.NamespacedName, name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	queue := c.pools[pool]
	if queue == nil {
		return false
	}
	at := queue.find(name)
	if at >= 0 {
		queue.waiting = slices.Delete(queue.waiting, at, at+1)
	}
	return at >= 0
}

// dropPool forgets the candidates of a deleted pool.
func (c *candidates) dropPool(pool types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pools, pool)
}

// enter counts a claim on the pool until leave is called.
func (c *candidates) enter(pool types.NamespacedName) (leave func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	queue := c.of(pool)
	queue.claims++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if queue.claims--; queue.claims == 0 && len(queue.waiting) == 0 && c.pools[pool] == queue {
			delete(c.pools, pool)
		}
	}
}

// serve reports whether there are claims on the pool right now and candidates for all of them.
func (c *candidates) serve(pool types.NamespacedName) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	queue := c.pools[pool]
	return queue != nil && queue.claims > 0 && queue.claims <= len(queue.waiting)
}

// order returns the candidates of a pool, best first: those on preferred nodes, then those on the nodes with the most of
// them, which spreads what is left; of one node, the oldest; last, those without a node.
func (c *candidates) order(pool types.NamespacedName, preferred func(node string) bool) []string {
	c.mu.Lock()
	var waiting []candidate
	if queue := c.pools[pool]; queue != nil {
		waiting = slices.Clone(queue.waiting)
	}
	c.mu.Unlock()
	var nodes []string // in the order of their oldest candidates
	byNode := map[string][]string{}
	for _, c := range waiting {
		if byNode[c.node] == nil {
			nodes = append(nodes, c.node)
		}
		byNode[c.node] = append(byNode[c.node], c.name)
	}
	slices.SortStableFunc(nodes, func(a, b string) int {
		return cmp.Or(
			trueFirst(preferred(a), preferred(b)),
			trueFirst(a != "", b != ""),
			cmp.Compare(len(byNode[b]), len(byNode[a])),
		)
	})
	names := make([]string, 0, len(waiting))
	for _, node := range nodes {
		names = append(names, byNode[node]...)
	}
	return names
}

func trueFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

func (q *candidateQueue) find(name string) int {
	return slices.IndexFunc(q.waiting, func(c candidate) bool { return c.name == name })
}
