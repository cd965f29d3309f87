package reconcile

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// verdict is what a claim thinks of a candidate.
type verdict int

const (
	verdictDrop verdict = iota // never adoptable again: leave the queue
	verdictSkip                // not now: keep its place
	verdictHold                // acceptable if no better one follows
	verdictTake                // take it and look no further
)

// candidates holds, for each pool, the sandboxes that claims may adopt, oldest first. A sandbox that was taken is in
// nobody else's reach, so two claims of this process never want the same one. Safe for concurrent use.
type candidates struct {
	mu    sync.Mutex
	clock uint64
	pools map[types.NamespacedName]*candidateList
}

// candidateList keeps the members of one pool by node, each list in the order of arrival.
type candidateList struct {
	nodeOf map[string]string
	byNode map[string][]candidate
}

type candidate struct {
	name string
	age  uint64 // smaller is older
}

func newCandidates() *candidates {
	return &candidates{pools: map[types.NamespacedName]*candidateList{}}
}

// add appends a sandbox of the pool, or notes the node of one that is queued already. The node may be empty.
func (c *candidates) add(pool types.NamespacedName, name, node string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := c.pools[pool]
	if list == nil {
		list = &candidateList{nodeOf: map[string]string{}, byNode: map[string][]candidate{}}
		c.pools[pool] = list
	}
	c.clock++
	entry := candidate{name: name, age: c.clock}
	if known, queued := list.nodeOf[name]; queued {
		if known == node {
			return
		}
		entry = list.remove(name)
	}
	list.insert(entry, node)
}

// remove drops a sandbox, if it is queued.
func (c *candidates) remove(pool types.NamespacedName, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if list := c.pools[pool]; list != nil {
		list.remove(name)
	}
}

// dropPool forgets the candidates of a deleted pool.
func (c *candidates) dropPool(pool types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pools, pool)
}

// count returns how many candidates the pool has.
func (c *candidates) count(pool types.NamespacedName) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if list := c.pools[pool]; list != nil {
		return len(list.nodeOf)
	}
	return 0
}

// take removes and returns the name of the first candidate that judge wants to take, else of the first that it holds,
// else "". First come the preferred nodes, then the nodes with the most candidates, which spreads what is left;
// of one node, the oldest; last, those without a node. Judge runs under the lock, so it must only read from memory.
func (c *candidates) take(pool types.NamespacedName, preferred func(node string) bool, judge func(name string) verdict) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := c.pools[pool]
	if list == nil {
		return ""
	}
	taken := list.choose(preferred, judge)
	list.remove(taken)
	return taken
}

func (l *candidateList) choose(preferred func(node string) bool, judge func(name string) verdict) string {
	held := ""
	for _, node := range l.nodes(preferred) {
		for i := 0; i < len(l.byNode[node]); i++ {
			name := l.byNode[node][i].name
			switch judge(name) {
			case verdictDrop:
				l.remove(name)
				i--
			case verdictHold:
				held = cmp.Or(held, name)
			case verdictTake:
				return name
			}
		}
	}
	return held
}

// nodes returns the nodes in the order in which claims drain them.
func (l *candidateList) nodes(preferred func(node string) bool) []string {
	return slices.SortedFunc(maps.Keys(l.byNode), func(a, b string) int {
		x, y := l.byNode[a], l.byNode[b]
		return cmp.Or(
			trueFirst(preferred(a), preferred(b)),
			trueFirst(a != "", b != ""),
			cmp.Compare(len(y), len(x)),
			cmp.Compare(x[0].age, y[0].age),
		)
	})
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

func (l *candidateList) insert(entry candidate, node string) {
	queue := l.byNode[node]
	at, _ := slices.BinarySearchFunc(queue, entry, func(a, b candidate) int { return cmp.Compare(a.age, b.age) })
	l.byNode[node] = slices.Insert(queue, at, entry)
	l.nodeOf[entry.name] = node
}

func (l *candidateList) remove(name string) candidate {
	node, queued := l.nodeOf[name]
	if !queued {
		return candidate{}
	}
	queue := l.byNode[node]
	at := slices.IndexFunc(queue, func(c candidate) bool { return c.name == name })
	entry := queue[at]
	if len(queue) == 1 {
		delete(l.byNode, node)
	} else {
		l.byNode[node] = slices.Delete(queue, at, at+1)
	}
	delete(l.nodeOf, name)
	return entry
}
