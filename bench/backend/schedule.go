//go:build linux

package backend

import (
	"container/heap"
	"time"
)

// schedule holds the connections that wait for their time, the earliest first.
type schedule struct{ heap waitHeap }

type wait struct {
	at time.Duration
	c  *conn
}

func (s *schedule) add(at time.Duration, c *conn) { heap.Push(&s.heap, wait{at, c}) }

// next returns how long it is until the earliest; below 0: there is none.
func (s *schedule) next(now time.Duration) time.Duration {
	if len(s.heap) == 0 {
		return -1
	}
	return max(0, s.heap[0].at-now)
}

// due takes the earliest connection whose time has come; nil: there is none.
func (s *schedule) due(now time.Duration) *conn {
	if len(s.heap) == 0 || s.heap[0].at > now {
		return nil
	}
	return heap.Pop(&s.heap).(wait).c
}

type waitHeap []wait

func (h waitHeap) Len() int           { return len(h) }
func (h waitHeap) Less(i, j int) bool { return h[i].at < h[j].at }
func (h waitHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *waitHeap) Push(x any)        { *h = append(*h, x.(wait)) }
func (h *waitHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}
