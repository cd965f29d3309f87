//go:build !race

package route

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Ids as long as they may be: below 33 bytes conversions do not allocate anyway.
var (
	longNamespace = strings.Repeat("n", 63)
	longName      = strings.Repeat("s", 63)
	longClaim     = strings.Repeat("c", 63)
	longUID       = strings.Repeat("u", 63)
)

func TestFindDoesNotAllocate(t *testing.T) {
	table := newTable(Options[*payload]{})
	table.SetZone("a")
	table.SetSynced()
	table.Publish(&Record{
		Namespace: longNamespace, Name: longName, UID: longUID, Claim: longClaim,
		Endpoints: []Address{inZone("10.0.0.1", "a"), inZone("10.0.0.2", "a"), inZone("10.0.0.3", "b")},
	})
	gone := longName[:62] + "x"
	table.Publish(&Record{Namespace: longNamespace, Name: gone})
	table.Remove(longNamespace, gone)

	namespace, name, claim, uid := []byte(longNamespace), []byte(longName), []byte(longClaim), []byte(longUID)
	for what, c := range map[string]struct {
		q    Query
		want Verdict
	}{
		"by name":           {Query{Namespace: namespace, Name: name}, Routable},
		"by name and uid":   {Query{Namespace: namespace, Name: name, UID: uid}, Routable},
		"by claim":          {Query{Namespace: namespace, Claim: claim}, Routable},
		"by uid":            {Query{UID: uid}, Routable},
		"with a hint":       {Query{Namespace: namespace, Name: name, Hint: netip.MustParseAddr("10.0.0.3")}, Routable},
		"unknown":           {Query{Namespace: namespace, Name: claim}, Unknown},
		"unknown claim":     {Query{Namespace: namespace, Claim: name}, Unknown},
		"another namespace": {Query{Namespace: name, Name: name}, Unknown},
		"gone":              {Query{Namespace: namespace, Name: []byte(gone)}, Gone},
	} {
		require.Equal(t, c.want, table.Find(&c.q).Verdict, what)
		assert.Zero(t, testing.AllocsPerRun(100, func() {
			r := table.Find(&c.q)
			if r.Endpoint != nil {
				r.Endpoint.Acquire()
				r.Endpoint.Release()
			}
		}), what)
	}
}

func TestUnchangedPublishDoesNotAllocate(t *testing.T) {
	table := newTable(Options[*payload]{})
	r := record(longName, longUID, ready("10.0.0.1", longUID))
	r.Claim = longClaim
	table.Publish(r)
	assert.Zero(t, testing.AllocsPerRun(100, func() { table.Publish(r) }))
}
