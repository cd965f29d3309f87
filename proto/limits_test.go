package proto_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/dovakiin0/agent-sandbox/proto"
)

func TestValidLabel(t *testing.T) {
	longest := strings.Repeat("a", 63)
	for _, s := range []string{"a", "0", "a-b", "sandbox-claim-1a2b", "1-2", longest} {
		assert.True(t, proto.ValidLabel(s), s)
		assert.True(t, proto.ValidLabel([]byte(s)), s)
	}
	for _, s := range []string{
		"", "-", "-a", "a-", "A", "a_b", "a.b", "a b", "a/b", "a\n", "a\x00", "é", longest + "a", "../x",
	} {
		assert.False(t, proto.ValidLabel(s), "%q", s)
		assert.False(t, proto.ValidLabel([]byte(s)), "%q", s)
	}
}

func TestPort(t *testing.T) {
	for s, want := range map[string]uint16{"1": 1, "80": 80, "8888": 8888, "65535": 65535} {
		got, ok := proto.Port(s)
		assert.True(t, ok, s)
		assert.Equal(t, want, got)
		got, ok = proto.Port([]byte(s))
		assert.True(t, ok, s)
		assert.Equal(t, want, got)
	}
	for _, s := range []string{"", "0", "00080", "080", "65536", "99999", "100000", "-1", "+1", " 80", "80 ", "8a", "0x50", "１"} {
		_, ok := proto.Port(s)
		assert.False(t, ok, "%q", s)
	}
}

func TestValidatorsDoNotAllocate(t *testing.T) {
	label, port := []byte(strings.Repeat("a", 63)), []byte("65535")
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		if _, ok := proto.Port(port); !ok || !proto.ValidLabel(label) {
			t.Fail()
		}
	}))
}

func TestNameHash(t *testing.T) {
	// Offset basis and test vectors of 32-bit FNV-1a; clients compute the same.
	for s, want := range map[string]string{"": "811c9dc5", "a": "e40c292c", "foobar": "bf9cf968", "sandbox-633": "004575dd"} {
		assert.Equal(t, want, proto.NameHash(s), s)
	}
}
