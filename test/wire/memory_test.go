package wire

import (
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestMemoryDoesNotDependOnBodySize: four large uploads and four large downloads at once, whose readers are slow, cost the
// router no more memory than small ones. The soak program has the case with bodies of 8 GiB.
func TestMemoryDoesNotDependOnBodySize(t *testing.T) {
	const streams = 4
	size, allowed := 256<<20, 48<<20 // of 2 GiB
	if raceBuilt() {
		size, allowed = 32<<20, 128<<20 // the detector keeps a shadow of all memory, and takes its time
	}
	eachPort(t, func(t *testing.T, p port) {
		r := p.ownRouter(t, numberedRoutes(2*streams))
		before := r.memory(t)
		var all sync.WaitGroup
		for range streams {
			down, up := r.sandbox(t), r.sandbox(t)
			all.Go(func() {
				c := r.dial(t)
				c.send(down.get("/"))
				u := down.accept()
				u.request()
				u.send("HTTP/1.1 200 OK⏎Content-Length: " + strconv.Itoa(size) + "⏎⏎")
				pouring := u.pour(size)
				assert.True(t, c.response("GET").body.drains(size))
				assert.NoError(t, <-pouring.done)
			})
			all.Go(func() {
				c := r.dial(t)
				c.send("POST / HTTP/1.1⏎Host: app⏎" + up.route() + "Content-Length: " + strconv.Itoa(size) + "⏎⏎")
				pouring := c.pour(size)
				u := up.accept()
				assert.True(t, u.request().body.drains(size))
				assert.NoError(t, <-pouring.done)
			})
		}
		all.Wait()
		require.Less(t, r.memory(t)-before, allowed, "peak memory grew with the bodies")
	})
}

// drains reads size bytes, checks them, and lets the sender wait now and then.
func (b *body) drains(size int) bool {
	for n := 0; n < size; {
		piece, more := b.piece(MaxPattern)
		if !more || string(piece) != string(Pattern(n, len(piece))) {
			return false
		}
		if before := n; before>>24 != (n+len(piece))>>24 {
			time.Sleep(20 * time.Millisecond) // every 16 MiB
		}
		n += len(piece)
	}
	return true
}
