package reconcile

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ext "github.com/dovakiin0/agent-sandbox/proto/extensions/v1beta1"
)

// poolMemories holds what the passes over each pool remember from one to the next. Safe for concurrent use.
type poolMemories struct {
	mu     sync.Mutex
	byPool map[types.NamespacedName]*poolMemory
}

// poolMemory belongs to the one pass over its pool that runs at a time.
type poolMemory struct {
	uid           types.UID
	yieldingSince time.Time // since when claims go first; zero when none do
	stuck         bool      // an event told that members cannot be scheduled
	statusAt      time.Time // of the last status write

	members  int // active members at the last pass, -1 before the first
	dropAt   time.Time
	tokens   float64 // creations that the refill rate allows now
	tokensAt time.Time
}

func newPoolMemories() *poolMemories {
	return &poolMemories{byPool: map[types.NamespacedName]*poolMemory{}}
}

// of returns the memory of this very pool; one that was deleted and made again under its name starts afresh.
func (m *poolMemories) of(pool *ext.SandboxWarmPool) *poolMemory {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := client.ObjectKeyFromObject(pool)
	memory := m.byPool[key]
	if memory == nil || memory.uid != pool.UID {
		memory = &poolMemory{uid: pool.UID, members: -1}
		m.byPool[key] = memory
	}
	return memory
}

// forget drops the memory of a deleted pool and returns its UID.
func (m *poolMemories) forget(key types.NamespacedName) (types.UID, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	memory := m.byPool[key]
	if memory == nil {
		return "", false
	}
	delete(m.byPool, key)
	return memory.uid, true
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

// refundTokens returns tokens that were not used.
func (m *poolMemory) refundTokens(n int) { m.tokens += float64(n) }
