package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// The methods of this file prepare what a kubelet prepares for a container: its volumes, its environment and its
// credentials. They serve the first container of a pod that runs as a program.

// mountPoints are the directories below dir that stand for the mount paths of the container.
func mountPoints(c *corev1.Container, dir string) map[string]string {
	points := map[string]string{}
	for _, m := range c.VolumeMounts {
		points[filepath.Clean(m.MountPath)] = filepath.Join(dir, m.Name, m.SubPath)
	}
	return points
}

// mount fills the directories of the volumes that the container mounts.
func (a *agent) mount(ctx context.Context, pod *corev1.Pod, here place) error {
	for _, m := range pod.Spec.Containers[0].VolumeMounts {
		for i := range pod.Spec.Volumes {
			v := &pod.Spec.Volumes[i]
			if v.Name != m.Name {
				continue
			}
			files, err := a.files(ctx, pod.Namespace, v)
			if err != nil {
				return fmt.Errorf("volume %s: %w", v.Name, err)
			}
			if v.ConfigMap != nil {
				for name, content := range files {
					files[name] = []byte(here.adapt(string(content)))
				}
			}
			if err := writeFiles(strings.TrimSuffix(here.mounts[filepath.Clean(m.MountPath)], m.SubPath), files); err != nil {
				return err
			}
		}
	}
	return nil
}

// files are what a volume begins with: keys of a ConfigMap or Secret, nothing for other kinds.
func (a *agent) files(ctx context.Context, namespace string, v *corev1.Volume) (map[string][]byte, error) {
	var items []corev1.KeyToPath
	data := map[string][]byte{}
	switch {
	case v.ConfigMap != nil:
		source, err := a.client.CoreV1().ConfigMaps(namespace).Get(ctx, v.ConfigMap.Name, metav1.GetOptions{})
		if err != nil && !(isTrue(v.ConfigMap.Optional) && apierrors.IsNotFound(err)) {
			return nil, err
		}
		for key, value := range source.Data {
			data[key] = []byte(value)
		}
		items = v.ConfigMap.Items
	case v.Secret != nil:
		source, err := a.client.CoreV1().Secrets(namespace).Get(ctx, v.Secret.SecretName, metav1.GetOptions{})
		if err != nil && !(isTrue(v.Secret.Optional) && apierrors.IsNotFound(err)) {
			return nil, err
		}
		data = source.Data
		items = v.Secret.Items
	}
	if items == nil {
		return data, nil
	}
	files := map[string][]byte{}
	for _, item := range items {
		files[item.Path] = data[item.Key]
	}
	return files, nil
}

func writeFiles(dir string, files map[string][]byte) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// variables is the environment of the container with every source looked up.
func (a *agent) variables(ctx context.Context, pod *corev1.Pod, ip netip.Addr) ([]corev1.EnvVar, error) {
	c := &pod.Spec.Containers[0]
	var vars []corev1.EnvVar
	for _, v := range c.Env {
		value, ok, err := a.value(ctx, pod, c, &v, ip)
		if err != nil {
			return nil, fmt.Errorf("variable %s: %w", v.Name, err)
		}
		if ok {
			vars = append(vars, corev1.EnvVar{Name: v.Name, Value: expand(value, vars)})
		}
	}
	return vars, nil
}

