package reconcile

import (
	"cmp"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// candidates holds, for each pool, the sandboxes that claims may adopt, oldest first. Only one claim of this process can
// remove a sandbox, so no two want the same one. Safe for concurrent use.
type candidates struct {
	mu    sync.Mutex
	pools map[types.NamespacedName][]candidate
}

type candidate struct{ name, node string }

func newCandidates() *candidates {
	return &candidates{pools: map[types.NamespacedName][]candidate{}}
}

// add appends a sandbox of the pool, or notes the node of one that is queued already. The node may be empty.
func (c *candidates) add(pool types.NamespacedName, name, node string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := c.find(pool, name); at >= 0 {
		c.pools[pool][at].node = node
	} else {
		c.pools[pool] = append(c.pools[pool], candidate{name, node})
	}
}

// remove drops a sandbox, and reports whether it was queued.
func (c *candidates) remove(pool types.NamespacedName, name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.find(pool, name)
	if at >= 0 {
		c.pools[pool] = slices.Delete(c.pools[pool], at, at+1)
	}
	return at >= 0
}

// dropPool forgets the candidates of a deleted pool.
func (c *candidates) dropPool(pool types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pools, pool)
}

// order returns the candidates of a pool, best first: those on preferred nodes, then those on the nodes with the most of
// them, which spreads what is left; of one node, the oldest; last, those without a node.
func (c *candidates) order(pool types.NamespacedName, preferred func(node string) bool) []string {
	c.mu.Lock()
	waiting := slices.Clone(c.pools[pool])
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

// find returns the place of a sandbox in the queue, -1 when it is not there. The caller holds the lock.
func (c *candidates) find(pool types.NamespacedName, name string) int {
	return slices.IndexFunc(c.pools[pool], func(c candidate) bool { return c.name == name })
}
