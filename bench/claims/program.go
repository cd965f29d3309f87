//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/dovakiin0/agent-sandbox/test/process"
	"github.com/dovakiin0/agent-sandbox/test/stack"
)

// program is a controller or a router, ours or another.
type program struct {
	*process.Process
	name   string
	http   string // host:port, of a router
	output func() string
}

func fromStack(name string, p *stack.Process) *program {
	return &program{Process: p.Process, name: name, http: p.HTTP, output: p.Output}
}

func (w *world) startController(ctx context.Context, dir string) (*program, error) {
	if w.settings.controller != ours {
		return w.startCommand(ctx, "controller", w.settings.controller, dir)
	}
	p, err := w.StartController(ctx)
	if err != nil {
		return nil, err
	}
	return fromStack("controller", p), nil
}

func (w *world) startRouter(ctx context.Context, dir string) (*program, error) {
	switch w.settings.router {
	case "":
		return nil, nil
	case ours:
		p, err := w.StartRouter(ctx)
		if err != nil {
			return nil, err
		}
		return fromStack("router", p), nil
	default:
		return w.startCommand(ctx, "router", w.settings.router, dir)
	}
}

// startCommand starts a program by its command line, and waits until it says that it is ready if it was given an address to
// say so.
func (w *world) startCommand(ctx context.Context, name, line, dir string) (*program, error) {
	values := map[string]string{"{kubeconfig}": w.Kubeconfig}
	for _, key := range []string{"{http}", "{metrics}", "{health}"} {
		address, err := freeAddress()
		if err != nil {
			return nil, err
		}
		values[key] = address
	}
	words, err := expand(line, values)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", name, err)
	}
	log := logFile(dir, name)
	output, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer output.Close() // the process has a copy
	started, err := process.Start(process.Command{
		Path: words[0], Args: words[1:], Env: append(os.Environ(), "KUBECONFIG="+w.Kubeconfig), Output: output,
	})
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", name, err)
	}
	p := &program{Process: started, name: name, http: values["{http}"], output: func() string {
		text, _ := os.ReadFile(log)
		return string(text)
	}}
	if strings.Contains(line, "{health}") {
		err = w.eventually(ctx, "the "+name+" to be ready", func() (bool, error) { return p.saysReady(values["{health}"]) })
	}
	if err != nil {
		p.Stop(0)
		return nil, err
	}
	return p, nil
}

func (p *program) saysReady(address string) (bool, error) {
	select {
	case <-p.Done():
		return false, fmt.Errorf("the %s ended; it wrote:\n%s", p.name, p.output())
	default:
	}
	c := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := c.Get("http://" + address + "/readyz")
	if err != nil {
		return false, nil // not yet
	}
	response.Body.Close()
	return response.StatusCode == http.StatusOK, nil
}

// expand splits a command line at blanks and puts values in.
func expand(line string, values map[string]string) ([]string, error) {
	words := strings.Fields(line)
	if len(words) == 0 {
		return nil, errors.New("no command")
	}
	for i := range words {
		for key, value := range values {
			words[i] = strings.ReplaceAll(words[i], key, value)
		}
	}
	return words, nil
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}
