package watch

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
)

const (
	maxGraves = 10_000          // deleted objects that are remembered
	graveAge  = 5 * time.Minute // for how long
	// doubtFor is how much later than a dubious list another one must say the same to be believed.
	doubtFor = 2 * time.Second
)

// errDoubt makes the reflector list again.
var errDoubt = errors.New("the list is not believed until another one confirms it")

// applier turns what a source says of single objects into routes. The reflector's goroutine calls it for each event,
// so it is the single writer of the table; each call costs time in proportion to the sandbox that changed.
//
// Events may come late, twice or out of order. Versions of one object are ordered by resourceVersion; of a deleted
// object the version is remembered for a while. Of several Sandboxes with one name only the youngest ever seen counts.
type applier struct {
	table Table
	stats *Stats

	objects   map[key]*part
	sandboxes map[key]*sandbox
	graves    map[key]uint64 // version of the deletion
	buried    []burial       // in the order of time
	changed   []*sandbox     // to be published

	version uint64    // of the newest list or event
	doubt   time.Time // when a list was first not believed; zero when the last was
}

// sandbox is one name and everything said about it.
type sandbox struct {
	key     key
	parts   []*part
	uid     string // of the youngest Sandbox of this name; empty while only Services of the name are known
	created int64
	version uint64 // with created: how young uid is
	changed bool
	deleted bool // there is proof that the Sandbox with uid was deleted
}

type burial struct {
	object  key
	version uint64
	at      time.Time
}

func newApplier(t Table, stats *Stats) *applier {
	return &applier{
		table: t, stats: stats,
		objects: map[key]*part{}, sandboxes: map[key]*sandbox{}, graves: map[key]uint64{},
	}
}

// set is told that an object was added or changed.
func (a *applier) set(p *part) {
	a.stats.updates.Add(1)
	a.version = max(a.version, p.version)
	if a.learn(p) {
		a.publish()
	} else {
		a.stats.stale.Add(1)
	}
}

// drop is told that an object was deleted.
func (a *applier) drop(p *part) {
	a.stats.updates.Add(1)
	a.version = max(a.version, p.version)
	if old := a.objects[p.object]; old != nil && p.version < old.version {
		a.stats.stale.Add(1)
		return
	}
	a.forget(p.object, max(p.version, a.graves[p.object]))
	a.publish()
}

// replace is told all objects at once, as of the given resourceVersion. It refuses with errDoubt a list that would
// take away everything, or that is older than what is known, until a second one confirms it: an API server that
// just came back may say so without meaning it.
func (a *applier) replace(parts []*part, resourceVersion string) error {
	version, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		return fmt.Errorf("resourceVersion of the list: %w", err)
	}
	if len(a.objects) > 0 && (len(parts) == 0 || version < a.version) {
		if a.doubt.IsZero() {
			a.doubt = time.Now()
			a.stats.doubts.Add(1)
		}
		if time.Since(a.doubt) < doubtFor {
			return errDoubt
		}
		a.rewind(version)
	}
	a.doubt = time.Time{}
	a.version = max(a.version, version)

	listed := make(map[key]struct{}, len(parts))
	for _, p := range parts {
		listed[p.object] = struct{}{}
		a.learn(p)
	}
	for k := range a.objects {
		if _, still := listed[k]; !still {
			a.forget(k, version)
		}
	}
	a.publish()
	a.stats.updates.Add(1)
	a.stats.lastSync.Store(time.Now().UnixNano())
	a.table.SetSynced()
	return nil
}

// rewind gives up the order of versions, for a list that is the truth although it is older than what is known: the
// cluster was restored from a backup.
func (a *applier) rewind(version uint64) {
	if version >= a.version {
		return
	}
	a.version = version
	for _, p := range a.objects {
		p.version = 0
	}
	for _, s := range a.sandboxes {
		s.created, s.version = 0, 0
	}
	clear(a.graves)
	a.buried = nil
}

// learn takes in one object and reports whether it is news.
func (a *applier) learn(p *part) bool {
	old := a.objects[p.object]
	if old != nil && p.version <= old.version || p.version <= a.graves[p.object] {
		return false
	}
	a.detach(old)
	a.objects[p.object] = p
	if p.sandbox == "" {
		return true
	}
	k := key{p.object.namespace, p.sandbox}
	s := a.sandboxes[k]
	if s == nil {
		s = &sandbox{key: k}
		a.sandboxes[k] = s
	}
	s.attach(p)
	a.touch(s)
	return true
}

// forget takes out an object that was deleted at the given version.
func (a *applier) forget(object key, version uint64) {
	if p := a.objects[object]; p != nil {
		delete(a.objects, object)
		if s := a.detach(p); s != nil && p.proof && p.sandboxUID == s.uid {
			s.deleted = true
		}
	}
	a.graves[object] = version
	a.buried = append(a.buried, burial{object, version, time.Now()})
	for len(a.buried) > maxGraves || len(a.buried) > 0 && time.Since(a.buried[0].at) > graveAge {
		b := a.buried[0]
		a.buried = a.buried[1:]
		if a.graves[b.object] == b.version {
			delete(a.graves, b.object)
		}
	}
}

// detach takes a part from its sandbox, if it has one.
func (a *applier) detach(p *part) *sandbox {
	if p == nil || p.sandbox == "" {
		return nil
	}
	s := a.sandboxes[key{p.object.namespace, p.sandbox}]
	s.parts = slices.DeleteFunc(s.parts, func(q *part) bool { return q == p })
	a.touch(s)
	return s
}

func (s *sandbox) attach(p *part) {
	s.parts = append(s.parts, p)
	if p.sandboxUID == "" {
		return
	}
	younger := p.created > s.created || p.created == s.created && p.version > s.version
	if p.sandboxUID == s.uid || s.uid == "" || younger {
		s.uid, s.deleted = p.sandboxUID, false
		s.created, s.version = max(s.created, p.created), max(s.version, p.version)
	}
}

func (a *applier) touch(s *sandbox) {
	if !s.changed {
		s.changed = true
		a.changed = append(a.changed, s)
	}
}

// publish brings the table up to date with the sandboxes that changed.
func (a *applier) publish() {
	for _, s := range a.changed {
		s.changed = false
		if len(s.parts) == 0 {
			delete(a.sandboxes, s.key)
		}
		if r, ok := merge(s.parts, s.uid); ok {
			a.table.Publish(r)
		} else if s.deleted {
			a.table.Remove(s.key.namespace, s.key.name)
		} else {
			a.table.Forget(s.key.namespace, s.key.name)
		}
	}
	clear(a.changed)
	a.changed = a.changed[:0]
}
