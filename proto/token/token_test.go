package token

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	secret = strings.Repeat("s", MinSecret)
	noon   = time.Unix(1_800_000_000, 0)
	scope  = Scope{Namespace: "team-a", Name: "python-1", Expires: noon.Unix() + 1}
)

func TestVerifyReadsWhatMintMade(t *testing.T) {
	k, err := NewKey([]byte(secret + "\n"))
	require.NoError(t, err)
	token, err := k.Mint(scope)
	require.NoError(t, err)
	got, err := k.Verify([]byte(token), noon)
	require.NoError(t, err)
	assert.Equal(t, scope, got)
}

// The format is shared with clients in other languages, so it is spelled out here once more.
func TestFormat(t *testing.T) {
	k, err := NewKey([]byte(secret))
	require.NoError(t, err)
	payload := base64.RawURLEncoding.EncodeToString([]byte(`{"ns":"team-a","name":"python-1","exp":1800000001}`))
	h := hmac.New(sha256.New, []byte(secret))
	h.Write([]byte("agent-sandbox/scoped-token/v1." + payload))
	want := "v1." + payload + "." + base64.RawURLEncoding.EncodeToString(h.Sum(nil))
	got, err := k.Mint(scope)
	require.NoError(t, err)
	assert.Equal(t, want, got)
}

func TestVerifyRefuses(t *testing.T) {
	k, err := NewKey([]byte(secret))
	require.NoError(t, err)
	other, err := NewKey([]byte(strings.Repeat("o", MinSecret)))
	require.NoError(t, err)
	mint := func(k *Key, s Scope) string {
		token, err := k.Mint(s)
		require.NoError(t, err)
		return token
	}
	good := mint(k, scope)
	for name, c := range map[string]struct {
		token string
		want  error
	}{
		"nothing":             {"", ErrInvalid},
		"another version":     {"v2" + good[2:], ErrInvalid},
		"no signature":        {good[:strings.LastIndex(good, ".")], ErrInvalid},
		"empty signature":     {good[:strings.LastIndex(good, ".")+1], ErrInvalid},
		"another secret":      {mint(other, scope), ErrInvalid},
		"a changed payload":   {strings.Replace(good, good[4:6], "AA", 1), ErrInvalid},
		"something behind it": {good + "A", ErrInvalid},
		"no name":             {mint(k, Scope{Namespace: "a", Expires: scope.Expires}), ErrInvalid},
		"just expired":        {mint(k, Scope{Namespace: "a", Name: "b", Expires: noon.Unix()}), ErrExpired},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := k.Verify([]byte(c.token), noon)
			assert.ErrorIs(t, err, c.want)
		})
	}
}

func TestShortSecretsAreRefused(t *testing.T) {
	_, err := NewKey([]byte(strings.Repeat("s", MinSecret-1) + "\n\n"))
	assert.Error(t, err)
}
