package chart

import (
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"

	extensions "github.com/dovakiin0/agent-sandbox/proto/extensions/v1beta1"
)

// sandboxSets are about templates, pools and who may claim.
var sandboxSets = expectations{
	"seed": func(r *rendered) {
		assert.EqualValues(r, 3, *r.router().Spec.Replicas)
		assert.Equal(r, "us-central1-docker.pkg.dev/k8s-staging-images/agent-sandbox/sandbox-router:v1.0.2", r.router().Spec.Template.Spec.Containers[0].Image)
		assert.Equal(r, "registry.k8s.io/agent-sandbox/agent-sandbox-controller:v1.0.2", r.controller().Spec.Template.Spec.Containers[0].Image)
		config := r.routerConfig()
		assert.Equal(r, "allow-all", config["authz-mode"])
		assert.Equal(r, "10.0.0.0/8,192.168.0.0/16", config["trusted-proxy-cidrs"])
		assert.Equal(r, "180s", config["proxy-timeout"])
		assert.Equal(r, "python-bash-template", r.pool().Spec.TemplateRef.Name)
		binding := one[rbacv1.RoleBinding](r, "RoleBinding", "-backend")
		assert.Equal(r, []rbacv1.Subject{{Kind: "ServiceAccount", Name: "backend", Namespace: "default"}}, binding.Subjects)
	},
	"seed-1.0.2": func(r *rendered) {
		binding := one[rbacv1.RoleBinding](r, "RoleBinding", "-backend")
		assert.ElementsMatch(r, []rbacv1.Subject{
			{Kind: "ServiceAccount", Name: "backend", Namespace: r.namespace},
			{Kind: "Group", Name: "agents", APIGroup: "rbac.authorization.k8s.io"},
		}, binding.Subjects)
	},
	"gvisor": func(r *rendered) {
		assert.Equal(r, "gvisor", *r.template().Spec.PodTemplate.Spec.RuntimeClassName)
		assert.Nil(r, r.router().Spec.Template.Spec.RuntimeClassName)
	},
	"pool-of-five": func(r *rendered) { assert.EqualValues(r, 5, *r.pool().Spec.Replicas) },
	"sandbox-resources": func(r *rendered) {
		resources := r.template().Spec.PodTemplate.Spec.Containers[0].Resources
		assert.Equal(r, "500m", resources.Requests.Cpu().String())
		assert.Equal(r, "1Gi", resources.Requests.Memory().String())
		assert.EqualValues(r, 2, resources.Limits.Cpu().Value())
		assert.Equal(r, "2Gi", resources.Limits.Memory().String())
	},
	"read-only-root": func(r *rendered) {
		spec := r.template().Spec.PodTemplate.Spec
		assert.True(r, *spec.Containers[0].SecurityContext.ReadOnlyRootFilesystem)
		assert.EqualValues(r, 2000, *spec.SecurityContext.RunAsUser)
		assert.EqualValues(r, 3000, *spec.SecurityContext.RunAsGroup)
		assert.EqualValues(r, 3000, *spec.SecurityContext.FSGroup, "or the user could not write to its volumes")
		empty := map[string]bool{}
		for _, v := range spec.Volumes {
			empty[v.Name] = v.EmptyDir != nil
		}
		mounts := mountPaths(&spec.Containers[0])
		for _, path := range []string{"/tmp", "/app"} {
			assert.True(r, empty[mounts[path]], "%s is writable", path)
		}
	},
	"persistence": func(r *rendered) {
		template := r.template().Spec
		require.Len(r, template.VolumeClaimTemplates, 1)
		claim := template.VolumeClaimTemplates[0]
		assert.Equal(r, "5Gi", claim.Spec.Resources.Requests.Storage().String())
		assert.Equal(r, "fast", *claim.Spec.StorageClassName)
		assert.Equal(r, claim.Metadata.Name, mountPaths(&template.PodTemplate.Spec.Containers[0])["/app"], "the volume is mounted where the files are")
	},
	"persistence-read-only": func(r *rendered) {
		template := r.template().Spec
		mounts := mountPaths(&template.PodTemplate.Spec.Containers[0])
		assert.Equal(r, template.VolumeClaimTemplates[0].Metadata.Name, mounts["/data"])
		assert.Contains(r, mounts, "/tmp")
		assert.NotContains(r, mounts, "/app")
		for _, v := range template.PodTemplate.Spec.Containers[0].Env {
			if v.Name == "SANDBOX_BASE_DIR" {
				assert.Equal(r, "/data", v.Value)
			}
		}
	},
	"no-sandboxes": func(r *rendered) {
		for _, kind := range []string{"SandboxTemplate", "SandboxWarmPool"} {
			assert.Empty(r, r.all(kind), kind)
		}
		assert.Empty(r, matching(r.names("Role"), "backend"))
		assert.Len(r, r.all("Deployment"), 2)
	},
	"lists": func(r *rendered) {
		assert.ElementsMatch(r, []string{"python-bash-template", "node", "hardened"}, r.names("SandboxTemplate"))
		assert.ElementsMatch(r, []string{"python-bash-warmpool", "node-pool", "hardened-pool"}, r.names("SandboxWarmPool"))
		node := one[extensions.SandboxTemplate](r, "SandboxTemplate", "node").Spec.PodTemplate.Spec.Containers[0]
		assert.Equal(r, "example.com/node-sandbox:22", node.Image)
		assert.EqualValues(r, 9000, node.Ports[0].ContainerPort)
		assert.EqualValues(r, 4, node.Resources.Limits.Cpu().Value())
		assert.Equal(r, "1Gi", node.Resources.Limits.Memory().String(), "what a template does not set is inherited")
		hardened := one[extensions.SandboxTemplate](r, "SandboxTemplate", "hardened").Spec.PodTemplate.Spec
		assert.Equal(r, "kata", *hardened.RuntimeClassName)
		assert.Nil(r, r.template().Spec.PodTemplate.Spec.RuntimeClassName, "and nothing leaks back")
		pool := one[extensions.SandboxWarmPool](r, "SandboxWarmPool", "hardened-pool")
		assert.Nil(r, pool.Spec.Replicas, "null leaves the number to an autoscaler")
		assert.Equal(r, "hardened", pool.Spec.TemplateRef.Name)
		assert.EqualValues(r, "Recreate", pool.Spec.UpdateStrategy.Type)
	},
	"other-namespace": func(r *rendered) {
		for _, kind := range []string{"SandboxTemplate", "SandboxWarmPool"} {
			for _, o := range r.all(kind) {
				assert.Equal(r, "team-a", o.GetNamespace())
			}
		}
		assert.Equal(r, r.namespace, r.router().Namespace)
		assert.Contains(r, r.notes, "team-a")
	},
}
