// Package auth decides whether a caller may reach a sandbox.
package auth

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"errors"

	"github.com/dovakiin0/agent-sandbox/router/parse"
	"github.com/dovakiin0/agent-sandbox/router/record"
)

// Decision says what a gate used of a request, so that the sandbox does not see it. X-Sandbox-Token never reaches a sandbox.
type Decision struct {
	Authorization bool // the Authorization field was the router's credential
}

// Gate checks the credential of a request for an address.
type Gate interface {
	Check(*parse.Request, *parse.Address) (Decision, record.Reason)
}

// AllowAll lets everybody through. The Authorization field is the application's.
type AllowAll struct{}

// Check implements Gate.
func (AllowAll) Check(*parse.Request, *parse.Address) (Decision, record.Reason) {
	return Decision{}, record.OK
}

// StaticToken lets those through that know one token.
type StaticToken struct{ sum [sha256.Size]byte }

// NewStaticToken makes the gate for token, which must not be empty.
func NewStaticToken(token string) (*StaticToken, error) {
	if token == "" {
		return nil, errors.New("the token is empty")
	}
	return &StaticToken{sum: sha256.Sum256([]byte(token))}, nil
}

// Check implements Gate.
func (g *StaticToken) Check(r *parse.Request, _ *parse.Address) (Decision, record.Reason) {
	token, used, why := credential(r)
	if why != record.OK {
		return used, why
	}
	// Equal lengths of hashes keep the time independent of the token's length as well as of its bytes.
	sum := sha256.Sum256(token)
	if subtle.ConstantTimeCompare(sum[:], g.sum[:]) != 1 {
		return used, record.InvalidToken
	}
	return used, record.OK
}

var bearer = []byte("Bearer ")

// credential finds the token of a request. One in X-Sandbox-Token leaves the Authorization field to the application.
func credential(r *parse.Request) (token []byte, used Decision, why record.Reason) {
	if r.Token != nil {
		return r.Token, used, record.OK
	}
	if r.Doubtful || len(r.Authorization) < len(bearer) || !bytes.EqualFold(r.Authorization[:len(bearer)], bearer) {
		return nil, used, record.NoCredential
	}
	return bytes.TrimLeft(r.Authorization[len(bearer):], " "), Decision{Authorization: true}, record.OK
}
