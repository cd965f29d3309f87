//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovakiin0/agent-sandbox/bench/backend"
	"github.com/dovakiin0/agent-sandbox/bench/proc"
	ext "github.com/dovakiin0/agent-sandbox/proto/extensions/v1beta1"
	"github.com/dovakiin0/agent-sandbox/test/stack"
)

const (
	namespace = "default" // the one that the router takes when a request names none
	poolName  = "pool"

	// patience is how long anything may take.
	patience = 5 * time.Minute
	// quiet is how long the controller must not have written for its work to be done. Controllers put writes off that a
	// later one may make needless.
	quiet = time.Second
)

// world is everything that one run needs: a control plane, nodes, the controller and the router that are measured, and the
// sandboxes' side.
type world struct {
	*stack.Stack
	settings           *settings
	controller, router *program // router is nil if there is none
	client             client.WithWatch
	http               *http.Client
	audit              *auditLog
	pods               *backend.Server // answers for all pods that are no process
	clock              cpu             // of the end of the newest work
	emptyRSS           int64           // of the controller before there are sandboxes

	ready atomic.Int32 // members of the pool, as its status says
	want  int32

	mu     sync.Mutex
	claims map[string]*claim // by name

	fail context.CancelCauseFunc // ends what is being measured
	work sync.WaitGroup          // goroutines, which end with that
}

// inWorld calls f with a world. Its context ends, with the cause, if a part of the world does.
func inWorld(ctx context.Context, s *settings, dir string, f func(context.Context, *world) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &world{
		settings: s, claims: map[string]*claim{}, fail: cancel,
		http: &http.Client{Timeout: time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: 256}},
	}
	defer w.end()
	defer cancel(nil)
	if err := w.start(ctx, dir); err != nil {
		return err
	}
	err := f(ctx, w)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

func (w *world) start(ctx context.Context, dir string) (err error) {
	audit, args, err := newAuditLog(dir)
	if err != nil {
		return err
	}
	w.audit = audit
	if w.Stack, err = stack.Start(ctx, stack.Options{Dir: dir, Progress: os.Stderr, APIArgs: args, CRDs: w.settings.crds}); err != nil {
		return err
	}
	if w.pods, err = backend.Listen(0); err != nil {
		return err
	}
	w.work.Go(func() { _ = w.pods.Serve() }) // if it fails, requests do
	if w.client, err = newClient(w.Config); err != nil {
		return err
	}
	// No pod is admitted before there is a service account for it, and a controller that tries waits longer and longer.
	account := &corev1.ServiceAccount{}
	if err := w.eventually(ctx, "a service account", func() (bool, error) {
		err := w.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "default"}, account)
		return err == nil, client.IgnoreNotFound(err)
	}); err != nil {
		return err
	}
	if w.controller, err = w.startController(ctx, dir); err != nil {
		return err
	}
	if w.router, err = w.startRouter(ctx, dir); err != nil {
		return err
	}
	for _, p := range []*program{w.controller, w.router} {
		if p != nil {
			w.work.Go(func() { w.attend(ctx, p) })
		}
	}
	return nil
}

// attend makes the measurement fail if the program ends before it.
func (w *world) attend(ctx context.Context, p *program) {
	select {
	case <-p.Done():
		w.fail(fmt.Errorf("the %s ended; it wrote:\n%s", p.name, p.output()))
	case <-ctx.Done():
	}
}

func (w *world) end() {
	for _, p := range []*program{w.router, w.controller} {
		if p != nil {
			p.Stop(stack.StopGrace)
		}
	}
	if w.Stack != nil {
		w.Stop()
	}
	if w.pods != nil {
		w.pods.Close()
	}
	w.audit.close()
	w.http.CloseIdleConnections()
	w.work.Wait()
}

// userAgent tells the requests of this command in the audit log.
const userAgent = "claims-bench"

func newClient(config *rest.Config) (client.WithWatch, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), ext.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.UserAgent = userAgent
	return client.NewWithWatch(config, client.Options{Scheme: scheme})
}

// prepare makes the template and the pool of a scenario and waits until the pool is full and the controller at rest.
func (w *world) prepare(ctx context.Context, sc *scenario) error {
	template := &ext.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "template"}}
	template.Spec.PodTemplate.Spec.Containers = []corev1.Container{{
		Name: "runtime", Image: "stand-in", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8888}},
	}}
	if sc.runtime {
		template.Spec.PodTemplate.Spec.Containers[0].Image = "sandbox-runtime" // the node runs the runtime binary for it
	} else {
		// What a pod takes on a node that has its image: the mean of the 0 to 50 ms of earlier measurements.
		template.Spec.PodTemplate.Metadata.Annotations = map[string]string{"test.agent-sandbox.dev/ready-after": "25ms"}
	}
	pool := &ext.SandboxWarmPool{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: poolName}}
	pool.Spec.Replicas = new(int32)
	pool.Spec.TemplateRef.Name = template.Name
	for _, object := range []client.Object{template, pool} {
		if err := w.client.Create(ctx, object); err != nil {
			return err
		}
	}
	if err := follow(ctx, w, &ext.SandboxWarmPoolList{}, func(p *ext.SandboxWarmPool) { w.ready.Store(p.Status.ReadyReplicas) }); err != nil {
		return err
	}
	if err := follow(ctx, w, &ext.SandboxClaimList{}, func(c *ext.SandboxClaim) { w.observe(ctx, c) }); err != nil {
		return err
	}
	w.emptyRSS = proc.Resident(proc.Group(w.controller.PID()))
	if sc.pool > 0 {
		if err := w.resize(ctx, w.settings.size(sc.pool)); err != nil {
			return err
		}
	}
	_, err := w.settle(ctx)
	return err
}

// resize changes the number of replicas of the pool.
func (w *world) resize(ctx context.Context, n int) error {
	w.want = int32(n)
	pool := &ext.SandboxWarmPool{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: poolName}}
	return w.client.Patch(ctx, pool, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, n)))
}

// settle waits until the pool is full and the controller has written nothing for a while, and returns when that while
// began. The clock shows the CPU of that moment.
func (w *world) settle(ctx context.Context) (since time.Time, err error) {
	err = w.eventually(ctx, "the controller to come to rest", func() (bool, error) {
		wrote, err := w.audit.read()
		if err != nil {
			return false, err
		}
		if wrote || since.IsZero() || w.ready.Load() != w.want {
			since = time.Now()
			w.clock, err = w.usage()
		}
		return time.Since(since) > quiet, err
	})
	return since, err
}

// eventually asks until the answer is true or an error.
func (w *world) eventually(ctx context.Context, what string, ask func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("waited %s for %s", patience, what))
	defer cancel()
	for {
		if done, err := ask(); done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// cpu is what the parts have used.
type cpu struct{ controller, apiServer, router time.Duration }

func (w *world) usage() (cpu, error) {
	var router time.Duration
	controller, err := used(w.controller.PID())
	apiServer, serverErr := used(w.ControlPlane.PID())
	if w.router != nil {
		var routerErr error
		router, routerErr = used(w.router.PID())
		err = errors.Join(err, routerErr)
	}
	return cpu{controller, apiServer, router}, errors.Join(err, serverErr)
}

func used(pid int) (time.Duration, error) {
	u, err := proc.UsageOf(proc.Group(pid))
	return u.CPU, err
}

func (c *cpu) add(from, to cpu) {
	c.controller += to.controller - from.controller
	c.apiServer += to.apiServer - from.apiServer
	c.router += to.router - from.router
}

func logFile(dir, name string) string { return filepath.Join(dir, "logs", name+".log") }
