// Command runtime is the server inside a sandbox. It runs commands, moves files and serves interactive sessions to
// whoever reaches its port; it asks for no credential, because that is the router's and the NetworkPolicy's work.
//
// A request takes this way: server.go reads the path and picks the endpoint; path.go confines file paths to the base
// directory; execute.go, files.go and upload.go answer over HTTP; exec.go and session.go serve a WebSocket. Every
// command starts through process.go, so that shutdown finds it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/dovakiin0/agent-sandbox/proto"
	"github.com/rs/zerolog"
)

const (
	defaultBaseDir     = "/app"
	defaultExecTimeout = 300 * time.Second
)

type config struct {
	listenAddress string
	baseDir       string
	execTimeout   time.Duration
}

func main() {
	if os.Getpid() == 1 {
		os.Exit(runAsInit())
	}
	cfg, err := parseConfig(os.Args[1:], os.Getenv)
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(0)
	case err != nil:
		fmt.Fprintln(os.Stderr, "runtime:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, cfg, zerolog.New(os.Stderr).With().Timestamp().Logger()); err != nil {
		fmt.Fprintln(os.Stderr, "runtime:", err)
		os.Exit(1)
	}
}

// parseConfig reads the flags, with the environment for those that are absent. Errors name the flag.
func parseConfig(args []string, env func(string) string) (config, error) {
	var cfg config
	baseDir := env("SANDBOX_BASE_DIR")
	if baseDir == "" {
		baseDir = defaultBaseDir
	}
	flags := flag.NewFlagSet("runtime", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // main prints the error, on one line
	flags.StringVar(&cfg.listenAddress, "listen-address", fmt.Sprintf(":%d", proto.DefaultPort), "`host:port` to serve on")
	flags.StringVar(&cfg.baseDir, "base-dir", baseDir, "`directory` of files and commands; default from SANDBOX_BASE_DIR")
	flags.DurationVar(&cfg.execTimeout, "exec-timeout", execTimeoutFrom(env("SANDBOX_EXEC_TIMEOUT_SECONDS")),
		"longest run of POST /execute; default from SANDBOX_EXEC_TIMEOUT_SECONDS")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			flags.SetOutput(os.Stdout)
			flags.PrintDefaults()
		}
		return cfg, err
	}
	if flags.NArg() > 0 {
		return cfg, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if cfg.execTimeout <= 0 {
		return cfg, fmt.Errorf("--exec-timeout: %v is not positive", cfg.execTimeout)
	}
	info, err := os.Stat(cfg.baseDir)
	if err != nil {
		return cfg, fmt.Errorf("--base-dir: %w", err)
	}
	if !info.IsDir() {
		return cfg, fmt.Errorf("--base-dir: %s is not a directory", cfg.baseDir)
	}
	return cfg, nil
}

// execTimeoutFrom reads whole seconds. Whatever is no positive number means the default: a sandbox with a mistyped
// variable has to start nevertheless.
func execTimeoutFrom(value string) time.Duration {
	seconds, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
	if err != nil || seconds <= 0 || seconds > math.MaxInt64/int64(time.Second) {
		return defaultExecTimeout
	}
	return time.Duration(seconds) * time.Second
}

// run serves until ctx is done and then ends what is still running.
func run(ctx context.Context, cfg config, log zerolog.Logger) error {
	listener, err := net.Listen("tcp", cfg.listenAddress)
	if err != nil {
		return fmt.Errorf("--listen-address: %w", err)
	}
	s := newServer(cfg, log)
	served := make(chan error, 1)
	go func() { served <- s.http.Serve(listener) }()
	log.Info().Stringer("address", listener.Addr()).Str("baseDir", cfg.baseDir).Msg("listening")

	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	s.shutdown()
	return nil
}
