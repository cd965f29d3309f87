package route

import "sync/atomic"

// An index finds items by a 64-bit hash: open addressing with linear probing. Readers take no lock and need no
// version, because an item stays in its slot for as long as it is in the array, and a slot that was taken never
// becomes empty again, where probing would end. One writer changes the index, in constant time; when too few slots
// are empty it copies the items into a new array, which readers pick up at their next lookup.
//
// All items with a hash are found, and rarely one with another hash, when its slot changes hands: the caller compares
// keys.
type index[E any] struct {
	slots atomic.Pointer[[]slot[E]]
	dead  *E  // stands in slots whose item was removed
	live  int // slots with an item
	used  int // slots that are not empty
}

// A slot's hash is written before its item, so whoever finds an item that stays finds its hash too.
type slot[E any] struct {
	hash atomic.Uint64
	item atomic.Pointer[E]
}

const minSlots = 8

func (x *index[E]) init() {
	x.dead = new(E)
	x.rebuild()
}

// cursor walks the items of one hash.
type cursor[E any] struct {
	slots []slot[E]
	dead  *E
	hash  uint64
	at    uint64
}

func (x *index[E]) find(hash uint64) cursor[E] {
	return cursor[E]{slots: *x.slots.Load(), dead: x.dead, hash: hash, at: hash}
}

// next returns the next item with the cursor's hash, or nil. The array always has an empty slot, so it ends.
func (c *cursor[E]) next() *E {
	for {
		s := &c.slots[c.at&uint64(len(c.slots)-1)]
		c.at++
		e := s.item.Load()
		if e == nil {
			return nil
		}
		if s.hash.Load() == c.hash && e != c.dead {
			return e
		}
	}
}

// each calls fn for the items until it returns false. Items that come or go meanwhile may be seen or not.
func (x *index[E]) each(fn func(*E) bool) {
	slots := *x.slots.Load()
	for i := range slots {
		if e := slots[i].item.Load(); e != nil && e != x.dead && !fn(e) {
			return
		}
	}
}

func (x *index[E]) add(hash uint64, item *E) {
	if slots := *x.slots.Load(); (x.used+1)*4 > len(slots)*3 {
		x.rebuild()
	}
	x.live++
	if x.place(*x.slots.Load(), hash, item) == nil {
		x.used++
	}
}

// place puts item in the first slot that is free for it, and returns what was there: nil or x.dead.
func (x *index[E]) place(slots []slot[E], hash uint64, item *E) (before *E) {
	i := hash & uint64(len(slots)-1)
	for {
		if before = slots[i].item.Load(); before == nil || before == x.dead {
			break
		}
		i = (i + 1) & uint64(len(slots)-1)
	}
	slots[i].hash.Store(hash)
	slots[i].item.Store(item)
	return before
}

// move takes old from its place and puts item in its own; a key that is absent has no place.
func (x *index[E]) move(from, to key, old, item *E) {
	if from == to {
		if from.ok {
			x.swap(from.hash, old, item)
		}
		return
	}
	if to.ok {
		x.add(to.hash, item)
	}
	if from.ok {
		x.swap(from.hash, old, x.dead)
		x.live--
	}
}

// swap puts item in the slot of old, which is in the index with the same hash.
func (x *index[E]) swap(hash uint64, old, item *E) {
	slots := *x.slots.Load()
	i := hash & uint64(len(slots)-1)
	for slots[i].item.Load() != old {
		i = (i + 1) & uint64(len(slots)-1)
	}
	slots[i].item.Store(item)
}

// rebuild copies the items into an array at most three eighths full. It is three quarters full when the next one is
// due, so each copied item has paid for itself by an added one.
func (x *index[E]) rebuild() {
	size := minSlots
	for x.live*8 > size*3 {
		size *= 2
	}
	slots := make([]slot[E], size)
	if x.used > 0 {
		old := *x.slots.Load()
		for i := range old {
			if e := old[i].item.Load(); e != nil && e != x.dead {
				x.place(slots, old[i].hash.Load(), e)
			}
		}
	}
	x.used = x.live
	x.slots.Store(&slots)
}
