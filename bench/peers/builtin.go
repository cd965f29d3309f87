//go:build linux

package peers

import (
	"bytes"
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/dovakiin0/agent-sandbox/bench/fleet"
)

// Builtin returns the proxies that this program is itself, in another process: idiomatic Go with a map lookup, and the limit
// of what any proxy can reach. binary is this program.
func Builtin(binary string) []Contestant {
	named := func(name string, drain syscall.Signal) Contestant {
		return Contestant{Name: name, Drain: drain, Command: []string{binary, "proxy", name, "{http}", "{backend}", "{sandboxes}"}}
	}
	return []Contestant{named("fasthttp", syscall.SIGTERM), named("nethttp", syscall.SIGTERM), named("limit", 0)}
}

// ServeBuiltin is the proxy of one name. It drains when ctx ends.
func ServeBuiltin(ctx context.Context, name string, httpPort, backend uint16, sandboxes int) error {
	if name == "limit" {
		return serveLimit(ctx, httpPort, backend, sandboxes)
	}
	l, err := net.Listen("tcp4", "127.0.0.1:"+port(httpPort))
	if err != nil {
		return err
	}
	table := make(map[string]string, sandboxes)
	for i := range sandboxes {
		table[fleet.ID(i)] = net.JoinHostPort(fleet.Addr(i, 0).String(), port(backend))
	}
	if name == "fasthttp" {
		return serveFastHTTP(ctx, l, table)
	}
	return serveNetHTTP(ctx, l, table)
}

func serveNetHTTP(ctx context.Context, l net.Listener, table map[string]string) error {
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: table[r.In.Header.Get("X-Sandbox-ID")]})
			r.Out.Host = r.In.Host
			r.SetXForwarded()
		},
		Transport: &http.Transport{MaxIdleConns: 0, MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute, DisableCompression: true},
		ErrorLog:  log.New(io.Discard, "", 0),
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if table[r.Header.Get("X-Sandbox-ID")] == "" {
			http.Error(w, "no such sandbox", http.StatusNotFound)
			return
		}
		proxy.ServeHTTP(w, r)
	})}
	drained := make(chan struct{})
	defer context.AfterFunc(ctx, func() {
		s.Shutdown(context.Background())
		close(drained)
	})()
	if err := s.Serve(l); err != http.ErrServerClosed {
		return err
	}
	<-drained
	return nil
}

func serveFastHTTP(ctx context.Context, l net.Listener, table map[string]string) error {
	type sandbox struct {
		addr   string
		client *fasthttp.HostClient
	}
	sandboxes := make(map[string]*sandbox, len(table))
	for id, addr := range table {
		sandboxes[id] = &sandbox{addr, &fasthttp.HostClient{
			Addr: addr, MaxConns: 4096, MaxIdleConnDuration: time.Minute, NoDefaultUserAgentHeader: true, DisablePathNormalizing: true,
		}}
	}
	s := &fasthttp.Server{
		NoDefaultServerHeader: true, CloseOnShutdown: true, MaxRequestBodySize: 64 << 20,
		Handler: func(r *fasthttp.RequestCtx) {
			to := sandboxes[string(r.Request.Header.Peek("X-Sandbox-ID"))]
			switch {
			case to == nil:
				r.Error("no such sandbox", http.StatusNotFound)
			case strings.EqualFold(string(r.Request.Header.Peek("Upgrade")), "websocket"):
				tunnel(r, to.addr)
			default:
				r.Request.Header.Del("Connection")
				if err := to.client.Do(&r.Request, &r.Response); err != nil {
					r.Error("bad gateway", http.StatusBadGateway)
				}
			}
		},
	}
	drained := make(chan struct{})
	defer context.AfterFunc(ctx, func() {
		s.Shutdown()
		close(drained)
	})()
	if err := s.Serve(l); err != nil {
		return err
	}
	<-drained
	return nil
}

// tunnel hands the handshake on and copies both ways.
func tunnel(r *fasthttp.RequestCtx, addr string) {
	up, err := net.Dial("tcp4", addr)
	if err != nil {
		r.Error("bad gateway", http.StatusBadGateway)
		return
	}
	head := bytes.Clone(r.Request.Header.Header())
	r.HijackSetNoResponse(true)
	r.Hijack(func(down net.Conn) {
		defer up.Close()
		if _, err := up.Write(head); err != nil {
			return
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			io.Copy(up, down)
			up.(*net.TCPConn).CloseWrite()
		}()
		io.Copy(down, up)
		down.Close()
		<-done
	})
}
