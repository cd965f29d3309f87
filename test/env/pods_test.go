package env

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	runtimeImage = "registry.example/sandbox-runtime:v1"
	otherImage   = "registry.example/pause:3"
)

// newPod is a pod with one container that the node agent treats according to its image.
func newPod(namespace, name, image string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: image}}},
	}
}

// newScriptPod is a pod that runs a shell script for real.
func newScriptPod(namespace, name string, policy corev1.RestartPolicy, script string) *corev1.Pod {
	pod := newPod(namespace, name, otherImage)
	pod.Annotations = map[string]string{"test.agent-sandbox.dev/run": "true"}
	pod.Spec.RestartPolicy = policy
	pod.Spec.Containers[0].Command = []string{"sh", "-c", script}
	return pod
}

func (e *Env) create(t *testing.T, object client.Object) {
	t.Helper()
	require.NoError(t, e.Client.Create(t.Context(), object))
}

func condition(pod *corev1.Pod, kind corev1.PodConditionType) corev1.PodCondition {
	for _, c := range pod.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return corev1.PodCondition{}
}

func (e *Env) waitReady(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	e.WaitFor(t, pod, "to be Ready", func() bool { return condition(pod, corev1.PodReady).Status == corev1.ConditionTrue })
}

// url is where the runtime of a pod listens on this machine.
func url(t *testing.T, pod *corev1.Pod, path string) string {
	t.Helper()
	ip, err := netip.ParseAddr(pod.Status.PodIP)
	require.NoError(t, err)
	require.True(t, netip.MustParsePrefix("10.128.0.0/9").Contains(ip), "pod address %s", ip)
	b := ip.As4()
	b[0] = 127
	return "http://" + netip.AddrPortFrom(netip.AddrFrom4(b), 8888).String() + path
}

// execute runs a command through the runtime of a pod and returns what it wrote to stdout.
func execute(t *testing.T, pod *corev1.Pod, command string) string {
	t.Helper()
	body, err := json.Marshal(map[string]string{"command": command})
	require.NoError(t, err)
	response, err := http.Post(url(t, pod, "/execute"), "application/json", bytes.NewReader(body))
	require.NoError(t, err)
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	var result struct {
		Stdout, Stderr string
		ExitCode       int `json:"exit_code"`
	}
	require.NoError(t, json.Unmarshal(answer, &result), "%s", answer)
	require.Zero(t, result.ExitCode, "%s", answer)
	return result.Stdout
}

func TestRuntimePod(t *testing.T) {
	t.Parallel()
	e := Get(t)
	ns := e.Namespace(t)
	pod := newPod(ns, "sandbox", runtimeImage)
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "GREETING", Value: "hello from the spec"}}
	e.create(t, pod)
	e.waitReady(t, pod)

	assert.Equal(t, corev1.PodRunning, pod.Status.Phase)
	assert.Equal(t, []corev1.PodIP{{IP: pod.Status.PodIP}}, pod.Status.PodIPs)
	assert.NotEmpty(t, pod.Status.HostIP)
	assert.NotNil(t, pod.Status.StartTime)
	for _, kind := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady} {
		assert.Equal(t, corev1.ConditionTrue, condition(pod, kind).Status, kind)
	}
	require.Len(t, pod.Status.ContainerStatuses, 1)
	assert.True(t, pod.Status.ContainerStatuses[0].Ready)
	assert.NotNil(t, pod.Status.ContainerStatuses[0].State.Running)

	assert.Equal(t, "hello from the spec\n", execute(t, pod, `sh -c 'echo $GREETING'`))

	other := newPod(ns, "neighbor", runtimeImage)
	e.create(t, other)
	e.waitReady(t, other)
	assert.NotEqual(t, pod.Status.PodIP, other.Status.PodIP)
	assert.NotEqual(t, execute(t, pod, "pwd"), execute(t, other, "pwd"), "each pod has files of its own")

	require.NoError(t, e.Client.Delete(t.Context(), pod))
	e.WaitGone(t, pod)
	_, err := http.Get(url(t, pod, "/"))
	assert.Error(t, err, "the process ends before the pod object goes")
	assert.Equal(t, "still here\n", execute(t, other, "echo still here"))
}

