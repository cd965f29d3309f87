package auth

import (
	"time"

	"github.com/dovakiin0/agent-sandbox/proto/token"
	"github.com/dovakiin0/agent-sandbox/router/parse"
	"github.com/dovakiin0/agent-sandbox/router/record"
)

// ScopedToken lets through who has a token for just the sandbox that the request names.
type ScopedToken struct{ key *token.Key }

// NewScopedToken makes the gate for tokens minted with secret.
func NewScopedToken(secret []byte) (*ScopedToken, error) {
	key, err := token.NewKey(secret)
	if err != nil {
		return nil, err
	}
	return &ScopedToken{key: key}, nil
}

// Check implements Gate. A token names a Sandbox, so addressing by claim, by UID or by pod IP is not what it is for.
func (g *ScopedToken) Check(r *parse.Request, a *parse.Address) (Decision, record.Reason) {
	presented, used, why := credential(r)
	if why != record.OK {
		return used, why
	}
	scope, err := g.key.Verify(presented, time.Now())
	switch {
	case err != nil:
		return used, record.InvalidToken
	case a.UID != nil || a.PodIP.IsValid() || scope.Name != string(a.ID) || scope.Namespace != string(a.Namespace):
		return used, record.Forbidden
	}
	return used, record.OK
}
