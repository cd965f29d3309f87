package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovakiin0/agent-sandbox/proto"
	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
	extensions "github.com/dovakiin0/agent-sandbox/proto/extensions/v1beta1"
	"github.com/dovakiin0/agent-sandbox/test/stack"
)

const (
	namespace    = "default" // the one that the router takes when a request names none
	templateName = "python"
	poolName     = "python-pool"
	poolSize     = 3

	patience = time.Minute // for a single thing to happen
)

// demo is what the steps share.
type demo struct {
	out  io.Writer
	dir  string
	keep bool // the files, for a look at what went wrong

	stack  *stack.Stack
	client client.WithWatch
	router *stack.Process
	claim  *extensions.SandboxClaim
}

func (d *demo) say(format string, args ...any) {
	fmt.Fprintf(d.out, "    "+format+"\n", args...)
}

func (d *demo) createPool(ctx context.Context) error {
	scheme := runtime.NewScheme()
	if err := errors.Join(agents.AddToScheme(scheme), extensions.AddToScheme(scheme)); err != nil {
		return err
	}
	var err error
	if d.client, err = client.NewWithWatch(d.stack.Config, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	template := &extensions.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: templateName}}
	template.Spec.PodTemplate.Spec = corev1.PodSpec{
		AutomountServiceAccountToken: new(false),
		RestartPolicy:                corev1.RestartPolicyOnFailure,
		Containers: []corev1.Container{{
			Name: "python-runtime", Image: "sandbox-runtime:demo", // the node runs the runtime binary for this image
			Ports: []corev1.ContainerPort{{ContainerPort: 8888}},
		}},
	}
	pool := &extensions.SandboxWarmPool{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: poolName}}
	pool.Spec.Replicas = new(int32(poolSize))
	pool.Spec.TemplateRef.Name = templateName
	for _, object := range []client.Object{template, pool} {
		if err := d.client.Create(ctx, object); err != nil {
			return err
		}
	}
	return d.waitPool(ctx)
}

// waitPool shows the pool fill up: it counts the sandboxes that are Ready and not claimed.
func (d *demo) waitPool(ctx context.Context) error {
	last := -1
	return eventually(ctx, func() (bool, error) {
		var members agents.SandboxList
		if err := d.client.List(ctx, &members, client.InNamespace(namespace), client.MatchingLabels{proto.LabelWarmPool: proto.NameHash(poolName)}); err != nil {
			return false, err
		}
		warm := 0
		for _, member := range members.Items {
			if member.DeletionTimestamp == nil && meta.IsStatusConditionTrue(member.Status.Conditions, string(agents.ConditionReady)) {
				warm++
			}
		}
		if warm != last {
			d.say("%d of %d sandboxes are warm", warm, poolSize)
		}
		last = warm
		return warm == poolSize, nil
	})
}

func (d *demo) claimSandbox(ctx context.Context) error {
	start := time.Now()
	if err := d.createClaim(ctx, "demo"); err != nil {
		return err
	}
	sandbox := &agents.Sandbox{}
	if err := d.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: d.claim.Status.Sandbox.Name}, sandbox); err != nil {
		return err
	}
	d.say("claim %s is Ready after %s: sandbox %s, pod address %s", d.claim.Name, brief(time.Since(start)), sandbox.Name, sandbox.Status.PodIPs[0])

	asked := time.Now()
	status, body, err := d.ask(ctx, http.MethodGet, "/", "", nil)
	if err != nil {
		return err
	}
	if status != http.StatusOK {
		return fmt.Errorf("GET / answered %d: %s", status, body)
	}
	d.say("first response %s after the claim, %s after the request: %s", brief(time.Since(start)), brief(time.Since(asked)), body)
	return d.waitPool(ctx)
}

func (d *demo) claimAnother(ctx context.Context) error {
	if err := d.createClaim(ctx, "playground"); err != nil {
		return err
	}
	d.say("claim %s has sandbox %s", d.claim.Name, d.claim.Status.Sandbox.Name)
	return nil
}

// createClaim claims a sandbox and waits until it is Ready.
func (d *demo) createClaim(ctx context.Context, name string) error {
	d.claim = &extensions.SandboxClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	d.claim.Spec.WarmPoolRef.Name = poolName
	if err := d.client.Create(ctx, d.claim); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	w, err := d.client.Watch(ctx, &extensions.SandboxClaimList{}, client.InNamespace(namespace), client.MatchingFields{"metadata.name": name})
	if err != nil {
		return err
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		if event.Type == watch.Error {
			return apierrors.FromObject(event.Object)
		}
		if claim, ok := event.Object.(*extensions.SandboxClaim); ok {
			d.claim = claim
			if meta.IsStatusConditionTrue(claim.Status.Conditions, string(agents.ConditionReady)) {
				return nil
			}
		}
	}
	return fmt.Errorf("the claim is not Ready after %s: %+v", patience, d.claim.Status.Conditions)
}

func (d *demo) deleteClaim(ctx context.Context) error {
	name := d.claim.Status.Sandbox.Name
	if err := d.client.Delete(ctx, d.claim); err != nil {
		return err
	}
	sandbox := &agents.Sandbox{}
	err := eventually(ctx, func() (bool, error) {
		err := d.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, sandbox)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
	if err != nil {
		return fmt.Errorf("wait for sandbox %s to go: %w", name, err)
	}
	d.say("sandbox %s is gone", name)

	var status int
	var body string
	err = eventually(ctx, func() (bool, error) {
		status, body, err = d.ask(ctx, http.MethodGet, "/", "", nil)
		return status == http.StatusNotFound || status == http.StatusGone, err
	})
	if err != nil {
		return fmt.Errorf("wait for the router to forget it: %w (last answer %d: %s)", err, status, body)
	}
	d.say("the router answers %d: %s", status, strings.TrimSpace(body))
	return d.waitPool(ctx)
}

// eventually asks until the answer is true or an error.
func eventually(ctx context.Context, ask func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		if done, err := ask(); done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}
