package accept

import (
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/valyala/fasthttp"
	"github.com/valyala/fasthttp/pprofhandler"
)

// Admin is what operators may ask for. Nothing of it is on the proxy's port.
type Admin struct {
	Metrics func(io.Writer)
	Routes  func(io.Writer)
	Pprof   bool
}

// Probes are what the kubelet asks for. Live does not depend on anything outside of the process.
type Probes struct {
	Ready func() (ok bool, why string)
}

// ServeAdmin serves a on l until l is closed.
func ServeAdmin(l *Listener, a Admin) error {
	return serveFast(l.tcp, func(ctx *fasthttp.RequestCtx) {
		switch path := string(ctx.Path()); {
		case path == "/metrics":
			ctx.SetContentType("text/plain; version=0.0.4; charset=utf-8")
			a.Metrics(ctx)
		case path == "/routes":
			ctx.SetContentType("application/x-ndjson")
			a.Routes(ctx)
		case a.Pprof && len(path) >= len("/debug/pprof") && path[:len("/debug/pprof")] == "/debug/pprof":
			pprofhandler.PprofHandler(ctx)
		default:
			ctx.Error("not found", http.StatusNotFound)
		}
	})
}

// ServeProbes serves p on l until l is closed.
func ServeProbes(l *Listener, p Probes) error {
	return serveFast(l.tcp, func(ctx *fasthttp.RequestCtx) {
		switch string(ctx.Path()) {
		case "/healthz":
			ctx.SetContentType("application/json")
			fmt.Fprintln(ctx, `{"status":"ok"}`)
		case "/readyz":
			ok, why := p.Ready()
			if !ok {
				ctx.SetStatusCode(http.StatusServiceUnavailable)
			}
			ctx.WriteString(why)
		default:
			ctx.Error("not found", http.StatusNotFound)
		}
	})
}

func serveFast(l net.Listener, h fasthttp.RequestHandler) error {
	s := &fasthttp.Server{
		Handler:               h,
		NoDefaultServerHeader: true,
		CloseOnShutdown:       true,
		ReadTimeout:           handshakeTimeout,
		Logger:                silent{},
	}
	return s.Serve(l)
}

// silent drops what fasthttp says about connections that probes and scrapers break off.
type silent struct{}

func (silent) Printf(string, ...any) {}
