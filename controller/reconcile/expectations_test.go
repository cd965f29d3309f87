package reconcile

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestExpectations(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	newOne := func() *expectations { return newExpectations(func() time.Time { return now }) }

	t.Run("creations gate creations until all were seen", func(t *testing.T) {
		e := newOne()
		assert.True(t, e.expectCreations("p", 2))
		assert.False(t, e.expectCreations("p", 1))
		e.lowerCreations("p", 1)
		assert.False(t, e.settled("p"))
		assert.False(t, e.expectCreations("p", 1))
		e.lowerCreations("p", 1)
		assert.True(t, e.settled("p"))
		assert.True(t, e.expectCreations("p", 1))
	})
	t.Run("pools are apart", func(t *testing.T) {
		e := newOne()
		assert.True(t, e.expectCreations("p", 2))
		assert.True(t, e.settled("q"))
		assert.True(t, e.expectCreations("q", 1))
	})
	t.Run("deletions are known by UID", func(t *testing.T) {
		e := newOne()
		e.expectDeletion("p", "s")
		assert.True(t, e.deleting("p", "s"))
		assert.False(t, e.deleting("p", "other"))
		assert.False(t, e.expectCreations("p", 1), "deletions gate creations")
		e.lowerDeletion("p", "other")
		assert.False(t, e.settled("p"))
		e.lowerDeletion("p", "s")
		assert.True(t, e.settled("p"))
		assert.False(t, e.deleting("p", "s"))
	})
	t.Run("seen before the write returned", func(t *testing.T) {
		e := newOne()
		assert.True(t, e.expectCreations("p", 3))
		e.lowerCreations("p", 1) // the event
		e.lowerCreations("p", 2) // the failed ones
		assert.True(t, e.settled("p"))
	})
	t.Run("events of strangers", func(t *testing.T) {
		e := newOne()
		e.lowerCreations("p", 1)
		e.lowerDeletion("p", "s")
		assert.True(t, e.expectCreations("p", 1))
		assert.False(t, e.settled("p"), "an early event counts for nothing")
	})
	t.Run("expire after the last raise", func(t *testing.T) {
		e := newOne()
		assert.True(t, e.expectCreations("p", 1))
		now = now.Add(expectationTTL - time.Second)
		e.expectDeletion("p", "s")
		now = now.Add(time.Second)
		assert.False(t, e.settled("p"))
		now = now.Add(expectationTTL)
		assert.True(t, e.settled("p"))
		assert.False(t, e.deleting("p", "s"))
	})
	t.Run("forget", func(t *testing.T) {
		e := newOne()
		assert.True(t, e.expectCreations("p", 1))
		e.forget("p")
		assert.True(t, e.settled("p"))
	})
}
