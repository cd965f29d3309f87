package watch

import (
	"slices"

	"github.com/dovakiin0/agent-sandbox/proto"
	"github.com/dovakiin0/agent-sandbox/router/route"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// fromSlice reads one EndpointSlice. Slices that our controller published name their Sandbox as owner; those that
// Kubernetes wrote for the Service of a Sandbox have the Service's name, which is the Sandbox's. It returns the
// number of endpoints that it did not believe beside.
func fromSlice(slice *discoveryv1.EndpointSlice, loopback bool) (p *part, invalid int) {
	sandbox, uid, owned := owner(slice)
	if !owned {
		sandbox = slice.Labels[discoveryv1.LabelServiceName]
	}
	if _, unclaimed := slice.Labels[proto.LabelWarmPool]; unclaimed {
		sandbox = ""
	}
	p = newPart(slice, sandbox, uid)
	if p.sandbox == "" {
		return p, 0
	}
	if owned {
		p.proof = true
		p.claim = slice.Annotations[proto.AnnotationRouteClaim]
		p.state = stateOf(slice)
	}
	if slice.AddressType == discoveryv1.AddressTypeFQDN {
		return p, len(slice.Endpoints)
	}
	for i := range slice.Endpoints {
		a, ok := fromEndpoint(&slice.Endpoints[i], loopback)
		if !ok {
			invalid++
			continue
		}
		p.endpoints = append(p.endpoints, a)
	}
	p.endpoints = slices.Clip(p.endpoints)
	return p, invalid
}

// stateOf reads the published state. A word that this router does not know is no leave to dial.
func stateOf(slice *discoveryv1.EndpointSlice) route.State {
	word, published := slice.Annotations[proto.AnnotationRouteState]
	if !published {
		return route.StateRunning
	}
	state, known := route.ParseState(word)
	if !known {
		return route.StateStarting
	}
	return state
}

// fromEndpoint reads one endpoint. Its further addresses have no defined meaning and are not read
// (EndpointSlice API, field endpoints[].addresses).
func fromEndpoint(e *discoveryv1.Endpoint, loopback bool) (a route.Address, ok bool) {
	if len(e.Addresses) == 0 {
		return a, false
	}
	if a.Addr, ok = believable(e.Addresses[0], loopback); !ok {
		return a, false
	}
	a.Condition = condition(&e.Conditions)
	if e.TargetRef != nil {
		a.PodUID = string(e.TargetRef.UID)
	}
	if e.Zone != nil {
		a.Zone = shared(*e.Zone)
	}
	if e.Hints != nil {
		for _, z := range e.Hints.ForZones {
			a.HintZones = append(a.HintZones, shared(z.Name))
		}
	}
	return a, true
}

// condition reads the three conditions. Absent ones have the meaning that the API gives them: ready unless said
// otherwise, serving like ready, not terminating.
func condition(c *discoveryv1.EndpointConditions) route.Condition {
	ready := c.Ready == nil || *c.Ready
	serving := ready
	if c.Serving != nil {
		serving = *c.Serving
	}
	terminating := c.Terminating != nil && *c.Terminating
	switch {
	case terminating && serving:
		return route.Terminating
	case !terminating && ready:
		return route.Ready
	}
	return route.NotReady
}
