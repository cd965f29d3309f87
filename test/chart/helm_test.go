package chart

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/dovakiin0/agent-sandbox/test/stack"
)

// root is the directory of the repository.
var root = sync.OnceValue(func() string {
	dir, err := stack.Root()
	if err != nil {
		panic(err)
	}
	return dir
})

func chartDir() string { return filepath.Join(root(), "charts/agent-sandbox") }

var built sync.Map // of stack.Program to func() (string, error): each is built once

// program returns the path of a built program.
func program(t testing.TB, p stack.Program) string {
	t.Helper()
	build, _ := built.LoadOrStore(p, sync.OnceValues(func() (string, error) {
		return stack.Build(context.Background(), root(), p, false, os.Stderr)
	}))
	path, err := build.(func() (string, error))()
	require.NoError(t, err)
	return path
}

// helm runs helm against the cluster of a kubeconfig file, or away from any cluster if that is "".
func helm(t testing.TB, kubeconfig string, args ...string) (stdout string, err error) {
	t.Helper()
	home := t.TempDir()
	if kubeconfig == "" {
		kubeconfig = filepath.Join(home, "none")
	}
	cmd := exec.Command(program(t, stack.Helm), args...) // bounded by its own timeout; cleanups use it too
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "KUBECONFIG=" + kubeconfig}
	var out, errors bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errors
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("helm %s: %w\n%s", strings.Join(args, " "), err, errors.String())
	}
	return out.String(), nil
}

// valuesFile is a file of testdata/values.
func valuesFile(set string) string { return filepath.Join("testdata/values", set+".yaml") }

// rendered is what the chart renders to.
type rendered struct {
	testing.TB
	name, namespace string
	objects         []*unstructured.Unstructured
	notes           string
}

// render renders the chart for a release. Further arguments go to helm: --values, --set.
func render(t testing.TB, name, namespace string, args ...string) (*rendered, error) {
	t.Helper()
	out, err := helm(t, "", append([]string{"install", name, chartDir(), "--namespace", namespace, "--dry-run=client", "--output=json"}, args...)...)
	if err != nil {
		return nil, err
	}
	var release struct {
		Manifest string
		Info     struct{ Notes string }
		Hooks    []struct{ Manifest string }
	}
	require.NoError(t, json.Unmarshal([]byte(out), &release), out)
	r := &rendered{TB: t, name: name, namespace: namespace, notes: release.Info.Notes}
	manifests := []string{release.Manifest}
	for _, hook := range release.Hooks {
		manifests = append(manifests, hook.Manifest)
	}
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(strings.Join(manifests, "\n---\n")), 4096)
	for {
		var document runtime.RawExtension
		err := decoder.Decode(&document)
		if err == io.EOF {
			break
		}
		require.NoError(t, err, release.Manifest)
		if len(document.Raw) == 0 || string(document.Raw) == "null" {
			continue
		}
		object := &unstructured.Unstructured{}
		require.NoError(t, object.UnmarshalJSON(document.Raw))
		r.objects = append(r.objects, object)
	}
	require.NotEmpty(t, r.objects, "%s", out)
	return r, nil
}

// renderSet renders a file of testdata/values.
func renderSet(t testing.TB, set, name, namespace string) *rendered {
	t.Helper()
	r, err := render(t, name, namespace, "--values", valuesFile(set))
	require.NoError(t, err)
	return r
}

// all are the objects of a kind.
func (r *rendered) all(kind string) []*unstructured.Unstructured {
	var found []*unstructured.Unstructured
	for _, object := range r.objects {
		if object.GetKind() == kind {
			found = append(found, object)
		}
	}
	return found
}

// names are the names of the objects of a kind.
func (r *rendered) names(kind string) []string {
	var names []string
	for _, object := range r.all(kind) {
		names = append(names, object.GetName())
	}
	return names
}

// typed converts an object, and fails for a field that its type does not have.
func typed[T any](t testing.TB, object *unstructured.Unstructured) *T {
	t.Helper()
	into := new(T)
	err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, into, true)
	require.NoError(t, err, "%s %s", object.GetKind(), object.GetName())
	return into
}

// every are the objects of a kind, converted.
func every[T any](r *rendered, kind string) []*T {
	r.Helper()
	var all []*T
	for _, object := range r.all(kind) {
		all = append(all, typed[T](r, object))
	}
	return all
}

// one is the only object of a kind whose name ends so.
func one[T any](r *rendered, kind, ending string) *T {
	r.Helper()
	var found []*unstructured.Unstructured
	for _, object := range r.all(kind) {
		if strings.HasSuffix(object.GetName(), ending) {
			found = append(found, object)
		}
	}
	require.Len(r, found, 1, "%s ...%s among %v", kind, ending, r.names(kind))
	return typed[T](r, found[0])
}

// nested is a field of an object of a foreign kind.
func nested[T any](t testing.TB, object *unstructured.Unstructured, path ...any) T {
	t.Helper()
	var at any = object.Object
	for _, step := range path {
		switch step := step.(type) {
		case string:
			fields, ok := at.(map[string]any)
			require.True(t, ok, "%v: %v is no map", path, at)
			at = fields[step]
		case int:
			items, ok := at.([]any)
			require.True(t, ok && len(items) > step, "%v: %v has no item %d", path, at, step)
			at = items[step]
		}
	}
	value, ok := at.(T)
	require.True(t, ok, "%s %s: %v is %T %v", object.GetKind(), object.GetName(), path, at, at)
	return value
}
