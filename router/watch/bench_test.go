package watch

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/dovakiin0/agent-sandbox/proto"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// benchSlice is a slice of sandbox number i with names of 63 bytes, as decoding makes it: with strings of its own.
func benchSlice(i, version int) *discoveryv1.EndpointSlice {
	name63 := func(kind string) string {
		s := fmt.Sprint(kind, "-", i, "-")
		return s + strings.Repeat("x", 63-len(s))
	}
	uid36 := func(kind byte) string { return fmt.Sprintf("%c%07x-aaaa-bbbb-cccc-0123456789ab", kind, i) }
	e := endpoint(fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255), uid36(byte('b'+version%2)))
	e.Zone = to("zone-a")
	s := slice(name63("sandbox"), uid36('a'), e)
	s.Annotations[proto.AnnotationRouteClaim] = name63("claim")
	s.ResourceVersion = strconv.Itoa(version)
	return s
}

func benchFixture(n int) *fixture {
	f := newFixture()
	parts := make([]*part, n)
	for i := range parts {
		parts[i] = read(benchSlice(i, 1))
	}
	if err := f.replace(parts, "1"); err != nil {
		panic(err)
	}
	return f
}

// BenchmarkEvent is what a change of one slice costs, from the decoded object to the table.
func BenchmarkEvent(b *testing.B) {
	for _, n := range []int{1_000, 100_000} {
		f := benchFixture(n)
		s := [2]*discoveryv1.EndpointSlice{benchSlice(n/2, 2), benchSlice(n/2, 3)}
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			b.ReportAllocs()
			for version := 2; b.Loop(); version++ {
				f.set(at(version, s[version%2]))
			}
		})
	}
}

// BenchmarkMemory reports the heap that one sandbox takes in all: what is kept of its slice, and the table.
func BenchmarkMemory(b *testing.B) {
	for _, n := range []int{10_000, 100_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			for b.Loop() {
				before := heap()
				f := benchFixture(n)
				b.ReportMetric(float64(heap()-before)/float64(n), "B/route")
				runtime.KeepAlive(f)
			}
		})
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
