package reconcile

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovakiin0/agent-sandbox/proto"
	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
	ext "github.com/dovakiin0/agent-sandbox/proto/extensions/v1beta1"
)

// coldStart makes a Sandbox for the claim.
func (p *claimPass) coldStart(ctx context.Context, template *ext.SandboxTemplate) (*agents.Sandbox, error) {
	// The lock of this write proves that no earlier pass gave the claim a Sandbox.
	if err := p.writeStamp(ctx); err != nil {
		return nil, err
	}
	sandbox, err := coldSandbox(p.claim, template)
	if err != nil {
		return nil, err
	}
	err = p.client.Create(ctx, sandbox)
	if apierrors.IsAlreadyExists(err) {
		return p.existing(ctx)
	}
	if err != nil {
		return nil, err
	}
	p.event("SandboxProvisioned", "Provisioning", fmt.Sprintf("Created Sandbox %q", sandbox.Name))
	countClaim(p.claim, sandbox, p.claim.Spec.WarmPoolRef.Name)
	return sandbox, nil
}

// existing returns the Sandbox that stood in the way of a creation, if it is the claim's own.
func (p *claimPass) existing(ctx context.Context) (*agents.Sandbox, error) {
	sandbox, err := p.readLive(ctx, p.claim.Name)
	switch {
	case err != nil:
		return nil, err
	case sandbox == nil:
		return nil, &problem{
			reason:     reasonSandboxCreatePending,
			message:    "Sandbox already created; waiting for cache to converge",
			retryAfter: createRecheck,
		}
	case !controlledBy(sandbox, p.claim.UID):
		return nil, notControlled(p.claim)
	}
	p.client.remember(sandbox, true)
	return sandbox, nil
}

// coldSandbox builds the Sandbox of a claim that no pool member serves.
func coldSandbox(claim *ext.SandboxClaim, template *ext.SandboxTemplate) (*agents.Sandbox, error) {
	blueprint := sandboxBlueprint(template)
	volumes, err := mergeVolumes(blueprint.VolumeClaimTemplates, claim.Spec.VolumeClaimTemplates, template.Spec.VolumeClaimTemplatesPolicy)
	if err != nil {
		return nil, &problem{reason: reasonVolumesRejected, message: err.Error()}
	}
	blueprint.VolumeClaimTemplates = volumes
	if err := injectEnv(&blueprint.PodTemplate.Spec, claim.Spec.Env, template.Spec.EnvVarsInjectionPolicy); err != nil {
		return nil, err
	}
	if blueprint.PodTemplate.Metadata, err = claimedPodMetadata(claim, template); err != nil {
		return nil, err
	}
	sandbox := &agents.Sandbox{
		ObjectMeta: metav1.ObjectMeta{
			Name:      claim.Name,
			Namespace: claim.Namespace,
			Labels: map[string]string{
				proto.LabelClaimUID:        string(claim.UID),
				proto.LabelLaunchType:      proto.LaunchCold,
				proto.LabelTemplateRefHash: proto.NameHash(template.Name),
			},
			Annotations: map[string]string{
				proto.AnnotationTemplateRef: template.Name,
				proto.AnnotationPodName:     claim.Name, // the pod will have the name of its Sandbox
			},
			OwnerReferences: []metav1.OwnerReference{newControllerRef(claim, claimGVK)},
		},
		Spec: agents.SandboxSpec{SandboxBlueprint: blueprint},
	}
	setOrDelete(&sandbox.Labels, proto.LabelCreatedBy, claim.Labels[proto.LabelCreatedBy])
	setOrDelete(&sandbox.Annotations, proto.AnnotationTraceContext, claim.Annotations[proto.AnnotationTraceContext])
	return sandbox, nil
}

type volumeTemplates = []agents.PersistentVolumeClaimTemplate

// mergeVolumes combines the volumes of a template with those of a claim as the template's policy allows. The order is
// the template's, then the claim's.
func mergeVolumes(template, claim volumeTemplates, policy ext.VolumeClaimTemplatesPolicy) (volumeTemplates, error) {
	if err := checkVolumeNames("template", template); err != nil {
		return nil, err
	}
	if len(claim) == 0 {
		return template, nil
	}
	if err := checkVolumeNames("claim", claim); err != nil {
		return nil, err
	}
	if policy != ext.VolumeClaimTemplatesAllowed && policy != ext.VolumeClaimTemplatesOverrides {
		return nil, fmt.Errorf("the template does not allow volumeClaimTemplates in claims")
	}
	merged := slices.Clone(template)
	for _, volume := range claim {
		at := slices.IndexFunc(template, func(t agents.PersistentVolumeClaimTemplate) bool {
			return t.Metadata.Name == volume.Metadata.Name
		})
		switch {
		case at < 0:
			merged = append(merged, volume)
		case policy == ext.VolumeClaimTemplatesOverrides:
			merged[at] = volume
		default:
			return nil, fmt.Errorf("volumeClaimTemplate %q is already in the template, which does not allow overrides", volume.Metadata.Name)
		}
	}
	return merged, nil
}

func checkVolumeNames(of string, volumes volumeTemplates) error {
	seen := make(map[string]bool, len(volumes))
	for _, volume := range volumes {
		name := volume.Metadata.Name
		if name == "" {
			return fmt.Errorf("invalid volumeClaimTemplates of the %s: an entry has no name", of)
		}
		if seen[name] {
			return fmt.Errorf("invalid volumeClaimTemplates of the %s: the name %q is there twice", of, name)
		}
		seen[name] = true
	}
	return nil
}

// injectEnv sets the variables of a claim in the containers of pod as the template's policy allows. An entry without a
// container is for the first main one, where it comes after the entries that name it.
func injectEnv(pod *corev1.PodSpec, vars []ext.EnvVar, policy ext.EnvVarsInjectionPolicy) error {
	if len(vars) == 0 {
		return nil
	}
	if policy != ext.EnvVarsAllowed && policy != ext.EnvVarsOverrides {
		return envRejected("the template does not allow environment variables in claims")
	}
	named := slices.Clone(vars)
	slices.SortStableFunc(named, func(a, b ext.EnvVar) int { return trueFirst(a.ContainerName != "", b.ContainerName != "") })
	for _, v := range named {
		container := findContainer(pod, v.ContainerName)
		if container == nil {
			return fmt.Errorf("environment variable %q is for the container %q, which the template does not have", v.Name, v.ContainerName)
		}
		override := policy == ext.EnvVarsOverrides
		if !override && len(container.EnvFrom) > 0 {
			// What envFrom brings is not known here, so an override could not be told.
			return envRejected(fmt.Sprintf("the container %q has envFrom, and the template does not allow overrides", container.Name))
		}
		set := corev1.EnvVar{Name: v.Name, Value: v.Value}
		at := slices.IndexFunc(container.Env, func(e corev1.EnvVar) bool { return e.Name == v.Name })
		switch {
		case at < 0:
			container.Env = append(container.Env, set)
		case override:
			container.Env[at] = set
		default:
			return fmt.Errorf("environment variable %q is already set in the container %q, and the template does not allow overrides", v.Name, container.Name)
		}
	}
	return nil
}

// findContainer returns the container of that name, without a name the first main one, nil when there is none.
func findContainer(pod *corev1.PodSpec, name string) *corev1.Container {
	for _, containers := range [][]corev1.Container{pod.Containers, pod.InitContainers} {
		for i := range containers {
			if name == "" || containers[i].Name == name {
				return &containers[i]
			}
		}
	}
	return nil
}
