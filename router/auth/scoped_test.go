package auth

import (
	"fmt"
	"hash/maphash"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dovakiin0/agent-sandbox/proto/token"
	"github.com/dovakiin0/agent-sandbox/router/parse"
	"github.com/dovakiin0/agent-sandbox/router/record"
)

func TestScopedToken(t *testing.T) {
	secret := []byte(strings.Repeat("s", token.MinSecret))
	gate, err := NewScopedToken(append(secret, '\n'))
	require.NoError(t, err)
	mint := func(secret []byte, until time.Duration) string {
		key, err := token.NewKey(secret)
		require.NoError(t, err)
		minted, err := key.Mint(token.Scope{Namespace: "n", Name: "s1", Expires: time.Now().Add(until).Unix()})
		require.NoError(t, err)
		return minted
	}
	good := mint(secret, time.Hour)
	address := func(edit func(*parse.Address)) *parse.Address {
		a := &parse.Address{ID: []byte("s1"), Namespace: []byte("n"), Port: 8888}
		if edit != nil {
			edit(a)
		}
		return a
	}
	own := address(nil)
	for _, row := range []struct {
		name    string
		line    string
		address *parse.Address
		why     record.Reason
		used    bool
	}{
		{"bearer", "Authorization: Bearer " + good, own, record.OK, true},
		{"own header", "X-Sandbox-Token: " + good, own, record.OK, false},
		{"nothing", "A: 1", own, record.NoCredential, false},
		{"no token", "X-Sandbox-Token: x", own, record.InvalidToken, false},
		{"expired", "X-Sandbox-Token: " + mint(secret, -time.Second), own, record.InvalidToken, false},
		{"of another secret", "X-Sandbox-Token: " + mint([]byte(strings.Repeat("o", 32)), time.Hour), own, record.InvalidToken, false},
		{"changed", "X-Sandbox-Token: " + good[:len(good)-2] + "AA", own, record.InvalidToken, false},
		{"another sandbox", "X-Sandbox-Token: " + good, address(func(a *parse.Address) { a.ID = []byte("s2") }), record.Forbidden, false},
		{"another namespace", "X-Sandbox-Token: " + good, address(func(a *parse.Address) { a.Namespace = []byte("m") }), record.Forbidden, false},
		{"by claim", "X-Sandbox-Token: " + good, address(func(a *parse.Address) { a.ID, a.Claim = nil, []byte("s1") }), record.Forbidden, false},
		{"with a UID", "X-Sandbox-Token: " + good, address(func(a *parse.Address) { a.UID = []byte("u") }), record.Forbidden, false},
		{"with a pod IP", "X-Sandbox-Token: " + good, address(func(a *parse.Address) { a.PodIP = netip.MustParseAddr("10.0.0.1") }), record.Forbidden, false},
	} {
		used, why := gate.Check(request(t, row.line), row.address)
		assert.Equal(t, row.why.String(), why.String(), row.name)
		assert.Equal(t, row.used, used.Authorization, row.name)
	}
	_, err = NewScopedToken([]byte("short"))
	assert.Error(t, err)
}

// TestTwoAuthorizations: the router and the sandbox could read different ones.
func TestTwoAuthorizations(t *testing.T) {
	gate, err := NewStaticToken("t")
	require.NoError(t, err)
	_, why := gate.Check(request(t, "Authorization: Bearer t", "Authorization: Bearer t"), &parse.Address{})
	assert.Equal(t, record.NoCredential, why)
}

func TestKnownTokens(t *testing.T) {
	secret := []byte(strings.Repeat("s", token.MinSecret))
	gate, err := NewScopedToken(secret)
	require.NoError(t, err)
	key, err := token.NewKey(secret)
	require.NoError(t, err)
	noon := time.Now()
	minted, err := key.Mint(token.Scope{Namespace: "n", Name: strings.Repeat("s", 63), Expires: noon.Unix() + 1})
	require.NoError(t, err)

	presented := []byte(minted)
	for range 2 {
		scope, ok := gate.verify(presented, noon)
		assert.True(t, ok)
		assert.Equal(t, "n", scope.Namespace)
	}
	assert.Zero(t, testing.AllocsPerRun(100, func() { gate.verify(presented, noon) }))
	_, ok := gate.verify(presented, noon.Add(time.Second))
	assert.False(t, ok, "a known token expires all the same")

	// A place has room for some tokens, and then for newer ones. None speaks for another, not even of the same hash.
	hash := maphash.Bytes(gate.known.seed, presented)
	for i := range 6 {
		gate.known.keep(&verified{hash: hash, text: fmt.Sprint("another ", i), scope: token.Scope{Namespace: "m", Name: "x", Expires: noon.Unix() + 1}})
	}
	scope, ok := gate.verify(presented, noon)
	assert.True(t, ok)
	assert.Equal(t, "n", scope.Namespace)
	_, ok = gate.verify([]byte(minted[:len(minted)-2]+"AA"), noon)
	assert.False(t, ok)
}
