package chart

import (
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// serviceSets are about how clients get to the router, and about what is handed on to objects as it is.
var serviceSets = expectations{
	"load-balancer": func(r *rendered) {
		s := r.service()
		assert.Equal(r, corev1.ServiceTypeLoadBalancer, s.Spec.Type)
		assert.Equal(r, map[string]int32{"http": 80}, portsOf(s))
		assert.Equal(r, corev1.ServiceExternalTrafficPolicyLocal, s.Spec.ExternalTrafficPolicy)
		assert.Equal(r, "example.com/lb", *s.Spec.LoadBalancerClass)
		assert.Equal(r, []string{"203.0.113.0/24"}, s.Spec.LoadBalancerSourceRanges)
		assert.Nil(r, s.Spec.TrafficDistribution)
		assert.Equal(r, "internal", s.Annotations["example.com/scheme"])
		for _, port := range portsOf(s) {
			assert.NotEqualValues(r, 9090, port, "metrics are nobody's business outside")
		}
	},
	"ingress": func(r *rendered) {
		ingress := one[networkingv1.Ingress](r, "Ingress", "-router")
		assert.Equal(r, "nginx", *ingress.Spec.IngressClassName)
		require.Len(r, ingress.Spec.Rules, 2)
		for i, host := range []string{"sandboxes.example.com", "*.sandboxes.example.com"} {
			assert.Equal(r, host, ingress.Spec.Rules[i].Host)
			backend := ingress.Spec.Rules[i].HTTP.Paths[0].Backend.Service
			assert.Equal(r, r.service().Name, backend.Name)
			assert.Equal(r, portsOf(r.service())["http"], backend.Port.Number)
		}
		assert.Equal(r, "my-ingress-certificate", ingress.Spec.TLS[0].SecretName)
		assert.Equal(r, "10.0.0.0/8,fd00::/8", r.routerConfig()["trusted-proxy-cidrs"])
		assert.Equal(r, "sandboxes.example.com", r.routerConfig()["route-domain"])
	},
	"http-route": func(r *rendered) {
		route := r.all("HTTPRoute")[0]
		assert.Equal(r, "gateways", nested[string](r, route, "spec", "parentRefs", 0, "namespace"))
		assert.Equal(r, []any{"sandboxes.example.com"}, nested[[]any](r, route, "spec", "hostnames"))
		assert.Equal(r, r.service().Name, nested[string](r, route, "spec", "rules", 0, "backendRefs", 0, "name"))
		assert.EqualValues(r, 80, nested[int64](r, route, "spec", "rules", 0, "backendRefs", 0, "port"))
		assert.Equal(r, "0s", nested[string](r, route, "spec", "rules", 0, "timeouts", "request"), "the router has the timeouts")
	},
	"extras": func(r *rendered) {
		for _, o := range r.objects {
			assert.Equal(r, "agents", o.GetLabels()["team"], "%s %s", o.GetKind(), o.GetName())
		}
		c := r.controller().Spec.Template.Spec
		assert.Equal(r, "mirror.example.com/agent-sandbox-controller@sha256:1111111111111111111111111111111111111111111111111111111111111111", c.Containers[0].Image)
		assert.Contains(r, c.Containers[0].Args, "--zap-encoder=console")
		assert.Contains(r, c.Containers[0].Args, "--leader-election-namespace=some-namespace")
		pod := r.router().Spec.Template
		container := pod.Spec.Containers[0]
		assert.Equal(r, "mirror.example.com/sandbox-router:pinned", container.Image)
		assert.Equal(r, "--max-header-bytes=131072", container.Args[len(container.Args)-1])
		assert.Contains(r, container.Env, corev1.EnvVar{Name: "EXTRA", Value: "1"})
		assert.Contains(r, container.Env, corev1.EnvVar{Name: "GOMEMLIMIT", Value: "500MiB"}, "the user's wins")
		assert.Equal(r, "scratch", mountPaths(&container)["/scratch"])
		assert.Equal(r, "system-cluster-critical", pod.Spec.PriorityClassName)
		assert.Equal(r, "hello", pod.Annotations["example.com/note"])
		assert.Equal(r, "edge", pod.Labels["tier"])
		assert.Equal(r, "router", pod.Labels["app.kubernetes.io/component"], "labels that select cannot be taken away")
		assert.Equal(r, map[string]string{"pool": "edge"}, pod.Spec.NodeSelector)
		assert.Equal(r, "edge", pod.Spec.Tolerations[0].Key)
		assert.NotNil(r, pod.Spec.Affinity.PodAntiAffinity)
		sandbox := r.template().Spec.PodTemplate
		assert.Equal(r, "a", sandbox.Metadata.Labels["tenant"])
		assert.Equal(r, "cache", mountPaths(&sandbox.Spec.Containers[0])["/cache"])
		assert.Contains(r, sandbox.Spec.Containers[0].Env, corev1.EnvVar{Name: "PIP_INDEX_URL", Value: "https://pypi.example.com"})
		for _, spec := range []corev1.PodSpec{c, pod.Spec, sandbox.Spec} {
			assert.Equal(r, []corev1.LocalObjectReference{{Name: "my-registry"}}, spec.ImagePullSecrets)
		}
	},
	"names": func(r *rendered) {
		assert.Equal(r, "prod-sandboxes-router", r.router().Name)
		assert.Equal(r, "sandboxes", r.router().Labels["app.kubernetes.io/name"])
		assert.Equal(r, "sandbox-router-svc", r.service().Name, "clients know the Service by this name")
		assert.Equal(r, []string{"prod-sandboxes-router"}, r.names("ServiceAccount"))
		assert.Equal(r, "router", one[corev1.ServiceAccount](r, "ServiceAccount", "-router").Annotations["example.com/role"])
		assert.Equal(r, "my-controller", r.controller().Spec.Template.Spec.ServiceAccountName)
		assert.Equal(r, "my-controller", one[rbacv1.RoleBinding](r, "RoleBinding", "-lease").Subjects[0].Name)
		assert.Empty(r, matching(r.names("ClusterRole"), "router"), "rbac.create is false")
	},
}
