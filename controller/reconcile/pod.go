package reconcile

import (
	corev1 "k8s.io/api/core/v1"
)

// stripPod takes from a Pod what no reconciler reads. Pods are cached like this, and writes to Pods are metadata-only
// patches, so what the server answers is stripped alike.
func stripPod(pod *corev1.Pod) {
	pod.ManagedFields = nil
	pod.Finalizers = nil
	pod.Spec = corev1.PodSpec{NodeName: pod.Spec.NodeName}
}

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
