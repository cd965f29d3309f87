package reconcile

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovakiin0/agent-sandbox/proto"
	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
)

// withVolume adds a volume claim template.
func withVolume(name string) func(*agents.Sandbox) {
	return func(sb *agents.Sandbox) {
		sb.Spec.VolumeClaimTemplates = append(sb.Spec.VolumeClaimTemplates, agents.PersistentVolumeClaimTemplate{
			Metadata: agents.PersistentVolumeClaimMetadata{
				Name: name, Labels: map[string]string{"l": "1"}, Annotations: map[string]string{"a": "2"},
			},
			Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: new("fast")},
		})
	}
}

func TestBuildPod(t *testing.T) {
	sb := newSandbox("s", withVolume("data"), func(sb *agents.Sandbox) {
		sb.Labels = map[string]string{proto.LabelCreatedBy: "someone"}
		sb.Spec.PodTemplate.Metadata = agents.PodMetadata{
			Labels:      map[string]string{"b": "2", "a": "1", proto.LabelSandboxNameHash: "hijack", proto.PrefixExtensions + "x": "y"},
			Annotations: map[string]string{"note": "n", proto.AnnotationTraceContext: "{}", proto.PrefixAgents + "x": "y"},
		}
		sb.Spec.PodTemplate.Spec.Volumes = []corev1.Volume{{Name: "data"}, {Name: "tmp"}}
	})
	pod := buildPod(sb)

	assert.Equal(t, "s", pod.Name)
	assert.Equal(t, "ns", pod.Namespace)
	assert.Equal(t, map[string]string{
		"a": "1", "b": "2", proto.LabelSandboxNameHash: proto.NameHash("s"), proto.LabelCreatedBy: "unknown",
	}, pod.Labels)
	assert.Equal(t, map[string]string{
		"note": "n", proto.AnnotationPropagatedLabels: "a,b", proto.AnnotationPropagatedAnnotations: "note",
	}, pod.Annotations)
	assert.Equal(t, []metav1.OwnerReference{{
		APIVersion: "agents.x-k8s.io/v1beta1", Kind: "Sandbox", Name: "s", UID: sb.UID, Controller: new(true), BlockOwnerDeletion: new(true),
	}}, pod.OwnerReferences)
	assert.Equal(t, []corev1.Volume{
		{Name: "tmp"},
		{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data-s"}}},
	}, pod.Spec.Volumes)
	assert.Equal(t, sb.Spec.PodTemplate.Spec.Containers, pod.Spec.Containers)
	assert.Nil(t, pod.Spec.AutomountServiceAccountToken, "nothing is defaulted")

	plain := buildPod(newSandbox("s"))
	assert.Empty(t, plain.Annotations, "no tracking annotations for empty lists")
}

func TestBuildPVC(t *testing.T) {
	sb := newSandbox("s", withVolume("data"))
	pvc := buildPVC(sb, &sb.Spec.VolumeClaimTemplates[0])
	assert.Equal(t, "data-s", pvc.Name)
	assert.Equal(t, map[string]string{"l": "1", proto.LabelSandboxNameHash: proto.NameHash("s")}, pvc.Labels)
	assert.Equal(t, map[string]string{"a": "2"}, pvc.Annotations)
	assert.Equal(t, "fast", *pvc.Spec.StorageClassName)
	assert.True(t, controlledBy(pvc, sb.UID))
	assert.NotContains(t, sb.Spec.VolumeClaimTemplates[0].Metadata.Labels, proto.LabelSandboxNameHash, "the template is not changed")
}

func TestContainerPorts(t *testing.T) {
	port := func(name string, number int32, protocol corev1.Protocol) corev1.ContainerPort {
		return corev1.ContainerPort{Name: name, ContainerPort: number, Protocol: protocol}
	}
	always, never := corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyNever
	for name, c := range map[string]struct {
		spec corev1.PodSpec
		want []string
	}{
		"none": {corev1.PodSpec{Containers: []corev1.Container{{}}}, nil},
		"sorted, zero skipped, TCP by default": {corev1.PodSpec{Containers: []corev1.Container{{Ports: []corev1.ContainerPort{
			port("z", 9000, ""), port("", 0, ""), port("dns-tcp", 53, "TCP"), port("dns", 53, "UDP"),
		}}}}, []string{"dns-tcp 53 TCP", "dns 53 UDP", "z 9000 TCP"}},
		"unnamed": {corev1.PodSpec{Containers: []corev1.Container{{Ports: []corev1.ContainerPort{
			port("", 80, ""), port("", 80, "UDP"),
		}}}}, []string{"p-80-tcp 80 TCP", "p-80-udp 80 UDP"}},
		"first explicit name wins": {corev1.PodSpec{Containers: []corev1.Container{
			{Ports: []corev1.ContainerPort{port("", 80, "")}},
			{Ports: []corev1.ContainerPort{port("web", 80, "TCP"), port("other", 80, "")}},
		}}, []string{"web 80 TCP"}},
		"a taken name is ignored": {corev1.PodSpec{Containers: []corev1.Container{{Ports: []corev1.ContainerPort{
			port("web", 80, ""), port("web", 81, ""),
		}}}}, []string{"web 80 TCP", "p-81-tcp 81 TCP"}},
		"a made name steps aside": {corev1.PodSpec{Containers: []corev1.Container{{Ports: []corev1.ContainerPort{
			port("p-80-tcp", 79, ""), port("p-80-tcp-2", 78, ""), port("", 80, ""),
		}}}}, []string{"p-80-tcp-2 78 TCP", "p-80-tcp 79 TCP", "p-80-tcp-3 80 TCP"}},
		"native sidecars only": {corev1.PodSpec{InitContainers: []corev1.Container{
			{Ports: []corev1.ContainerPort{port("init", 1, "")}},
			{RestartPolicy: &never, Ports: []corev1.ContainerPort{port("never", 2, "")}},
			{RestartPolicy: &always, Ports: []corev1.ContainerPort{port("sidecar", 3, "")}},
		}}, []string{"sidecar 3 TCP"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, p := range containerPorts(&c.spec) {
				assert.Equal(t, p.Port, p.TargetPort.IntVal)
				got = append(got, p.Name+" "+p.TargetPort.String()+" "+string(p.Protocol))
			}
			assert.Equal(t, c.want, got)
		})
	}
}

func TestPodMetadataChange(t *testing.T) {
	hash := proto.NameHash("s")
	template := func(labels, annotations map[string]string) func(*agents.Sandbox) {
		return func(sb *agents.Sandbox) {
			sb.Spec.PodTemplate.Metadata = agents.PodMetadata{Labels: labels, Annotations: annotations}
		}
	}
	controller := func(kind string) func(*agents.Sandbox) {
		return func(sb *agents.Sandbox) {
			sb.OwnerReferences = []metav1.OwnerReference{{
				APIVersion: "extensions.agents.x-k8s.io/v1alpha1", Kind: kind, Name: "o", UID: "o", Controller: new(true),
			}}
		}
	}
	label := func(key, value string) func(*agents.Sandbox) {
		return func(sb *agents.Sandbox) {
			if sb.Labels == nil {
				sb.Labels = map[string]string{}
			}
			sb.Labels[key] = value
		}
	}
	type maps = map[string]string
	for name, c := range map[string]struct {
		sandbox             []func(*agents.Sandbox)
		labels, annotations maps
		wantLabels          fields
		wantAnnotations     fields
	}{
		"in step": {
			[]func(*agents.Sandbox){template(maps{"a": "1"}, maps{"n": "1"})},
			maps{"a": "1", proto.LabelSandboxNameHash: hash, "theirs": "x"},
			maps{"n": "1", proto.AnnotationPropagatedLabels: "a", proto.AnnotationPropagatedAnnotations: "n", "theirs": "x"},
			nil, nil,
		},
		"empty lists need no write": {nil, maps{proto.LabelSandboxNameHash: hash}, nil, nil, nil},
		"label repaired, empty lists ride along": {
			nil, maps{proto.LabelSandboxNameHash: "wrong"}, nil,
			fields{proto.LabelSandboxNameHash: hash},
			fields{proto.AnnotationPropagatedLabels: "", proto.AnnotationPropagatedAnnotations: ""},
		},
		"changed, removed, added, untouched": {
			[]func(*agents.Sandbox){template(maps{"a": "2", "c": "3"}, maps{"n": "2"})},
			maps{"a": "1", "b": "1", "theirs": "x", proto.LabelSandboxNameHash: hash},
			maps{"n": "1", "o": "1", "theirs": "x", proto.AnnotationPropagatedLabels: "a,b", proto.AnnotationPropagatedAnnotations: "n,o"},
			fields{"a": "2", "b": nil, "c": "3"},
			fields{"n": "2", "o": nil, proto.AnnotationPropagatedLabels: "a,c", proto.AnnotationPropagatedAnnotations: "n"},
		},
		"system keys of an old list are scrubbed": {
			nil,
			maps{proto.LabelClaimUID: "u", proto.LabelSandboxNameHash: hash},
			maps{
				proto.AnnotationPropagatedLabels:      proto.LabelClaimUID + "," + proto.LabelSandboxNameHash,
				proto.AnnotationPropagatedAnnotations: proto.AnnotationPodName + "," + proto.AnnotationPropagatedLabels,
				proto.AnnotationPodName:               "p",
			},
			fields{proto.LabelClaimUID: nil},
			fields{proto.AnnotationPodName: nil, proto.AnnotationPropagatedLabels: "", proto.AnnotationPropagatedAnnotations: ""},
		},
		"pool member": {
			[]func(*agents.Sandbox){controller("SandboxWarmPool"), label(proto.LabelWarmPool, "p"), label(proto.LabelTemplateRefHash, "t")},
			maps{proto.LabelSandboxNameHash: hash, proto.LabelWarmPool: "p", proto.LabelTemplateRefHash: "t"}, nil, nil, nil,
		},
		"adopted": {
			[]func(*agents.Sandbox){controller("SandboxClaim"), label(proto.LabelTemplateRefHash, "t"), label(proto.LabelCreatedBy, "go-client")},
			maps{proto.LabelSandboxNameHash: hash, proto.LabelWarmPool: "p", proto.LabelTemplateRefHash: "t", proto.LabelCreatedBy: "controller"},
			nil,
			fields{proto.LabelWarmPool: nil, proto.LabelCreatedBy: "go-client"},
			fields{proto.AnnotationPropagatedLabels: "", proto.AnnotationPropagatedAnnotations: ""},
		},
		"a claim's sandbox has no pool label": {
			[]func(*agents.Sandbox){controller("SandboxClaim"), label(proto.LabelWarmPool, "p")},
			maps{proto.LabelSandboxNameHash: hash}, nil, nil, nil,
		},
		"a bare sandbox derives neither": {
			[]func(*agents.Sandbox){label(proto.LabelWarmPool, "p"), label(proto.LabelTemplateRefHash, "t")},
			maps{proto.LabelSandboxNameHash: hash, proto.LabelTemplateRefHash: "t", proto.LabelCreatedBy: "controller"}, nil,
			fields{proto.LabelTemplateRefHash: nil, proto.LabelCreatedBy: nil},
			fields{proto.AnnotationPropagatedLabels: "", proto.AnnotationPropagatedAnnotations: ""},
		},
		"sandbox labels stay on the sandbox": {
			[]func(*agents.Sandbox){label("team", "x")}, maps{proto.LabelSandboxNameHash: hash}, nil, nil, nil,
		},
		"a value of nothing is a value": {
			[]func(*agents.Sandbox){template(maps{"a": ""}, maps{"n": ""})},
			maps{proto.LabelSandboxNameHash: hash},
			maps{proto.AnnotationPropagatedLabels: "a", proto.AnnotationPropagatedAnnotations: "n"},
			fields{"a": ""},
			fields{"n": ""},
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: c.labels, Annotations: c.annotations}}
			want := pod.DeepCopy()
			syncPodMetadata(newSandbox("s", c.sandbox...), want)
			change := diff(&pod.ObjectMeta, &want.ObjectMeta)
			labels, _ := change["labels"].(fields)
			annotations, _ := change["annotations"].(fields)
			assert.Equal(t, c.wantLabels, labels)
			assert.Equal(t, c.wantAnnotations, annotations)
		})
	}
}
