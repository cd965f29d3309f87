package reconcile

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
	ext "github.com/dovakiin0/agent-sandbox/proto/extensions/v1beta1"
)

func TestMergeVolumes(t *testing.T) {
	// An entry is "name=class".
	volumes := func(entries ...string) (list volumeTemplates) {
		for _, entry := range entries {
			name, class, _ := strings.Cut(entry, "=")
			list = append(list, agents.PersistentVolumeClaimTemplate{
				Metadata: agents.PersistentVolumeClaimMetadata{Name: name},
				Spec:     corev1.PersistentVolumeClaimSpec{StorageClassName: new(class)},
			})
		}
		return list
	}
	for name, c := range map[string]struct {
		policy          ext.VolumeClaimTemplatesPolicy
		template, claim volumeTemplates
		want            volumeTemplates // nil is an error
	}{
		"claim has none":              {ext.VolumeClaimTemplatesDisallowed, volumes("a=t"), nil, volumes("a=t")},
		"template's are checked":      {ext.VolumeClaimTemplatesDisallowed, volumes("a=t", "a=t"), nil, nil},
		"template's need names":       {ext.VolumeClaimTemplatesDisallowed, volumes("=t"), nil, nil},
		"disallowed":                  {ext.VolumeClaimTemplatesDisallowed, volumes("a=t"), volumes("b=c"), nil},
		"no policy":                   {"", volumes("a=t"), volumes("b=c"), nil},
		"allowed, new":                {ext.VolumeClaimTemplatesAllowed, volumes("b=t", "a=t"), volumes("d=c", "c=c"), volumes("b=t", "a=t", "d=c", "c=c")},
		"allowed, same name":          {ext.VolumeClaimTemplatesAllowed, volumes("a=t"), volumes("a=c"), nil},
		"overrides, in place":         {ext.VolumeClaimTemplatesOverrides, volumes("a=t", "b=t"), volumes("c=c", "a=c"), volumes("a=c", "b=t", "c=c")},
		"overrides, all":              {ext.VolumeClaimTemplatesOverrides, volumes("a=t"), volumes("a=c"), volumes("a=c")},
		"claim's need names":          {ext.VolumeClaimTemplatesOverrides, volumes("a=t"), volumes("=c"), nil},
		"claim's twice":               {ext.VolumeClaimTemplatesOverrides, volumes("a=t"), volumes("b=c", "b=c"), nil},
		"template without, claim has": {ext.VolumeClaimTemplatesAllowed, nil, volumes("a=c"), volumes("a=c")},
	} {
		t.Run(name, func(t *testing.T) {
			before := append(volumeTemplates(nil), c.template...)
			got, err := mergeVolumes(c.template, c.claim, c.policy)
			if c.want == nil {
				require.Error(t, err)
			} else {
				require.NoError(t, err)
				assert.Equal(t, c.want, got)
			}
			assert.Equal(t, before, append(volumeTemplates(nil), c.template...), "the template is shared")
		})
	}
}
