package env

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	agentsv1beta1 "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
)

func newSandbox(namespace, name string) *agentsv1beta1.Sandbox {
	sandbox := &agentsv1beta1.Sandbox{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	sandbox.Spec.PodTemplate.Spec.Containers = []corev1.Container{{Name: "main", Image: runtimeImage}}
	return sandbox
}

func TestNodesAreReadyInTheirZones(t *testing.T) {
	t.Parallel()
	e := Get(t)
	var nodes corev1.NodeList
	require.NoError(t, e.Client.List(t.Context(), &nodes))
	zones := map[string]string{}
	for _, node := range nodes.Items {
		zones[node.Name] = node.Labels[corev1.LabelTopologyZone]
		assert.Empty(t, node.Spec.Taints)
		assert.Equal(t, corev1.NodeReady, node.Status.Conditions[0].Type)
		assert.Equal(t, corev1.ConditionTrue, node.Status.Conditions[0].Status)
	}
	assert.Equal(t, map[string]string{"node-a": "zone-a", "node-b": "zone-b"}, zones)
}

func TestRBACIsEnforced(t *testing.T) {
	t.Parallel()
	e := Get(t)
	config := rest.CopyConfig(e.Config)
	config.Impersonate.UserName = "nobody"
	nobody, err := client.New(config, client.Options{Scheme: e.Client.Scheme()})
	require.NoError(t, err)
	assert.True(t, apierrors.IsForbidden(nobody.List(t.Context(), &corev1.PodList{})))
}

func TestGarbageCollectionCascades(t *testing.T) {
	t.Parallel()
	e := Get(t)
	ns := e.Namespace(t)
	for name, propagation := range map[string]client.DeleteOption{
		"background": client.PropagationPolicy(metav1.DeletePropagationBackground),
		"foreground": client.PropagationPolicy(metav1.DeletePropagationForeground),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			owner := newSandbox(ns, name)
			e.create(t, owner)
			pod := newPod(ns, name, runtimeImage)
			require.NoError(t, controllerutil.SetControllerReference(owner, pod, e.Client.Scheme()))
			e.create(t, pod)
			e.waitReady(t, pod)
			require.NoError(t, e.Client.Delete(t.Context(), owner, propagation))
			e.WaitGone(t, owner)
			e.WaitGone(t, pod)
		})
	}
}

func TestNamespaceDeletionFinishes(t *testing.T) {
	t.Parallel()
	e := Get(t)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: e.Namespace(t)}}
	sandbox := newSandbox(ns.Name, "sandbox")
	e.create(t, sandbox)
	pod := newPod(ns.Name, "pod", runtimeImage)
	e.create(t, pod)
	e.waitReady(t, pod)
	claim := newVolumeClaim(ns.Name)
	e.create(t, claim)
	require.NoError(t, e.Client.Delete(t.Context(), ns))
	e.WaitGone(t, ns)
	e.WaitGone(t, sandbox)
	e.WaitGone(t, pod)
	e.WaitGone(t, claim)
}

func TestServiceGetsAnEndpointSlice(t *testing.T) {
	t.Parallel()
	e := Get(t)
	ns := e.Namespace(t)
	pod := newPod(ns, "backend", runtimeImage)
	pod.Labels = map[string]string{"app": "backend"}
	e.create(t, pod)
	e.waitReady(t, pod)
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "backend"},
		Spec: corev1.ServiceSpec{
			ClusterIP: corev1.ClusterIPNone,
			Selector:  pod.Labels,
			Ports:     []corev1.ServicePort{{Port: 8888}},
		},
	}
	e.create(t, service)

	var endpoint discoveryv1.Endpoint
	require.Eventually(t, func() bool {
		var slices discoveryv1.EndpointSliceList
		require.NoError(t, e.Client.List(t.Context(), &slices, client.InNamespace(ns), client.MatchingLabels{discoveryv1.LabelServiceName: "backend"}))
		if len(slices.Items) != 1 || len(slices.Items[0].Endpoints) != 1 {
			return false
		}
		endpoint = slices.Items[0].Endpoints[0]
		return true
	}, patience, patience/1000)
	assert.Equal(t, []string{pod.Status.PodIP}, endpoint.Addresses)
	assert.True(t, *endpoint.Conditions.Ready)
	assert.Equal(t, pod.UID, endpoint.TargetRef.UID)
	assert.Equal(t, pod.Spec.NodeName, *endpoint.NodeName)
	assert.Equal(t, map[string]string{"node-a": "zone-a", "node-b": "zone-b"}[pod.Spec.NodeName], *endpoint.Zone)
}

// The two tests below take parts away from under the others, so they do not run in parallel.

func TestNodeAgentRestart(t *testing.T) {
	e := Get(t)
	ns := e.Namespace(t)
	pods := map[string]*corev1.Pod{}
	for _, name := range []string{"stays", "killed", "plain"} {
		image := runtimeImage
		if name == "plain" {
			image = otherImage
		}
		pods[name] = newPod(ns, name, image)
		e.create(t, pods[name])
		e.waitReady(t, pods[name])
	}
	stays, address := pods["stays"], pods["stays"].Status.PodIP
	execute(t, stays, "touch kept")

	e.Node.Kill()
	require.NoError(t, e.Client.Delete(t.Context(), pods["killed"]))
	e.Restart(t, e.Node)

	e.WaitFor(t, stays, "to run again", func() bool {
		return condition(stays, corev1.PodReady).Status == corev1.ConditionTrue && stays.Status.ContainerStatuses[0].RestartCount == 1
	})
	assert.Equal(t, address, stays.Status.PodIP)
	assert.Equal(t, "kept\n", execute(t, stays, "ls"))
	e.WaitGone(t, pods["killed"])
	e.waitReady(t, pods["plain"])
	assert.Zero(t, pods["plain"].Status.ContainerStatuses[0].RestartCount, "nothing of it ran")

	newcomer := newPod(ns, "newcomer", runtimeImage)
	e.create(t, newcomer)
	e.waitReady(t, newcomer)
	assert.NotEqual(t, address, newcomer.Status.PodIP)
}

func TestControlPlaneRestartKeepsObjects(t *testing.T) {
	e := Get(t)
	ns := e.Namespace(t)
	sandbox := newSandbox(ns, "sandbox")
	e.create(t, sandbox)

	require.NoError(t, e.ControlPlane.Terminate())
	require.Zero(t, e.ControlPlane.ExitCode(), "a clean end")
	e.Restart(t, e.ControlPlane)

	e.WaitFor(t, sandbox, "to be there", func() bool { return true })
	pod := newPod(ns, "after", runtimeImage)
	e.create(t, pod)
	e.waitReady(t, pod)
}

func TestManyPodsAtOnce(t *testing.T) {
	e := Get(t)
	ns := e.Namespace(t)
	const many = 100
	for i := range many {
		e.create(t, newPod(ns, fmt.Sprint("pod-", i), otherImage))
	}
	addresses, nodes := map[string]bool{}, map[string]int{}
	for i := range many {
		pod := newPod(ns, fmt.Sprint("pod-", i), otherImage)
		e.waitReady(t, pod)
		addresses[pod.Status.PodIP] = true
		nodes[pod.Spec.NodeName]++
	}
	assert.Len(t, addresses, many)
	assert.Equal(t, map[string]int{"node-a": many / 2, "node-b": many / 2}, nodes, "round robin")
}

func newVolumeClaim(namespace string) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "data"}}
	claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	return claim
}
