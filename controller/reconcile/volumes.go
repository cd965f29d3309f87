package reconcile

import (
	"fmt"
	"slices"

	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
	ext "github.com/dovakiin0/agent-sandbox/proto/extensions/v1beta1"
)

type volumeTemplates = []agents.PersistentVolumeClaimTemplate

// mergeVolumes combines the volumes of a template with those of a claim as the template's policy allows. The order is
// the template's, then the claim's.
func mergeVolumes(template, claim volumeTemplates, policy ext.VolumeClaimTemplatesPolicy) (volumeTemplates, error) {
	if err := checkVolumeNames("template", template); err != nil {
		return nil, err
	}
	if len(claim) == 0 {
		return template, nil
	}
	if err := checkVolumeNames("claim", claim); err != nil {
		return nil, err
	}
	if policy != ext.VolumeClaimTemplatesAllowed && policy != ext.VolumeClaimTemplatesOverrides {
		return nil, fmt.Errorf("the template does not allow volumeClaimTemplates in claims")
	}
	merged := slices.Clone(template)
	for _, volume := range claim {
		at := slices.IndexFunc(template, func(t agents.PersistentVolumeClaimTemplate) bool {
			return t.Metadata.Name == volume.Metadata.Name
		})
		switch {
		case at < 0:
			merged = append(merged, volume)
		case policy == ext.VolumeClaimTemplatesOverrides:
			merged[at] = volume
		default:
			return nil, fmt.Errorf("volumeClaimTemplate %q is already in the template, which does not allow overrides", volume.Metadata.Name)
		}
	}
	return merged, nil
}

func checkVolumeNames(of string, volumes volumeTemplates) error {
	seen := make(map[string]bool, len(volumes))
	for _, volume := range volumes {
		name := volume.Metadata.Name
		if name == "" {
			return fmt.Errorf("invalid volumeClaimTemplates of the %s: an entry has no name", of)
		}
		if seen[name] {
			return fmt.Errorf("invalid volumeClaimTemplates of the %s: the name %q is there twice", of, name)
		}
		seen[name] = true
	}
	return nil
}
