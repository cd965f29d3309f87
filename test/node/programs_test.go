package main

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/fake"
)

func TestParseProgram(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	p, err := parseProgram("sandbox-router=" + self)
	require.NoError(t, err)
	assert.Equal(t, program{binary: self, repositories: []string{"sandbox-router"}}, p)
	for _, bad := range []string{"", "sandbox-router", "=" + self, "sandbox-router=", "sandbox-router=/no/such/file"} {
		_, err := parseProgram(bad)
		assert.Error(t, err, bad)
	}
}

func TestAdapt(t *testing.T) {
	here := place{host: "127.128.0.2", mounts: map[string]string{"/etc/router": "/dir/a", "/etc/router/tls": "/dir/b"}}
	for text, want := range map[string]string{
		"--http-bind-address=:8080":          "--http-bind-address=127.128.0.2:8080",
		"--http-bind-address=0.0.0.0:8080":   "--http-bind-address=127.128.0.2:8080",
		"--http-bind-address=[::]:8080":      "--http-bind-address=127.128.0.2:8080",
		"--http-bind-address=127.0.0.1:8080": "--http-bind-address=127.0.0.1:8080",
		"--image=registry:5000/a":            "--image=registry:5000/a",
		"--timeout=5s":                       "--timeout=5s",
		"--config=/etc/router/config.yaml":   "--config=/dir/a/config.yaml",
		"--cert=/etc/router/tls/tls.crt":     "--cert=/dir/b/tls.crt",
		"--cert=/etc/routers/tls.crt":        "--cert=/etc/routers/tls.crt",
		"a: \":8080\"\nb: \":9090\"\n":       "a: \"127.128.0.2:8080\"\nb: \"127.128.0.2:9090\"\n",
	} {
		assert.Equal(t, want, here.adapt(text))
	}
}

func TestExpand(t *testing.T) {
	vars := []corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "A", Value: "2"}}
	assert.Equal(t, "--a=2 $(B) $A", expand("--a=$(A) $(B) $A", vars))
}

func TestProbeURL(t *testing.T) {
	c := &corev1.Container{Ports: []corev1.ContainerPort{{Name: "probes", ContainerPort: 8081}}}
	assert.Empty(t, probeURL(c, "127.128.0.2"))
	get := &corev1.HTTPGetAction{Path: "/readyz", Port: intstr.FromString("probes"), Scheme: corev1.URISchemeHTTP}
	c.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: get}}
	assert.Equal(t, "http://127.128.0.2:8081/readyz", probeURL(c, "127.128.0.2"))
	get.Port = intstr.FromInt32(8080)
	assert.Equal(t, "http://127.128.0.2:8080/readyz", probeURL(c, "127.128.0.2"))
}

// TestPlanOfProgram gives a pod what a kubelet would.
func TestPlanOfProgram(t *testing.T) {
	objects := []any{
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "config"}, Data: map[string]string{"config.yaml": "address: \":8080\"\n", "key": "of the map"}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "secret"}, Data: map[string][]byte{"token": []byte("s3cret"), "other": nil}},
	}
	pod := podWith(nil, corev1.Container{
		Image: "example.com/sandbox-router:v1",
		Args:  []string{"--config=/etc/config/config.yaml", "--zone=$(ZONE)"},
		Env: []corev1.EnvVar{
			{Name: "ZONE", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels['zone']"}}},
			{Name: "IP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}},
			{Name: "CPUS", ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.cpu"}}},
			{Name: "TOKEN", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{Key: "token", LocalObjectReference: corev1.LocalObjectReference{Name: "secret"}}}},
			{Name: "KEY", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{Key: "key", LocalObjectReference: corev1.LocalObjectReference{Name: "config"}}}},
			{Name: "ABSENT", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{Key: "no", Optional: new(true)}}},
		},
		Resources:    corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1500m")}},
		VolumeMounts: []corev1.VolumeMount{{Name: "config", MountPath: "/etc/config"}, {Name: "secret", MountPath: "/etc/secret/"}, {Name: "scratch", MountPath: "/tmp"}},
	})
	pod.Namespace, pod.Labels = "ns", map[string]string{"zone": "zone-a"}
	pod.Spec.AutomountServiceAccountToken = new(false)
	pod.Spec.Volumes = []corev1.Volume{
		{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "config"}}}},
		{Name: "secret", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "secret", Items: []corev1.KeyToPath{{Key: "token", Path: "t"}}}}},
		{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
	}
	client := fake.NewClientset(objects[0].(*corev1.ConfigMap), objects[1].(*corev1.Secret))
	a := &agent{client: client, programs: []program{{binary: "/bin/router", repositories: []string{"sandbox-router"}}}}
	dir := t.TempDir()

	p, err := a.plan(t.Context(), pod, dir, netip.MustParseAddr("10.128.0.2"))
	require.NoError(t, err)
	assert.Equal(t, "/bin/router", p.command.Path)
	config := filepath.Join(dir, "volumes/config/config.yaml")
	assert.Equal(t, []string{"--config=" + config, "--zone=zone-a"}, p.command.Args)
	for _, v := range []string{"ZONE=zone-a", "IP=10.128.0.2", "CPUS=2", "TOKEN=s3cret", "KEY=of the map"} {
		assert.Contains(t, p.command.Env, v)
	}
	assert.Len(t, p.command.Env, 5+3, "and PATH, HOME and HOSTNAME")
	for path, want := range map[string]string{config: "address: \"127.128.0.2:8080\"\n", filepath.Join(dir, "volumes/secret/t"): "s3cret"} {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Equal(t, want, string(text))
	}
	assert.NoFileExists(t, filepath.Join(dir, "volumes/secret/other"))
	assert.DirExists(t, filepath.Join(dir, "volumes/scratch"))

	pod.Spec.Volumes[1].Secret.SecretName = "missing"
	_, err = a.plan(t.Context(), pod, t.TempDir(), netip.MustParseAddr("10.128.0.2"))
	assert.ErrorContains(t, err, "volume secret", "the pod waits for it")
}
