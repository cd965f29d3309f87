package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// started is the status of a new pod with two containers.
func started() *corev1.PodStatus {
	pod := podWith(nil, corev1.Container{Name: "main"})
	pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "sidecar"})
	var status corev1.PodStatus
	setStarted(&status, pod, "10.127.0.1", "10.128.0.2", noon)
	return &status
}

func readyCondition(status *corev1.PodStatus) corev1.PodCondition {
	for _, c := range status.Conditions {
		if c.Type == corev1.PodReady {
			return c
		}
	}
	return corev1.PodCondition{}
}

func TestTransitionTimes(t *testing.T) {
	status := started()
	setRunning(status, noon, false, noon)
	setRunning(status, noon, false, noon.Add(time.Second))
	assert.Equal(t, noon, readyCondition(status).LastTransitionTime.Time, "unchanged")
	setRunning(status, noon, true, noon.Add(2*time.Second))
	assert.Equal(t, noon.Add(2*time.Second), readyCondition(status).LastTransitionTime.Time)
	assert.Equal(t, noon, status.ContainerStatuses[0].State.Running.StartedAt.Time)
}

func TestRestartingKeepsTheOtherContainers(t *testing.T) {
	status := started()
	setRunning(status, noon, true, noon)
	setRestarting(status, 3, noon.Add(time.Second))
	main, sidecar := status.ContainerStatuses[0], status.ContainerStatuses[1]
	assert.Equal(t, corev1.PodRunning, status.Phase)
	assert.Equal(t, corev1.ConditionFalse, readyCondition(status).Status)
	assert.EqualValues(t, 1, main.RestartCount)
	require.NotNil(t, main.State.Waiting)
	require.NotNil(t, main.LastTerminationState.Terminated)
	assert.EqualValues(t, 3, main.LastTerminationState.Terminated.ExitCode)
	assert.Equal(t, noon, main.LastTerminationState.Terminated.StartedAt.Time)
	assert.NotNil(t, sidecar.State.Running)
	assert.True(t, sidecar.Ready)
}

func TestEnded(t *testing.T) {
	for exitCode, want := range map[int]corev1.PodPhase{0: corev1.PodSucceeded, 1: corev1.PodFailed} {
		status := started()
		setRunning(status, noon, true, noon)
		setEnded(status, exitCode, noon)
		assert.Equal(t, want, status.Phase)
		assert.Equal(t, corev1.ConditionFalse, readyCondition(status).Status)
		require.NotNil(t, status.ContainerStatuses[0].State.Terminated)
		assert.EqualValues(t, exitCode, status.ContainerStatuses[0].State.Terminated.ExitCode)
		require.NotNil(t, status.ContainerStatuses[1].State.Terminated)
		assert.Zero(t, status.ContainerStatuses[1].State.Terminated.ExitCode)
	}
}

func TestStatusPatchNamesThePodAndClearsWhatIsGone(t *testing.T) {
	before := started()
	setRunning(before, noon, false, noon)
	after := before.DeepCopy()
	setRunning(after, noon, true, noon.Add(time.Second))
	patch, err := statusPatch("uid-1", before, after)
	require.NoError(t, err)
	assert.Contains(t, string(patch), `"metadata":{"uid":"uid-1"}`)
	assert.Contains(t, string(patch), `"reason":null`, "or the reason for not being ready would stay")
	assert.NotContains(t, string(patch), "podIP", "what did not change is not written")
}
