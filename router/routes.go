package main

import (
	"encoding/json"
	"io"

	"github.com/dovakiin0/agent-sandbox/router/relay"
	"github.com/dovakiin0/agent-sandbox/router/route"
)

// routeLine is one sandbox in the answer to GET /routes of the operators' port, a line of JSON each.
type routeLine struct {
	Namespace string         `json:"namespace"`
	Name      string         `json:"name"`
	UID       string         `json:"uid,omitempty"`
	Claim     string         `json:"claim,omitempty"`
	State     string         `json:"state"`
	Verdict   string         `json:"verdict"`
	Endpoints []endpointLine `json:"endpoints"`
}

type endpointLine struct {
	Address   string `json:"address"`
	PodUID    string `json:"podUID,omitempty"`
	Zone      string `json:"zone,omitempty"`
	Condition string `json:"condition"`
	Inflight  int64  `json:"inflight"`
}

// dumpRoutes writes the table as it is now, for people.
func dumpRoutes(w io.Writer, t *relay.Table) {
	out := json.NewEncoder(w)
	t.Walk(func(s *route.Sandbox[*relay.Host]) bool {
		line := routeLine{Namespace: s.Namespace, Name: s.Name, UID: s.UID, Claim: s.Claim, State: s.State.String(), Verdict: s.Verdict().String()}
		for _, m := range s.Members() {
			line.Endpoints = append(line.Endpoints, endpointLine{
				Address: m.Endpoint.Address.String(), PodUID: m.Endpoint.PodUID, Zone: m.Zone,
				Condition: m.Condition.String(), Inflight: m.Endpoint.Inflight(),
			})
		}
		return out.Encode(line) == nil
	})
}
