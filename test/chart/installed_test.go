package chart

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovakiin0/agent-sandbox/proto"
	extensions "github.com/dovakiin0/agent-sandbox/proto/extensions/v1beta1"
	"github.com/dovakiin0/agent-sandbox/test/env"
)

const (
	patience = time.Minute // for what happens soon
	pause    = 50 * time.Millisecond
	timeout  = "--timeout=2m" // of helm
)

// installed is a release on the real control plane.
type installed struct {
	*testing.T
	*env.Env
	name, namespace string
}

// newNamespace makes a namespace in which the API server enforces the restricted Pod Security Standard.
func newNamespace(t *testing.T, e *env.Env, name string) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		"pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/enforce-version": "latest",
	}}}
	require.NoError(t, client.IgnoreAlreadyExists(e.Client.Create(t.Context(), ns)))
	t.Cleanup(func() {
		require.NoError(t, client.IgnoreNotFound(e.Client.Delete(context.Background(), ns)))
	})
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "default"}}
	e.WaitFor(t, account, "to exist", func() bool { return true })
	return name
}

// local are the values that this machine needs.
const local = "testdata/local.yaml"

// helm runs helm on the control plane.
func (i *installed) helm(args ...string) string {
	i.Helper()
	out, err := helm(i, i.Kubeconfig, append(args, "--namespace", i.namespace)...)
	require.NoError(i, err)
	return out
}

// install runs helm install or helm upgrade, and waits until all Deployments have rolled out.
func (i *installed) install(action string, values ...string) {
	i.Helper()
	args := []string{action, i.name, chartDir(), "--wait", timeout}
	for _, file := range append(values, local) {
		args = append(args, "--values", file)
	}
	i.helm(args...)
}

// pods are the pods of a component that are ready and not about to go.
func (i *installed) pods(component string) []corev1.Pod {
	i.Helper()
	var list corev1.PodList
	require.NoError(i, i.Client.List(i.Context(), &list, client.InNamespace(i.namespace), client.MatchingLabels{
		"app.kubernetes.io/instance": i.name, "app.kubernetes.io/component": component,
	}))
	var ready []corev1.Pod
	for _, pod := range list.Items {
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue && pod.DeletionTimestamp == nil {
				ready = append(ready, pod)
			}
		}
	}
	return ready
}

// serving waits until the EndpointSlices of the router's Service have as many ready endpoints, and returns their addresses
// on this machine.
func (i *installed) serving(want int) []string {
	i.Helper()
	var addresses []string
	require.Eventually(i, func() bool {
		addresses = nil
		var slices discoveryv1.EndpointSliceList
		require.NoError(i, i.Client.List(i.Context(), &slices, client.InNamespace(i.namespace),
			client.MatchingLabels{discoveryv1.LabelServiceName: "sandbox-router-svc"}))
		for _, slice := range slices.Items {
			for _, endpoint := range slice.Endpoints {
				if *endpoint.Conditions.Ready {
					addresses = append(addresses, onThisMachine(i, endpoint.Addresses[0], *slice.Ports[0].Port))
				}
			}
		}
		return len(addresses) == want
	}, patience, pause, "routers that serve: %v", &addresses)
	return addresses
}

// onThisMachine is where the process of a pod with this address listens.
func onThisMachine(t testing.TB, ip string, port int32) string {
	t.Helper()
	address, err := netip.ParseAddr(ip)
	require.NoError(t, err)
	b := address.As4()
	b[0] = 127
	return netip.AddrPortFrom(netip.AddrFrom4(b), uint16(port)).String()
}

// metrics are the metrics of a pod in the text format.
func (i *installed) metrics(pod *corev1.Pod) string {
	i.Helper()
	port := int32(0)
	for _, p := range pod.Spec.Containers[0].Ports {
		if p.Name == "metrics" {
			port = p.ContainerPort
		}
	}
	response, err := http.Get("http://" + onThisMachine(i, pod.Status.PodIP, port) + "/metrics")
	require.NoError(i, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(i, err)
	require.Equal(i, http.StatusOK, response.StatusCode)
	return string(text)
}

// as is a client with the rights of a service account of the release's namespace.
func (i *installed) as(account string) client.Client {
	i.Helper()
	config := rest.CopyConfig(i.Config)
	config.Impersonate.UserName = "system:serviceaccount:" + i.namespace + ":" + account
	config.Impersonate.Groups = []string{"system:serviceaccounts", "system:serviceaccounts:" + i.namespace, "system:authenticated"}
	c, err := client.New(config, client.Options{Scheme: i.Client.Scheme()})
	require.NoError(i, err)
	return c
}

// claim claims a sandbox of the default pool, with the rights of a backend, and waits until it is Ready.
func (i *installed) claim(name string) *extensions.SandboxClaim {
	i.Helper()
	claim := &extensions.SandboxClaim{ObjectMeta: metav1.ObjectMeta{Namespace: i.namespace, Name: name}}
	claim.Annotations = map[string]string{proto.AnnotationClientFirstRequested: time.Now().Add(-time.Second).Format(time.RFC3339Nano)}
	claim.Spec.WarmPoolRef.Name = "python-bash-warmpool"
	require.NoError(i, i.as("backend").Create(i.Context(), claim))
	i.WaitFor(i, claim, "to be Ready", func() bool { return meta.IsStatusConditionTrue(claim.Status.Conditions, "Ready") })
	return claim
}

// waitPool waits until the pool has as many ready sandboxes.
func (i *installed) waitPool(replicas int32) {
	i.Helper()
	pool := &extensions.SandboxWarmPool{ObjectMeta: metav1.ObjectMeta{Namespace: i.namespace, Name: "python-bash-warmpool"}}
	i.WaitFor(i, pool, "to be full", func() bool { return pool.Status.ReadyReplicas == replicas })
}

// execute runs a command in a sandbox through a router and returns the status and what it printed.
func (i *installed) execute(router, sandbox, token, command string) (int, string) {
	i.Helper()
	status, out, err := i.try(router, sandbox, token, command)
	require.NoError(i, err)
	return status, out
}

func (i *installed) try(router, sandbox, token, command string) (status int, stdout string, err error) {
	body, err := json.Marshal(map[string]string{"command": command})
	if err != nil {
		return 0, "", err
	}
	request, err := http.NewRequestWithContext(i.Context(), http.MethodPost, "http://"+router+"/execute", bytes.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set(proto.HeaderNamespace, i.namespace)
	request.Header.Set(proto.HeaderID, sandbox)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	var result struct{ Stdout string }
	err = json.NewDecoder(response.Body).Decode(&result)
	return response.StatusCode, result.Stdout, err
}

// token is the token of the router, out of the Secret that the notes name.
func (i *installed) token() string {
	i.Helper()
	secret := &corev1.Secret{}
	require.NoError(i, i.Client.Get(i.Context(), client.ObjectKey{Namespace: i.namespace, Name: i.name + "-router-auth"}, secret))
	return string(secret.Data["token"])
}

// removeCRD removes a CRD, which takes the API server seconds.
func removeCRD(t *testing.T, e *env.Env, file string) {
	t.Helper()
	crd := &unstructured.Unstructured{Object: readYAML[map[string]any](t, filepath.Join(chartDir(), "crds", file))}
	require.NoError(t, client.IgnoreNotFound(e.Client.Delete(t.Context(), crd)))
	require.Eventually(t, func() bool {
		return apierrors.IsNotFound(e.Client.Get(t.Context(), client.ObjectKeyFromObject(crd), crd))
	}, patience, pause)
}
