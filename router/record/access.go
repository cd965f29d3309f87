package record

import (
	"fmt"
	"io"

	"github.com/rs/zerolog"
)

// AccessLog writes a line for each exchange, or for each one that failed.
type AccessLog struct {
	log  zerolog.Logger
	mode accessMode
}

type accessMode uint8

const (
	accessOff accessMode = iota
	accessErrors
	accessAll
)

// NewAccessLog makes the log for the flag --access-log: off (false), errors or all (true).
func NewAccessLog(w io.Writer, mode string) (*AccessLog, error) {
	a := &AccessLog{log: zerolog.New(w).With().Timestamp().Logger()}
	switch mode {
	case "off", "false":
	case "errors":
		a.mode = accessErrors
	case "all", "true":
		a.mode = accessAll
	default:
		return nil, fmt.Errorf("want off, errors or all, not %q", mode)
	}
	return a, nil
}

// On reports whether any exchange is logged.
func (a *AccessLog) On() bool { return a.mode != accessOff }

// Write logs e, if the mode says so. Credentials are in no field.
func (a *AccessLog) Write(e *Exchange) {
	failed := e.Reason != OK || e.Status >= 500
	if a.mode == accessOff || a.mode == accessErrors && !failed {
		return
	}
	line := a.log.Log().
		Str("method", e.Method.String()).
		Bytes("path", e.Path).
		Int("status", e.Status).
		Float64("duration_ms", float64(e.Took.Microseconds())/1000).
		Bytes("client_ip", e.Peer).
		Bytes("sandbox_id", e.ID).
		Str("sandbox_namespace", e.Namespace).
		Int64("bytes_in", e.Up).
		Int64("bytes_out", e.Down)
	if len(e.UserAgent) > 0 {
		line = line.Bytes("user_agent", e.UserAgent)
	}
	if len(e.RequestID) > 0 {
		line = line.Bytes("request_id", e.RequestID)
	}
	if e.WebSocket {
		line = line.Bool("websocket", true)
	}
	if failed {
		line = line.Str("reason", e.Reason.String()).Bool("dispatched", e.Dispatched)
	}
	line.Send()
}
