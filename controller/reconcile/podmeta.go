package reconcile

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovakiin0/agent-sandbox/proto"
	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
)

// podLabels is every label that the Sandbox puts on its Pod.
func podLabels(sb *agents.Sandbox) map[string]string {
	labels := userLabels(sb.Spec.PodTemplate.Metadata.Labels)
	labels[proto.LabelSandboxNameHash] = proto.NameHash(sb.Name)
	if owner := controllerOf(sb); owner != nil && refGroup(owner) == proto.GroupExtensions {
		copyLabel(labels, sb, proto.LabelTemplateRefHash)
		if owner.Kind == warmPoolGVK.Kind {
			copyLabel(labels, sb, proto.LabelWarmPool)
		}
	}
	if by := sb.Labels[proto.LabelCreatedBy]; by != "" {
		labels[proto.LabelCreatedBy] = normalizeCreatedBy(by)
	}
	return labels
}

func copyLabel(to map[string]string, sb *agents.Sandbox, key string) {
	if value := sb.Labels[key]; value != "" {
		to[key] = value
	}
}

// derivedLabels are those labels of a Pod that go when its Sandbox no longer asks for them.
var derivedLabels = []string{proto.LabelWarmPool, proto.LabelTemplateRefHash, proto.LabelCreatedBy}

// userLabels and userAnnotations return a copy of template metadata without the keys that belong to this controller.
func userLabels(template map[string]string) map[string]string {
	labels := map[string]string{}
	for key, value := range template {
		if !systemKey(key) {
			labels[key] = value
		}
	}
	return labels
}

func userAnnotations(template map[string]string) map[string]string {
	annotations := userLabels(template)
	delete(annotations, proto.AnnotationTraceContext)
	return annotations
}

// trackedKeys returns the two annotations that tell a later pass which keys of the Pod came from the template.
func trackedKeys(template *agents.PodTemplate) map[string]string {
	list := func(m map[string]string) string { return strings.Join(slices.Sorted(maps.Keys(m)), ",") }
	return map[string]string{
		proto.AnnotationPropagatedLabels:      list(userLabels(template.Metadata.Labels)),
		proto.AnnotationPropagatedAnnotations: list(userAnnotations(template.Metadata.Annotations)),
	}
}

// podMetadataChange returns what must change on an existing Pod to follow its Sandbox. Keys that the template never set
// are left alone.
func podMetadataChange(sb *agents.Sandbox, pod *corev1.Pod) metaChange {
	var change metaChange

	labels := podLabels(sb)
	for key, value := range labels {
		if have, ok := pod.Labels[key]; !ok || have != value {
			change.setLabel(key, value)
		}
	}
	for _, key := range append(tracked(pod, proto.AnnotationPropagatedLabels), derivedLabels...) {
		if _, wanted := labels[key]; !wanted && has(pod.Labels, key) {
			change.deleteLabel(key)
		}
	}

	annotations := userAnnotations(sb.Spec.PodTemplate.Metadata.Annotations)
	tracking := trackedKeys(&sb.Spec.PodTemplate)
	maps.Copy(annotations, tracking)
	for key, value := range annotations {
		if pod.Annotations[key] != value || value == "" && !has(tracking, key) && !has(pod.Annotations, key) {
			change.setAnnotation(key, value)
		}
	}
	for _, key := range tracked(pod, proto.AnnotationPropagatedAnnotations) {
		if !has(annotations, key) && has(pod.Annotations, key) {
			change.deleteAnnotation(key)
		}
	}

	if !change.empty() { // an empty list is worth no write of its own, but rides along
		for key, value := range tracking {
			change.setAnnotation(key, value)
		}
	}
	return change
}

func has(m map[string]string, key string) bool {
	_, ok := m[key]
	return ok
}

func tracked(pod *corev1.Pod, annotation string) []string {
	if list := pod.Annotations[annotation]; list != "" {
		return strings.Split(list, ",")
	}
	return nil
}
