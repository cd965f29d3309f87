package reconcile

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovakiin0/agent-sandbox/proto"
)

// CacheOptions says what the manager's cache holds. Of Pods, Nodes and PersistentVolumeClaims it keeps little more than
// names, and of EndpointSlices only published routes. With trackedOnly it leaves out Pods and Services without the label
// sandbox-name-hash, which a big shared cluster has many of; adoptable objects then need that label too.
func CacheOptions(trackedOnly bool) cache.Options {
	pods := cache.ByObject{Transform: transformPod}
	services := cache.ByObject{}
	if trackedOnly {
		tracked := selector(proto.LabelSandboxNameHash, selection.Exists)
		pods.Label, services.Label = tracked, tracked
	}
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}:                pods,
			&corev1.Service{}:            services,
			&discoveryv1.EndpointSlice{}: {Label: selector(discoveryv1.LabelManagedBy, selection.Equals, proto.SliceManagedBy)},
			nodeMetadata():               {Transform: transformNode},
		},
	}
}

func selector(key string, op selection.Operator, values ...string) labels.Selector {
	requirement, err := labels.NewRequirement(key, op, values)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return labels.NewSelector().Add(*requirement)
}

func transformPod(obj any) (any, error) {
	if pod, ok := obj.(*corev1.Pod); ok {
		stripPod(pod)
	}
	return obj, nil
}

// transformNode keeps the zone.
func transformNode(obj any) (any, error) {
	if node, ok := obj.(*metav1.PartialObjectMetadata); ok {
		node.ManagedFields = nil
		node.Annotations = nil
		maps.DeleteFunc(node.Labels, func(key, _ string) bool { return key != corev1.LabelTopologyZone })
	}
	return obj, nil
}
