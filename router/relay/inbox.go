package relay

import "sync"

// Sizes of read buffers, in bytes. Heads and small messages fit the small one; bodies are read with the large one, because
// each read and write costs more than the bytes it moves.
const (
	smallBlock = 8 << 10
	largeBlock = 128 << 10
)

type (
	small struct{ b [smallBlock]byte }
	large struct{ b [largeBlock]byte }
)

var (
	smallBlocks = sync.Pool{New: func() any { return new(small) }}
	largeBlocks = sync.Pool{New: func() any { return new(large) }}
)

// inbox holds bytes that were read and not used yet. It holds memory only while there are any, or while a read is under way.
type inbox struct {
	s     *small
	l     *large
	grown []byte // for a head that is larger than a small block
	buf   []byte // one of the three
	from  int
	to    int
	full  bool // the last read filled its room, so there may be much more
}

func (i *inbox) unread() []byte { return i.buf[i.from:i.to] }

func (i *inbox) add(n int) {
	i.full = i.to+n == len(i.buf)
	i.to += n
}

func (i *inbox) use(n int) {
	i.from += n
	if i.from == i.to {
		i.from, i.to = 0, 0
	}
}

// room returns where to read to: the free end of the block, at least one byte. bulk asks for a large block, where the
// unread bytes allow a change.
func (i *inbox) room(bulk bool) []byte {
	if bulk && i.l == nil && i.from == i.to {
		i.drop()
		i.l = largeBlocks.Get().(*large)
		i.buf = i.l.b[:]
	}
	if i.buf == nil {
		i.s = smallBlocks.Get().(*small)
		i.buf = i.s.b[:]
	}
	if i.to == len(i.buf) {
		if i.from > 0 {
			i.to = copy(i.buf, i.unread())
			i.from = 0
		} else {
			i.grow()
		}
	}
	return i.buf[i.to:]
}

// grow doubles the buffer. Only heads come to this, and they are bounded.
func (i *inbox) grow() {
	bigger := make([]byte, 2*len(i.buf))
	n := copy(bigger, i.unread())
	i.drop()
	i.grown, i.buf, i.to = bigger, bigger, n
}

// rest gives the memory back if no byte is left.
func (i *inbox) rest() {
	if i.from == i.to {
		i.drop()
	}
}

func (i *inbox) drop() {
	if i.s != nil {
		smallBlocks.Put(i.s)
	}
	if i.l != nil {
		largeBlocks.Put(i.l)
	}
	*i = inbox{}
}
