package reconcile

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
)

// reconcilePVCs creates the PersistentVolumeClaims that are missing. One that exists is never changed, except that a fitting
// one without a controller is adopted. The first error ends the loop.
func (r *sandboxReconciler) reconcilePVCs(ctx context.Context, sb *agents.Sandbox) error {
	ctx, span := tracer.Start(ctx, "reconcilePVCs")
	defer span.End()
	for i := range sb.Spec.VolumeClaimTemplates {
		template := &sb.Spec.VolumeClaimTemplates[i]
		key := client.ObjectKey{Namespace: sb.Namespace, Name: pvcName(template.Metadata.Name, sb.Name)}
		pvc, found, err := r.pvcs.get(ctx, r.client, key, pvcMetadata())
		if err != nil {
			return err
		}
		if !found {
			created := buildPVC(sb, template)
			err := r.client.Create(ctx, created)
			if err == nil {
				pvc.ObjectMeta = created.ObjectMeta
				r.pvcs.record(pvc)
				continue
			}
			if !apierrors.IsAlreadyExists(err) {
				return err
			}
			if err := r.live.Get(ctx, key, pvc); err != nil { // the cache is behind
				return err
			}
		}
		if err := r.adoptPVC(ctx, sb, pvc); err != nil {
			return err
		}
	}
	return nil
}

func (r *sandboxReconciler) adoptPVC(ctx context.Context, sb *agents.Sandbox, pvc *metav1.PartialObjectMetadata) error {
	adopt, err := mayControl(sb, "PVC", pvc)
	if err != nil || !adopt {
		return err
	}
	change := metaChange{owners: adoptedRefs(sb, pvc)}
	fresh := pvc.DeepCopy()
	if err := r.client.Patch(ctx, fresh, change.patch()); err != nil {
		return err
	}
	r.pvcs.record(fresh)
	return nil
}

// pvcMetadata is the form in which PersistentVolumeClaims are cached: nobody reads their spec.
func pvcMetadata() *metav1.PartialObjectMetadata {
	pvc := &metav1.PartialObjectMetadata{}
	pvc.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"))
	return pvc
}
