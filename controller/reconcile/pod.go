package reconcile

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovakiin0/agent-sandbox/proto"
	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
)

// podReady reports whether the Pod serves and has an address to serve on.
func podReady(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodRunning && podConditionTrue(pod, corev1.PodReady) && len(pod.Status.PodIPs) > 0
}

// podFinished reports whether the Pod has ended for good.
func podFinished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func podConditionTrue(pod *corev1.Pod, kind corev1.PodConditionType) bool {
	c := podCondition(pod, kind)
	return c != nil && c.Status == corev1.ConditionTrue
}

func podCondition(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == kind {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

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

// syncPodMetadata changes the metadata of a Pod to follow its Sandbox. Keys that the template never set are left alone.
func syncPodMetadata(sb *agents.Sandbox, pod *corev1.Pod) {
	was := pod.DeepCopy().ObjectMeta
	pod.Labels = replaced(pod.Labels, append(tracked(pod, proto.AnnotationPropagatedLabels), derivedLabels...), podLabels(sb))
	pod.Annotations = replaced(pod.Annotations, tracked(pod, proto.AnnotationPropagatedAnnotations),
		userAnnotations(sb.Spec.PodTemplate.Metadata.Annotations))
	changed := !maps.Equal(pod.Labels, was.Labels) || !maps.Equal(pod.Annotations, was.Annotations)
	tracking := trackedKeys(&sb.Spec.PodTemplate)
	for key, list := range tracking {
		changed = changed || was.Annotations[key] != list
	}
	if changed { // an empty list is worth no write of its own, but rides along
		maps.Copy(pod.Annotations, tracking)
	}
}

// replaced returns m without the old keys and with the new ones.
func replaced(m map[string]string, old []string, with map[string]string) map[string]string {
	if m == nil {
		m = map[string]string{}
	}
	for _, key := range old {
		delete(m, key)
	}
	maps.Copy(m, with)
	return m
}

func tracked(pod *corev1.Pod, annotation string) []string {
	if list := pod.Annotations[annotation]; list != "" {
		return strings.Split(list, ",")
	}
	return nil
}
