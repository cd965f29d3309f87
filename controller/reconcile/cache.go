package reconcile

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovakiin0/agent-sandbox/proto"
)

// CacheOptions says what the manager's cache holds. Of Pods, Nodes and PersistentVolumeClaims it keeps little more than
// names, and of EndpointSlices only published routes. With trackedOnly it leaves out Pods and Services without the label
// sandbox-name-hash, which a big shared cluster has many of; adoptable objects then need that label too.
func CacheOptions(trackedOnly bool) cache.Options {
	pods := cache.ByObject{Transform: transform(stripPod)}
	services := cache.ByObject{}
	if trackedOnly {
		tracked, err := labels.Parse(proto.LabelSandboxNameHash)
		if err != nil {
			panic("BUG: " + err.Error())
		}
		pods.Label, services.Label = tracked, tracked
	}
	routes := labels.SelectorFromSet(labels.Set{discoveryv1.LabelManagedBy: proto.SliceManagedBy})
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}:                   pods,
			&corev1.Service{}:               services,
			&corev1.PersistentVolumeClaim{}: {Transform: transform(stripPVC)},
			&discoveryv1.EndpointSlice{}:    {Label: routes},
			nodeMetadata():                  {Transform: transform(stripNode)},
		},
	}
}

func transform[T any](strip func(T)) toolscache.TransformFunc {
	return func(obj any) (any, error) {
		if o, ok := obj.(T); ok {
			strip(o)
		}
		return obj, nil
	}
}

// stripPod takes from a Pod what no reconciler reads. Writes to Pods are metadata-only patches, so what the server answers
// is stripped alike.
func stripPod(pod *corev1.Pod) {
	pod.ManagedFields = nil
	pod.Finalizers = nil
	pod.Spec = corev1.PodSpec{NodeName: pod.Spec.NodeName}
}

func stripPVC(pvc *corev1.PersistentVolumeClaim) {
	pvc.ManagedFields = nil
	pvc.Spec, pvc.Status = corev1.PersistentVolumeClaimSpec{}, corev1.PersistentVolumeClaimStatus{}
}

// stripNode keeps the zone.
func stripNode(node *metav1.PartialObjectMetadata) {
	node.ManagedFields = nil
	node.Annotations = nil
	maps.DeleteFunc(node.Labels, func(key, _ string) bool { return key != corev1.LabelTopologyZone })
}

// nodeMetadata is the form in which Nodes are cached: without spec and status.
func nodeMetadata() *metav1.PartialObjectMetadata {
	node := &metav1.PartialObjectMetadata{}
	node.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
	return node
}
