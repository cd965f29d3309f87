package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// place binds the pod to a node, or says that there is none for it.
func (a *agent) place(ctx context.Context, pod *corev1.Pod) error {
	if pod.DeletionTimestamp != nil || len(pod.Spec.SchedulingGates) > 0 {
		return nil
	}
	node := a.nodes.choose(pod, &a.turn)
	if node == nil {
		return a.unschedulable(ctx, pod)
	}
	err := a.client.CoreV1().Pods(pod.Namespace).Bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name, UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: node.Name},
	}, metav1.CreateOptions{})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) { // bound already, replaced, or gone
		return nil
	}
	return err
}

func (a *agent) unschedulable(ctx context.Context, pod *corev1.Pod) error {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonUnschedulable {
			return nil
		}
	}
	status := *pod.Status.DeepCopy()
	setCondition(&status, corev1.PodCondition{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
		Message: fmt.Sprintf("0/%d nodes are available: none matches the pod's node selector.", len(a.nodes)),
	}, time.Now())
	err := a.patchStatus(ctx, pod, &pod.Status, &status)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
