package watch

import (
	"errors"
	"fmt"

	"github.com/dovakiin0/agent-sandbox/proto"
	"github.com/dovakiin0/agent-sandbox/router/route"
	"sigs.k8s.io/yaml"
)

// routesDocument is the format of the routes file.
type routesDocument struct {
	Sandboxes *[]routesEntry `json:"sandboxes"`
}

type routesEntry struct {
	ID        string          `json:"id"`
	Namespace string          `json:"namespace"` // proto.DefaultNamespace when absent
	UID       string          `json:"uid"`
	Claim     string          `json:"claim"`
	State     string          `json:"state"` // Running when absent
	Endpoints []routeEndpoint `json:"endpoints"`
}

type routeEndpoint struct {
	Address string `json:"address"`
	Zone    string `json:"zone"`
	Ready   *bool  `json:"ready"` // true when absent
	UID     string `json:"uid"`   // of the pod
}

// parseRoutes reads the routes file. A file without the key sandboxes is an error: it is being written, or is
// something else.
func parseRoutes(content []byte) ([]*route.Record, error) {
	var doc routesDocument
	if err := yaml.UnmarshalStrict(content, &doc); err != nil {
		return nil, err
	}
	if doc.Sandboxes == nil {
		return nil, errors.New("the key sandboxes is missing")
	}
	records := make([]*route.Record, 0, len(*doc.Sandboxes))
	seen := make(map[key]struct{}, len(*doc.Sandboxes))
	for i := range *doc.Sandboxes {
		r, err := (*doc.Sandboxes)[i].record()
		if err != nil {
			return nil, fmt.Errorf("sandboxes[%d]: %w", i, err)
		}
		k := key{r.Namespace, r.Name}
		if _, twice := seen[k]; twice {
			return nil, fmt.Errorf("sandboxes[%d]: %s/%s is listed twice", i, r.Namespace, r.Name)
		}
		seen[k] = struct{}{}
		records = append(records, r)
	}
	return records, nil
}

func (e *routesEntry) record() (*route.Record, error) {
	r := &route.Record{Namespace: proto.DefaultNamespace, Name: e.ID, UID: e.UID, Claim: e.Claim}
	if e.Namespace != "" {
		r.Namespace = shared(e.Namespace)
	}
	if !proto.ValidLabel(e.ID) {
		return nil, fmt.Errorf("id %q is no DNS label", e.ID)
	}
	if !proto.ValidLabel(r.Namespace) {
		return nil, fmt.Errorf("namespace %q is no DNS label", r.Namespace)
	}
	if e.Claim != "" && !proto.ValidLabel(e.Claim) {
		return nil, fmt.Errorf("claim %q is no DNS label", e.Claim)
	}
	if e.State != "" {
		var known bool
		if r.State, known = route.ParseState(e.State); !known {
			return nil, fmt.Errorf("state %q is unknown", e.State)
		}
	}
	for _, p := range e.Endpoints {
		// Who writes the file may mean the router's own host: it is the operator.
		addr, ok := believable(p.Address, true)
		if !ok {
			return nil, fmt.Errorf("address %q is no unicast IP address", p.Address)
		}
		a := route.Address{Addr: addr, PodUID: p.UID, Zone: shared(p.Zone)}
		if p.Ready != nil && !*p.Ready {
			a.Condition = route.NotReady
		}
		r.Endpoints = append(r.Endpoints, a)
	}
	return r, nil
}
