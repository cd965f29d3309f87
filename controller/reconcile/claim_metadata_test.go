package reconcile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dovakiin0/agent-sandbox/proto"
	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
	ext "github.com/dovakiin0/agent-sandbox/proto/extensions/v1beta1"
)

func TestCheckPodMetadata(t *testing.T) {
	domains := []string{"sandbox.users.io", "example.com"}
	label := func(key, value string) agents.PodMetadata {
		return agents.PodMetadata{Labels: map[string]string{key: value}}
	}
	annotation := func(key, value string) agents.PodMetadata {
		return agents.PodMetadata{Annotations: map[string]string{key: value}}
	}
	for name, c := range map[string]struct {
		extra agents.PodMetadata
		ok    bool
	}{
		"nothing":                         {agents.PodMetadata{}, true},
		"label of an allowed domain":      {label("sandbox.users.io/team", "a"), true},
		"label of a subdomain":            {label("x.example.com/team", "a"), true},
		"label of a look-alike":           {label("notexample.com/team", "a"), false},
		"label of another domain":         {label("example.org/team", "a"), false},
		"label without a domain":          {label("team", "a"), false},
		"label that the policy admits":    {label("app", "sandbox-router"), false},
		"… in other letters":              {label("App", "Sandbox-Router"), false},
		"label of ours":                   {label(proto.LabelWarmPool, "a"), false},
		"label with a bad name":           {label("example.com/-team", "a"), false},
		"label with two slashes":          {label("example.com/a/b", "a"), false},
		"label with a bad value":          {label("example.com/team", "a b"), false},
		"label with a long value":         {label("example.com/team", strings.Repeat("a", 64)), false},
		"label with the longest value":    {label("example.com/team", strings.Repeat("a", 63)), true},
		"label with an empty value":       {label("example.com/team", ""), true},
		"annotation without a domain":     {annotation("note", "any value at all"), true},
		"annotation of any domain":        {annotation("example.org/note", "x"), true},
		"annotation of kubernetes.io":     {annotation("kubernetes.io/x", "x"), false},
		"annotation below kubernetes.io":  {annotation("a.kubernetes.io/x", "x"), false},
		"annotation of k8s.io":            {annotation("k8s.io/x", "x"), false},
		"annotation below k8s.io":         {annotation("x.k8s.io/x", "x"), false},
		"annotation of ours":              {annotation("agents.x-k8s.io/pod-name", "x"), false},
		"annotation below ours":           {annotation("foo.agents.x-k8s.io/x", "x"), false},
		"annotation of a look-alike":      {annotation("notk8s.io/x", "x"), true},
		"annotation for the autoscaler":   {annotation(proto.AnnotationSafeToEvict, "false"), true},
		"another one of the autoscaler's": {annotation("cluster-autoscaler.kubernetes.io/x", "false"), false},
		"annotation with a bad name":      {annotation("example.org/", "x"), false},
	} {
		t.Run(name, func(t *testing.T) {
			err := checkPodMetadata(&c.extra, domains)
			if c.ok {
				assert.NoError(t, err)
			} else {
				assert.Error(t, err)
			}
		})
	}
}

func TestReadLabelDomains(t *testing.T) {
	path := filepath.Join(t.TempDir(), "allowed-label-domains")
	domains, err := readLabelDomains(path)
	require.NoError(t, err)
	assert.Equal(t, []string{"sandbox.users.io"}, domains, "without a file")

	require.NoError(t, os.WriteFile(path, []byte(" Example.com, b.org\n\nc.net \n"), 0o600))
	domains, err = readLabelDomains(path)
	require.NoError(t, err)
	assert.Equal(t, []string{"example.com", "b.org", "c.net"}, domains, "the file replaces the default")

	require.NoError(t, os.WriteFile(path, nil, 0o600))
	domains, err = readLabelDomains(path)
	require.NoError(t, err)
	assert.Empty(t, domains, "an empty file allows none")
}

func TestClaimedPodMetadata(t *testing.T) {
	template := newTemplate(func(x *ext.SandboxTemplate) {
		x.Spec.PodTemplate.Metadata.Labels = map[string]string{"example.com/team": "a", proto.LabelCreatedBy: "template"}
	})
	own := map[string]string{
		"example.com/team": "a", proto.LabelClaimUID: "uid-of-c", proto.LabelTemplateRefHash: proto.NameHash("tmpl"),
	}
	adding := func(labels, annotations map[string]string) func(*ext.SandboxClaim) {
		return func(c *ext.SandboxClaim) {
			c.Spec.AdditionalPodMetadata = agents.PodMetadata{Labels: labels, Annotations: annotations}
		}
	}
	for name, c := range map[string]struct {
		claim *ext.SandboxClaim
		want  agents.PodMetadata // no labels is an error
	}{
		"plain":      {newClaim("c"), agents.PodMetadata{Labels: own}},
		"created by": {newClaim("c", func(c *ext.SandboxClaim) { c.Labels = map[string]string{proto.LabelCreatedBy: "me"} }), agents.PodMetadata{Labels: merged(own, map[string]string{proto.LabelCreatedBy: "me"})}},
		"additions": {newClaim("c", adding(map[string]string{"example.com/x": "1"}, map[string]string{"note": "2"})),
			agents.PodMetadata{Labels: merged(own, map[string]string{"example.com/x": "1"}), Annotations: map[string]string{"note": "2"}}},
		"same value":  {newClaim("c", adding(map[string]string{"example.com/team": "a"}, nil)), agents.PodMetadata{Labels: own}},
		"other value": {newClaim("c", adding(map[string]string{"example.com/team": "b"}, nil)), agents.PodMetadata{}},
	} {
		t.Run(name, func(t *testing.T) {
			before := template.DeepCopy()
			got, err := claimedPodMetadata(c.claim, template)
			if c.want.Labels == nil {
				assert.ErrorContains(t, err, "metadata override conflict: ")
			} else {
				require.NoError(t, err)
				assert.Equal(t, c.want, got)
			}
			assert.Equal(t, before, template, "the template is shared")
		})
	}
}
