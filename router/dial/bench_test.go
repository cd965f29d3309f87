package dial

import (
	"testing"
	"time"
)

func BenchmarkReuse(b *testing.B) {
	s := serve(b, "127.0.0.1:0")
	h := host(b, &Dialer{MaxConns: 1024, MaxWaits: 1024})
	use := func() {
		p := h.Pool(s.port)
		c, _, err := p.Acquire(time.Time{}, nil)
		if err != nil {
			b.Fatal(err)
		}
		p.Put(c)
	}
	b.Run("sequential", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			use()
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				use()
			}
		})
	})
}

func BenchmarkDial(b *testing.B) {
	s := serve(b, "127.0.0.1:0")
	p := host(b, &Dialer{}).Pool(s.port)
	b.ReportAllocs()
	for b.Loop() {
		c, err := p.Dial(time.Time{}, nil)
		if err != nil {
			b.Fatal(err)
		}
		_ = c.tcp.SetLinger(0) // leaves no port behind
		c.end()
	}
}
