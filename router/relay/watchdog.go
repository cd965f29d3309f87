package relay

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// tick is how often deadlines are looked at. A deadline per read or write would cost a tenth of the router's time; one look
// at all connections twice a second costs next to nothing. Deadlines shorter than precise get a timer of their own.
const (
	tick    = 500 * time.Millisecond
	precise = 5 * time.Second
)

// alarm is the next moment at which a connection wants to be looked at: nanoseconds of the watchdog's clock, 0 for never.
type alarm struct {
	at   atomic.Int64
	slot int
}

// watched is a connection with an alarm. expire is called from the watchdog's goroutine when the alarm is due and must not
// block; it sets the next one.
type watched interface {
	alarm() *alarm
	expire(now time.Time)
}

// watchdog looks after the deadlines of all connections.
type watchdog struct {
	coarse atomic.Int64 // the time of the last tick, for uses that need no better
	shards [16]shard
	next   atomic.Uint32
}

type shard struct {
	mu  sync.Mutex
	all []watched
	_   [32]byte
}

func newWatchdog() *watchdog {
	w := &watchdog{}
	w.coarse.Store(time.Now().UnixNano())
	return w
}

// now is the time, up to a tick old.
func (w *watchdog) now() int64 { return w.coarse.Load() }

// run looks at all alarms until ctx ends.
func (w *watchdog) run(ctx context.Context) {
	t := time.NewTicker(tick)
	defer t.Stop()
	var due []watched
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-t.C:
			w.coarse.Store(now.UnixNano())
			for i := range w.shards {
				due = w.shards[i].due(now.UnixNano(), due[:0])
				for _, d := range due {
					d.expire(now)
				}
			}
			clear(due)
			pipes.trim(now)
		}
	}
}

func (s *shard) due(now int64, due []watched) []watched {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.all {
		if at := d.alarm().at.Load(); at != 0 && at <= now {
			due = append(due, d)
		}
	}
	return due
}

// add begins to look after d and returns what ends it.
func (w *watchdog) add(d watched) *shard {
	s := &w.shards[w.next.Add(1)%uint32(len(w.shards))]
	s.mu.Lock()
	defer s.mu.Unlock()
	d.alarm().slot = len(s.all)
	s.all = append(s.all, d)
	return s
}

func (s *shard) remove(d watched) {
	s.mu.Lock()
	defer s.mu.Unlock()
	slot, last := d.alarm().slot, len(s.all)-1
	s.all[slot] = s.all[last]
	s.all[slot].alarm().slot = slot
	s.all[last] = nil
	s.all = s.all[:last]
}

// each calls fn for every connection. fn must not block or add or remove any.
func (w *watchdog) each(fn func(watched)) {
	for i := range w.shards {
		s := &w.shards[i]
		s.mu.Lock()
		for _, d := range s.all {
			fn(d)
		}
		s.mu.Unlock()
	}
}
