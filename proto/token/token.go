// Package token mints and verifies scoped tokens: credentials for one sandbox, until a moment.
//
// A token is "v1.<payload>.<signature>", both parts base64url without padding. The payload is the JSON of Scope; the signature is
// HMAC-SHA256, with the shared secret as its key, over "agent-sandbox/scoped-token/v1." and the encoded payload.
package token

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// MinSecret is the length of the shortest secret, in bytes.
const MinSecret = 32

const (
	version = "v1."
	domain  = "agent-sandbox/scoped-token/v1." // keeps signatures of other uses of the secret from being tokens
)

var (
	// ErrInvalid is returned for what is no token of this secret.
	ErrInvalid = errors.New("invalid token")
	// ErrExpired is returned from the moment of expiry on.
	ErrExpired = errors.New("expired token")
)

// Scope is what a token is good for.
type Scope struct {
	Namespace string `json:"ns"`
	Name      string `json:"name"` // of the Sandbox
	Expires   int64  `json:"exp"`  // Unix seconds, exclusive
}

// Key is a shared secret.
type Key struct{ secret []byte }

// NewKey makes a Key. Blanks around the secret, such as a file's last newline, do not count.
func NewKey(secret []byte) (*Key, error) {
	secret = bytes.TrimSpace(secret)
	if len(secret) < MinSecret {
		return nil, fmt.Errorf("the secret has %d bytes, fewer than %d", len(secret), MinSecret)
	}
	return &Key{secret: bytes.Clone(secret)}, nil
}

var encoding = base64.RawURLEncoding.Strict()

// Mint makes a token.
func (k *Key) Mint(s Scope) (string, error) {
	payload, err := json.Marshal(s)
	if err != nil {
		return "", err
	}
	encoded := encoding.EncodeToString(payload)
	return version + encoded + "." + encoding.EncodeToString(k.sign([]byte(encoded))), nil
}

// Verify reads a token, which must be signed with this key and not have expired at now.
func (k *Key) Verify(token []byte, now time.Time) (Scope, error) {
	rest, ok := bytes.CutPrefix(token, []byte(version))
	if !ok {
		return Scope{}, ErrInvalid
	}
	payload, signature, ok := bytes.Cut(rest, []byte("."))
	if !ok {
		return Scope{}, ErrInvalid
	}
	got := make([]byte, encoding.DecodedLen(len(signature)))
	n, err := encoding.Decode(got, signature)
	if err != nil || !hmac.Equal(got[:n], k.sign(payload)) {
		return Scope{}, ErrInvalid
	}
	decoded := make([]byte, encoding.DecodedLen(len(payload)))
	if n, err = encoding.Decode(decoded, payload); err != nil {
		return Scope{}, ErrInvalid
	}
	var s Scope
	if json.Unmarshal(decoded[:n], &s) != nil || s.Namespace == "" || s.Name == "" {
		return Scope{}, ErrInvalid
	}
	if now.Unix() >= s.Expires {
		return Scope{}, ErrExpired
	}
	return s, nil
}

func (k *Key) sign(payload []byte) []byte {
	h := hmac.New(sha256.New, k.secret)
	h.Write([]byte(domain))
	h.Write(payload)
	return h.Sum(nil)
}
