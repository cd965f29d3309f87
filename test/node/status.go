package main

import (
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// The functions of this file compute the status that a kubelet would report; none of them talks to anybody.

// setCondition sets a condition as of now and keeps its transition time if the status does not change.
func setCondition(status *corev1.PodStatus, c corev1.PodCondition, now time.Time) {
	c.LastTransitionTime = metav1.NewTime(now)
	for i := range status.Conditions {
		old := &status.Conditions[i]
		if old.Type != c.Type {
			continue
		}
		if old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
		*old = c
		return
	}
	status.Conditions = append(status.Conditions, c)
}

// setStarted fills in what does not change while the pod lives on its node.
func setStarted(status *corev1.PodStatus, pod *corev1.Pod, nodeIP, podIP string, now time.Time) {
	if status.StartTime == nil {
		status.StartTime = &metav1.Time{Time: now}
	}
	status.ObservedGeneration = pod.Generation
	status.HostIP, status.HostIPs = nodeIP, []corev1.HostIP{{IP: nodeIP}}
	status.PodIP, status.PodIPs = podIP, []corev1.PodIP{{IP: podIP}}
	for _, kind := range []corev1.PodConditionType{corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodScheduled} {
		setCondition(status, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue}, now)
	}
	status.InitContainerStatuses = nil
	for _, c := range pod.Spec.InitContainers {
		init := newContainerStatus(pod, c)
		init.State.Terminated = &corev1.ContainerStateTerminated{Reason: "Completed", StartedAt: *status.StartTime, FinishedAt: metav1.NewTime(now), ContainerID: init.ContainerID}
		init.Ready = true
		status.InitContainerStatuses = append(status.InitContainerStatuses, init)
	}
	if len(status.ContainerStatuses) == len(pod.Spec.Containers) {
		return // the agent was restarted: their restarts are counted on
	}
	status.ContainerStatuses = nil
	for _, c := range pod.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, newContainerStatus(pod, c))
	}
}

func newContainerStatus(pod *corev1.Pod, c corev1.Container) corev1.ContainerStatus {
	return corev1.ContainerStatus{
		Name: c.Name, Image: c.Image, ImageID: c.Image,
		ContainerID: "test-agent://" + string(pod.UID) + "/" + c.Name,
	}
}

// setRunning says that all containers run since the given time and that the pod is or is not ready.
func setRunning(status *corev1.PodStatus, since time.Time, ready bool, now time.Time) {
	status.Phase = corev1.PodRunning
	for i := range status.ContainerStatuses {
		c := &status.ContainerStatuses[i]
		if c.State.Running == nil {
			c.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(since)}}
		}
		c.Ready, c.Started = ready, new(true)
	}
	reason := ""
	if !ready {
		reason = "ContainersNotReady"
	}
	setReady(status, ready, reason, now)
}

// setRestarting says that the first container ended with the exit code and waits to be started again.
func setRestarting(status *corev1.PodStatus, exitCode int, now time.Time) {
	first := &status.ContainerStatuses[0]
	first.LastTerminationState.Terminated = terminated(first, exitCode, now)
	first.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
	first.Ready, first.Started = false, new(false)
	first.RestartCount++
	setReady(status, false, "ContainersNotReady", now)
}

// setEnded says that the pod has ended for good, with the exit code of its first container.
func setEnded(status *corev1.PodStatus, exitCode int, now time.Time) {
	reason := "PodCompleted"
	status.Phase = corev1.PodSucceeded
	if exitCode != 0 {
		reason = "PodFailed"
		status.Phase = corev1.PodFailed
	}
	for i := range status.ContainerStatuses {
		c := &status.ContainerStatuses[i]
		if i > 0 {
			exitCode = 0
		}
		c.State = corev1.ContainerState{Terminated: terminated(c, exitCode, now)}
		c.Ready, c.Started = false, new(false)
	}
	setReady(status, false, reason, now)
}

// terminated describes the end of a container by what was known of its run.
func terminated(c *corev1.ContainerStatus, exitCode int, now time.Time) *corev1.ContainerStateTerminated {
	t := &corev1.ContainerStateTerminated{ExitCode: int32(exitCode), Reason: "Completed", FinishedAt: metav1.NewTime(now), ContainerID: c.ContainerID}
	if exitCode != 0 {
		t.Reason = "Error"
	}
	if c.State.Running != nil {
		t.StartedAt = c.State.Running.StartedAt
	}
	return t
}

func setReady(status *corev1.PodStatus, ready bool, reason string, now time.Time) {
	value := corev1.ConditionFalse
	if ready {
		value = corev1.ConditionTrue
	}
	setCondition(status, corev1.PodCondition{Type: corev1.ContainersReady, Status: value, Reason: reason}, now)
	setCondition(status, corev1.PodCondition{Type: corev1.PodReady, Status: value, Reason: reason}, now)
}

// statusPatch is the strategic merge patch from one status to the other. It names the UID of the pod, so that the API
// server refuses it for another pod of the same name.
func statusPatch(uid types.UID, from, to *corev1.PodStatus) ([]byte, error) {
	before, err := json.Marshal(corev1.Pod{Status: *from})
	if err != nil {
		return nil, err
	}
	after, err := json.Marshal(corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}, Status: *to})
	if err != nil {
		return nil, err
	}
	return strategicpatch.CreateTwoWayMergePatch(before, after, corev1.Pod{})
}
