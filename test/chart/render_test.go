package chart

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/dovakiin0/agent-sandbox/test/sources"
)

// TestLint runs helm lint with every file of values.
func TestLint(t *testing.T) {
	for _, set := range slices.Sorted(maps.Keys(sets)) {
		t.Run(set, func(t *testing.T) {
			t.Parallel()
			_, err := helm(t, "", "lint", "--strict", chartDir(), "--values", valuesFile(set))
			assert.NoError(t, err)
		})
	}
}

// TestRender renders every file of values and checks what holds for all of them and what holds for each.
func TestRender(t *testing.T) {
	require.NoError(t, sources.Record(root(), "charts", "controller", "router", "tools/helm"))
	files, err := filepath.Glob(valuesFile("*"))
	require.NoError(t, err)
	for _, file := range files {
		assert.Contains(t, sets, strings.TrimSuffix(filepath.Base(file), ".yaml"), "values that nothing is expected of")
	}
	assert.GreaterOrEqual(t, len(sets), 25)
	for set, expect := range sets {
		t.Run(set, func(t *testing.T) {
			t.Parallel()
			r := renderSet(t, set, "rel", "some-namespace")
			checkNames(r)
			checkWorkloads(r)
			checkSelectors(r)
			checkRoles(r)
			checkMonitors(r)
			runWithArguments(r)
			expect(r)
		})
	}
}

// checkNames: every object tells its release, is where it should be, and is there once.
func checkNames(r *rendered) {
	seen := map[string]bool{}
	for _, o := range r.objects {
		name := o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
		assert.False(r, seen[name], "%s is there twice", name)
		seen[name] = true
		assert.Equal(r, r.name, o.GetLabels()["app.kubernetes.io/instance"], name)
		assert.Equal(r, "Helm", o.GetLabels()["app.kubernetes.io/managed-by"], name)
		if strings.HasPrefix(o.GetKind(), "ClusterRole") {
			assert.Contains(r, o.GetName(), r.namespace, "%s: a name that releases in other namespaces do not have", name)
			assert.Empty(r, o.GetNamespace())
			continue
		}
		assert.Contains(r, []string{r.namespace, "team-a"}, o.GetNamespace(), name)
	}
	assert.Empty(r, r.all("Namespace"))
}

// checkWorkloads: what a Deployment's pods need is there, fits and is enough.
func checkWorkloads(r *rendered) {
	for _, d := range every[appsv1.Deployment](r, "Deployment") {
		pod := d.Spec.Template
		assert.True(r, selects(d.Spec.Selector, pod.Labels), "%s selects its own pods", d.Name)
		require.Len(r, pod.Spec.Containers, 1)
		c := pod.Spec.Containers[0]
		for _, probe := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe} {
			require.NotNil(r, probe, d.Name)
			assert.True(r, hasPort(&c, probe.HTTPGet.Port), "%s: probe of port %s", d.Name, probe.HTTPGet.Port.String())
		}
		assert.NotEmpty(r, c.Resources.Requests, "%s: a pod without requests is the first to go", d.Name)
		assert.True(r, *c.SecurityContext.ReadOnlyRootFilesystem, d.Name)
		assert.NotContains(r, c.Image, ":latest", d.Name)
		for _, spread := range pod.Spec.TopologySpreadConstraints {
			assert.True(r, selects(spread.LabelSelector, pod.Labels), "%s: spread of its own pods", d.Name)
		}
		checkShareOfLimits(r, &c)
		checkVolumes(r, pod.Spec)
		if d.Labels["app.kubernetes.io/component"] == "router" {
			assert.Equal(r, "sandbox-router", pod.Labels["app"], "the label that managed policies admit")
			assert.NotEmpty(r, pod.Annotations["checksum/config"])
		}
	}
}

// checkShareOfLimits: the Go runtime keeps within the container's limits.
func checkShareOfLimits(r *rendered, c *corev1.Container) {
	env := map[string]string{}
	for _, v := range c.Env {
		assert.NotContains(r, env, v.Name, "a variable that is set twice")
		env[v.Name] = v.Value
	}
	if limit := c.Resources.Limits.Memory().Value(); limit > 0 && !strings.HasSuffix(env["GOMEMLIMIT"], "B") {
		share, err := strconv.ParseInt(env["GOMEMLIMIT"], 10, 64)
		assert.NoError(r, err)
		assert.Less(r, share, limit)
		assert.Greater(r, share, limit*8/10)
	}
	if limit := c.Resources.Limits.Cpu(); !limit.IsZero() {
		assert.Equal(r, strconv.FormatInt(limit.Value(), 10), env["GOMAXPROCS"], "the CPU limit, rounded up")
	}
}

// checkVolumes: ConfigMaps are rendered beside the pod that mounts them.
func checkVolumes(r *rendered, pod corev1.PodSpec) {
	for _, v := range pod.Volumes {
		if v.ConfigMap != nil && !strings.HasPrefix(v.ConfigMap.Name, "my-") {
			assert.Contains(r, r.names("ConfigMap"), v.ConfigMap.Name)
		}
		if v.Secret != nil && !strings.HasPrefix(v.Secret.SecretName, "my-") {
			issued := []string{}
			for _, c := range r.all("Certificate") {
				issued = append(issued, nested[string](r, c, "spec", "secretName"))
			}
			assert.Contains(r, append(issued, r.names("Secret")...), v.Secret.SecretName, "a Secret that nobody makes")
		}
	}
}

