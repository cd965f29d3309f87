//go:build !race

package dial

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReuseDoesNotAllocate(t *testing.T) {
	s := serve(t, "127.0.0.1:0")
	h := host(t, &Dialer{MaxConns: 4, MaxWaits: 4})
	c, _ := acquire(t, h.Pool(s.port))
	require.True(t, h.Pool(s.port).Put(c))
	until := time.Now().Add(time.Hour)
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		p := h.Pool(s.port)
		c, _, err := p.Acquire(until, nil)
		if err != nil {
			t.Fatal(err)
		}
		p.Put(c)
	}))
}
