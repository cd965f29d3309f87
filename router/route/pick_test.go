package route

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func inZone(ip, zone string, hints ...string) Address {
	return Address{Addr: addr(ip), PodUID: ip, Zone: zone, HintZones: hints}
}

// picks counts which addresses n lookups give, each of which stays in flight when load is set.
func picks(t *testing.T, table *Table[*payload], n int, load bool) map[string]int {
	t.Helper()
	got := map[string]int{}
	for range n {
		r := table.Find(byNameQuery("s1"))
		require.Equal(t, Routable, r.Verdict)
		got[r.Endpoint.Address.String()]++
		if load {
			r.Endpoint.Acquire()
		}
	}
	return got
}

func TestSingleEndpointWhateverItsZone(t *testing.T) {
	for name, c := range map[string]struct {
		own  string
		a    Address
		want Zone
	}{
		"same zone":                   {"a", inZone("10.0.0.1", "a"), ZoneSame},
		"other zone":                  {"a", inZone("10.0.0.1", "b"), ZoneCross},
		"hinted for others only":      {"a", inZone("10.0.0.1", "b", "b", "c"), ZoneCross},
		"hinted for us, lies in b":    {"a", inZone("10.0.0.1", "b", "a"), ZoneCross},
		"endpoint without zone":       {"a", inZone("10.0.0.1", ""), ZoneUnknown},
		"router without zone":         {"", inZone("10.0.0.1", "b"), ZoneUnknown},
		"neither has a zone":          {"", inZone("10.0.0.1", ""), ZoneUnknown},
		"router without zone, hinted": {"", inZone("10.0.0.1", "", ""), ZoneUnknown},
	} {
		table := newTable(Options[*payload]{})
		table.SetZone(c.own)
		table.Publish(record("s1", "u1", c.a))
		r := table.Find(byNameQuery("s1"))
		assert.Equal(t, Routable, r.Verdict, name)
		assert.Equal(t, c.want, r.Zone, name)
	}
}

func TestPreference(t *testing.T) {
	notReady := inZone("10.0.0.1", "a")
	notReady.Condition = NotReady
	leaving := inZone("10.0.0.1", "a")
	leaving.Condition = Terminating
	for name, c := range map[string]struct {
		endpoints []Address
		want      []string // the addresses that are used at all
	}{
		"own zone first":          {[]Address{inZone("10.0.0.2", "b"), inZone("10.0.0.1", "a")}, []string{"10.0.0.1"}},
		"hint before zone":        {[]Address{inZone("10.0.0.1", "a"), inZone("10.0.0.2", "b", "a")}, []string{"10.0.0.2"}},
		"all of the zone":         {[]Address{inZone("10.0.0.1", "a"), inZone("10.0.0.2", "a"), inZone("10.0.0.3", "b")}, []string{"10.0.0.1", "10.0.0.2"}},
		"none here: all others":   {[]Address{inZone("10.0.0.1", "b"), inZone("10.0.0.2", "c"), inZone("10.0.0.3", "")}, []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}},
		"local one not ready":     {[]Address{notReady, inZone("10.0.0.2", "b")}, []string{"10.0.0.2"}},
		"ready before leaving":    {[]Address{leaving, inZone("10.0.0.2", "b")}, []string{"10.0.0.2"}},
		"leaving before nothing":  {[]Address{leaving}, []string{"10.0.0.1"}},
		"leaving before notready": {[]Address{leaving, {Addr: addr("10.0.0.9"), Condition: NotReady}}, []string{"10.0.0.1"}},
	} {
		table := newTable(Options[*payload]{})
		table.SetZone("a")
		table.Publish(record("s1", "u1", c.endpoints...))
		var used []string
		for ip := range picks(t, table, 300, false) {
			used = append(used, ip)
		}
		assert.ElementsMatch(t, c.want, used, name)
	}
}

func TestEqualsShareTheLoad(t *testing.T) {
	table := newTable(Options[*payload]{})
	table.Publish(record("s1", "u1", ready("10.0.0.1", ""), ready("10.0.0.2", ""), ready("10.0.0.3", "")))
	for ip, n := range picks(t, table, 300, true) {
		assert.InDelta(t, 100, n, 10, ip)
	}
}

func TestOverloadSpillsToOtherZones(t *testing.T) {
	table := newTable(Options[*payload]{})
	table.SetZone("a")
	table.Publish(record("s1", "u1", inZone("10.0.0.1", "a"), inZone("10.0.0.2", "b")))
	require.Equal(t, map[string]int{"10.0.0.1": spillLoad}, picks(t, table, spillLoad, true), "a little load stays here")
	got := picks(t, table, 300, true)
	assert.InDelta(t, 100, got["10.0.0.2"], 10, "the other zone takes half of what this one has")
	assert.InDelta(t, 200, got["10.0.0.1"], 10)
}

func TestHintPicksAmongUsableEndpointsOnly(t *testing.T) {
	table := newTable(Options[*payload]{})
	table.SetZone("a")
	down := inZone("10.0.0.3", "a")
	down.Condition = NotReady
	table.Publish(record("s1", "u1", inZone("10.0.0.1", "a"), inZone("10.0.0.2", "b"), down))
	table.Publish(record("other", "u2", inZone("10.0.0.9", "a")))
	for hint, want := range map[string]string{
		"10.0.0.1": "10.0.0.1",
		"10.0.0.2": "10.0.0.2", // even though it is far
		"10.0.0.3": "10.0.0.1", // not ready
		"10.0.0.9": "10.0.0.1", // another sandbox's
	} {
		q := byNameQuery("s1")
		q.Hint = addr(hint)
		for range 20 {
			require.Equal(t, want, table.Find(q).Endpoint.Address.String(), hint)
		}
	}
}
