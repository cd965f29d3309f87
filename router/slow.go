//go:build slow

package main

import (
	"time"

	"github.com/dovakiin0/agent-sandbox/router/auth"
	"github.com/dovakiin0/agent-sandbox/router/parse"
	"github.com/dovakiin0/agent-sandbox/router/record"
)

// burden is the time that each request loses in this build.
const burden = 15 * time.Microsecond

func init() { wrapGate = func(g auth.Gate) auth.Gate { return slowGate{g} } }

type slowGate struct{ auth.Gate }

func (g slowGate) Check(r *parse.Request, a *parse.Address) (auth.Decision, record.Reason) {
	for end := time.Now().Add(burden); time.Now().Before(end); {
	}
	return g.Gate.Check(r, a)
}
