package chart

import (
	"maps"
	"path/filepath"
	"strings"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	extensions "github.com/dovakiin0/agent-sandbox/proto/extensions/v1beta1"
)

// sets says for each file of testdata/values what is particular to it.
var sets = merged(routerSets, serviceSets, sandboxSets, networkSets)

type expectations map[string]func(*rendered)

func merged(all ...expectations) expectations {
	merged := expectations{}
	for _, some := range all {
		maps.Copy(merged, some)
	}
	return merged
}

func (r *rendered) router() *appsv1.Deployment {
	return one[appsv1.Deployment](r, "Deployment", "-router")
}
func (r *rendered) controller() *appsv1.Deployment {
	return one[appsv1.Deployment](r, "Deployment", "-controller")
}
func (r *rendered) service() *corev1.Service { return one[corev1.Service](r, "Service", "-svc") }
func (r *rendered) pool() *extensions.SandboxWarmPool {
	return one[extensions.SandboxWarmPool](r, "SandboxWarmPool", "python-bash-warmpool")
}
func (r *rendered) template() *extensions.SandboxTemplate {
	return one[extensions.SandboxTemplate](r, "SandboxTemplate", "python-bash-template")
}

// routerConfig is the file that --config names.
func (r *rendered) routerConfig() map[string]string {
	r.Helper()
	config := map[string]string{}
	text := one[corev1.ConfigMap](r, "ConfigMap", "-router").Data["config.yaml"]
	require.NoError(r, yaml.UnmarshalStrict([]byte(text), &config), text)
	return config
}

// portsOf are the names of the ports of a Service.
func portsOf(s *corev1.Service) map[string]int32 {
	ports := map[string]int32{}
	for _, p := range s.Spec.Ports {
		ports[p.Name] = p.Port
	}
	return ports
}

func mountPaths(c *corev1.Container) map[string]string {
	paths := map[string]string{}
	for _, m := range c.VolumeMounts {
		paths[m.MountPath] = m.Name
	}
	return paths
}