func TestForcedDeletionEndsTheProcess(t *testing.T) {
	t.Parallel()
	e := Get(t)
	pod := newPod(e.Namespace(t), "sandbox", runtimeImage)
	e.create(t, pod)
	e.waitReady(t, pod)
	require.NoError(t, e.Client.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	e.WaitGone(t, pod)
	require.Eventually(t, func() bool {
		response, err := http.Get(url(t, pod, "/"))
		if err == nil {
			response.Body.Close()
		}
		return err != nil
	}, patience, 20*time.Millisecond)
}

// A StatefulSet or our controller may create a pod anew under its old name the moment the old one is gone.
func TestPodOfTheSameName(t *testing.T) {
	t.Parallel()
	e := Get(t)
	ns := e.Namespace(t)
	first := newPod(ns, "sandbox", runtimeImage)
	e.create(t, first)
	e.waitReady(t, first)
	require.NoError(t, e.Client.Delete(t.Context(), first, client.GracePeriodSeconds(0)))
	second := newPod(ns, "sandbox", runtimeImage)
	e.create(t, second)
	e.waitReady(t, second)
	assert.NotEqual(t, first.UID, second.UID)
	assert.NotEqual(t, first.Status.PodIP, second.Status.PodIP)
	assert.Equal(t, "new\n", execute(t, second, "echo new"))
}

func TestGracePeriod(t *testing.T) {
	t.Parallel()
	e := Get(t)
	for name, test := range map[string]struct {
		script   string
		grace    int64
		phase    corev1.PodPhase
		exitCode int32
	}{
		"polite":   {"trap 'exit 0' TERM; touch $READY; while :; do sleep 0.01; done", 600, corev1.PodSucceeded, 0},
		"stubborn": {"trap '' TERM; touch $READY; while :; do sleep 0.01; done", 1, corev1.PodFailed, 128 + 9},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			trapped := filepath.Join(t.TempDir(), "trapped")
			pod := newScriptPod(e.Namespace(t), name, corev1.RestartPolicyAlways, test.script)
			pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "READY", Value: trapped}}
			e.create(t, pod)
			require.Eventually(t, func() bool {
				_, err := os.Stat(trapped)
				return err == nil
			}, patience, 20*time.Millisecond)
			last := e.lastState(t, pod, func() {
				require.NoError(t, e.Client.Delete(t.Context(), pod, client.GracePeriodSeconds(test.grace)))
			})
			assert.Equal(t, test.phase, last.Status.Phase)
			require.NotNil(t, last.Status.ContainerStatuses[0].State.Terminated)
			assert.Equal(t, test.exitCode, last.Status.ContainerStatuses[0].State.Terminated.ExitCode)
		})
	}
}

// lastState watches a pod while act deletes it and returns what it was like in the end.
func (e *Env) lastState(t *testing.T, pod *corev1.Pod, act func()) *corev1.Pod {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	w, err := e.Client.Watch(ctx, &corev1.PodList{}, client.InNamespace(pod.Namespace), client.MatchingFields{"metadata.name": pod.Name})
	require.NoError(t, err)
	defer w.Stop()
	act()
	for event := range w.ResultChan() {
		if event.Type == watch.Deleted {
			return event.Object.(*corev1.Pod)
		}
	}
	require.Fail(t, "the pod was not deleted in time")
	return nil
}

func TestCommandThatEnds(t *testing.T) {
	t.Parallel()
	e := Get(t)
	ns := e.Namespace(t)
	for name, test := range map[string]struct {
		policy   corev1.RestartPolicy
		script   string
		phase    corev1.PodPhase
		exitCode int32
		restarts int32
	}{
		"succeeds":          {corev1.RestartPolicyNever, "exit 0", corev1.PodSucceeded, 0, 0},
		"fails":             {corev1.RestartPolicyNever, "exit 3", corev1.PodFailed, 3, 0},
		"succeeds-on-retry": {corev1.RestartPolicyOnFailure, "test -e tried || { touch tried; exit 1; }", corev1.PodSucceeded, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := newScriptPod(ns, name, test.policy, test.script)
			e.create(t, pod)
			e.WaitFor(t, pod, "to end", func() bool {
				return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
			})
			assert.Equal(t, test.phase, pod.Status.Phase)
			assert.Equal(t, corev1.ConditionFalse, condition(pod, corev1.PodReady).Status)
			status := pod.Status.ContainerStatuses[0]
			require.NotNil(t, status.State.Terminated)
			assert.Equal(t, test.exitCode, status.State.Terminated.ExitCode)
			assert.Equal(t, test.restarts, status.RestartCount)
			require.NoError(t, e.Client.Delete(t.Context(), pod))
			e.WaitGone(t, pod)
		})
	}
}

