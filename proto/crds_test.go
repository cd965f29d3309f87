package proto_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

type node = map[string]any

// crd reads a generated CustomResourceDefinition and returns its names and its only version.
func crd(t *testing.T, file string) (names, version node) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("../charts/agent-sandbox/crds", file))
	require.NoError(t, err)
	var d node
	require.NoError(t, yaml.Unmarshal(data, &d))
	spec := d["spec"].(node)
	assert.Equal(t, "Namespaced", spec["scope"])
	assert.Nil(t, spec["conversion"], "one version needs no conversion")
	versions := spec["versions"].([]any)
	require.Len(t, versions, 1)
	version = versions[0].(node)
	assert.Equal(t, "v1beta1", version["name"])
	assert.Equal(t, true, version["served"])
	assert.Equal(t, true, version["storage"])
	return spec["names"].(node), version
}

// at walks down the properties of a schema; [] is the item of a list.
func at(t *testing.T, version node, path string) node {
	t.Helper()
	schema := version["schema"].(node)["openAPIV3Schema"].(node)
	for _, step := range strings.Split(path, ".") {
		if step == "" {
			continue
		}
		name, item := strings.CutSuffix(step, "[]")
		next, ok := schema["properties"].(node)[name].(node)
		require.True(t, ok, "%s has no %s", path, name)
		if schema = next; item {
			schema = schema["items"].(node)
		}
	}
	return schema
}

func columns(version node) []string {
	var out []string
	list, _ := version["additionalPrinterColumns"].([]any)
	for _, c := range list {
		column := c.(node)
		out = append(out, column["name"].(string)+" "+column["type"].(string)+" "+column["jsonPath"].(string))
	}
	return out
}

const (
	readyStatus = "Ready string .status.conditions[?(@.type=='Ready')].status"
	readyReason = "Reason string .status.conditions[?(@.type=='Ready')].reason"
	age         = "Age date .metadata.creationTimestamp"
)

