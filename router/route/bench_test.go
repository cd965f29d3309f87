package route

import (
	"fmt"
	"net/netip"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// name63 is a name of 63 bytes.
func name63(kind string, i int) string {
	s := kind + "-" + strconv.Itoa(i) + "-"
	return s + strings.Repeat("x", 63-len(s))
}

func uid36(kind byte, i int) string {
	return fmt.Sprintf("%c%07x-aaaa-bbbb-cccc-0123456789ab", kind, i)
}

func benchRecord(i, generation int) *Record {
	ip := [4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}
	return &Record{
		Namespace: "tenant", Name: name63("sandbox", i), UID: uid36('a', i), Claim: name63("claim", i),
		Endpoints: []Address{{Addr: netip.AddrFrom4(ip), PodUID: uid36(byte('b'+generation%2), i), Zone: "zone-a"}},
	}
}

func benchTable(n int) *Table[*payload] {
	table := New(Options[*payload]{Make: func(*Endpoint[*payload]) *payload { return nil }})
	table.SetZone("zone-a")
	for i := range n {
		table.Publish(benchRecord(i, 0))
	}
	table.SetSynced()
	return table
}

// sizes are the numbers of sandboxes that tables are measured with.
var sizes = []int{1_000, 10_000, 100_000, 1_000_000}

// benchNames are the names looked up, in an order far from that of the table.
func benchNames(n int) [][]byte {
	names := make([][]byte, min(n, 1<<16))
	for i := range names {
		names[i] = []byte(name63("sandbox", i*7919%n))
	}
	return names
}

func BenchmarkFind(b *testing.B) {
	for _, n := range sizes {
		table, names := benchTable(n), benchNames(n)
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			b.ReportAllocs()
			q := Query{Namespace: []byte("tenant")}
			for i := 0; b.Loop(); i++ {
				q.Name = names[i%len(names)]
				if table.Find(&q).Verdict != Routable {
					b.Fatal("not found")
				}
			}
		})
		b.Run(fmt.Sprint(n, "/parallel"), func(b *testing.B) { findInParallel(b, table, names) })
	}
}

func findInParallel(b *testing.B, table *Table[*payload], names [][]byte) {
	b.ReportAllocs()
	var start atomic.Int64
	b.RunParallel(func(pb *testing.PB) {
		q := Query{Namespace: []byte("tenant")}
		for i := int(start.Add(9973)); pb.Next(); i++ {
			q.Name = names[i%len(names)]
			if table.Find(&q).Verdict != Routable {
				b.Error("not found")
				return
			}
		}
	})
}

// BenchmarkFindByClaim and BenchmarkFindUnknown are the other two lookups a request may cost.
func BenchmarkFindByClaim(b *testing.B) {
	table := benchTable(100_000)
	q := Query{Namespace: []byte("tenant"), Claim: []byte(name63("claim", 77))}
	b.ReportAllocs()
	for b.Loop() {
		if table.Find(&q).Verdict != Routable {
			b.Fatal("not found")
		}
	}
}

func BenchmarkFindUnknown(b *testing.B) {
	table := benchTable(100_000)
	q := Query{Namespace: []byte("tenant"), Name: []byte(name63("claim", 77))}
	b.ReportAllocs()
	for b.Loop() {
		if table.Find(&q).Verdict != Unknown {
			b.Fatal("found")
		}
	}
}

// BenchmarkFindDuringUpdates is BenchmarkFind of 100,000 sandboxes without and with 1,000 of them changing a second:
// what readers pay for the writer. The writer's own time is in it too, which on two cores is most of the difference.
func BenchmarkFindDuringUpdates(b *testing.B) {
	const n = 100_000
	table, names := benchTable(n), benchNames(n)
	for _, rate := range []int{0, 1_000} {
		b.Run(strconv.Itoa(rate), func(b *testing.B) {
			stop := make(chan struct{})
			var writer sync.WaitGroup
			if rate > 0 {
				writer.Go(func() { update(table, n, rate, stop) })
			}
			findInParallel(b, table, names)
			close(stop)
			writer.Wait()
		})
	}
}

// update replaces pods of the table at the given rate a second until stop is closed.
func update(table *Table[*payload], n, rate int, stop <-chan struct{}) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for i := 0; ; {
		select {
		case <-stop:
			return
		case <-tick.C:
			for range rate / 100 {
				i++
				table.Publish(benchRecord(i*31%n, i/n+1))
			}
		}
	}
}

// BenchmarkPublish replaces the pod of one sandbox; BenchmarkAddRemove makes one that was not there and deletes it.
func BenchmarkPublish(b *testing.B) {
	for _, n := range sizes {
		table := benchTable(n)
		r := [2]*Record{benchRecord(n/2, 0), benchRecord(n/2, 1)}
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			b.ReportAllocs()
			for i := 1; b.Loop(); i++ {
				table.Publish(r[i&1])
			}
		})
	}
}

func BenchmarkAddRemove(b *testing.B) {
	for _, n := range sizes {
		table := benchTable(n)
		r := benchRecord(n, 0)
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				table.Publish(r)
				table.Forget(r.Namespace, r.Name)
			}
		})
	}
}

// BenchmarkMemory reports the heap that one sandbox with 63-byte names takes in the table, strings included.
func BenchmarkMemory(b *testing.B) {
	for _, n := range sizes[:3] {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			for b.Loop() {
				before := heap()
				table := benchTable(n)
				b.ReportMetric(float64(heap()-before)/float64(n), "B/route")
				runtime.KeepAlive(table)
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
