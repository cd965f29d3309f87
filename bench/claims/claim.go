//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovakiin0/agent-sandbox/bench/fleet"
	"github.com/dovakiin0/agent-sandbox/proto"
	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
	ext "github.com/dovakiin0/agent-sandbox/proto/extensions/v1beta1"
)

// claim is one claim on its way.
type claim struct {
	name    string
	due     time.Time // when the client wanted it
	execute bool      // the sandbox is a process that can be asked to run something

	// Of whoever waits for done.
	ready    time.Time // when the client saw it Ready
	answered time.Time // when its first answer through the router was there
	cold     bool      // it got a sandbox that was made for it
	refused  int       // answers before that one
	done     chan struct{}
}

// create creates a claim that was due at a moment.
func (w *world) create(ctx context.Context, name string, due time.Time, execute bool) (*claim, error) {
	c := &claim{name: name, due: due, execute: execute, done: make(chan struct{})}
	w.mu.Lock()
	w.claims[name] = c // before it is created: it may be Ready before its creation has returned
	w.mu.Unlock()
	object := &ext.SandboxClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	object.Spec.WarmPoolRef.Name = poolName
	return c, w.client.Create(ctx, object)
}

// observe is called with each state of each claim, in their order.
func (w *world) observe(ctx context.Context, object *ext.SandboxClaim) {
	if !meta.IsStatusConditionTrue(object.Status.Conditions, string(agents.ConditionReady)) {
		return
	}
	now := time.Now()
	w.mu.Lock()
	c := w.claims[object.Name]
	delete(w.claims, object.Name)
	w.mu.Unlock()
	if c == nil {
		return
	}
	c.ready = now
	c.cold = object.Status.Sandbox.Name == object.Name
	if w.router == nil {
		close(c.done)
		return
	}
	w.work.Go(func() {
		if err := w.ask(ctx, c, object.Status.Sandbox); err != nil {
			w.fail(fmt.Errorf("claim %s: %w", c.name, err))
			return
		}
		c.answered = time.Now()
		close(c.done)
	})
}

// wait waits for claims to be Ready and answered.
func (w *world) wait(ctx context.Context, claims ...*claim) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not all claims are Ready and answered after %s", patience))
	defer cancel()
	for _, c := range claims {
		if c == nil { // it was not created, so ctx has ended or is about to
			<-ctx.Done()
			return context.Cause(ctx)
		}
		select {
		case <-c.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// ask sends requests through the router until the sandbox answers one.
func (w *world) ask(ctx context.Context, c *claim, sandbox ext.ClaimedSandbox) error {
	for {
		status, body, err := w.send(ctx, c, sandbox.Name)
		switch {
		case err != nil:
			return err
		case status == http.StatusOK:
			return c.check(body, sandbox.PodIPs)
		}
		c.refused++ // Ready did not mean reachable
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; the last answer is %d: %s", context.Cause(ctx), status, body)
		case <-time.After(time.Millisecond):
		}
	}
}

func (w *world) send(ctx context.Context, c *claim, sandbox string) (status int, body []byte, err error) {
	method, path, port, content := http.MethodGet, "/fixed/6", w.pods.Port, ""
	if c.execute {
		method, path, port, content = http.MethodPost, "/execute", proto.DefaultPort, `{"command":"true"}`
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://"+w.router.http+path, bytes.NewReader([]byte(content)))
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set(proto.HeaderID, sandbox)
	request.Header.Set(proto.HeaderPort, strconv.Itoa(int(port)))
	response, err := w.http.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	body, err = io.ReadAll(response.Body)
	return response.StatusCode, body, err
}

// check makes sure that the answer is that of the right pod, or of the command.
func (c *claim) check(body []byte, podIPs []string) error {
	if c.execute {
		var result struct {
			ExitCode *int `json:"exit_code"`
		}
		if err := json.Unmarshal(body, &result); err != nil || result.ExitCode == nil || *result.ExitCode != 0 {
			return fmt.Errorf("/execute answered %s", body)
		}
		return nil
	}
	if len(podIPs) == 0 {
		return errors.New("it is Ready without an address of its pod")
	}
	pod, err := netip.ParseAddr(podIPs[0])
	if err != nil {
		return err
	}
	if mark := fleet.Mark(pod); !bytes.HasPrefix(body, mark[:]) {
		return fmt.Errorf("the pod at %s was asked, and %s answered", pod, body)
	}
	return nil
}

// follow calls each with the states of all objects of a kind, until ctx ends.
func follow[T client.Object](ctx context.Context, w *world, kind client.ObjectList, each func(T)) error {
	events, err := w.client.Watch(ctx, kind, client.InNamespace(namespace))
	if err != nil {
		return err
	}
	w.work.Go(func() {
		defer events.Stop()
		for e := range events.ResultChan() {
			if object, ok := e.Object.(T); ok {
				each(object)
			} else if e.Type == watch.Error {
				w.fail(fmt.Errorf("watch of %T: %w", kind, apierrors.FromObject(e.Object)))
			}
		}
		w.fail(fmt.Errorf("watch of %T ended", kind)) // of no effect if ctx has ended
	})
	return nil
}
