package route

import (
	"hash/maphash"
	"math/bits"
)

// The kinds of keys a sandbox is found by.
const (
	byName = iota
	byUID
	byClaim
	kinds
)

// key is the hash of one of a sandbox's names, and whether it has that name at all.
type key struct {
	hash uint64
	ok   bool
}

// keys returns the keys of s by kind: none when s is nil.
func (t *Table[P]) keys(s *Sandbox[P]) (k [kinds]key) {
	if s == nil {
		return k
	}
	k[byName] = key{t.hashString(byName, s.Namespace, s.Name), true}
	if s.UID != "" {
		k[byUID] = key{t.hashString(byUID, "", s.UID), true}
	}
	if s.Claim != "" {
		k[byClaim] = key{t.hashString(byClaim, s.Namespace, s.Claim), true}
	}
	return k
}

// key returns the key that q is looked up by.
func (t *Table[P]) key(q *Query) key {
	switch {
	case len(q.Name) > 0:
		return key{t.hash(byName, q.Namespace, q.Name), true}
	case len(q.Claim) > 0:
		return key{t.hash(byClaim, q.Namespace, q.Claim), true}
	}
	return key{t.hash(byUID, nil, q.UID), len(q.UID) > 0}
}

// hash and hashString are equal for equal bytes. Every kind has a seed of its own, so that one map can hold all kinds.
func (t *Table[P]) hash(kind int, namespace, name []byte) uint64 {
	return bits.RotateLeft64(maphash.Bytes(t.seeds[kind], namespace), 32) ^ maphash.Bytes(t.seeds[kind], name)
}

func (t *Table[P]) hashString(kind int, namespace, name string) uint64 {
	return bits.RotateLeft64(maphash.String(t.seeds[kind], namespace), 32) ^ maphash.String(t.seeds[kind], name)
}

// current is the snapshot or tombstone of a sandbox, or nil.
func (t *Table[P]) current(namespace, name string) *Sandbox[P] {
	c := t.by[byName].find(t.hashString(byName, namespace, name))
	for s := c.next(); s != nil; s = c.next() {
		if s.Name == name && s.Namespace == namespace {
			return s
		}
	}
	return nil
}
