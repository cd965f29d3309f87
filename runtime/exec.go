package main

import (
	"os"
	"slices"
	"strings"

	"github.com/fasthttp/websocket"
	"github.com/valyala/fasthttp"
)

// Subprotocols of GET /exec. They are those of the exec endpoint of Kubernetes' pods; version 5 adds the close channel.
const (
	subprotocolV5 = "v5.channel.k8s.io"
	subprotocolV4 = "v4.channel.k8s.io"
)

// Channels. The first byte of every message names one.
const (
	channelStdin  = 0   // to the command
	channelStdout = 1   // from it
	channelStderr = 2   // from it, never with a terminal
	channelError  = 3   // from the runtime: one exitStatus, last
	channelResize = 4   // to the terminal: {"Width": columns, "Height": rows}
	channelClose  = 255 // the next byte names a channel that its sender writes no more
)

// execOptions is what the query of GET /exec asks for, named as in Kubernetes' PodExecOptions.
type execOptions struct {
	command                    []string
	stdin, stdout, stderr, tty bool
}

// exec starts a session over a WebSocket. It has no time limit: it ends with the command or with the connection.
func (s *server) exec(ctx *fasthttp.RequestCtx, _ string) {
	query := ctx.QueryArgs()
	options := execOptions{
		stdin:  isTrue(query.Peek("stdin")),
		stdout: isTrue(query.Peek("stdout")),
		stderr: isTrue(query.Peek("stderr")),
		tty:    isTrue(query.Peek("tty")),
	}
	for _, argument := range query.PeekMulti("command") {
		options.command = append(options.command, string(argument))
	}
	if len(options.command) == 0 {
		options.command = []string{defaultShell()}
	}
	switch {
	case !options.stdin && !options.stdout && !options.stderr:
		refuse(ctx, fasthttp.StatusBadRequest, "at least one of stdin, stdout and stderr is required")
	case !offersSubprotocol(string(ctx.Request.Header.Peek("Sec-WebSocket-Protocol"))):
		refuse(ctx, fasthttp.StatusBadRequest, "a WebSocket with subprotocol "+subprotocolV5+" or "+subprotocolV4+" is required")
	default:
		socket := ctx.Conn()
		// A failed upgrade is answered by the upgrader.
		_ = s.upgrader.Upgrade(ctx, func(conn *websocket.Conn) { s.serveSession(conn, socket, options) })
	}
}

// newUpgrader accepts connections without an Origin or with that of the runtime itself, so that a web page elsewhere
// cannot open a shell in a sandbox that a browser happens to reach.
func newUpgrader() websocket.FastHTTPUpgrader {
	return websocket.FastHTTPUpgrader{
		ReadBufferSize:  sessionBuffer,
		WriteBufferSize: sessionBuffer,
		Subprotocols:    []string{subprotocolV5, subprotocolV4},
		Error: func(ctx *fasthttp.RequestCtx, status int, reason error) {
			refuse(ctx, status, reason.Error())
		},
	}
}

func refuse(ctx *fasthttp.RequestCtx, status int, reason string) {
	ctx.Response.Header.Set("Sec-WebSocket-Version", "13")
	answer(ctx, status, detail{reason})
}

func offersSubprotocol(list string) bool {
	return slices.ContainsFunc(strings.Split(list, ","), func(offered string) bool {
		offered = strings.TrimSpace(offered)
		return offered == subprotocolV5 || offered == subprotocolV4
	})
}

func isTrue(value []byte) bool {
	return string(value) == "true" || string(value) == "1"
}

func defaultShell() string {
	if _, err := os.Stat("/bin/bash"); err == nil {
		return "/bin/bash"
	}
	return "/bin/sh"
}
