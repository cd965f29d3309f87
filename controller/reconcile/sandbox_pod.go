package reconcile

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovakiin0/agent-sandbox/proto"
	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
)

// multiplePodsError says that a Sandbox controls more than one Pod. The pass then touches none of them.
type multiplePodsError int

func (n multiplePodsError) Error() string {
	return fmt.Sprintf("multiple Pods (%d) are controlled by this Sandbox; refusing to choose or create a Pod", int(n))
}

func isMultiplePods(err error) bool {
	var multiple multiplePodsError
	return errors.As(err, &multiple)
}

// reconcilePod brings the Pod in line with the Sandbox and returns the Pod as it is afterwards, nil when there is none.
// A returned Pod may belong to someone else. It keeps the annotation pod-name of p.sb true.
func (r *sandboxReconciler) reconcilePod(ctx context.Context, p *pass) (*corev1.Pod, error) {
	ctx, span := tracer.Start(ctx, "reconcilePod")
	defer span.End()
	owned, err := r.ownedPods(ctx, p.sb)
	if err != nil {
		return nil, err
	}
	pod, err := r.getPod(ctx, p, client.ObjectKey{Namespace: p.sb.Namespace, Name: podNameOf(p.sb)})
	if err != nil {
		return nil, err
	}
	if pod != nil && controlledBy(pod, p.sb.UID) {
		owned[pod.UID] = pod // its label may be missing still
	}
	if len(owned) > 1 {
		return nil, multiplePodsError(len(owned))
	}
	for uid, survivor := range owned { // the owner's UID beats the annotation
		if pod == nil || pod.UID != uid {
			if err := r.setPodName(ctx, p, survivor.Name); err != nil {
				return survivor, err
			}
			pod = survivor
		}
	}
	switch {
	case p.sb.Spec.OperatingMode == agents.OperatingModeSuspended:
		return r.suspendPod(ctx, p, pod)
	case pod != nil:
		return r.followPod(ctx, p, pod)
	}
	return r.createPod(ctx, p)
}

// suspendPod removes the Pod that the Sandbox owns. The route says so before the Pod goes, and the annotation stays until
// the Pod is gone.
func (r *sandboxReconciler) suspendPod(ctx context.Context, p *pass, pod *corev1.Pod) (*corev1.Pod, error) {
	if pod == nil || !controlledBy(pod, p.sb.UID) {
		return pod, r.setPodName(ctx, p, "")
	}
	if !pod.DeletionTimestamp.IsZero() {
		return pod, nil
	}
	if err := r.routes.publish(ctx, p.sb, pod); err != nil {
		return pod, err
	}
	return pod, r.deletePod(ctx, pod)
}

func (r *sandboxReconciler) deletePod(ctx context.Context, pod *corev1.Pod) error {
	return client.IgnoreNotFound(r.client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID}))
}

func (r *sandboxReconciler) createPod(ctx context.Context, p *pass) (*corev1.Pod, error) {
	if name := p.sb.Annotations[proto.AnnotationPodName]; name != "" && name != p.sb.Name {
		if err := r.setPodName(ctx, p, ""); err != nil {
			return nil, err
		}
	}
	pod := buildPod(p.sb)
	err := r.client.Create(ctx, pod)
	if apierrors.IsAlreadyExists(err) {
		existing := &corev1.Pod{}
		if err := r.live.Get(ctx, client.ObjectKeyFromObject(pod), existing); err != nil { // the cache is behind
			return nil, err
		}
		stripPod(existing)
		r.pods.record(existing)
		return r.followPod(ctx, p, existing)
	}
	if err != nil {
		return nil, err
	}
	stripPod(pod)
	r.pods.record(pod)
	return pod, r.setPodName(ctx, p, pod.Name)
}

// followPod adopts an existing Pod if that is allowed, and copies metadata to it. It never changes its spec.
func (r *sandboxReconciler) followPod(ctx context.Context, p *pass, pod *corev1.Pod) (*corev1.Pod, error) {
	adopt, err := mayControl(p.sb, "pod", pod)
	if err != nil {
		if controllerOf(pod) != nil {
			err = errors.Join(r.setPodName(ctx, p, ""), err)
		}
		return pod, err
	}
	change := podMetadataChange(p.sb, pod)
	if adopt {
		change.owners = adoptedRefs(p.sb, pod)
	}
	pod, err = r.patchPod(ctx, p, pod, change)
	if err != nil {
		return pod, err
	}
	if p.sb.Annotations[proto.AnnotationPodName] == "" {
		err = r.setPodName(ctx, p, pod.Name)
	}
	return pod, err
}

// patchPod makes the change, at once or, on a Pod that is the Sandbox's already, within the write-behind window.
func (r *sandboxReconciler) patchPod(ctx context.Context, p *pass, pod *corev1.Pod, change metaChange) (*corev1.Pod, error) {
	key := client.ObjectKeyFromObject(pod)
	if change.empty() {
		r.lateMetadata.done(key)
		return pod, nil
	}
	if change.owners == nil && r.writeBehind > 0 {
		if wait := r.lateMetadata.wait(key, r.writeBehind, r.now()); wait > 0 {
			p.requeueWithin(wait)
			return pod, nil
		}
	}
	fresh, err := applyPatch(ctx, r.client, pod, change.patch())
	if err != nil {
		return pod, err
	}
	stripPod(fresh)
	r.pods.record(fresh)
	return fresh, nil
}

// setPodName writes the annotation pod-name of the Sandbox, or removes it when name is "".
func (r *sandboxReconciler) setPodName(ctx context.Context, p *pass, name string) error {
	if p.sb.Annotations[proto.AnnotationPodName] == name && (name != "" || !has(p.sb.Annotations, proto.AnnotationPodName)) {
		return nil
	}
	var change metaChange
	if name == "" {
		change.deleteAnnotation(proto.AnnotationPodName)
	} else {
		change.setAnnotation(proto.AnnotationPodName, name)
	}
	return r.patchSandbox(ctx, p, change)
}

// getPod reads one Pod, nil when there is none.
func (r *sandboxReconciler) getPod(ctx context.Context, p *pass, key types.NamespacedName) (*corev1.Pod, error) {
	pod, found, err := r.pods.get(ctx, r.client, key, &corev1.Pod{})
	if err != nil || !found {
		return nil, err
	}
	if r.pods.pending(key) {
		p.requeueWithin(ownWriteTTL) // the event of the write should come long before
	}
	return pod, nil
}

// ownedPods returns the Pods that the Sandbox controls and that carry its label, by UID.
func (r *sandboxReconciler) ownedPods(ctx context.Context, sb *agents.Sandbox) (map[types.UID]*corev1.Pod, error) {
	var list corev1.PodList
	if err := r.client.List(ctx, &list, client.InNamespace(sb.Namespace),
		client.MatchingFields{indexNameHash: proto.NameHash(sb.Name)}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	owned := map[types.UID]*corev1.Pod{}
	for i := range list.Items {
		pod, _ := r.pods.newest(client.ObjectKeyFromObject(&list.Items[i]), &list.Items[i], true)
		if controlledBy(pod, sb.UID) {
			owned[pod.UID] = pod
		}
	}
	return owned, nil
}