// checkSelectors: Services and disruption budgets select the pods of one Deployment of this release, at ports they have.
func checkSelectors(r *rendered) {
	deployments := every[appsv1.Deployment](r, "Deployment")
	selected := func(what string, selector *metav1.LabelSelector) *appsv1.Deployment {
		var found []*appsv1.Deployment
		for _, d := range deployments {
			if selects(selector, d.Spec.Template.Labels) {
				found = append(found, d)
			}
		}
		require.Len(r, found, 1, what)
		assert.Equal(r, r.name, selector.MatchLabels["app.kubernetes.io/instance"], "%s: another release's pods would match", what)
		return found[0]
	}
	for _, s := range every[corev1.Service](r, "Service") {
		d := selected("Service "+s.Name, &metav1.LabelSelector{MatchLabels: s.Spec.Selector})
		require.NotEmpty(r, s.Spec.Ports)
		for _, port := range s.Spec.Ports {
			assert.True(r, hasPort(&d.Spec.Template.Spec.Containers[0], port.TargetPort), "Service %s: port %s", s.Name, port.TargetPort.String())
		}
	}
	for _, b := range every[policyv1.PodDisruptionBudget](r, "PodDisruptionBudget") {
		selected("PodDisruptionBudget "+b.Name, b.Spec.Selector)
	}
}

// checkRoles: every binding is of a role that is rendered, to an account that is rendered or chosen by the user, and no role
// has a wildcard or reads Secrets.
func checkRoles(r *rendered) {
	roles := map[string]bool{}
	for _, kind := range []string{"Role", "ClusterRole"} {
		for _, o := range r.all(kind) {
			role := typed[rbacv1.ClusterRole](r, o) // a Role has the same fields
			roles[kind+o.GetNamespace()+"/"+o.GetName()] = true
			for _, rule := range role.Rules {
				for _, list := range [][]string{rule.APIGroups, rule.Resources, rule.Verbs} {
					assert.NotContains(r, list, "*", "%s %s", kind, role.Name)
				}
				assert.NotContains(r, rule.Resources, "secrets", "%s %s", kind, role.Name)
				assert.NotContains(r, rule.Verbs, "escalate")
				assert.NotContains(r, rule.Verbs, "bind")
			}
		}
	}
	for _, kind := range []string{"RoleBinding", "ClusterRoleBinding"} {
		for _, o := range r.all(kind) {
			b := typed[rbacv1.RoleBinding](r, o)
			namespace := b.Namespace
			if b.RoleRef.Kind == "ClusterRole" {
				namespace = ""
			}
			assert.True(r, roles[b.RoleRef.Kind+namespace+"/"+b.RoleRef.Name], "%s %s binds %s, which is not there", kind, b.Name, b.RoleRef.Name)
			assert.NotEmpty(r, b.Subjects)
		}
	}
}

// checkMonitors: each monitor selects something that has the port.
func checkMonitors(r *rendered) {
	for _, m := range r.all("ServiceMonitor") {
		var selector metav1.LabelSelector
		convert(r, nested[map[string]any](r, m, "spec", "selector"), &selector)
		scraped := 0
		for _, s := range every[corev1.Service](r, "Service") {
			for _, port := range s.Spec.Ports {
				if selects(&selector, s.Labels) && port.Name == nested[string](r, m, "spec", "endpoints", 0, "port") {
					scraped++
				}
			}
		}
		assert.Equal(r, 1, scraped, "ServiceMonitor %s: each pod is scraped once", m.GetName())
	}
	for _, m := range r.all("PodMonitor") {
		var selector metav1.LabelSelector
		convert(r, nested[map[string]any](r, m, "spec", "selector"), &selector)
		scraped := 0
		for _, d := range every[appsv1.Deployment](r, "Deployment") {
			port := intstr.FromString(nested[string](r, m, "spec", "podMetricsEndpoints", 0, "port"))
			if selects(&selector, d.Spec.Template.Labels) && hasPort(&d.Spec.Template.Spec.Containers[0], port) {
				scraped++
			}
		}
		assert.Equal(r, 1, scraped, "PodMonitor %s", m.GetName())
	}
}

func selects(selector *metav1.LabelSelector, set map[string]string) bool {
	s, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && !s.Empty() && s.Matches(labels.Set(set))
}

func hasPort(c *corev1.Container, port intstr.IntOrString) bool {
	return slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool {
		return port.Type == intstr.String && p.Name == port.StrVal || port.Type == intstr.Int && p.ContainerPort == port.IntVal
	})
}

// convert makes a value of a type out of plain maps.
func convert(t testing.TB, from, into any) {
	t.Helper()
	text, err := yaml.Marshal(from)
	require.NoError(t, err)
	require.NoError(t, yaml.UnmarshalStrict(text, into))
}

// readYAML reads a file of one document.
func readYAML[T any](t testing.TB, path string) T {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	var into T
	require.NoError(t, yaml.Unmarshal(text, &into), path)
	return into
}
