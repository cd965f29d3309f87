package auth

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dovakiin0/agent-sandbox/proto/token"
	"github.com/dovakiin0/agent-sandbox/router/parse"
	"github.com/dovakiin0/agent-sandbox/router/record"
)

// BenchmarkCheck shows what each mode costs a request.
func BenchmarkCheck(b *testing.B) {
	name := strings.Repeat("s", 63)
	secret := []byte(strings.Repeat("k", token.MinSecret))
	key, err := token.NewKey(secret)
	require.NoError(b, err)
	scoped, err := key.Mint(token.Scope{Namespace: "default", Name: name, Expires: time.Now().Add(time.Hour).Unix()})
	require.NoError(b, err)
	staticGate, err := NewStaticToken(scoped)
	require.NoError(b, err)
	scopedGate, err := NewScopedToken(secret)
	require.NoError(b, err)

	r := request(b, "X-Sandbox-Token: "+scoped)
	a := &parse.Address{ID: []byte(name), Namespace: []byte("default"), Port: 8888}
	for _, mode := range []struct {
		name string
		gate Gate
	}{{"allow-all", AllowAll{}}, {"static-token", staticGate}, {"scoped-token", scopedGate}} {
		b.Run(mode.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, why := mode.gate.Check(r, a); why != record.OK {
					b.Fatal(why)
				}
			}
		})
	}
}
