package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var testRuntime = program{binary: "/bin/runtime", repositories: []string{"sandbox-runtime", "python-runtime-sandbox"}}

func TestProgramMatches(t *testing.T) {
	for image, want := range map[string]bool{
		"sandbox-runtime":                   true,
		"sandbox-runtime:v1":                true,
		"host:5000/team/sandbox-runtime":    true,
		"host:5000/team/sandbox-runtime:v1": true,
		"team/sandbox-runtime@sha256:00":    true,
		"team/sandbox-runtime:v1@sha256:00": true,
		"team/python-runtime-sandbox":       true,
		"sandbox-runtime-debug":             false,
		"busybox:sandbox-runtime":           false,
		"busybox@sha256:00":                 false,
		"sandbox-runtime:5000/busybox":      false,
		"":                                  false,
	} {
		assert.Equal(t, want, testRuntime.matches(image), image)
	}
	assert.False(t, program{repositories: testRuntime.repositories}.matches("sandbox-runtime"), "no binary was given")
}

func podWith(annotations map[string]string, container corev1.Container) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pod", Annotations: annotations},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{container}},
	}
}

func TestPlan(t *testing.T) {
	run := map[string]string{annotationRun: "true"}

	p := newPlan(podWith(nil, corev1.Container{Image: "sandbox-runtime", Env: []corev1.EnvVar{
		{Name: "A", Value: "1"}, {Name: "B", ValueFrom: &corev1.EnvVarSource{}},
	}}), testRuntime, "/dir", "127.128.0.2:8888")
	require.NotNil(t, p.command)
	assert.Equal(t, "/bin/runtime", p.command.Path)
	assert.Equal(t, []string{"--listen-address=127.128.0.2:8888", "--base-dir=/dir"}, p.command.Args)
	assert.Equal(t, "/dir", p.command.Dir)
	assert.Contains(t, p.command.Env, "A=1")
	assert.Contains(t, p.command.Env, "HOSTNAME=pod")
	assert.Len(t, p.command.Env, 4, "nothing of the agent's own")
	assert.Equal(t, "http://127.128.0.2:8888/", p.probe)

	p = newPlan(podWith(run, corev1.Container{Image: "x", Command: []string{"sh", "-c"}, Args: []string{"true"}}), testRuntime, "/dir", "a")
	require.NotNil(t, p.command)
	assert.Equal(t, []string{"-c", "true"}, p.command.Args)
	assert.Empty(t, p.probe)

	for name, pod := range map[string]*corev1.Pod{
		"not asked to":    podWith(nil, corev1.Container{Image: "x", Command: []string{"sh"}}),
		"no command":      podWith(run, corev1.Container{Image: "x"}),
		"no such program": podWith(run, corev1.Container{Image: "x", Command: []string{"/no/such/program"}}),
	} {
		assert.Nil(t, newPlan(pod, testRuntime, "/dir", "a").command, name)
	}

	p = newPlan(podWith(map[string]string{annotationReadyAfter: "1.5s", annotationListenAfter: "soon", annotationUnready: "true"}, corev1.Container{}), testRuntime, "/dir", "a")
	assert.Equal(t, plan{readyAfter: 1500 * time.Millisecond, unready: true}, p)
}

func TestRestarts(t *testing.T) {
	for policy, want := range map[corev1.RestartPolicy][2]bool{ // after exit code 0 and 1
		corev1.RestartPolicyAlways:    {true, true},
		corev1.RestartPolicyOnFailure: {false, true},
		corev1.RestartPolicyNever:     {false, false},
	} {
		assert.Equal(t, want, [2]bool{restarts(policy, 0), restarts(policy, 1)}, policy)
	}
}
