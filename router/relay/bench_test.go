package relay

import (
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkTraffic plays each scene through the whole router over loopback, beside net/http's ReverseProxy and beside no proxy
// at all. "sequential" is one caller, "parallel" one for each processor.
func BenchmarkTraffic(b *testing.B) {
	for _, s := range scenes() {
		b.Run(s.name, func(b *testing.B) {
			at := s.sandbox(b)
			r := start(b)
			r.publish("127.0.0.1", "pod")
			for _, proxy := range []struct{ name, addr string }{
				{"router", r.addr}, {"ReverseProxy", reverseProxy(b, at)}, {"direct", "127.0.0.1:" + at},
			} {
				b.Run(proxy.name+"/sequential", func(b *testing.B) {
					p := s.player(b, proxy.addr)
					b.SetBytes(s.bytes)
					b.ReportAllocs()
					for b.Loop() {
						if err := p.round(); err != nil {
							b.Fatal(err)
						}
					}
				})
				b.Run(proxy.name+"/parallel", func(b *testing.B) {
					b.SetBytes(s.bytes)
					b.ReportAllocs()
					b.RunParallel(func(pb *testing.PB) {
						p := s.player(b, proxy.addr)
						for pb.Next() {
							if err := p.round(); err != nil {
								b.Error(err)
								return
							}
						}
					})
				})
			}
		})
	}
}

// reverseProxy serves net/http's proxy in front of the sandbox at port.
func reverseProxy(b *testing.B, port string) string {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	target := &url.URL{Scheme: "http", Host: "127.0.0.1:" + port}
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	server := &http.Server{
		ErrorLog: log.New(io.Discard, "", 0),
		Handler: &httputil.ReverseProxy{
			Rewrite:       func(q *httputil.ProxyRequest) { q.SetURL(target); q.SetXForwarded() },
			FlushInterval: -1,
			Transport:     transport,
			ErrorLog:      log.New(io.Discard, "", 0),
		},
	}
	go server.Serve(l)
	b.Cleanup(func() {
		server.Close()
		transport.CloseIdleConnections()
	})
	return l.Addr().String()
}