// value looks up one variable; ok is false for an optional source that is not there.
func (a *agent) value(ctx context.Context, pod *corev1.Pod, c *corev1.Container, v *corev1.EnvVar, ip netip.Addr) (value string, ok bool, err error) {
	from := v.ValueFrom
	switch {
	case from == nil:
		return v.Value, true, nil
	case from.FieldRef != nil:
		value, ok = fieldOf(pod, from.FieldRef.FieldPath, ip)
		if !ok {
			return "", false, fmt.Errorf("no field %s here", from.FieldRef.FieldPath)
		}
		return value, true, nil
	case from.ResourceFieldRef != nil:
		return resourceOf(c, from.ResourceFieldRef), true, nil
	case from.SecretKeyRef != nil:
		secret, err := a.client.CoreV1().Secrets(pod.Namespace).Get(ctx, from.SecretKeyRef.Name, metav1.GetOptions{})
		content, ok := []byte(nil), false
		if err == nil {
			content, ok = secret.Data[from.SecretKeyRef.Key]
		}
		return string(content), ok, required(from.SecretKeyRef.Key, ok, from.SecretKeyRef.Optional, err)
	case from.ConfigMapKeyRef != nil:
		config, err := a.client.CoreV1().ConfigMaps(pod.Namespace).Get(ctx, from.ConfigMapKeyRef.Name, metav1.GetOptions{})
		content, ok := "", false
		if err == nil {
			content, ok = config.Data[from.ConfigMapKeyRef.Key]
		}
		return content, ok, required(from.ConfigMapKeyRef.Key, ok, from.ConfigMapKeyRef.Optional, err)
	}
	return "", false, errors.New("a source that is not known here")
}

// required is the error of a lookup by key that failed and may not.
func required(key string, found bool, optional *bool, err error) error {
	switch {
	case found || isTrue(optional) && (err == nil || apierrors.IsNotFound(err)):
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("there is no key %s", key)
}

func isTrue(b *bool) bool { return b != nil && *b }

// fieldOf is a field of the downward API.
func fieldOf(pod *corev1.Pod, path string, ip netip.Addr) (string, bool) {
	if field, key, ok := strings.Cut(strings.TrimSuffix(path, "']"), "['"); ok {
		entries, ok := map[string]map[string]string{"metadata.labels": pod.Labels, "metadata.annotations": pod.Annotations}[field]
		return entries[key], ok
	}
	value, ok := map[string]string{
		"metadata.name":           pod.Name,
		"metadata.namespace":      pod.Namespace,
		"metadata.uid":            string(pod.UID),
		"spec.nodeName":           pod.Spec.NodeName,
		"spec.serviceAccountName": pod.Spec.ServiceAccountName,
		"status.podIP":            ip.String(),
	}[path]
	return value, ok
}

// resourceOf is a request or limit in units of the divisor, rounded up.
func resourceOf(c *corev1.Container, ref *corev1.ResourceFieldSelector) string {
	quantity := map[string]*resource.Quantity{
		"limits.cpu": c.Resources.Limits.Cpu(), "limits.memory": c.Resources.Limits.Memory(),
		"requests.cpu": c.Resources.Requests.Cpu(), "requests.memory": c.Resources.Requests.Memory(),
	}[ref.Resource]
	divisor := ref.Divisor.AsApproximateFloat64()
	if quantity == nil {
		return ""
	}
	if divisor == 0 {
		divisor = 1
	}
	return strconv.FormatFloat(math.Ceil(quantity.AsApproximateFloat64()/divisor), 'f', 0, 64)
}

// credentials gives the pod's process a token of its service account, so that it has the rights that a pod would have and no
// others. A pod finds it at a path that processes on one machine cannot each have, hence a kubeconfig.
func (a *agent) credentials(ctx context.Context, pod *corev1.Pod, file string) ([]string, error) {
	if pod.Spec.AutomountServiceAccountToken != nil && !*pod.Spec.AutomountServiceAccountToken {
		return nil, nil
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: new(int64(24 * 60 * 60)), // nobody renews it
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
	}}
	token, err := a.client.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(ctx, pod.Spec.ServiceAccountName, request, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("token of service account %s: %w", pod.Spec.ServiceAccountName, err)
	}
	config := api.NewConfig()
	config.Clusters["cluster"] = &api.Cluster{
		Server: a.server.Host, CertificateAuthority: a.server.CAFile, CertificateAuthorityData: a.server.CAData,
	}
	config.AuthInfos["pod"] = &api.AuthInfo{Token: token.Status.Token}
	config.Contexts["pod"] = &api.Context{Cluster: "cluster", AuthInfo: "pod", Namespace: pod.Namespace}
	config.CurrentContext = "pod"
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return nil, err
	}
	return []string{"KUBECONFIG=" + file}, clientcmd.WriteToFile(*config, file)
}
