package reconcile

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	ext "github.com/dovakiin0/agent-sandbox/proto/extensions/v1beta1"
)

// injectEnv sets the variables of a claim in the containers of pod as the template's policy allows. An entry without a
// container is for the first main one, where it comes after the entries that name it.
func injectEnv(pod *corev1.PodSpec, vars []ext.EnvVar, policy ext.EnvVarsInjectionPolicy) error {
	if len(vars) == 0 {
		return nil
	}
	if policy != ext.EnvVarsAllowed && policy != ext.EnvVarsOverrides {
		return envRejected("the template does not allow environment variables in claims")
	}
	for _, v := range vars {
		if v.ContainerName != "" && findContainer(pod, v.ContainerName) == nil {
			return fmt.Errorf("environment variable %q is for the container %q, which the template does not have", v.Name, v.ContainerName)
		}
	}
	for _, containers := range [][]corev1.Container{pod.InitContainers, pod.Containers} {
		for i := range containers {
			if err := injectContainerEnv(&containers[i], varsOf(pod, containers[i].Name, vars), policy); err != nil {
				return err
			}
		}
	}
	return nil
}

// varsOf selects the variables for one container.
func varsOf(pod *corev1.PodSpec, container string, vars []ext.EnvVar) []ext.EnvVar {
	var named, unnamed []ext.EnvVar
	for _, v := range vars {
		switch {
		case v.ContainerName == container:
			named = append(named, v)
		case v.ContainerName == "" && len(pod.Containers) > 0 && container == pod.Containers[0].Name:
			unnamed = append(unnamed, v)
		}
	}
	return append(named, unnamed...)
}

func injectContainerEnv(container *corev1.Container, vars []ext.EnvVar, policy ext.EnvVarsInjectionPolicy) error {
	if len(vars) == 0 {
		return nil
	}
	allowOverride := policy == ext.EnvVarsOverrides
	if !allowOverride && len(container.EnvFrom) > 0 {
		// What envFrom brings is not known here, so an override could not be told.
		return envRejected(fmt.Sprintf("the container %q has envFrom, and the template does not allow overrides", container.Name))
	}
	for _, v := range vars {
		set := corev1.EnvVar{Name: v.Name, Value: v.Value}
		at := slices.IndexFunc(container.Env, func(e corev1.EnvVar) bool { return e.Name == v.Name })
		switch {
		case at < 0:
			container.Env = append(container.Env, set)
		case allowOverride:
			container.Env[at] = set
		default:
			return fmt.Errorf("environment variable %q is already set in the container %q, and the template does not allow overrides", v.Name, container.Name)
		}
	}
	return nil
}

func findContainer(pod *corev1.PodSpec, name string) *corev1.Container {
	for _, containers := range [][]corev1.Container{pod.InitContainers, pod.Containers} {
		for i := range containers {
			if containers[i].Name == name {
				return &containers[i]
			}
		}
	}
	return nil
}
