package reconcile

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/dovakiin0/agent-sandbox/proto"
	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
	ext "github.com/dovakiin0/agent-sandbox/proto/extensions/v1beta1"
)

// poolMembers is what a pass makes of the sandboxes with the pool's label.
type poolMembers struct {
	active      []*agents.Sandbox
	incomplete  []*agents.Sandbox // lack the launch type or an owner, active once they have it
	stale       []*agents.Sandbox // to be deleted
	terminating int
}

// sort puts one sandbox where it belongs. Current is nil when the template does not exist, and then nothing is stale.
// Deleting says that this process deleted the sandbox and the cache does not show it yet.
func (m *poolMembers) sort(pool *ext.SandboxWarmPool, sandbox *agents.Sandbox, current *revision, deleting bool) {
	owned := controlledBy(sandbox, pool.UID)
	orphan := controllerOf(sandbox) == nil
	switch {
	case !sandbox.DeletionTimestamp.IsZero() || owned && deleting:
		if owned {
			m.terminating++
		}
	case !owned && !orphan || sandbox.Labels[proto.LabelWarmPool] != proto.NameHash(pool.Name):
		// Somebody else's, or adopted a moment ago.
	case current != nil && (orphan || recreates(pool)) && current.stale(sandbox):
		m.stale = append(m.stale, sandbox)
	case orphan && current == nil:
		// Whether it fits the pool cannot be told now.
	case orphan || sandbox.Labels[proto.LabelLaunchType] != proto.LaunchWarm:
		m.incomplete = append(m.incomplete, sandbox)
	default:
		m.active = append(m.active, sandbox)
	}
}

// dropDeleted moves deleted members from the active to the terminating ones.
func (m *poolMembers) dropDeleted(deleted map[types.UID]bool) {
	before := len(m.active)
	m.active = slices.DeleteFunc(m.active, func(s *agents.Sandbox) bool { return deleted[s.UID] })
	m.terminating += before - len(m.active)
}

// excess returns the n members that a shrinking pool loses first: those that are not Ready, then the newest.
func (m *poolMembers) excess(n int) []*agents.Sandbox {
	sorted := slices.Clone(m.active)
	slices.SortStableFunc(sorted, func(a, b *agents.Sandbox) int {
		if isReady(a) != isReady(b) {
			return before(!isReady(a))
		}
		return cmp.Compare(b.CreationTimestamp.UnixNano(), a.CreationTimestamp.UnixNano())
	})
	return sorted[:n]
}

// recreates reports whether the pool deletes stale members. Every other strategy keeps them.
func recreates(pool *ext.SandboxWarmPool) bool {
	return pool.Spec.UpdateStrategy != nil && pool.Spec.UpdateStrategy.Type == ext.UpdateRecreate
}

func desiredReplicas(pool *ext.SandboxWarmPool) int {
	if pool.Spec.Replicas == nil {
		return 1
	}
	return int(*pool.Spec.Replicas)
}
