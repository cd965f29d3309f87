//go:build !race

package record

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// exchange has an id and a namespace as long as they may be.
func exchange(m *Meter) Exchange {
	label := strings.Repeat("i", 63)
	return Exchange{
		Started: time.Now(), Method: POST, Status: 200, Class: m.Namespace(label), Up: 1, Down: 1, Peer: []byte("10.0.0.1"),
		ID: []byte(label), Path: []byte("/" + label), RequestID: []byte(label), Dispatched: true,
	}
}

func TestRecordingDoesNotAllocate(t *testing.T) {
	m := NewMeter("v1")
	a, err := NewAccessLog(io.Discard, "all")
	require.NoError(t, err)
	e := exchange(m)
	name := strings.Repeat("i", 63)
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		e.Class = m.Namespace(name)
		m.Observe(&e)
		m.UpstreamError(e.Class, DialRefused)
		a.Write(&e)
	}))
}
