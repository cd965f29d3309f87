package stack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/dovakiin0/agent-sandbox/test/process"
)

// startTimeout is how long a program may take until it is ready; a busy machine may need much more than an idle one.
const startTimeout = 2 * time.Minute

// Process is a running program of a stack.
type Process struct {
	*process.Process

	// Addresses as host:port, empty for those that the program does not have.
	HTTP, Metrics, Health string

	program Program
	command process.Command
	ready   func(*Process) bool
	log     string
	logged  int64 // size of the log before the last start
}

// Kill ends the process at once, with no chance to clean up, and waits for its end.
func (p *Process) Kill() {
	_ = p.Signal(syscall.SIGKILL)
	<-p.Done()
}

// Terminate asks the process to end, without waiting.
func (p *Process) Terminate() error { return p.Signal(syscall.SIGTERM) }

// Output is everything that the process has written to stdout and stderr, over all its restarts.
func (p *Process) Output() string {
	output, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(output)
}

// Restart starts the program again with the same arguments, and so at the same addresses, after it has ended. It
// returns once the program is ready.
func (p *Process) Restart(ctx context.Context) error {
	<-p.Done()
	return p.start(ctx)
}

func (p *Process) start(ctx context.Context) error {
	output, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer output.Close() // the process has a copy
	info, err := output.Stat()
	if err != nil {
		return err
	}
	p.logged = info.Size()
	command := p.command
	command.Output = output
	if p.Process, err = process.Start(command); err != nil {
		return fmt.Errorf("start %s: %w", p.program, err)
	}
	if err := p.waitReady(ctx); err != nil {
		p.Kill()
		return fmt.Errorf("start %s: %w; it wrote:\n%s", p.program, err, tail(p.Output()))
	}
	return nil
}

func (p *Process) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("not ready after %s", startTimeout))
	defer cancel()
	for !p.ready(p) {
		select {
		case <-p.Done():
			return fmt.Errorf("ended with exit code %d", p.ExitCode())
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil
}

// saysReady is true once the process has written a line that starts with "ready" since its last start.
func saysReady(p *Process) bool {
	output, err := os.ReadFile(p.log)
	return err == nil && strings.Contains("\n"+string(output[p.logged:]), "\nready")
}

// answersReady is true once the probe port of the process answers that it is ready.
func answersReady(p *Process) bool {
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get("http://" + p.Health + "/readyz")
	if err != nil {
		return false
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return err == nil && response.StatusCode == http.StatusOK
}

// tail is the end of a long text.
func tail(s string) string {
	const most = 4096
	if len(s) <= most {
		return s
	}
	return "..." + s[len(s)-most:]
}

// flagValue is the value of a flag in an argument list; the last one counts.
func flagValue(args []string, name string) string {
	for _, arg := range slices.Backward(args) {
		if value, ok := strings.CutPrefix(strings.TrimLeft(arg, "-"), name+"="); ok {
			return value
		}
	}
	return ""
}

// loopbackHost picks an address in 127.64.0.0/10 on which the ports are free. With an address of its own each process
// can have the ports it has in production, and hardly any other process takes them between this check and its start.
func loopbackHost(ports ...string) (string, error) {
	for range 10 {
		host := fmt.Sprintf("127.%d.%d.%d", 64+rand.IntN(64), rand.IntN(256), 1+rand.IntN(254))
		if free(host, ports) {
			return host, nil
		}
	}
	return "", errors.New("no free loopback address")
}

func free(host string, ports []string) bool {
	for _, port := range ports {
		l, err := net.Listen("tcp4", net.JoinHostPort(host, port))
		if err != nil {
			return false
		}
		l.Close()
	}
	return true
}
