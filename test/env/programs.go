package env

import (
	"context"
	"testing"

	"github.com/dovakiin0/agent-sandbox/test/stack"
)

// StartController starts a controller that serves all namespaces, with arguments beside the usual ones, and stops it
// after the test. Two at once would be in each other's way, so tests that run in parallel share one.
func (e *Env) StartController(t testing.TB, args ...string) *stack.Process {
	t.Helper()
	return started(t, "controller", func(ctx context.Context) (*stack.Process, error) {
		return e.Stack.StartController(ctx, args...)
	})
}

// StartRouter starts a router, with arguments beside the usual ones, and stops it after the test.
func (e *Env) StartRouter(t testing.TB, args ...string) *stack.Process {
	t.Helper()
	return started(t, "router", func(ctx context.Context) (*stack.Process, error) {
		return e.Stack.StartRouter(ctx, args...)
	})
}

// Restart starts a process again that has ended, at the same addresses, and returns once it is ready.
func (e *Env) Restart(t testing.TB, p *stack.Process) {
	t.Helper()
	if err := p.Restart(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func started(t testing.TB, name string, start func(context.Context) (*stack.Process, error)) *stack.Process {
	t.Helper()
	p, err := start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Stop(stack.StopGrace)
		if t.Failed() {
			t.Logf("output of the %s:\n%s", name, p.Output())
		}
	})
	return p
}
