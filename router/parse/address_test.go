package parse

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dovakiin0/agent-sandbox/proto"
	"github.com/dovakiin0/agent-sandbox/router/record"
)

// read parses a GET with these lines and reads its address.
func read(t *testing.T, a *Addressing, host, lines string) (Address, record.Reason) {
	t.Helper()
	r, why := parseRequest(t, "GET / HTTP/1.1⏎Host: "+host+"⏎"+lines)
	require.Equal(t, record.OK.String(), why.String(), lines)
	var to Address
	to.Port, to.Timeout = 1, 1 // of the request before
	why = a.Read(r, &to)
	return to, why
}

func TestAddress(t *testing.T) {
	for name, c := range map[string]struct {
		lines string
		want  Address
	}{
		"id alone": {"X-Sandbox-ID: s1⏎", Address{ID: []byte("s1"), Namespace: []byte("default"), Port: 8888}},
		"claim":    {"X-Sandbox-Claim: c1⏎", Address{Claim: []byte("c1"), Namespace: []byte("default"), Port: 8888}},
		"everything": {
			"X-Sandbox-ID: " + label63 + "⏎X-Sandbox-Namespace: n⏎X-Sandbox-Port: 65535⏎X-Sandbox-Pod-IP: 10.0.0.1⏎X-Sandbox-UID: u⏎X-Sandbox-Timeout: 2.5⏎",
			Address{
				ID: []byte(label63), Namespace: []byte("n"), Port: 65535, PodIP: netip.MustParseAddr("10.0.0.1"), UID: []byte("u"),
				Timeout: 2500 * time.Millisecond,
			},
		},
	} {
		got, why := read(t, &Addressing{}, "a", c.lines)
		assert.Equal(t, record.OK.String(), why.String(), name)
		assert.Equal(t, c.want, got, name)
	}
}

// TestAddressOrder takes away one fault after the other: the contract fixes which is told first (contract/client.md, 7.2).
func TestAddressOrder(t *testing.T) {
	const namespace, port, podIP = "X-Sandbox-Namespace: N⏎", "X-Sandbox-Port: p⏎", "X-Sandbox-Pod-IP: i⏎"
	const others = "X-Sandbox-UID: u u⏎X-Sandbox-Timeout: t⏎"
	for _, row := range []struct {
		lines  string
		want   record.Reason
		detail string
	}{
		{podIP + port + namespace + others, record.IDRequired, proto.DetailIDRequired},
		{podIP + port + namespace + others + "X-Sandbox-ID:⏎", record.IDRequired, proto.DetailIDRequired},
		{podIP + port + namespace + others + "X-Sandbox-ID: I⏎", record.InvalidID, proto.DetailInvalidID},
		{podIP + port + namespace + others + "X-Sandbox-Claim: C⏎", record.InvalidClaim, "Invalid sandbox claim format."},
		{podIP + port + namespace + others + "X-Sandbox-ID: i⏎X-Sandbox-Claim: c⏎", record.TwoNames, ""},
		{podIP + port + namespace + others + "X-Sandbox-ID: i⏎", record.InvalidNamespace, proto.DetailInvalidNamespace},
		{podIP + port + others + "X-Sandbox-ID: i⏎", record.InvalidPort, proto.DetailInvalidPort},
		{podIP + others + "X-Sandbox-ID: i⏎", record.InvalidPodIP, proto.DetailInvalidPodIP},
		{others + "X-Sandbox-ID: i⏎", record.InvalidUID, ""},
		{"X-Sandbox-Timeout: t⏎X-Sandbox-ID: i⏎", record.InvalidTimeout, ""},
	} {
		_, why := read(t, &Addressing{}, "a", row.lines)
		assert.Equal(t, row.want.String(), why.String(), row.lines)
		assert.Equal(t, 400, why.Answer().Status)
		if row.detail != "" {
			assert.Equal(t, row.detail, why.Answer().Detail)
		}
	}
}

