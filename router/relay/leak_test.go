package relay

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dovakiin0/agent-sandbox/router/route"
)

// TestSandboxesLeaveNothingBehind has thousands of sandboxes come, get a request and go. The soak program does it with a
// hundred thousand.
func TestSandboxesLeaveNothingBehind(t *testing.T) {
	const sandboxes, remembered, heapSlack = 3000, 1000, 1 << 20
	r := start(t, func(s *setup) { s.graves = remembered })
	s := listen(t, "127.0.0.1:0", func(c net.Conn, in *bufio.Reader) {
		for {
			if _, err := readHead(in); err != nil {
				return
			}
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhere")
		}
	})
	c := r.dial(t)
	visit := func(name string) {
		r.table.Publish(&route.Record{Namespace: "default", Name: name, UID: name, Endpoints: []route.Address{
			{Addr: netip.MustParseAddr("127.0.0.1"), PodUID: name},
		}})
		_, err := io.WriteString(c, strings.Replace(head("GET / HTTP/1.1", s.port), id, name, 1)+"\r\n")
		require.NoError(t, err)
		answer, err := http.ReadResponse(c.in, nil)
		require.NoError(t, err)
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.Equal(t, "here", string(body))
		r.table.Remove("default", name)
	}
	alone := func() bool { return r.connections() == 1 } // the caller's own
	descriptors, goroutines, heap := 0, 0, uint64(0)
	for n := range sandboxes {
		if n == remembered {
			eventually(t, alone, "connections are left")
			descriptors, goroutines, heap = openDescriptors(t), runtime.NumGoroutine(), liveHeap()
		}
		visit(fmt.Sprintf("s%d", n))
	}
	eventually(t, alone, "connections are left")
	eventually(t, func() bool { return openDescriptors(t) <= descriptors }, "descriptors are left")
	const looking = 1 // eventually asks from a goroutine of its own
	eventually(t, func() bool { return runtime.NumGoroutine()-looking <= goroutines }, "goroutines are left")
	assert.Less(t, liveHeap(), heap+heapSlack, "memory is left")
}

// liveHeap is how much memory is in use.
func liveHeap() uint64 {
	var m runtime.MemStats
	for range 2 { // pools keep what they hold for one more round
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
