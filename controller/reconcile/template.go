package reconcile

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/dovakiin0/agent-sandbox/proto"
	ext "github.com/dovakiin0/agent-sandbox/proto/extensions/v1beta1"
)

// templateReconciler keeps the NetworkPolicy that all sandboxes of a SandboxTemplate share.
type templateReconciler struct{ *shared }

func setupTemplate(mgr ctrl.Manager, o Options, s *shared) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("sandboxtemplate").
		For(&ext.SandboxTemplate{}).
		Owns(&networkingv1.NetworkPolicy{}).
		WithEventFilter(s.client.forgetDeleted()).
		WithOptions(controller.Options{MaxConcurrentReconciles: o.TemplateWorkers}).
		Complete(&templateReconciler{s})
}

// Reconcile implements reconcile.Reconciler.
func (r *templateReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	template, err := get[ext.SandboxTemplate](ctx, r.client, req.NamespacedName)
	if template == nil || !template.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, err
	}
	ctx, span := startSpan(ctx, "ReconcileSandboxTemplate", template)
	defer span.End()
	_, err = patch(ctx, r.client, template, unlocked, func(t *ext.SandboxTemplate) {
		metav1.SetMetaDataLabel(&t.ObjectMeta, proto.LabelTemplateRefHash, proto.NameHash(t.Name))
	})
	if err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	return ctrl.Result{}, r.reconcilePolicy(ctx, template)
}

func (r *templateReconciler) reconcilePolicy(ctx context.Context, template *ext.SandboxTemplate) error {
	managed := template.Spec.NetworkPolicyManagement != ext.NetworkPolicyUnmanaged
	desired := buildNetworkPolicy(template)
	policy, err := get[networkingv1.NetworkPolicy](ctx, r.client, client.ObjectKeyFromObject(desired))
	if err == nil && policy == nil && managed {
		existed := false
		policy = desired.DeepCopy()
		if existed, err = r.client.createOrGet(ctx, policy); !existed {
			return err
		}
	}
	switch {
	case err != nil || policy == nil:
		return err
	case !managed && controlledBy(policy, template.UID):
		return r.client.remove(ctx, policy)
	case !managed:
		return nil
	case !controlledBy(policy, template.UID):
		return fmt.Errorf("refusing to update NetworkPolicy %q: it is not controlled by SandboxTemplate %q", policy.Name, template.Name)
	case equality.Semantic.DeepEqual(policy.Spec, desired.Spec):
		return nil
	}
	policy = policy.DeepCopy()
	policy.Spec = desired.Spec
	return r.client.Update(ctx, policy) // the whole of it: a merge of rules could keep what was added to them
}

// Where the router runs: the peer that the default policy lets in.
const (
	routerNamespace = "agent-sandbox-system"
	routerApp       = "sandbox-router"
)

// buildNetworkPolicy returns the shared policy of a template: its own rules if it has any, else the default ones, which
// admit the router and let sandboxes reach public addresses only.
func buildNetworkPolicy(template *ext.SandboxTemplate) *networkingv1.NetworkPolicy {
	spec := networkingv1.NetworkPolicySpec{
		PodSelector: metav1.LabelSelector{
			MatchLabels: map[string]string{proto.LabelTemplateRefHash: proto.NameHash(template.Name)},
		},
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
		Ingress:     defaultIngress(),
		Egress:      defaultEgress(),
	}
	if custom := template.Spec.NetworkPolicy.DeepCopy(); custom != nil {
		spec.Ingress, spec.Egress = custom.Ingress, custom.Egress
		for i := range spec.Ingress {
			defaultProtocols(spec.Ingress[i].Ports)
		}
		for i := range spec.Egress {
			defaultProtocols(spec.Egress[i].Ports)
		}
	}
	return &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{
			Name:            template.Name + "-network-policy",
			Namespace:       template.Namespace,
			OwnerReferences: []metav1.OwnerReference{newControllerRef(template, templateGVK)},
		},
		Spec: spec,
	}
}

// defaultProtocols sets what the API server would, or the stored policy would always seem to have drifted.
func defaultProtocols(ports []networkingv1.NetworkPolicyPort) {
	for i := range ports {
		if ports[i].Protocol == nil {
			ports[i].Protocol = new(corev1.ProtocolTCP)
		}
	}
}

func defaultIngress() []networkingv1.NetworkPolicyIngressRule {
	return []networkingv1.NetworkPolicyIngressRule{{
		// One peer with both selectors: a pod elsewhere that merely wears the label is not let in.
		From: []networkingv1.NetworkPolicyPeer{{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": routerNamespace}},
			PodSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{"app": routerApp}},
		}},
	}}
}

func defaultEgress() []networkingv1.NetworkPolicyEgressRule {
	block := func(cidr string, except ...string) networkingv1.NetworkPolicyPeer {
		return networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: cidr, Except: except}}
	}
	return []networkingv1.NetworkPolicyEgressRule{{
		To: []networkingv1.NetworkPolicyPeer{
			block("0.0.0.0/0", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16"),
			block("::/0", "fc00::/7", "fe80::/10"),
		},
	}}
}
