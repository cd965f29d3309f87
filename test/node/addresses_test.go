package main

import (
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func claim(t *testing.T, file string, reuseFirst bool) *addresses {
	t.Helper()
	a, err := claimAddresses(file, reuseFirst)
	require.NoError(t, err)
	t.Cleanup(func() { a.Close() })
	return a
}

func take(t *testing.T, a *addresses) netip.Addr {
	t.Helper()
	ip, err := a.take()
	require.NoError(t, err)
	return ip
}

func TestAddressesOfTwoAgentsDiffer(t *testing.T) {
	one := claim(t, filepath.Join(t.TempDir(), "network"), false)
	two := claim(t, filepath.Join(t.TempDir(), "network"), false)
	assert.NotEqual(t, one.network(), two.network())
	for _, a := range []*addresses{one, two} {
		assert.True(t, netip.MustParsePrefix("10.128.0.0/9").Contains(a.network().Addr()))
	}
}

func TestAddressesAreTakenBack(t *testing.T) {
	file := filepath.Join(t.TempDir(), "network")
	first := claim(t, file, false)
	_, err := claimAddresses(file, false)
	assert.ErrorContains(t, err, first.network().String(), "another agent holds it")
	require.NoError(t, first.Close())
	assert.Equal(t, first.network(), claim(t, file, false).network())
}

func TestReleasedAddressesAreReusedLast(t *testing.T) {
	a := claim(t, filepath.Join(t.TempDir(), "network"), false)
	one, two := take(t, a), take(t, a)
	a.release(one)
	a.release(one) // a second release is no second address
	a.release(two)
	seen := map[netip.Addr]bool{one: true, two: true}
	for range 0xfffe - 1 - 2 {
		ip := take(t, a)
		require.False(t, seen[ip], "%s is new", ip)
		require.True(t, a.network().Contains(ip))
		seen[ip] = true
	}
	assert.Equal(t, one, take(t, a), "the one released longest ago")
	assert.Equal(t, two, take(t, a))
	_, err := a.take()
	assert.ErrorContains(t, err, "in use")
}

func TestReuseFirst(t *testing.T) {
	a := claim(t, filepath.Join(t.TempDir(), "network"), true)
	one, two := take(t, a), take(t, a)
	a.release(one)
	a.release(two)
	assert.Equal(t, two, take(t, a), "the one released last")
	assert.Equal(t, one, take(t, a))
	assert.Equal(t, two.Next(), take(t, a))
}

func TestKeptAddressesAreNotHandedOut(t *testing.T) {
	a := claim(t, filepath.Join(t.TempDir(), "network"), false)
	assert.True(t, a.keep(a.address(3)))
	assert.False(t, a.keep(netip.MustParseAddr("10.1.2.3")), "not of this network")
	assert.Equal(t, a.address(2), take(t, a))
	assert.Equal(t, a.address(4), take(t, a))
	a.release(a.address(3))
	assert.Equal(t, a.address(5), take(t, a))
}

func TestListenAddressHasTheSameHostBits(t *testing.T) {
	assert.Equal(t, "127.128.3.7:8888", listenAddress(netip.MustParseAddr("10.128.3.7")))
}
