package watch

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"unique"

	"github.com/dovakiin0/agent-sandbox/proto"
	"github.com/dovakiin0/agent-sandbox/router/route"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// key names an object or a sandbox.
type key struct{ namespace, name string }

// part is what one object, an EndpointSlice or a Pod, says about one sandbox. It is all that is kept of the object.
type part struct {
	object  key
	version uint64 // resourceVersion of the object
	created int64  // creation of the object, Unix seconds

	sandbox    string // name; empty when the object is about no sandbox that may be routed to
	sandboxUID string // empty in a slice that Kubernetes wrote for a Service
	claim      string
	state      route.State
	proof      bool // when the object is deleted, the sandbox was
	endpoints  []route.Address
}

// newPart keeps the metadata of an object, and which sandbox it is about. Objects are often named like their sandbox:
// the name is kept once.
func newPart(o metav1.Object, sandbox, sandboxUID string) *part {
	version, _ := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	p := &part{
		object:     key{shared(o.GetNamespace()), o.GetName()},
		version:    version,
		created:    o.GetCreationTimestamp().Unix(),
		sandbox:    sandbox,
		sandboxUID: sandboxUID,
	}
	if sandbox == p.object.name {
		p.sandbox = p.object.name
	}
	return p
}

// owner returns the Sandbox that controls the object, if one does.
func owner(o metav1.Object) (name, uid string, ok bool) {
	ref := metav1.GetControllerOfNoCopy(o)
	if ref == nil || ref.Kind != "Sandbox" {
		return "", "", false
	}
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil || gv.Group != proto.GroupAgents {
		return "", "", false
	}
	return ref.Name, string(ref.UID), true
}

// believable reads the address of an endpoint. What is no ordinary unicast address can be no pod's: it would lead to
// the router itself, its node, or a metadata service.
func believable(s string, loopback bool) (netip.Addr, bool) {
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" {
		return netip.Addr{}, false
	}
	a = a.Unmap()
	return a, a.IsGlobalUnicast() || loopback && a.IsLoopback()
}

// shared returns a string equal to s that is kept once, for namespaces and zones.
func shared(s string) string { return unique.Make(s).Value() }

// merge makes one record of the parts of a sandbox that name the Sandbox with the given UID, if there are any. The
// result does not depend on the order of parts.
func merge(parts []*part, sandboxUID string) (*route.Record, bool) {
	mine := slices.DeleteFunc(slices.Clone(parts), func(p *part) bool { return p.sandboxUID != sandboxUID })
	if len(mine) == 0 {
		return nil, false
	}
	slices.SortFunc(mine, func(a, b *part) int {
		return cmp.Or(cmp.Compare(b.created, a.created), cmp.Compare(b.version, a.version),
			cmp.Compare(a.object.name, b.object.name))
	})
	youngest := mine[0]
	r := &route.Record{
		Namespace: youngest.object.namespace, Name: youngest.sandbox, UID: sandboxUID,
		Claim: youngest.claim, State: youngest.state, Since: youngest.created,
		Endpoints: youngest.endpoints,
	}
	for _, p := range mine[1:] {
		r.Endpoints = append(slices.Clip(r.Endpoints), p.endpoints...)
	}
	if len(r.Endpoints) > 1 {
		r.Endpoints = onePerPod(r.Endpoints)
	}
	return r, true
}

// onePerPod unites what several slices, or entries of a slice, say of the same endpoint, and leaves each pod the
// addresses of one family: IPv4 where it has any. Of two conditions the worse counts, so that a pod which one slice
// knows to terminate is not Ready because another has not heard.
func onePerPod(all []route.Address) []route.Address {
	united := make([]route.Address, 0, len(all))
	at := make(map[podAddress]int, len(all))
	v4 := make(map[string]bool, len(all))
	for _, a := range all {
		id := podAddress{a.PodUID, a.Addr}
		if i, seen := at[id]; seen {
			united[i].Condition = max(united[i].Condition, a.Condition)
			continue
		}
		at[id] = len(united)
		united = append(united, a)
		v4[a.PodUID] = v4[a.PodUID] || a.Addr.Is4()
	}
	united = slices.DeleteFunc(united, func(a route.Address) bool { return a.Addr.Is6() && v4[a.PodUID] })
	slices.SortFunc(united, func(a, b route.Address) int {
		return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.PodUID, b.PodUID))
	})
	return united
}

type podAddress struct {
	pod  string
	addr netip.Addr
}
