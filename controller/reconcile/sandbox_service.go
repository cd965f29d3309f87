package reconcile

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovakiin0/agent-sandbox/proto"
	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
)

// reconcileService brings the headless Service in line with spec.service and returns it as it is afterwards, nil when the
// Sandbox has no usable one.
func (r *sandboxReconciler) reconcileService(ctx context.Context, sb *agents.Sandbox) (*corev1.Service, error) {
	wanted := sb.Spec.Service
	key := client.ObjectKeyFromObject(sb)
	svc, found, err := r.services.get(ctx, r.client, key, &corev1.Service{})
	if err != nil {
		return nil, err
	}
	if !found {
		if wanted == nil || !*wanted {
			return nil, nil
		}
		svc = buildService(sb)
		if err := r.client.Create(ctx, svc); err == nil {
			r.services.record(svc)
			return svc, nil
		} else if !apierrors.IsAlreadyExists(err) {
			return nil, err
		}
		if err := r.live.Get(ctx, key, svc); err != nil { // the cache is behind
			return nil, err
		}
	}

	if wanted != nil && !*wanted {
		if controlledBy(svc, sb.UID) {
			err = client.IgnoreNotFound(r.client.Delete(ctx, svc, client.Preconditions{UID: &svc.UID}))
		}
		return nil, err
	}
	if wanted == nil && controllerOf(svc) == nil {
		return nil, nil
	}
	adopt, err := mayControl(sb, "service", svc)
	switch {
	case err != nil:
		return nil, err
	case adopt:
		return r.adoptService(ctx, sb, svc)
	}
	return r.repairService(ctx, sb, svc)
}

// repairService sends one patch with what has drifted. Ports are the Sandbox's only where it asks for the Service.
func (r *sandboxReconciler) repairService(ctx context.Context, sb *agents.Sandbox, svc *corev1.Service) (*corev1.Service, error) {
	desired := buildService(sb)
	hash := desired.Labels[proto.LabelSandboxNameHash]
	body, spec := fields{}, fields{}
	if svc.Labels[proto.LabelSandboxNameHash] != hash {
		body["metadata"] = fields{"labels": fields{proto.LabelSandboxNameHash: hash}}
	}
	if len(svc.Spec.Selector) != 1 || svc.Spec.Selector[proto.LabelSandboxNameHash] != hash {
		selector := fields{proto.LabelSandboxNameHash: hash}
		for key := range svc.Spec.Selector {
			if key != proto.LabelSandboxNameHash {
				selector[key] = nil
			}
		}
		spec["selector"] = selector
	}
	if sb.Spec.Service != nil && !slices.EqualFunc(svc.Spec.Ports, desired.Spec.Ports, samePort) {
		spec["ports"] = desired.Spec.Ports
	}
	if len(spec) > 0 {
		body["spec"] = spec
	}
	if len(body) == 0 {
		return svc, nil
	}
	fresh, err := applyPatch(ctx, r.client, svc, mergePatch(body))
	if err != nil {
		return svc, err
	}
	r.services.record(fresh)
	return fresh, nil
}

func samePort(a, b corev1.ServicePort) bool {
	return a.Name == b.Name && a.Protocol == b.Protocol && a.Port == b.Port && a.TargetPort == b.TargetPort
}

// adoptService takes over a headless Service without a controller.
func (r *sandboxReconciler) adoptService(ctx context.Context, sb *agents.Sandbox, svc *corev1.Service) (*corev1.Service, error) {
	if svc.Spec.ClusterIP != corev1.ClusterIPNone && svc.Spec.ClusterIP != "" {
		return nil, fmt.Errorf("cannot adopt service %q: it has the cluster IP %s, a sandbox needs a headless one", svc.Name, svc.Spec.ClusterIP)
	}
	desired := buildService(sb)
	adopted := svc.DeepCopy()
	metav1.SetMetaDataLabel(&adopted.ObjectMeta, proto.LabelSandboxNameHash, desired.Labels[proto.LabelSandboxNameHash])
	adopted.OwnerReferences = adoptedRefs(sb, svc)
	adopted.Spec.Selector = desired.Spec.Selector
	adopted.Spec.Ports = desired.Spec.Ports
	if err := r.client.Update(ctx, adopted); err != nil {
		return nil, err
	}
	r.services.record(adopted)
	return adopted, nil
}
