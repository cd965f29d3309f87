package route

import "time"

// Publish makes r the truth about its sandbox. The work is proportional to r, not to the table. It takes over the
// strings of r, not the slices.
func (t *Table[P]) Publish(r *Record) {
	old := t.current(r.Namespace, r.Name)
	if old != nil && old.verdict != Gone && t.same(old, r) {
		return
	}
	s := t.snapshot(r, old)
	t.put(old, s)
	t.sweep()
}

// Remove takes a sandbox out of the table that is known to be deleted, and remembers that for a while. The claim that
// it served is not gone but unknown: another sandbox may be bound to it at any time.
func (t *Table[P]) Remove(namespace, name string) {
	old := t.current(namespace, name)
	if old == nil || old.verdict == Gone {
		return
	}
	tomb := &Sandbox[P]{
		Namespace: old.Namespace, Name: old.Name, UID: old.UID, verdict: Gone, since: time.Now().UnixNano(),
	}
	t.put(old, tomb)
	t.graves = append(t.graves, tomb)
	t.sweep()
}

// Forget takes a sandbox out of the table of which the source knows nothing more.
func (t *Table[P]) Forget(namespace, name string) {
	if old := t.current(namespace, name); old != nil && old.verdict != Gone {
		t.put(old, nil)
	}
}

// SetSynced says that the table is complete: from now on a sandbox that is not in it does not exist.
func (t *Table[P]) SetSynced() {
	if !t.synced.Swap(true) {
		t.held.wakeAll()
	}
}

// SetZone tells the table the router's own zone. It must be called before the first Publish.
func (t *Table[P]) SetZone(zone string) { t.zone = zone }

// put replaces old by s, either of which may be nil, and then tells those who depend on it. Readers that come in
// between find one or the other: every key is compared with the snapshot itself.
func (t *Table[P]) put(old, s *Sandbox[P]) {
	t.count(old, -1)
	t.count(s, 1)
	before, after := t.keys(old), t.keys(s)
	for kind := range t.by {
		t.by[kind].move(before[kind], after[kind], old, s)
	}
	for kind := range t.by {
		t.held.wake(before[kind])
		t.held.wake(after[kind])
	}
	if old == nil {
		return
	}
	for i := range old.members {
		if e := old.members[i].Endpoint; s == nil || !s.has(e) {
			t.retire(e.Payload)
		}
	}
}

func (t *Table[P]) count(s *Sandbox[P], n int64) {
	if s == nil || s.verdict == Gone {
		return
	}
	t.counts[s.State].Add(n)
	for i := range s.members {
		if s.members[i].Condition == Ready {
			t.ready.Add(n)
		}
	}
}

// sweep drops the tombstones that are too old or too many.
func (t *Table[P]) sweep() {
	for len(t.graves) > 0 {
		tomb := t.graves[0]
		if len(t.graves) <= t.maxGone && !t.forgotten(tomb) {
			return
		}
		t.graves = t.graves[1:]
		if t.current(tomb.Namespace, tomb.Name) == tomb {
			t.put(tomb, nil)
		}
	}
}

// forgotten reports whether a tombstone has passed its time. Time ends it even when nothing is written.
func (t *Table[P]) forgotten(tomb *Sandbox[P]) bool {
	return time.Since(time.Unix(0, tomb.since)) > t.goneFor
}