func TestInvalidNames(t *testing.T) {
	for _, name := range []string{"A", "a.b", "a_b", "a/b", "-a", "a-", "a b", "é", "a%00", label63 + "x", "127.0.0.1:80", "a, b"} {
		_, why := read(t, &Addressing{}, "a", "X-Sandbox-ID: "+name+"⏎")
		assert.Equal(t, record.InvalidID.String(), why.String(), name)
		_, why = read(t, &Addressing{}, "a", "X-Sandbox-Claim: "+name+"⏎")
		assert.Equal(t, record.InvalidClaim.String(), why.String(), name)
		_, why = read(t, &Addressing{}, "a", "X-Sandbox-ID: a⏎X-Sandbox-Namespace: "+name+"⏎")
		assert.Equal(t, record.InvalidNamespace.String(), why.String(), name)
	}
	for _, port := range []string{"", "0", "00", "080", "65536", "99999", "100000", "+80", "-1", "8 0", "0x50", "http", "80.0"} {
		_, why := read(t, &Addressing{}, "a", "X-Sandbox-ID: a⏎X-Sandbox-Port: "+port+"⏎")
		assert.Equal(t, record.InvalidPort.String(), why.String(), port)
	}
	for _, uid := range []string{"", "a b", "a,b", "é", strings.Repeat("u", 129)} {
		_, why := read(t, &Addressing{}, "a", "X-Sandbox-ID: a⏎X-Sandbox-UID: "+uid+"⏎")
		assert.Equal(t, record.InvalidUID.String(), why.String(), uid)
	}
}

func TestPodIP(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.1": "10.0.0.1", "fd00::1": "fd00::1", "::ffff:10.0.0.1": "10.0.0.1", "FD00:0::1": "fd00::1", "2001:db8::1": "2001:db8::1",
	} {
		got, why := read(t, &Addressing{}, "a", "X-Sandbox-ID: a⏎X-Sandbox-Pod-IP: "+text+"⏎")
		assert.Equal(t, record.OK.String(), why.String(), text)
		assert.Equal(t, want, got.PodIP.String(), text)
	}
	refused := []string{
		"", "0.0.0.0", "::", "169.254.169.254", "fe80::1", "fe80::1%eth0", "fd00::1%eth0", "224.0.0.1", "ff02::1", "255.255.255.255",
		"::ffff:0.0.0.0", "::ffff:169.254.169.254", "2130706433", "0x7f.1", "127.1", "010.0.0.1", "10.0.0.1.", "10.0.0.1:80", "[::1]",
		"10.0.0.1, 10.0.0.2", "localhost", "kubernetes.default.svc", "10.0.0.0/8",
	}
	loopback := []string{"127.0.0.1", "127.255.0.1", "::1", "::ffff:127.0.0.1"}
	for _, text := range append(refused, loopback...) {
		_, why := read(t, &Addressing{}, "a", "X-Sandbox-ID: a⏎X-Sandbox-Pod-IP: "+text+"⏎")
		assert.Equal(t, record.InvalidPodIP.String(), why.String(), text)
	}
	for _, text := range refused {
		_, why := read(t, &Addressing{Loopback: true}, "a", "X-Sandbox-ID: a⏎X-Sandbox-Pod-IP: "+text+"⏎")
		assert.Equal(t, record.InvalidPodIP.String(), why.String(), text)
	}
	for _, text := range loopback {
		_, why := read(t, &Addressing{Loopback: true}, "a", "X-Sandbox-ID: a⏎X-Sandbox-Pod-IP: "+text+"⏎")
		assert.Equal(t, record.OK.String(), why.String(), text)
	}
}

