package chart

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/dovakiin0/agent-sandbox/proto"
	extensions "github.com/dovakiin0/agent-sandbox/proto/extensions/v1beta1"
	"github.com/dovakiin0/agent-sandbox/test/env"
)

// TestReleasesInOneNamespace: what two releases render differs in name, but for what the values name, and none selects
// the other's pods.
func TestReleasesInOneNamespace(t *testing.T) {
	a, err := render(t, "blue", "ns")
	require.NoError(t, err)
	b, err := render(t, "green", "ns", "--set", "controller.enabled=false,router.service.name=green-svc,"+
		"sandboxTemplate.name=green-template,warmPool.name=green-pool")
	require.NoError(t, err)
	names := byName(a)
	for name := range byName(b) {
		assert.NotContains(t, names, name)
	}
	for _, s := range every[corev1.Service](b, "Service") {
		assert.NotSubset(t, a.router().Spec.Template.Labels, s.Spec.Selector, s.Name)
	}
	n := append(a.network(), b.network()...)
	green := place{"ns", one[extensions.SandboxTemplate](b, "SandboxTemplate", "green-template").Spec.PodTemplate.Metadata.Labels, "10.0.2.1"}
	green.labels[proto.LabelSandboxNameHash] = "00000000"
	assert.True(t, n.allows(b.routerPod(), green, 8888))
	assert.False(t, n.allows(a.routerPod(), green, 8888), "a release reaches its own sandboxes")
}

// TestTwoReleases installs two releases in two namespaces, one with the controller that serves both.
func TestTwoReleases(t *testing.T) {
	e := env.Get(t)
	first := &installed{t, e, "agent-sandbox", newNamespace(t, e, "release-one")}
	second := &installed{t, e, "agent-sandbox", newNamespace(t, e, "release-two")} // the same name, as most users take it
	first.install("install", "testdata/install.yaml")
	second.install("install", "testdata/install.yaml", "testdata/second.yaml")
	t.Cleanup(func() {
		for _, i := range []*installed{second, first} {
			_, err := helm(t, i.Kubeconfig, "uninstall", i.name, "--namespace", i.namespace)
			assert.NoError(t, err)
		}
	})
	for _, i := range []*installed{first, second} {
		sandbox := i.claim("mine").Status.Sandbox.Name
		for _, router := range i.serving(2) {
			_, out := i.execute(router, sandbox, i.token(), "echo "+i.namespace)
			assert.Equal(t, i.namespace+"\n", out)
		}
	}
	assert.NotEqual(t, first.token(), second.token())
	assert.Empty(t, second.pods("controller"))
	status, _ := first.execute(second.serving(2)[0], "any", first.token(), "true")
	assert.Equal(t, http.StatusUnauthorized, status, "the token of one release does not open the other's router")
}
