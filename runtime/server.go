package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/fasthttp/websocket"
	"github.com/rs/zerolog"
	"github.com/valyala/fasthttp"
)

const (
	// maxHeader bounds the request head, in bytes. The longest heads are those of /exec, whose query carries the
	// command, and of file paths, which percent-encoding triples.
	maxHeader = 64 << 10

	// Shutdown stays well below the 30 s that Kubernetes gives a pod by default.
	commandGrace   = 2 * time.Second // from SIGTERM to SIGKILL
	shutdownBudget = 10 * time.Second
)

// server answers the HTTP requests. Its fields don't change after newServer.
type server struct {
	http        *fasthttp.Server
	upgrader    websocket.FastHTTPUpgrader
	files       baseDir
	execTimeout time.Duration
	commands    *commands
	endpoints   map[string]endpoint
	log         zerolog.Logger
}

func newServer(cfg config, log zerolog.Logger) *server {
	s := &server{
		files:       baseDir(cfg.baseDir),
		execTimeout: cfg.execTimeout,
		commands:    newCommands(),
		log:         log,
	}
	s.endpoints = s.routes()
	s.upgrader = newUpgrader()
	s.http = &fasthttp.Server{
		Handler: s.serve,
		// Bodies are read by the endpoint that wants them: an upload never lies in memory as a whole.
		StreamRequestBody:            true,
		DisablePreParseMultipartForm: true,
		ReadBufferSize:               maxHeader,
		NoDefaultServerHeader:        true,
		CloseOnShutdown:              true,
		Logger:                       connectionLog{log},
		// No timeouts: commands, transfers and the router's idle connections may last. TCP keep-alive finds dead peers.
	}
	return s
}

// shutdown closes the listener, ends the commands and waits for the answers that are still on their way.
func (s *server) shutdown() {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownBudget)
	defer cancel()
	answered := make(chan error, 1)
	go func() { answered <- s.http.ShutdownWithContext(ctx) }()
	s.commands.end(ctx, commandGrace)
	if err := <-answered; err != nil {
		s.log.Warn().Err(err).Msg("shutdown cut requests off")
	}
}

// endpoint answers the requests of one path, or of all paths below it when the path ends in a slash.
type endpoint struct {
	methods []string
	serve   func(ctx *fasthttp.RequestCtx, rest string)
}

func (s *server) routes() map[string]endpoint {
	read := []string{fasthttp.MethodGet, fasthttp.MethodHead}
	return map[string]endpoint{
		"/":          {read, s.health},
		"/execute":   {[]string{fasthttp.MethodPost}, s.execute},
		"/upload":    {[]string{fasthttp.MethodPost}, s.upload},
		"/download/": {read, s.download},
		"/list/":     {read, s.list},
		"/exists/":   {read, s.exists},
		"/exec":      {[]string{fasthttp.MethodGet}, s.exec},
	}
}

// serve picks the endpoint. The path is matched after one decoding, as clients may encode any byte of it; what follows
// the endpoint's own path is decoded once more, which published clients and their servers agree on.
func (s *server) serve(ctx *fasthttp.RequestCtx) {
	path, rest := unquote(rawPath(ctx.Request.Header.RequestURI())), ""
	if slash := strings.IndexByte(path[1:], '/'); slash >= 0 {
		path, rest = path[:slash+2], path[slash+2:]
	}
	e, ok := s.endpoints[path]
	if !ok {
		answer(ctx, fasthttp.StatusNotFound, detail{"Not Found"})
		return
	}
	if !slices.Contains(e.methods, string(ctx.Method())) {
		ctx.Response.Header.Set(fasthttp.HeaderAllow, strings.Join(e.methods, ", "))
		answer(ctx, fasthttp.StatusMethodNotAllowed, detail{"Method Not Allowed"})
		return
	}
	e.serve(ctx, unquote(rest))
}

func (s *server) health(ctx *fasthttp.RequestCtx, _ string) {
	answer(ctx, fasthttp.StatusOK, struct {
		Status  string `json:"status"`
		Message string `json:"message"`
	}{"ok", "Sandbox Runtime is active."})
}

// message is the body of the endpoints' own answers, detail that of answers about the request as such.
type (
	message struct {
		Message string `json:"message"`
	}
	detail struct {
		Detail any `json:"detail"`
	}
)

// answer writes body as JSON.
func answer(ctx *fasthttp.RequestCtx, status int, body any) {
	encoded, err := json.Marshal(body)
	if err != nil {
		panic(err) // every body is made of types that JSON knows
	}
	ctx.SetStatusCode(status)
	ctx.SetContentType("application/json")
	ctx.Response.SetBodyRaw(encoded)
}

// denied answers a path that leads out of the base directory.
func denied(ctx *fasthttp.RequestCtx) {
	answer(ctx, fasthttp.StatusForbidden, message{"Access denied"})
}

// bodyOf is the request body as a stream, empty if there is none.
func bodyOf(ctx *fasthttp.RequestCtx) io.Reader {
	if body := ctx.RequestBodyStream(); body != nil {
		return body
	}
	return http.NoBody
}

// connectionLog takes what fasthttp says about connections.
type connectionLog struct{ log zerolog.Logger }

func (c connectionLog) Printf(format string, args ...any) {
	c.log.Warn().Msgf(format, args...)
}