var routerSets = expectations{
	"defaults": func(r *rendered) {
		assert.EqualValues(r, 2, *r.router().Spec.Replicas)
		assert.EqualValues(r, 1, *r.controller().Spec.Replicas)
		assert.Equal(r, map[string]int32{"http": 8080}, portsOf(r.service()))
		assert.Equal(r, "sandbox-router-svc", r.service().Name)
		assert.EqualValues(r, 2, *r.pool().Spec.Replicas)
		assert.Equal(r, "static-token", r.routerConfig()["authz-mode"])
		assert.Len(r, one[corev1.Secret](r, "Secret", "-auth").Data["token"], 48)
		assert.Contains(r, r.notes, "Authorization: Bearer")
		assert.NotContains(r, r.notes, "WARNING")
		for _, kind := range []string{"HorizontalPodAutoscaler", "Ingress", "HTTPRoute", "Certificate", "ServiceMonitor", "PodMonitor", "PrometheusRule"} {
			assert.Empty(r, r.all(kind), kind)
		}
		assert.NotEmpty(r, r.all("PodDisruptionBudget"))
		assert.EqualValues(r, 3+30+5, *r.router().Spec.Template.Spec.TerminationGracePeriodSeconds)
	},
	"unauthenticated": func(r *rendered) {
		assert.Equal(r, "allow-all", r.routerConfig()["authz-mode"])
		assert.Empty(r, r.all("Secret"))
		assert.Contains(r, strings.ToLower(r.notes), "warning")
		assert.NotContains(r, r.notes, "Authorization: Bearer")
	},
	"scoped-token": func(r *rendered) {
		config := r.routerConfig()
		assert.Equal(r, "scoped-token", config["authz-mode"])
		assert.Empty(r, config["authz-static-token-file"])
		assert.Empty(r, r.all("Secret"), "the user has one")
		for _, v := range r.router().Spec.Template.Spec.Volumes {
			if v.Secret != nil {
				assert.Equal(r, "my-signing-key", v.Secret.SecretName)
				assert.Equal(r, []corev1.KeyToPath{{Key: "key", Path: filepath.Base(config["authz-scoped-token-secret-file"])}}, v.Secret.Items)
			}
		}
	},
	"tls-secret": func(r *rendered) {
		config := r.routerConfig()
		assert.Equal(r, ":8443", config["https-bind-address"])
		assert.Equal(r, "off", config["mtls-mode"])
		assert.Equal(r, map[string]int32{"http": 8080, "https": 8443}, portsOf(r.service()))
		assert.Contains(r, mountPaths(&r.router().Spec.Template.Spec.Containers[0]), filepath.Dir(config["tls-cert-file"]))
	},
	"tls-cert-manager": func(r *rendered) {
		certificate := r.all("Certificate")[0]
		assert.Equal(r, "letsencrypt", nested[string](r, certificate, "spec", "issuerRef", "name"))
		assert.Equal(r, "720h", nested[string](r, certificate, "spec", "duration"))
		assert.Contains(r, nested[[]any](r, certificate, "spec", "dnsNames"), "sandbox-router-svc.some-namespace.svc")
	},
	"tls-only-mutual": func(r *rendered) {
		config := r.routerConfig()
		assert.Empty(r, config["http-bind-address"])
		assert.Contains(r, config, "http-bind-address", "the default would open the port")
		assert.Equal(r, "required", config["mtls-mode"])
		assert.Equal(r, "/etc/sandbox-router/client-ca/ca.crt", config["tls-client-ca-file"])
		assert.Equal(r, map[string]int32{"https": 443}, portsOf(r.service()))
		assert.EqualValues(r, 443, nested[int64](r, r.all("Ingress")[0], "spec", "rules", 0, "http", "paths", 0, "backend", "service", "port", "number"))
	},
	"autoscaling": func(r *rendered) {
		assert.Nil(r, r.router().Spec.Replicas, "an upgrade must not undo what the autoscaler chose")
		hpa := one[autoscalingv2.HorizontalPodAutoscaler](r, "HorizontalPodAutoscaler", "")
		assert.Equal(r, r.router().Name, hpa.Spec.ScaleTargetRef.Name)
		assert.EqualValues(r, 3, *hpa.Spec.MinReplicas)
		assert.EqualValues(r, 30, hpa.Spec.MaxReplicas)
		require.Len(r, hpa.Spec.Metrics, 2)
		assert.EqualValues(r, 60, *hpa.Spec.Metrics[0].Resource.Target.AverageUtilization)
		assert.EqualValues(r, 200, hpa.Spec.Metrics[1].Pods.Target.AverageValue.Value())
		assert.Equal(r, "sandbox_router_inflight_requests", hpa.Spec.Metrics[1].Pods.Metric.Name)
		assert.EqualValues(r, 600, *hpa.Spec.Behavior.ScaleDown.StabilizationWindowSeconds)
	},
	"autoscaling-inflight-only": func(r *rendered) {
		hpa := one[autoscalingv2.HorizontalPodAutoscaler](r, "HorizontalPodAutoscaler", "")
		require.Len(r, hpa.Spec.Metrics, 1, "0 percent of CPU: do not look at it")
		assert.NotNil(r, hpa.Spec.Metrics[0].Pods)
		assert.Empty(r, r.all("PodDisruptionBudget"), "one replica that may not go would block every drain of a node")
	},
	"one-replica": func(r *rendered) { assert.Empty(r, r.all("PodDisruptionBudget")) },
	"zeros": func(r *rendered) {
		assert.EqualValues(r, 0, *r.router().Spec.Replicas)
		assert.EqualValues(r, 0, *r.controller().Spec.Replicas)
		assert.EqualValues(r, 0, *r.pool().Spec.Replicas)
		assert.EqualValues(r, 0, *r.router().Spec.Template.Spec.TerminationGracePeriodSeconds)
		assert.Empty(r, r.router().Spec.Template.Spec.TopologySpreadConstraints)
		config := r.routerConfig()
		for _, key := range []string{"proxy-timeout", "websocket-idle-timeout", "websocket-max-lifetime", "unknown-wait", "route-wait", "drain-delay", "shutdown-timeout"} {
			assert.Equal(r, "0s", config[key], key)
		}
		assert.Equal(r, "0", config["upstream-max-retries"])
		args := r.controller().Spec.Template.Spec.Containers[0].Args
		assert.Contains(r, args, "--leader-elect=false")
		assert.Contains(r, args, "--extensions=false")
		assert.Equal(r, appsv1.RecreateDeploymentStrategyType, r.controller().Spec.Strategy.Type)
	},
	"large-numbers": func(r *rendered) {
		config := r.routerConfig()
		assert.Equal(r, "31536000s", config["proxy-timeout"])
		assert.Equal(r, "1000000", config["websocket-max-connections-per-client"])
		assert.Equal(r, "1073741824", config["max-request-body-bytes"])
		args := r.controller().Spec.Template.Spec.Containers[0].Args
		assert.Contains(r, args, "--sandbox-warm-pool-max-refill-rate=0.5")
		assert.Contains(r, args, "--pprof-block-profile-rate=100000000")
	},
	"long-drain": func(r *rendered) {
		assert.EqualValues(r, 625, *r.router().Spec.Template.Spec.TerminationGracePeriodSeconds)
		assert.Equal(r, "10s", r.routerConfig()["drain-delay"])
		assert.Equal(r, "600s", r.routerConfig()["shutdown-timeout"])
	},
	"no-limits": func(r *rendered) {
		for _, d := range []*appsv1.Deployment{r.router(), r.controller()} {
			for _, v := range d.Spec.Template.Spec.Containers[0].Env {
				assert.NotContains(r, []string{"GOMEMLIMIT", "GOMAXPROCS"}, v.Name, "there is nothing to compute it from")
			}
		}
	},
	"pods-discovery": func(r *rendered) {
		assert.Equal(r, "pods", r.routerConfig()["discovery"])
		assert.Equal(r, "zone-a", r.routerConfig()["zone"])
		role := one[rbacv1.ClusterRole](r, "ClusterRole", "-router")
		assert.Equal(r, []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list", "watch"}}}, role.Rules)
	},
	"file-discovery": func(r *rendered) {
		assert.False(r, *r.router().Spec.Template.Spec.AutomountServiceAccountToken, "nothing to ask the API server")
		assert.Empty(r, matching(r.names("ClusterRoleBinding"), "router"))
		assert.Equal(r, "/routes/routes.yaml", r.routerConfig()["routes-file"])
	},
	"watch-namespace": func(r *rendered) {
		assert.Equal(r, "team-a", r.routerConfig()["namespace"])
		assert.Empty(r, r.all("ClusterRole"), "rights in one namespace only")
		assert.Empty(r, r.all("ClusterRoleBinding"))
		binding := one[rbacv1.RoleBinding](r, "RoleBinding", "-router")
		assert.Equal(r, "team-a", binding.Namespace)
		assert.Equal(r, r.namespace, binding.Subjects[0].Namespace)
	},
	"router-only": func(r *rendered) {
		assert.Len(r, r.all("Deployment"), 1)
		assert.Empty(r, matching(r.names("ClusterRole"), "controller"))
		assert.Len(r, r.all("ServiceMonitor"), 1)
		assert.Equal(r, []string{"sandbox-router"}, groups(r), "an alert about the absence of what was not installed")
	},
	"controller-only": func(r *rendered) {
		assert.Len(r, r.all("Deployment"), 1)
		assert.Empty(r, matching(append(r.names("ClusterRole"), r.names("Service")...), "router"))
		assert.Len(r, r.all("PodMonitor"), 1)
		assert.Equal(r, []string{"agent-sandbox-controller"}, groups(r))
	},
	"monitoring": func(r *rendered) {
		assert.Len(r, r.all("ServiceMonitor"), 2)
		for _, o := range append(r.all("ServiceMonitor"), r.all("PrometheusRule")...) {
			assert.Equal(r, "prometheus", o.GetLabels()["release"])
		}
		assert.Equal(r, "15s", nested[string](r, r.all("ServiceMonitor")[0], "spec", "endpoints", 0, "interval"))
		dashboards := one[corev1.ConfigMap](r, "ConfigMap", "-dashboards")
		assert.Equal(r, "agents", dashboards.Labels["folder"])
		assert.Contains(r, dashboards.Data, "agent-sandbox.json")
		rules, err := yaml.Marshal(r.all("PrometheusRule")[0].Object)
		require.NoError(r, err)
		assert.NotContains(r, string(rules), "$NAMESPACE")
		assert.Contains(r, string(rules), `namespace="some-namespace"`)
		assert.Contains(r, string(rules), "{{ $labels.pod }}", "Prometheus' own templates survive")
	},
}

// groups are the names of the groups of alerts.
func groups(r *rendered) []string {
	var names []string
	for _, group := range nested[[]any](r, r.all("PrometheusRule")[0], "spec", "groups") {
		names = append(names, group.(map[string]any)["name"].(string))
	}
	return names
}

// matching are the names that contain a word.
func matching(names []string, word string) []string {
	var found []string
	for _, name := range names {
		if strings.Contains(name, word) {
			found = append(found, name)
		}
	}
	return found
}
