package reconcile

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/types"
)

var poolKey = types.NamespacedName{Namespace: "ns", Name: "pool"}

func anyNode(string) bool { return false }

// take removes the best candidate, "" for none.
func take(c *candidates, pool types.NamespacedName) string {
	for _, name := range c.order(pool, anyNode) {
		if c.remove(pool, name) {
			return name
		}
	}
	return ""
}

// drain takes all candidates that are left.
func drain(c *candidates) (names []string) {
	for name := take(c, poolKey); name != ""; name = take(c, poolKey) {
		names = append(names, name)
	}
	return names
}

func TestCandidateOrder(t *testing.T) {
	for name, c := range map[string]struct {
		queue []string // "name@node"
		want  []string
	}{
		"empty":                           {nil, nil},
		"oldest first":                    {[]string{"a@", "b@", "c@"}, []string{"a", "b", "c"}},
		"known nodes before unknown ones": {[]string{"a@", "b@n"}, []string{"b", "a"}},
		"node with most left, ties to the oldest": {[]string{"a@1", "b@2", "c@2", "d@1", "e@2"}, []string{"b", "a", "c", "d", "e"}},
		"twice is once": {[]string{"a@", "b@", "a@"}, []string{"a", "b"}},
		"a node that becomes known keeps the age": {[]string{"a@", "b@n", "a@n"}, []string{"a", "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			queue := newCandidates()
			for _, entry := range c.queue {
				queue.add(poolKey, entry[:1], entry[2:])
			}
			assert.Equal(t, c.want, drain(queue))
		})
	}
}

func TestPreferredNodesComeFirst(t *testing.T) {
	queue := newCandidates()
	for i, node := range []string{"big", "big", "big", "mine"} {
		queue.add(poolKey, fmt.Sprint(i), node)
	}
	mine := func(node string) bool { return node == "mine" }
	assert.Equal(t, []string{"3", "0", "1", "2"}, queue.order(poolKey, mine), "any other rather than none")
}

func TestCandidatesLeave(t *testing.T) {
	queue := newCandidates()
	other := types.NamespacedName{Namespace: "ns", Name: "other"}
	queue.remove(poolKey, "never-seen")
	queue.add(poolKey, "a", "n")
	queue.add(poolKey, "b", "n")
	queue.add(other, "a", "n")
	queue.remove(poolKey, "a")
	assert.Equal(t, []string{"b"}, drain(queue))
	queue.add(poolKey, "a", "n")
	queue.dropPool(poolKey)
	assert.Empty(t, drain(queue))
	assert.Equal(t, "a", take(queue, other), "pools are apart")
}

func TestCandidateIsTakenOnce(t *testing.T) {
	const n, workers = 500, 8
	queue := newCandidates()
	for i := range n {
		queue.add(poolKey, fmt.Sprint(i), fmt.Sprint(i%7))
	}
	var wait sync.WaitGroup
	taken := make([][]string, workers)
	for w := range workers {
		wait.Go(func() { taken[w] = drain(queue) })
	}
	wait.Wait()
	seen := map[string]bool{}
	for _, names := range taken {
		for _, name := range names {
			assert.False(t, seen[name], "%s was taken twice", name)
			seen[name] = true
		}
	}
	assert.Len(t, seen, n)
}
