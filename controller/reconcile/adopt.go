package reconcile

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovakiin0/agent-sandbox/proto"
	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
)

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
