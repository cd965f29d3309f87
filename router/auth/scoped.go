package auth

import (
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/dovakiin0/agent-sandbox/proto/token"
	"github.com/dovakiin0/agent-sandbox/router/parse"
	"github.com/dovakiin0/agent-sandbox/router/record"
)

// ScopedToken lets through who has a token for just the sandbox that the request names.
type ScopedToken struct {
	key   *token.Key
	known tokens
}

// NewScopedToken makes the gate for tokens minted with secret.
func NewScopedToken(secret []byte) (*ScopedToken, error) {
	key, err := token.NewKey(secret)
	if err != nil {
		return nil, err
	}
	return &ScopedToken{key: key, known: tokens{seed: maphash.MakeSeed()}}, nil
}

// Check implements Gate. A token names a Sandbox, so addressing by claim, by UID or by pod IP is not what it is for.
func (g *ScopedToken) Check(r *parse.Request, a *parse.Address) (Decision, record.Reason) {
	presented, used, why := credential(r)
	if why != record.OK {
		return used, why
	}
	scope, ok := g.verify(presented, time.Now())
	switch {
	case !ok:
		return used, record.InvalidToken
	case a.UID != nil || a.PodIP.IsValid() || scope.Name != string(a.ID) || scope.Namespace != string(a.Namespace):
		return used, record.Forbidden
	}
	return used, record.OK
}

func (g *ScopedToken) verify(presented []byte, now time.Time) (token.Scope, bool) {
	hash := maphash.Bytes(g.known.seed, presented)
	if t := g.known.find(hash, presented); t != nil {
		return t.scope, now.Unix() < t.scope.Expires
	}
	scope, err := g.key.Verify(presented, now)
	if err != nil {
		return scope, false
	}
	g.known.keep(&verified{hash: hash, text: string(presented), scope: scope})
	return scope, true
}

// tokens remembers tokens that proved to be signed, since the signature and the payload of a token never change. It is read
// without locks or allocation; in a set that is full a newer token takes the place of an older one. Only who knows the secret can
// fill it, and nobody can aim at a place without the seed.
type tokens struct {
	seed maphash.Seed
	sets [4096][4]atomic.Pointer[verified]
}

type verified struct {
	hash  uint64
	text  string
	scope token.Scope
}

func (t *tokens) set(hash uint64) *[4]atomic.Pointer[verified] {
	return &t.sets[hash%uint64(len(t.sets))]
}

func (t *tokens) find(hash uint64, presented []byte) *verified {
	set := t.set(hash)
	for i := range set {
		if v := set[i].Load(); v != nil && v.hash == hash && v.text == string(presented) {
			return v
		}
	}
	return nil
}

func (t *tokens) keep(v *verified) {
	set := t.set(v.hash)
	for i := range set {
		if set[i].CompareAndSwap(nil, v) {
			return
		}
	}
	set[v.hash>>32%uint64(len(set))].Store(v)
}
