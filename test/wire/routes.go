package wire

import (
	"encoding/json"
	"fmt"
	"os"
)

// Route is one sandbox of a routes file.
type Route struct {
	ID        string     `json:"id"`
	Namespace string     `json:"namespace,omitempty"`
	UID       string     `json:"uid,omitempty"`
	Claim     string     `json:"claim,omitempty"`
	State     string     `json:"state,omitempty"`
	Endpoints []Endpoint `json:"endpoints"`
}

// Endpoint is one address of a sandbox. The port comes from each request.
type Endpoint struct {
	Address string `json:"address"`
	Zone    string `json:"zone,omitempty"`
	Ready   bool   `json:"ready"`
	UID     string `json:"uid,omitempty"`
}

// WriteRoutes replaces the routes file at path in one step, so that a router never reads half of it.
func WriteRoutes(path string, routes []Route) error {
	// JSON is a subset of YAML, and encoding/json costs no dependency.
	if routes == nil {
		routes = []Route{} // "no sandboxes" rather than "no word about sandboxes"
	}
	data, err := json.Marshal(map[string]any{"sandboxes": routes})
	if err != nil {
		return fmt.Errorf("cannot encode routes: %w", err)
	}
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
