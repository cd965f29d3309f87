package record

import (
	"io"
	"strings"
	"testing"
	"time"
)

func BenchmarkObserve(b *testing.B) {
	m := NewMeter("v1")
	class := m.Namespace(strings.Repeat("n", 63))
	started := time.Now()
	observe := func(status int) {
		m.Observe(&Exchange{Started: started, Method: POST, Status: status, Class: class, Up: 1, Down: 1, Dispatched: true})
	}
	for status := 200; status < 205; status++ {
		observe(status)
	}
	b.Run("sequential", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			observe(200)
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				observe(200)
			}
		})
	})
}

func BenchmarkAccessLog(b *testing.B) {
	label := []byte(strings.Repeat("i", 63))
	e := Exchange{Took: time.Millisecond, Method: GET, Status: 200, Peer: []byte("10.0.0.1"), Namespace: "default", ID: label, Path: label}
	for _, mode := range []string{"errors", "all"} {
		b.Run(mode, func(b *testing.B) {
			a, err := NewAccessLog(io.Discard, mode)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				a.Write(&e)
			}
		})
	}
}
