package route

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// Errors of Wait.
var (
	ErrTooManyWaiters = errors.New("too many requests are waiting for a sandbox")
	ErrCanceled       = errors.New("the wait for a sandbox was canceled")
)

// Hold says how long a request may wait for a sandbox and what it costs meanwhile.
type Hold struct {
	Until   time.Time       // the end, while the sandbox is known and not ready, or the table is not synced
	Unknown time.Time       // the end while the sandbox is unknown
	Cancel  <-chan struct{} // ends the wait early; may be nil
	Bytes   int             // what the request holds in memory, counted against Options.MaxBytes
	Waking  bool            // someone resumes the sandbox: Suspended is worth waiting for, until Until
}

// deadline is how long v is worth waiting for, if at all.
func (h *Hold) deadline(v Verdict) (time.Time, bool) {
	switch v {
	case Unready, Unsynced:
		return h.Until, true
	case Unknown:
		return h.Unknown, true
	case Suspended:
		return h.Until, h.Waking
	}
	return time.Time{}, false
}

// Wait answers q as Find does, but as long as the verdict may improve and h allows it blocks until it does. Every
// change of the sandbox is seen at once. Beside its result, which is what is known at the end, Wait returns
// ErrTooManyWaiters when it could not block for that, and ErrCanceled when h.Cancel was closed.
func (t *Table[P]) Wait(q *Query, h Hold) (Result[P], error) {
	r := t.Find(q)
	if _, worth := h.deadline(r.Verdict); !worth {
		return r, nil
	}
	k := t.key(q)
	w := &waiter{wake: make(chan struct{}, 1)}
	if !t.held.join(k, w, int64(h.Bytes)) {
		return r, ErrTooManyWaiters
	}
	defer t.held.leave(k, w, int64(h.Bytes))
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		// Looking after joining, so that no change falls between the two.
		r = t.Find(q)
		until, worth := h.deadline(r.Verdict)
		left := time.Until(until)
		if !worth || left <= 0 {
			return r, nil
		}
		timer.Reset(left)
		select {
		case <-w.wake:
		case <-timer.C:
		case <-h.Cancel:
			return r, ErrCanceled
		}
	}
}

// waiter is one blocked Wait.
type waiter struct{ wake chan struct{} }

// waiters are the blocked Wait calls by the key they look up. Keys that collide only wake each other.
type waiters struct {
	maxCount, maxPerKey int
	maxBytes            int64

	count atomic.Int64 // lets the writer pass without the lock when nobody waits
	mu    sync.Mutex
	bytes int64
	byKey map[key]map[*waiter]struct{}
}

func (ws *waiters) init(maxCount int, maxBytes int64) {
	ws.maxCount, ws.maxPerKey, ws.maxBytes = maxCount, max(1, maxCount/4), maxBytes
	ws.byKey = map[key]map[*waiter]struct{}{}
}

func (ws *waiters) len() int { return int(ws.count.Load()) }

func (ws *waiters) join(k key, w *waiter, bytes int64) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	same := ws.byKey[k]
	if ws.len() >= ws.maxCount || len(same) >= ws.maxPerKey || ws.bytes+bytes > ws.maxBytes {
		return false
	}
	if same == nil {
		same = map[*waiter]struct{}{}
		ws.byKey[k] = same
	}
	same[w] = struct{}{}
	ws.bytes += bytes
	ws.count.Add(1)
	return true
}

func (ws *waiters) leave(k key, w *waiter, bytes int64) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	same := ws.byKey[k]
	delete(same, w)
	if len(same) == 0 {
		delete(ws.byKey, k)
	}
	ws.bytes -= bytes
	ws.count.Add(-1)
}

// wake makes the waiters of k look again.
func (ws *waiters) wake(k key) {
	if !k.ok || ws.len() == 0 {
		return
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for w := range ws.byKey[k] {
		w.signal()
	}
}

func (ws *waiters) wakeAll() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, same := range ws.byKey {
		for w := range same {
			w.signal()
		}
	}
}

// signal never blocks: one pending signal is enough, since the waiter looks at the table after it.
func (w *waiter) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}
