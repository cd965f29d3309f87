package reconcile

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovakiin0/agent-sandbox/proto"
	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
)

// reconcilePVCs creates the PersistentVolumeClaims that are missing. One that exists is never changed, except that a fitting
// one without a controller is adopted. The first error ends the loop.
func (r *sandboxReconciler) reconcilePVCs(ctx context.Context, sb *agents.Sandbox) error {
	ctx, span := tracer.Start(ctx, "reconcilePVCs")
	defer span.End()
	for i := range sb.Spec.VolumeClaimTemplates {
		desired := buildPVC(sb, &sb.Spec.VolumeClaimTemplates[i])
		pvc, err := get[corev1.PersistentVolumeClaim](ctx, r.client, client.ObjectKeyFromObject(desired))
		if err == nil && pvc == nil {
			pvc = desired
			_, err = r.client.createOrGet(ctx, pvc)
		}
		if err != nil {
			return err
		}
		adopt, err := mayControl(sb, "PVC", pvc)
		if adopt {
			_, err = patch(ctx, r.client, pvc, unlocked, func(p *corev1.PersistentVolumeClaim) {
				p.OwnerReferences = adoptedRefs(sb, pvc)
			})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// reconcileService brings the headless Service in line with spec.service and returns it as it is afterwards, nil when the
// Sandbox has no usable one.
func (r *sandboxReconciler) reconcileService(ctx context.Context, sb *agents.Sandbox) (*corev1.Service, error) {
	wanted := sb.Spec.Service
	desired := buildService(sb)
	svc, err := get[corev1.Service](ctx, r.client, client.ObjectKeyFromObject(sb))
	if err == nil && svc == nil && wanted != nil && *wanted {
		svc = desired.DeepCopy()
		_, err = r.client.createOrGet(ctx, svc)
	}
	if err != nil || svc == nil {
		return nil, err
	}
	if wanted != nil && !*wanted {
		if controlledBy(svc, sb.UID) {
			err = r.client.remove(ctx, svc)
		}
		return nil, err
	}
	if wanted == nil && controllerOf(svc) == nil {
		return nil, nil
	}
	adopt, err := mayControl(sb, "service", svc)
	if err != nil {
		return nil, err
	}
	if adopt && svc.Spec.ClusterIP != corev1.ClusterIPNone && svc.Spec.ClusterIP != "" {
		return nil, fmt.Errorf("cannot adopt service %q: it has the cluster IP %s, a sandbox needs a headless one", svc.Name, svc.Spec.ClusterIP)
	}
	return patch(ctx, r.client, svc, adopt, func(s *corev1.Service) {
		metav1.SetMetaDataLabel(&s.ObjectMeta, proto.LabelSandboxNameHash, desired.Labels[proto.LabelSandboxNameHash])
		s.Spec.Selector = desired.Spec.Selector
		if adopt {
			s.OwnerReferences = adoptedRefs(sb, svc)
		}
		// Ports are the Sandbox's only where it asks for the Service.
		if wanted != nil && !slices.EqualFunc(s.Spec.Ports, desired.Spec.Ports, samePort) {
			s.Spec.Ports = desired.Spec.Ports
		}
	})
}

func samePort(a, b corev1.ServicePort) bool {
	return a.Name == b.Name && a.Protocol == b.Protocol && a.Port == b.Port && a.TargetPort == b.TargetPort
}

// mayControl returns nil if sb controls obj or may become its controller, with adopt true in the second case. An object
// without a controller is adopted if its owner allows that with a label, or if it carries the Sandbox's own label, as after a
// restore from a backup. Anything else would let a Sandbox capture, and later delete, what is not its own. kind is how
// errors call the object.
func mayControl(sb *agents.Sandbox, kind string, obj metav1.Object) (adopt bool, err error) {
	owner, labels := controllerOf(obj), obj.GetLabels()
	switch {
	case owner == nil && (labels[proto.LabelAdoptable] == "true" || labels[proto.LabelSandboxNameHash] == proto.NameHash(sb.Name)):
		return true, nil
	case owner == nil:
		return false, fmt.Errorf(
			"cannot adopt unowned %s %q: missing required pool authorization label (%q) or sandbox tracking label (%q)",
			kind, obj.GetName(), proto.LabelAdoptable, proto.LabelSandboxNameHash)
	case owner.UID != sb.UID:
		return false, fmt.Errorf("%s %q is owned by %s/%s (UID: %s), not by sandbox %q",
			kind, obj.GetName(), owner.Kind, owner.Name, owner.UID, sb.Name)
	}
	return false, nil
}

// adoptedRefs returns the owner references of obj with sb as its controller.
func adoptedRefs(sb *agents.Sandbox, obj metav1.Object) []metav1.OwnerReference {
	return append(slices.Clone(obj.GetOwnerReferences()), newControllerRef(sb, sandboxGVK))
}
