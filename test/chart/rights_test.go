package chart

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
)

// checkRights asks the API server what each service account of a release may do. A right is "verb group/resource", with
// "in namespace" behind it where it matters; the others are asked for in the release's namespace and in another one.
func checkRights(t *testing.T, i *installed) {
	everywhere := func(rights ...string) (all []string) {
		for _, right := range rights {
			all = append(all, right+" in "+i.namespace, right+" in default")
		}
		return all
	}
	here := func(rights ...string) (all []string) {
		for _, right := range rights {
			all = append(all, right+" in "+i.namespace)
		}
		return all
	}
	elsewhere := func(rights ...string) (all []string) {
		for _, right := range rights {
			all = append(all, right+" in default")
		}
		return all
	}
	nobodys := everywhere("get secrets", "list secrets", "create pods/exec", "create serviceaccounts/token",
		"create rbac.authorization.k8s.io/rolebindings", "update rbac.authorization.k8s.io/roles", "delete namespaces",
		"create rbac.authorization.k8s.io/clusterrolebindings", "impersonate users", "patch apiextensions.k8s.io/customresourcedefinitions", "update nodes")
	for account, rights := range map[string]struct{ may, mayNot []string }{
		"agent-sandbox-controller": {
			may: slices.Concat(everywhere("create pods", "delete pods", "watch pods", "create services", "create persistentvolumeclaims",
				"create discovery.k8s.io/endpointslices", "patch discovery.k8s.io/endpointslices", "create networking.k8s.io/networkpolicies",
				"list agents.x-k8s.io/sandboxes", "create agents.x-k8s.io/sandboxes", "patch agents.x-k8s.io/sandboxes/status",
				"update agents.x-k8s.io/sandboxes/finalizers", "watch extensions.agents.x-k8s.io/sandboxclaims",
				"patch extensions.agents.x-k8s.io/sandboxclaims/status", "create events.k8s.io/events", "list nodes"),
				here("create coordination.k8s.io/leases", "update coordination.k8s.io/leases")),
			mayNot: slices.Concat(nobodys, elsewhere("update coordination.k8s.io/leases"), everywhere("create extensions.agents.x-k8s.io/sandboxclaims",
				"delete extensions.agents.x-k8s.io/sandboxtemplates", "delete persistentvolumeclaims", "get configmaps")),
		},
		"agent-sandbox-router": {
			may: slices.Concat(everywhere("list discovery.k8s.io/endpointslices", "watch discovery.k8s.io/endpointslices"), []string{"get nodes in default"}),
			mayNot: slices.Concat(nobodys, everywhere("list pods", "get pods", "list nodes", "create discovery.k8s.io/endpointslices",
				"patch discovery.k8s.io/endpointslices", "get agents.x-k8s.io/sandboxes", "patch agents.x-k8s.io/sandboxes",
				"create extensions.agents.x-k8s.io/sandboxclaims", "get coordination.k8s.io/leases", "get configmaps")),
		},
		"backend": {
			may: here("create extensions.agents.x-k8s.io/sandboxclaims", "delete extensions.agents.x-k8s.io/sandboxclaims",
				"watch extensions.agents.x-k8s.io/sandboxclaims", "get agents.x-k8s.io/sandboxes", "list extensions.agents.x-k8s.io/sandboxwarmpools"),
			mayNot: slices.Concat(nobodys, elsewhere("create extensions.agents.x-k8s.io/sandboxclaims", "get agents.x-k8s.io/sandboxes"),
				here("create agents.x-k8s.io/sandboxes", "patch agents.x-k8s.io/sandboxes", "delete agents.x-k8s.io/sandboxes", "create pods",
					"create pods/portforward", "update extensions.agents.x-k8s.io/sandboxtemplates", "delete extensions.agents.x-k8s.io/sandboxwarmpools",
					"patch extensions.agents.x-k8s.io/sandboxclaims/status")),
		},
		"default": { // the sandboxes' own
			mayNot: slices.Concat(nobodys, everywhere("get pods", "list agents.x-k8s.io/sandboxes", "create extensions.agents.x-k8s.io/sandboxclaims",
				"list discovery.k8s.io/endpointslices")),
		},
	} {
		for _, right := range rights.may {
			assert.True(t, i.may(account, right), "%s may not %s", account, right)
		}
		for _, right := range rights.mayNot {
			assert.False(t, i.may(account, right), "%s may %s", account, right)
		}
	}
}

// may asks with a SubjectAccessReview.
func (i *installed) may(account, right string) bool {
	i.Helper()
	right, namespace, _ := strings.Cut(right, " in ")
	verb, what, _ := strings.Cut(right, " ")
	group, resource, found := strings.Cut(what, "/")
	if !strings.Contains(group, ".") { // the core group, perhaps with a subresource
		group, resource, found = "", what, true
	}
	require.True(i, found, right)
	resource, subresource, _ := strings.Cut(resource, "/")
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:   "system:serviceaccount:" + i.namespace + ":" + account,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + i.namespace, "system:authenticated"},
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: verb, Group: group, Resource: resource, Subresource: subresource,
		},
	}}
	require.NoError(i, i.Client.Create(i.Context(), review))
	return review.Status.Allowed
}
