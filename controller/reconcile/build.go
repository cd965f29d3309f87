package reconcile

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/dovakiin0/agent-sandbox/proto"
	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
)

// buildPod returns the Pod of a Sandbox: the template's spec as it is, its volumes, and the propagated metadata.
func buildPod(sb *agents.Sandbox) *corev1.Pod {
	template := &sb.Spec.PodTemplate
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:            sb.Name,
			Namespace:       sb.Namespace,
			Labels:          podLabels(sb),
			Annotations:     userAnnotations(template.Metadata.Annotations),
			OwnerReferences: []metav1.OwnerReference{newControllerRef(sb, sandboxGVK)},
		},
		Spec: *template.Spec.DeepCopy(),
	}
	for key, list := range trackedKeys(template) {
		if list != "" {
			pod.Annotations[key] = list
		}
	}
	for i := range sb.Spec.VolumeClaimTemplates {
		name := sb.Spec.VolumeClaimTemplates[i].Metadata.Name
		pod.Spec.Volumes = slices.DeleteFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == name })
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{
			Name: name,
			VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: pvcName(name, sb.Name)},
			},
		})
	}
	return pod
}

// pvcName is the name of the PersistentVolumeClaim of one volume claim template.
func pvcName(template, sandbox string) string { return template + "-" + sandbox }

// buildPVC returns the PersistentVolumeClaim of one volume claim template.
func buildPVC(sb *agents.Sandbox, template *agents.PersistentVolumeClaimTemplate) *corev1.PersistentVolumeClaim {
	labels := map[string]string{}
	maps.Copy(labels, template.Metadata.Labels)
	labels[proto.LabelSandboxNameHash] = proto.NameHash(sb.Name)
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name:            pvcName(template.Metadata.Name, sb.Name),
			Namespace:       sb.Namespace,
			Labels:          labels,
			Annotations:     template.Metadata.Annotations,
			OwnerReferences: []metav1.OwnerReference{newControllerRef(sb, sandboxGVK)},
		},
		Spec: *template.Spec.DeepCopy(),
	}
}

// buildService returns the headless Service of a Sandbox.
func buildService(sb *agents.Sandbox) *corev1.Service {
	hash := map[string]string{proto.LabelSandboxNameHash: proto.NameHash(sb.Name)}
	labels := maps.Clone(hash)
	if unclaimedMember(sb) {
		// Kubernetes copies the labels of a Service to its EndpointSlices; this one tells routers that nobody may be sent there.
		labels[proto.LabelWarmPool] = sb.Labels[proto.LabelWarmPool]
	}
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Name:            sb.Name,
			Namespace:       sb.Namespace,
			Labels:          labels,
			OwnerReferences: []metav1.OwnerReference{newControllerRef(sb, sandboxGVK)},
		},
		Spec: corev1.ServiceSpec{
			ClusterIP: corev1.ClusterIPNone,
			Selector:  hash,
			Ports:     containerPorts(&sb.Spec.PodTemplate.Spec),
		},
	}
}

// containerPorts returns the ports that the containers and native sidecars of a Pod declare, one for each number and
// protocol, in their order, each with a name of its own. It returns nil when there are none.
func containerPorts(spec *corev1.PodSpec) []corev1.ServicePort {
	type portKey struct {
		port     int32
		protocol corev1.Protocol
	}
	names := map[portKey]string{}
	taken := map[string]bool{}
	add := func(c *corev1.Container) {
		for _, p := range c.Ports {
			if p.ContainerPort == 0 {
				continue
			}
			key := portKey{p.ContainerPort, cmp.Or(p.Protocol, corev1.ProtocolTCP)}
			if name := names[key]; name == "" && p.Name != "" && !taken[p.Name] {
				names[key] = p.Name
				taken[p.Name] = true
			} else {
				names[key] = name
			}
		}
	}
	for i := range spec.Containers {
		add(&spec.Containers[i])
	}
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			add(c)
		}
	}

	keys := slices.SortedFunc(maps.Keys(names), func(a, b portKey) int {
		return cmp.Or(cmp.Compare(a.port, b.port), cmp.Compare(a.protocol, b.protocol))
	})
	var ports []corev1.ServicePort
	for _, key := range keys {
		name := names[key]
		if name == "" {
			base := fmt.Sprintf("p-%d-%s", key.port, strings.ToLower(string(key.protocol)))
			name = base
			for n := 2; taken[name]; n++ {
				name = fmt.Sprintf("%s-%d", base, n)
			}
			taken[name] = true
		}
		ports = append(ports, corev1.ServicePort{
			Name: name, Protocol: key.protocol, Port: key.port, TargetPort: intstr.FromInt32(key.port),
		})
	}
	return ports
}
