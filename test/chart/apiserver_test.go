package chart

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensions "github.com/dovakiin0/agent-sandbox/proto/extensions/v1beta1"
	"github.com/dovakiin0/agent-sandbox/test/env"
)

// TestAPIServerAccepts hands everything that each file of values renders to the API server, which checks it as it would
// before it stores it, unknown fields included. Then it does so with the pods that come out of it, in a namespace that
// enforces the restricted Pod Security Standard.
func TestAPIServerAccepts(t *testing.T) {
	e := env.Get(t)
	newNamespace(t, e, "some-namespace")
	newNamespace(t, e, "team-a")
	for _, class := range []string{"gvisor", "kata"} {
		require.NoError(t, client.IgnoreAlreadyExists(e.Client.Create(t.Context(), &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: class}, Handler: class})))
	}
	t.Run("sets", func(t *testing.T) { // returns when all of them have
		for set := range sets {
			t.Run(set, func(t *testing.T) {
				t.Parallel()
				r := renderSet(t, set, "rel", "some-namespace")
				foreign := 0
				for _, object := range r.objects {
					if isForeign(object) {
						foreign++
						continue
					}
					create(t, e, object.DeepCopy())
				}
				assert.Less(t, foreign, len(r.objects))
				for _, pod := range podsOf(r) {
					create(t, e, pod)
				}
			})
		}
	})
}

// isForeign tells whether the kind is one that others install; render_test.go and sets_test.go check those.
func isForeign(object *unstructured.Unstructured) bool {
	for _, group := range []string{"monitoring.coreos.com/", "gateway.networking.k8s.io/", "cert-manager.io/"} {
		if strings.HasPrefix(object.GetAPIVersion(), group) {
			return true
		}
	}
	return false
}

func create(t *testing.T, e *env.Env, object client.Object) {
	t.Helper()
	err := e.Client.Create(t.Context(), object, client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict))
	assert.NoError(t, err, "%T %s", object, object.GetName())
}

// podsOf are the pods that the rendered Deployments and SandboxTemplates lead to.
func podsOf(r *rendered) []*corev1.Pod {
	var pods []*corev1.Pod
	add := func(namespace, name string, spec corev1.PodSpec) {
		spec.ServiceAccountName = "default" // in a dry run there is no other
		pods = append(pods, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: spec})
	}
	for _, d := range every[appsv1.Deployment](r, "Deployment") {
		add(d.Namespace, d.Name, d.Spec.Template.Spec)
	}
	for _, template := range every[extensions.SandboxTemplate](r, "SandboxTemplate") {
		spec := *template.Spec.PodTemplate.Spec.DeepCopy()
		for _, claim := range template.Spec.VolumeClaimTemplates { // the controller adds the volume
			spec.Volumes = append(spec.Volumes, corev1.Volume{Name: claim.Metadata.Name, VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Metadata.Name},
			}})
		}
		assert.NotNil(r, spec.AutomountServiceAccountToken)
		assert.False(r, *spec.AutomountServiceAccountToken, "%s: a sandbox has no token of the API server", template.Name)
		assert.EqualValues(r, []corev1.Capability{"ALL"}, spec.Containers[0].SecurityContext.Capabilities.Drop)
		add(template.Namespace, template.Name, spec)
	}
	return pods
}