func TestTimeout(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"1": time.Second, "180": 3 * time.Minute, "0.5": 500 * time.Millisecond, ".25": 250 * time.Millisecond, "2.": 2 * time.Second,
		"007": 7 * time.Second, "0.000000001": 1, "1.9999999999999": 2*time.Second - 1, "None": 0,
		"2147483648": 1 << 31 * time.Second, "99999999999999999999": 1 << 31 * time.Second,
	} {
		got, why := read(t, &Addressing{}, "a", "X-Sandbox-ID: a⏎X-Sandbox-Timeout: "+text+"⏎")
		assert.Equal(t, record.OK.String(), why.String(), text)
		assert.Equal(t, want, got.Timeout, text)
	}
	for _, text := range []string{"", ".", "0", "0.0", "0.0000000001", "-1", "+1", "1s", "1e3", "1,5", "1.2.3", "NaN", "inf", "none", "1 2"} {
		_, why := read(t, &Addressing{}, "a", "X-Sandbox-ID: a⏎X-Sandbox-Timeout: "+text+"⏎")
		assert.Equal(t, record.InvalidTimeout.String(), why.String(), text)
	}
}

func TestRouteDomain(t *testing.T) {
	a := &Addressing{Domain: "example.com"}
	inN := &Addressing{Domain: "example.com", DomainNamespace: "n"}
	for _, row := range []struct {
		a                   *Addressing
		host                string
		id, namespace, port string
	}{
		{a, "8080-s1.example.com", "s1", "default", "8080"},
		{a, "8080-s-1.example.com:443", "s-1", "default", "8080"},
		{a, "8080-s1.EXAMPLE.com", "s1", "default", "8080"},
		{a, "1-s1.other.example.com", "s1", "other", "1"},
		{inN, "8080-s1.example.com", "s1", "n", "8080"},
		{inN, "8080-s1.other.example.com", "s1", "other", "8080"},
	} {
		got, why := read(t, row.a, row.host, "")
		assert.Equal(t, record.OK.String(), why.String(), row.host)
		port, _ := proto.Port(row.port)
		assert.Equal(t, Address{ID: []byte(row.id), Namespace: []byte(row.namespace), Port: port}, got, row.host)
	}
	for host, want := range map[string]record.Reason{
		"example.com":                 record.IDRequired,
		".example.com":                record.IDRequired,
		"8080-s1.example.org":         record.IDRequired,
		"8080-s1.notexample.com":      record.IDRequired,
		"8080-s1.example.com.":        record.IDRequired,
		"s1.example.com":              record.InvalidID,
		"8080.example.com":            record.InvalidID,
		"8080-.example.com":           record.InvalidID,
		"8080-S1.example.com":         record.InvalidID,
		"-s1.example.com":             record.InvalidPort,
		"0-s1.example.com":            record.InvalidPort,
		"080-s1.example.com":          record.InvalidPort,
		"8080-s1.N.example.com":       record.InvalidNamespace,
		"8080-s1..example.com":        record.InvalidNamespace,
		"8080-s1.a.b.example.com":     record.InvalidNamespace,
		"[::1]:8080":                  record.IDRequired,
		"8080-s1.example.com.evil.io": record.IDRequired,
	} {
		_, why := read(t, a, host, "")
		assert.Equal(t, want.String(), why.String(), host)
	}
	// Headers win, each on its own.
	got, why := read(t, a, "8080-s1.example.com", "X-Sandbox-ID: s2⏎")
	assert.Equal(t, record.OK, why)
	assert.Equal(t, Address{ID: []byte("s2"), Namespace: []byte("default"), Port: 8888}, got)
	_, why = read(t, &Addressing{}, "8080-s1.example.com", "")
	assert.Equal(t, record.IDRequired, why, "no route domain")
}

func TestNames(t *testing.T) {
	a := &Addressing{Domain: "example.com"}
	for lines, want := range map[string]bool{
		"Host: a⏎": false, "Host: example.com⏎": false, "Host: 80-s.example.com⏎": true, "Host: a⏎X-Sandbox-ID:⏎": true,
		"Host: a⏎X-Sandbox-Claim: c⏎": true, "Host: a⏎X-Sandbox-UID: u⏎": false,
	} {
		r, why := parseRequest(t, "GET /healthz HTTP/1.1⏎"+lines)
		require.Equal(t, record.OK, why)
		assert.Equal(t, want, a.Names(r), lines)
	}
}
