package reconcile

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/dovakiin0/agent-sandbox/proto"
	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
	ext "github.com/dovakiin0/agent-sandbox/proto/extensions/v1beta1"
)

// labelDomainsFile is where a ConfigMap puts the domains of the labels that claims may set on their pods.
const labelDomainsFile = "/etc/sandbox-config/allowed-label-domains"

// Domains of the annotations that a claim may not set on its pod.
var reservedAnnotationDomains = []string{"kubernetes.io", "k8s.io", proto.GroupAgents}

// readLabelDomains returns the domains of the labels that claims may set on their pods: those of the file, separated by
// commas or line ends, or the default without a file. It is read for each claim that needs it, because a mounted
// ConfigMap changes under a running process.
func readLabelDomains(path string) ([]string, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return []string{"sandbox.users.io"}, nil
	}
	if err != nil {
		return nil, err
	}
	var domains []string
	for _, field := range strings.FieldsFunc(string(text), func(r rune) bool { return r == ',' || r == '\n' }) {
		if domain := strings.ToLower(strings.TrimSpace(field)); domain != "" {
			domains = append(domains, domain)
		}
	}
	return domains, nil
}

// checkPodMetadata validates what a claim wants to add to its pod's metadata. Labels select pods for policies and
// Services, so only those of allow-listed domains pass; annotations steer controllers, so those of the system do not.
func checkPodMetadata(extra *agents.PodMetadata, labelDomains []string) error {
	for _, key := range slices.Sorted(maps.Keys(extra.Labels)) {
		domain, err := keyDomain("label", key)
		if err != nil {
			return err
		}
		if domain == "" {
			return fmt.Errorf("label %q has no domain prefix", key)
		}
		if !underAny(domain, labelDomains) {
			return fmt.Errorf("label %q is not of an allowed domain (%s)", key, strings.Join(labelDomains, ", "))
		}
		if faults := validation.IsValidLabelValue(extra.Labels[key]); len(faults) > 0 {
			return fmt.Errorf("label %q has an invalid value: %s", key, strings.Join(faults, "; "))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(extra.Annotations)) {
		domain, err := keyDomain("annotation", key)
		if err != nil {
			return err
		}
		if key != proto.AnnotationSafeToEvict && underAny(domain, reservedAnnotationDomains) {
			return fmt.Errorf("annotation %q is of a reserved domain", key)
		}
	}
	return nil
}

// keyDomain returns the lower-case domain of a qualified name, "" when it has none.
func keyDomain(what, key string) (string, error) {
	if faults := validation.IsQualifiedName(key); len(faults) > 0 {
		return "", fmt.Errorf("%s key %q is invalid: %s", what, key, strings.Join(faults, "; "))
	}
	domain, _, found := strings.Cut(key, "/")
	if !found {
		return "", nil
	}
	return strings.ToLower(domain), nil
}

func underAny(domain string, parents []string) bool {
	return slices.ContainsFunc(parents, func(parent string) bool {
		return domain == parent || strings.HasSuffix(domain, "."+parent)
	})
}

// claimedPodMetadata is the pod metadata of a claim's sandbox: the template's, the keys of this controller, and what the
// claim adds.
func claimedPodMetadata(claim *ext.SandboxClaim, template *ext.SandboxTemplate) (agents.PodMetadata, error) {
	metadata := *template.Spec.PodTemplate.Metadata.DeepCopy()
	return withClaimKeys(metadata, claim, proto.NameHash(template.Name))
}

// editedPodMetadata stands in for claimedPodMetadata when the template cannot be read: it turns the metadata of an
// unclaimed pool member into that of a claimed sandbox.
func editedPodMetadata(claim *ext.SandboxClaim, member *agents.Sandbox) (agents.PodMetadata, error) {
	metadata := *member.Spec.PodTemplate.Metadata.DeepCopy()
	if metadata.Annotations[proto.AnnotationSafeToEvict] == "true" {
		delete(metadata.Annotations, proto.AnnotationSafeToEvict)
	}
	return withClaimKeys(metadata, claim, member.Labels[proto.LabelTemplateRefHash])
}

// withClaimKeys changes metadata, which must not be shared.
func withClaimKeys(metadata agents.PodMetadata, claim *ext.SandboxClaim, templateRefHash string) (agents.PodMetadata, error) {
	if metadata.Labels == nil {
		metadata.Labels = map[string]string{}
	}
	metadata.Labels[proto.LabelClaimUID] = string(claim.UID)
	metadata.Labels[proto.LabelTemplateRefHash] = templateRefHash
	delete(metadata.Labels, proto.LabelCreatedBy)
	if by := claim.Labels[proto.LabelCreatedBy]; by != "" {
		metadata.Labels[proto.LabelCreatedBy] = by
	}
	extra := &claim.Spec.AdditionalPodMetadata
	if len(extra.Annotations) > 0 && metadata.Annotations == nil {
		metadata.Annotations = map[string]string{}
	}
	if err := addKeys("label", metadata.Labels, extra.Labels); err != nil {
		return agents.PodMetadata{}, err
	}
	return metadata, addKeys("annotation", metadata.Annotations, extra.Annotations)
}

// addKeys adds what a claim wants to what the template has. The template's values win by refusing the claim.
func addKeys(what string, to, from map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(from)) {
		if have, ok := to[key]; ok && have != from[key] {
			return fmt.Errorf("metadata override conflict: %s %q is %q in the template, the claim wants %q", what, key, have, from[key])
		}
		to[key] = from[key]
	}
	return nil
}
