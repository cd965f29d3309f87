package main

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/dovakiin0/agent-sandbox/proto"
	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
	ext "github.com/dovakiin0/agent-sandbox/proto/extensions/v1beta1"
	"github.com/dovakiin0/agent-sandbox/test/stack"
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/dovakiin0/agent-sandbox/test/process.serveStarts"))
}

const namespace = "default"

// More claims than a pool has members: each gets a Sandbox of its own, and the pool is as large as before. A pool of none
// serves a claim too.
func TestItServes(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a control plane")
	}
	const size, wanted = 5, 12
	c := start(t)
	template := &ext.SandboxTemplate{ObjectMeta: in("template")}
	template.Spec.PodTemplate.Spec.Containers = []corev1.Container{{Name: "main", Image: "stand-in"}}
	pool, none := newPool("pool", size), newPool("none", 0)
	for _, object := range []client.Object{template, pool, none} {
		require.NoError(t, c.Create(t.Context(), object))
	}
	full := func() bool {
		assert.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(pool), pool))
		return pool.Status.Replicas == size && pool.Status.ReadyReplicas == size
	}
	eventually(t, full)

	cold := newClaim("cold", none)
	claims := []*ext.SandboxClaim{cold}
	for i := range wanted {
		claims = append(claims, newClaim(fmt.Sprint("claim-", i), pool))
	}
	for _, claim := range claims {
		require.NoError(t, c.Create(t.Context(), claim))
	}
	served := map[string]string{} // claims by the names of their Sandboxes
	for _, claim := range claims {
		eventually(t, func() bool {
			assert.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(claim), claim))
			return ready(claim.Status.Conditions)
		})
		served[claim.Status.Sandbox.Name] = claim.Name
	}
	assert.Len(t, served, len(claims), "a Sandbox was given away twice")
	assert.Equal(t, cold.Name, cold.Status.Sandbox.Name)

	eventually(t, full)
	sandboxes := &agents.SandboxList{}
	require.NoError(t, c.List(t.Context(), sandboxes, client.InNamespace(namespace)))
	assert.Len(t, sandboxes.Items, size+len(claims))
	for i := range sandboxes.Items {
		sandbox := &sandboxes.Items[i]
		assert.True(t, ready(sandbox.Status.Conditions), sandbox.Name)
		assert.NotEmpty(t, sandbox.Status.PodIPs, sandbox.Name)
		owner := metav1.GetControllerOf(sandbox)
		if owner.Kind == poolKind.Kind {
			assert.Equal(t, proto.NameHash(pool.Name), sandbox.Labels[proto.LabelWarmPool])
			continue
		}
		assert.Equal(t, served[sandbox.Name], owner.Name)
		assert.Equal(t, map[string]string{proto.LabelClaimUID: string(owner.UID)}, sandbox.Labels)
	}
}

// start starts a control plane and the controller, and ends both with the test.
func start(t *testing.T) client.Client {
	t.Helper()
	s, err := stack.Start(t.Context(), stack.Options{Dir: t.TempDir()})
	require.NoError(t, err)
	t.Cleanup(s.Stop)
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, ext.AddToScheme, agents.AddToScheme} {
		require.NoError(t, add(scheme))
	}
	c, err := client.New(s.Config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	eventually(t, func() bool { // no Pod is admitted before
		return c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "default"}, &corev1.ServiceAccount{}) == nil
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- run(ctx, s.Config) }()
	t.Cleanup(func() {
		stop()
		assert.NoError(t, <-ended)
	})
	return c
}

func eventually(t *testing.T, ask func() bool) {
	t.Helper()
	require.Eventually(t, ask, time.Minute, 20*time.Millisecond)
}

func in(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: namespace, Name: name} }

func newPool(name string, size int32) *ext.SandboxWarmPool {
	pool := &ext.SandboxWarmPool{ObjectMeta: in(name)}
	pool.Spec.Replicas, pool.Spec.TemplateRef.Name = &size, "template"
	return pool
}

func newClaim(name string, pool *ext.SandboxWarmPool) *ext.SandboxClaim {
	claim := &ext.SandboxClaim{ObjectMeta: in(name)}
	claim.Spec.WarmPoolRef.Name = pool.Name
	return claim
}

func ready(conditions []metav1.Condition) bool {
	return meta.IsStatusConditionTrue(conditions, string(agents.ConditionReady))
}
