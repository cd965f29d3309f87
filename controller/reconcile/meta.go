package reconcile

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovakiin0/agent-sandbox/proto"
	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
	ext "github.com/dovakiin0/agent-sandbox/proto/extensions/v1beta1"
)

// Kinds that own objects. References written by this controller carry exactly these versions.
var (
	sandboxGVK  = agents.GroupVersion.WithKind("Sandbox")
	templateGVK = ext.GroupVersion.WithKind("SandboxTemplate")
	warmPoolGVK = ext.GroupVersion.WithKind("SandboxWarmPool")
	claimGVK    = ext.GroupVersion.WithKind("SandboxClaim")
)

// controllerOf returns the controller reference of obj, nil when it has none. The result is shared with obj.
func controllerOf(obj metav1.Object) *metav1.OwnerReference {
	return metav1.GetControllerOfNoCopy(obj)
}

// controlledBy reports whether the owner with this UID controls obj. Names are reused, UIDs are not.
func controlledBy(obj metav1.Object, owner types.UID) bool {
	ref := controllerOf(obj)
	return ref != nil && ref.UID == owner
}

// controllerKind reports whether obj is controlled by an object of this group and kind. The version does not count:
// references written before an upgrade keep the old one.
func controllerKind(obj metav1.Object, group, kind string) bool {
	ref := controllerOf(obj)
	return ref != nil && ref.Kind == kind && refGroup(ref) == group
}

func refGroup(ref *metav1.OwnerReference) string {
	group, _, _ := strings.Cut(ref.APIVersion, "/") // which is not right for the core group, and that owns nothing here
	return group
}

// newControllerRef returns the reference that makes owner the controller of another object.
func newControllerRef(owner metav1.Object, gvk schema.GroupVersionKind) metav1.OwnerReference {
	return *metav1.NewControllerRef(owner, gvk)
}

// unclaimedMember reports whether sb waits in a warm pool. Such a sandbox has no route: nothing may reach it before it
// is adopted.
func unclaimedMember(sb *agents.Sandbox) bool {
	return sb.Labels[proto.LabelWarmPool] != "" || controllerKind(sb, warmPoolGVK.Group, warmPoolGVK.Kind)
}

// claimOf returns the name of the claim that controls sb, "" when none does.
func claimOf(sb *agents.Sandbox) string {
	if controllerKind(sb, claimGVK.Group, claimGVK.Kind) {
		return controllerOf(sb).Name
	}
	return ""
}

// podNameOf returns the name of the pod that backs sb: the annotation if it is set, else the name of the sandbox.
func podNameOf(sb *agents.Sandbox) string {
	if name := sb.Annotations[proto.AnnotationPodName]; name != "" {
		return name
	}
	return sb.Name
}

// systemKey reports whether a label or annotation key belongs to this controller, so that no pod template may push it
// onto a Pod. Only the literal prefixes count; foo.agents.x-k8s.io/ is a user's.
func systemKey(key string) bool {
	return strings.HasPrefix(key, proto.PrefixAgents) || strings.HasPrefix(key, proto.PrefixExtensions)
}

// normalizeCreatedBy maps the free value of the created-by label to the small set that Pods and metrics may carry.
func normalizeCreatedBy(value string) string {
	switch value {
	case "go-client", "python-client", "controller":
		return value
	}
	return "unknown"
}

// setOrDelete sets a label or an annotation, or deletes it when the value is "".
func setOrDelete(m *map[string]string, key, value string) {
	switch {
	case value == "":
		delete(*m, key)
	case *m == nil:
		*m = map[string]string{key: value}
	default:
		(*m)[key] = value
	}
}

// hasPodMetadata reports whether there is anything in it.
func hasPodMetadata(m *agents.PodMetadata) bool { return len(m.Labels) > 0 || len(m.Annotations) > 0 }