func TestRestartPolicyAlways(t *testing.T) {
	t.Parallel()
	e := Get(t)
	pod := newScriptPod(e.Namespace(t), "restless", corev1.RestartPolicyAlways, "test -e tried && sleep 600; touch tried")
	e.create(t, pod)
	e.WaitFor(t, pod, "to run again", func() bool {
		return condition(pod, corev1.PodReady).Status == corev1.ConditionTrue && pod.Status.ContainerStatuses[0].RestartCount == 1
	})
	assert.Equal(t, corev1.PodRunning, pod.Status.Phase)
	assert.Empty(t, condition(pod, corev1.PodReady).Reason, "the reason of the time between is gone")
	assert.NotNil(t, pod.Status.ContainerStatuses[0].LastTerminationState.Terminated)
}

func TestOtherImagesRunWithoutAProcess(t *testing.T) {
	t.Parallel()
	e := Get(t)
	pod := newPod(e.Namespace(t), "plain", otherImage)
	pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "sidecar", Image: runtimeImage})
	pod.Spec.InitContainers = []corev1.Container{{Name: "setup", Image: otherImage}}
	e.create(t, pod)
	e.waitReady(t, pod)
	require.Len(t, pod.Status.ContainerStatuses, 2)
	assert.True(t, pod.Status.ContainerStatuses[1].Ready)
	require.Len(t, pod.Status.InitContainerStatuses, 1)
	assert.NotNil(t, pod.Status.InitContainerStatuses[0].State.Terminated)
	_, err := http.Get(url(t, pod, "/"))
	assert.Error(t, err, "the first container decides")
}

func TestReadinessAnnotations(t *testing.T) {
	t.Parallel()
	e := Get(t)
	ns := e.Namespace(t)
	annotated := func(name, annotation, value string) *corev1.Pod {
		pod := newPod(ns, name, runtimeImage)
		pod.Annotations = map[string]string{"test.agent-sandbox.dev/" + annotation: value}
		e.create(t, pod)
		return pod
	}
	late := annotated("late", "ready-after", "1.5s")
	deaf := annotated("deaf", "listen-after", "1h")
	never := annotated("never", "unready", "true")

	e.waitReady(t, deaf)
	_, err := http.Get(url(t, deaf, "/"))
	assert.Error(t, err, "Ready, and nobody listens")

	notReady := func(pod *corev1.Pod) func() bool {
		return func() bool {
			return pod.Status.Phase == corev1.PodRunning && condition(pod, corev1.PodReady).Status == corev1.ConditionFalse
		}
	}
	e.WaitFor(t, late, "to run without being Ready", notReady(late))
	e.waitReady(t, late)
	since := condition(late, corev1.PodReady).LastTransitionTime.Sub(late.Status.StartTime.Time)
	assert.GreaterOrEqual(t, since, time.Second, "times in the API are whole seconds")

	e.WaitFor(t, never, "to run without being Ready", notReady(never))
	response, err := http.Get(url(t, never, "/"))
	require.NoError(t, err, "it runs all the same")
	response.Body.Close()
}

func TestPlacement(t *testing.T) {
	t.Parallel()
	e := Get(t)
	ns := e.Namespace(t)

	nodes := map[string]int{}
	for _, name := range []string{"one", "two", "three", "four"} {
		pod := newPod(ns, name, otherImage)
		pod.Spec.NodeSelector = map[string]string{corev1.LabelTopologyZone: "zone-b"}
		e.create(t, pod)
		e.waitReady(t, pod)
		nodes[pod.Spec.NodeName]++
	}
	assert.Equal(t, map[string]int{"node-b": 4}, nodes, "node-b is the only node in zone-b")

	lost := newPod(ns, "lost", otherImage)
	lost.Spec.NodeSelector = map[string]string{corev1.LabelTopologyZone: "zone-z"}
	e.create(t, lost)
	e.WaitFor(t, lost, "to be unschedulable", func() bool {
		return condition(lost, corev1.PodScheduled).Reason == corev1.PodReasonUnschedulable
	})
	assert.Equal(t, corev1.ConditionFalse, condition(lost, corev1.PodScheduled).Status)
	assert.Equal(t, corev1.PodPending, lost.Status.Phase)

	gated := newPod(ns, "gated", otherImage)
	gated.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/gate"}}
	e.create(t, gated)
	later := newPod(ns, "later", otherImage)
	e.create(t, later)
	e.waitReady(t, later)
	e.WaitFor(t, gated, "to exist", func() bool { return true })
	assert.Empty(t, gated.Spec.NodeName, "a gated pod is left alone")
	gated.Spec.SchedulingGates = nil
	require.NoError(t, e.Client.Update(t.Context(), gated))
	e.waitReady(t, gated)
}