func TestGeneratedCRDs(t *testing.T) {
	for _, c := range []struct {
		file, kind, plural, short string
		columns                   []string
		subresources              any
		required                  map[string][]any
		fields                    map[string]node // keys that the schema at a path must have
	}{
		{
			file: "sandboxes.agents.x-k8s.io.yaml", kind: "Sandbox", plural: "sandboxes", short: "sandbox",
			columns:      []string{readyStatus, readyReason, age},
			subresources: node{"status": node{}},
			required: map[string][]any{
				"": {"spec"}, "spec": {"podTemplate"}, "spec.podTemplate": {"spec"}, "spec.podTemplate.spec": {"containers"},
				"spec.podTemplate.spec.containers[]": {"name"}, "spec.volumeClaimTemplates[]": {"spec"},
			},
			fields: map[string]node{
				"spec.operatingMode":        {"default": "Running", "enum": []any{"Running", "Suspended"}},
				"spec.shutdownPolicy":       {"default": "Retain", "enum": []any{"Delete", "Retain"}},
				"spec.shutdownTime":         {"format": "date-time"},
				"spec.service":              {"type": "boolean", "default": nil},
				"spec.volumeClaimTemplates": {"x-kubernetes-list-type": "atomic"},
				"spec": {"x-kubernetes-validations": []any{node{
					"message": "volumeClaimTemplates is immutable",
					"rule":    "has(self.volumeClaimTemplates) == has(oldSelf.volumeClaimTemplates) && (!has(self.volumeClaimTemplates) || self.volumeClaimTemplates == oldSelf.volumeClaimTemplates)",
				}}},
				"spec.podTemplate.spec.containers[].ports[].protocol": {"default": "TCP"},
				"spec.podTemplate.spec.dnsPolicy":                     {"default": nil},
				"spec.podTemplate.spec.restartPolicy":                 {"default": nil},
				"spec.podTemplate.spec.containers":                    {"x-kubernetes-list-map-keys": []any{"name"}},
				"status.conditions":                                   {"x-kubernetes-list-type": nil},
				"status.conditions[].reason":                          {"minLength": 1.0, "maxLength": 1024.0, "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"},
				"status.conditions[].message":                         {"maxLength": 32768.0},
				"status.conditions[].type":                            {"maxLength": 316.0},
				"status.podIPs[]":                                     {"type": "string"},
				"status.selector":                                     {"type": "string"},
				"status.serviceFQDN":                                  {"type": "string"},
				"status.service":                                      {"type": "string"},
				"status.nodeName":                                     {"type": "string"},
			},
		},
		{
			file: "sandboxtemplates.extensions.agents.x-k8s.io.yaml", kind: "SandboxTemplate", plural: "sandboxtemplates", short: "sandboxtemplate",
			required: map[string][]any{"": {"spec"}, "spec": {"podTemplate"}},
			fields: map[string]node{
				"spec":                            {"x-kubernetes-validations": nil}, // volumeClaimTemplates may change here
				"spec.networkPolicyManagement":    {"default": "Managed", "enum": []any{"Managed", "Unmanaged"}},
				"spec.envVarsInjectionPolicy":     {"default": "Disallowed", "enum": []any{"Allowed", "Overrides", "Disallowed"}},
				"spec.volumeClaimTemplatesPolicy": {"default": "Disallowed", "enum": []any{"Disallowed", "Allowed", "Overrides"}},
				"spec.networkPolicy.ingress":      {"type": "array"},
				"spec.networkPolicy.egress":       {"type": "array"},
				"spec.service":                    {"type": "boolean", "default": nil},
			},
		},
		{
			file: "sandboxwarmpools.extensions.agents.x-k8s.io.yaml", kind: "SandboxWarmPool", plural: "sandboxwarmpools", short: "swp",
			columns: []string{"Ready integer .status.readyReplicas", "Desired integer .spec.replicas", age},
			subresources: node{"status": node{}, "scale": node{
				"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector",
			}},
			required: map[string][]any{"": {"spec"}, "spec": {"sandboxTemplateRef"}, "spec.sandboxTemplateRef": {"name"}},
			fields: map[string]node{
				"spec.replicas":             {"default": 1.0, "minimum": 0.0, "format": "int32"},
				"spec.updateStrategy":       {"default": nil},
				"spec.updateStrategy.type":  {"default": "OnReplenish", "enum": []any{"Recreate", "OnReplenish"}},
				"status.replicas":           {"format": "int32"},
				"status.readyReplicas":      {"format": "int32"},
				"status.selector":           {"type": "string"},
				"status.observedGeneration": {"format": "int64", "minimum": 0.0},
			},
		},
		{
			file: "sandboxclaims.extensions.agents.x-k8s.io.yaml", kind: "SandboxClaim", plural: "sandboxclaims", short: "sandboxclaim",
			columns:      []string{readyStatus, "Sandbox string .status.sandbox.name", readyReason, age},
			subresources: node{"status": node{}},
			required: map[string][]any{
				"": {"spec"}, "spec": {"warmPoolRef"}, "spec.warmPoolRef": {"name"},
				"spec.env[]": {"name", "value"}, "spec.volumeClaimTemplates[]": {"spec"},
			},
			fields: map[string]node{
				"spec.lifecycle.shutdownPolicy":          {"default": "Retain", "enum": []any{"Delete", "DeleteForeground", "Retain"}},
				"spec.lifecycle.ttlSecondsAfterFinished": {"minimum": 0.0, "format": "int32"},
				"spec.lifecycle.shutdownTime":            {"format": "date-time"},
				"spec.env":                               {"x-kubernetes-list-type": "atomic"},
				"spec.volumeClaimTemplates":              {"x-kubernetes-list-type": "atomic"},
				"spec.additionalPodMetadata.labels":      {"type": "object"},
				"spec.additionalPodMetadata.annotations": {"type": "object"},
				"status.conditions":                      {"x-kubernetes-list-type": nil},
				"status.sandbox.name":                    {"type": "string"},
				"status.sandbox.podIPs[]":                {"type": "string"},
			},
		},
	} {
		t.Run(c.kind, func(t *testing.T) {
			names, version := crd(t, c.file)
			assert.Equal(t, node{
				"kind": c.kind, "listKind": c.kind + "List", "plural": c.plural, "singular": strings.ToLower(c.kind), "shortNames": []any{c.short},
			}, names)
			assert.Equal(t, c.columns, columns(version))
			assert.Equal(t, c.subresources, version["subresources"])
			for path, want := range c.required {
				assert.ElementsMatch(t, want, at(t, version, path)["required"], path)
			}
			for path, want := range c.fields {
				schema := at(t, version, path)
				for key, value := range want {
					assert.Equal(t, value, schema[key], "%s of %s", key, path)
				}
			}
		})
	}
}

func TestTemplateHasNoStatus(t *testing.T) {
	_, version := crd(t, "sandboxtemplates.extensions.agents.x-k8s.io.yaml")
	schema := version["schema"].(node)["openAPIV3Schema"].(node)
	assert.NotContains(t, schema["properties"], "status")
}
