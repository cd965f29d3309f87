package main

import (
	"os"
	"os/exec"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovakiin0/agent-sandbox/test/process"
)

// Annotations by which a test directs its pods.
const (
	// annotationRun set to "true" runs the command of the first container as a real process.
	annotationRun = "test.agent-sandbox.dev/run"
	// annotationReadyAfter, a Go duration, is how long after its start the pod turns Ready at the earliest.
	annotationReadyAfter = "test.agent-sandbox.dev/ready-after"
	// annotationListenAfter, a Go duration, reports the pod Ready at once and starts its process only that much later.
	annotationListenAfter = "test.agent-sandbox.dev/listen-after"
	// annotationUnready set to "true" keeps the pod from ever being Ready.
	annotationUnready = "test.agent-sandbox.dev/unready"
)

// plan is how a pod is run.
type plan struct {
	command     *process.Command // nil for no process
	probe       string           // URL that answers 200 when the process is ready; empty for no probe
	readyAfter  time.Duration
	listenAfter time.Duration
	unready     bool
}

// newPlan decides how to run the pod. Its process may write below dir and listens, if it is a runtime, on the address.
func newPlan(pod *corev1.Pod, runtime program, dir, address string) plan {
	p := plan{
		readyAfter:  duration(pod, annotationReadyAfter),
		listenAfter: duration(pod, annotationListenAfter),
		unready:     pod.Annotations[annotationUnready] == "true",
	}
	first := pod.Spec.Containers[0]
	switch {
	case runtime.matches(first.Image):
		p.command = &process.Command{Path: runtime.binary, Args: []string{"--listen-address=" + address, "--base-dir=" + dir}}
		p.probe = "http://" + address + "/"
	case pod.Annotations[annotationRun] == "true" && len(first.Command) > 0:
		path, err := exec.LookPath(first.Command[0])
		if err != nil {
			return p
		}
		p.command = &process.Command{Path: path, Args: slices.Concat(first.Command[1:], first.Args)}
	default:
		return p
	}
	p.command.Dir = dir
	p.command.Env = environment(pod.Name, first.Env, dir)
	return p
}

// environment is what a container would find in its environment: no variable of the agent but PATH.
func environment(pod string, vars []corev1.EnvVar, home string) []string {
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "HOSTNAME=" + pod}
	for _, v := range vars {
		if v.ValueFrom == nil {
			env = append(env, v.Name+"="+v.Value)
		}
	}
	return env
}

// duration reads an annotation; what is absent or no duration counts as zero.
func duration(pod *corev1.Pod, annotation string) time.Duration {
	d, _ := time.ParseDuration(pod.Annotations[annotation])
	return d
}
