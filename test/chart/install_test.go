package chart

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovakiin0/agent-sandbox/proto"
	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
	extensions "github.com/dovakiin0/agent-sandbox/proto/extensions/v1beta1"
	"github.com/dovakiin0/agent-sandbox/test/env"
)

// TestInstall follows a release from its installation to a cluster that has forgotten it. The namespace enforces
// the restricted Pod Security Standard, and the programs have the rights of their service accounts and no others.
func TestInstall(t *testing.T) {
	e := env.Get(t)
	removeCRD(t, e, "sandboxclaims.extensions.agents.x-k8s.io.yaml") // Helm brings it back
	i := &installed{t, e, "agent-sandbox", newNamespace(t, e, "first-install")}
	i.install("install", "testdata/install.yaml")
	i.waitPool(2)
	routers, token := i.serving(2), i.token()
	claim := i.claim("mine")
	sandbox := claim.Status.Sandbox.Name
	t.Run("a claim is routed", func(t *testing.T) {
		for _, router := range routers {
			status, out := i.execute(router, sandbox, token, `sh -c 'echo $((6 * 7))'`)
			assert.Equal(t, http.StatusOK, status)
			assert.Equal(t, "42\n", out)
			status, _ = i.execute(router, sandbox, "", "true")
			assert.Equal(t, http.StatusUnauthorized, status, "it is closed by default")
		}
		assert.Equal(t, proto.LaunchWarm, i.sandbox(sandbox).Labels[proto.LabelLaunchType])
	})
	t.Run("network policies meet the real pods", func(t *testing.T) {
		var policies networkingv1.NetworkPolicyList
		require.NoError(t, e.Client.List(t.Context(), &policies, client.InNamespace(i.namespace)))
		n := network{}
		for k := range policies.Items {
			n = append(n, &policies.Items[k])
		}
		checkReach(t, n, placeOf(i.pods("router")[0]), placeOf(i.podOf(sandbox)))
	})
	t.Run("rights", func(t *testing.T) { checkRights(t, i) })
	t.Run("metrics", func(t *testing.T) { checkMetrics(t, i, token) })

	i.upgrade(routers[0], sandbox, token)
	routers = i.serving(3)
	for _, router := range routers {
		status, out := i.execute(router, sandbox, "", "cat note")
		assert.Equal(t, http.StatusOK, status, "the seed's values leave the router open")
		assert.Equal(t, "kept\n", out, "the claimed sandbox did not notice")
	}
	i.claim("after")

	i.uninstall(claim)
}

// upgrade upgrades to the seed's values while a request is under way at one of the routers.
func (i *installed) upgrade(router, sandbox, token string) {
	i.Helper()
	old := i.pods("router")
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		status, out, err := i.try(router, sandbox, token, `sh -c 'echo kept > note; touch began; until test -e go; do sleep 0.05; done; echo done'`)
		assert.NoError(i, err)
		assert.Equal(i, http.StatusOK, status)
		assert.Equal(i, "done\n", out, "a request that is under way at an upgrade ends as usual")
	}()
	status, _ := i.execute(router, sandbox, token, `sh -c 'until test -e began; do sleep 0.05; done'`)
	require.Equal(i, http.StatusOK, status)

	i.install("upgrade", valuesFile("seed"), "testdata/upgrade.yaml")
	var draining corev1.PodList
	require.NoError(i, i.Client.List(i.Context(), &draining, client.InNamespace(i.namespace), client.MatchingLabels{"app": "sandbox-router"}))
	leaving := 0
	for _, pod := range draining.Items {
		if pod.DeletionTimestamp != nil {
			leaving++
		}
	}
	assert.Positive(i, leaving, "the router with the request drains")
	status, _ = i.execute(i.serving(3)[0], sandbox, "", "touch go")
	require.Equal(i, http.StatusOK, status)
	<-answered
	for k := range old {
		i.WaitGone(i, &old[k])
	}
	i.waitPool(2)
}

// uninstall removes the release and looks for what is left.
func (i *installed) uninstall(claim *extensions.SandboxClaim) {
	i.Helper()
	sandbox := i.sandbox(claim.Status.Sandbox.Name)
	i.helm("uninstall", i.name, "--wait", timeout)
	label := client.MatchingLabels{"app.kubernetes.io/instance": i.name}
	for _, list := range []client.ObjectList{
		&appsv1.DeploymentList{}, &corev1.ServiceList{}, &corev1.ConfigMapList{}, &corev1.SecretList{}, &corev1.ServiceAccountList{},
		&networkingv1.NetworkPolicyList{}, &rbacv1.RoleList{}, &rbacv1.RoleBindingList{}, &rbacv1.ClusterRoleList{}, &rbacv1.ClusterRoleBindingList{},
		&extensions.SandboxTemplateList{}, &extensions.SandboxWarmPoolList{},
	} {
		require.NoError(i, i.Client.List(i.Context(), list, label))
		assert.Zero(i, meta.LenList(list), "%T", list)
	}
	// Claims are their users'; they keep their sandboxes until they are deleted, and nobody's help is needed for that.
	require.NoError(i, i.Client.Get(i.Context(), client.ObjectKeyFromObject(sandbox), sandbox))
	require.NoError(i, i.Client.Delete(i.Context(), claim))
	i.WaitGone(i, sandbox)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: i.namespace}}
	require.NoError(i, i.Client.Delete(i.Context(), ns))
	i.WaitGone(i, ns)
	assert.NoError(i, i.Client.List(i.Context(), &agents.SandboxList{}), "the CRDs are kept")
}

func (i *installed) sandbox(name string) *agents.Sandbox {
	i.Helper()
	sb := &agents.Sandbox{}
	require.NoError(i, i.Client.Get(i.Context(), client.ObjectKey{Namespace: i.namespace, Name: name}, sb))
	return sb
}

// podOf is the pod of a sandbox.
func (i *installed) podOf(sandbox string) corev1.Pod {
	i.Helper()
	var pods corev1.PodList
	require.NoError(i, i.Client.List(i.Context(), &pods, client.InNamespace(i.namespace),
		client.MatchingLabels{proto.LabelSandboxNameHash: proto.NameHash(sandbox)}))
	require.Len(i, pods.Items, 1)
	return pods.Items[0]
}

func placeOf(pod corev1.Pod) place { return place{pod.Namespace, pod.Labels, pod.Status.PodIP} }
