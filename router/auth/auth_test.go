package auth

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dovakiin0/agent-sandbox/router/parse"
	"github.com/dovakiin0/agent-sandbox/router/record"
)

// request is a GET with these lines.
func request(t testing.TB, lines ...string) *parse.Request {
	t.Helper()
	r := &parse.Request{}
	head := "GET / HTTP/1.1\r\nHost: a\r\n" + strings.Join(append(lines, ""), "\r\n") + "\r\n"
	require.Equal(t, record.OK, r.Parse([]byte(head)))
	return r
}

func TestAllowAll(t *testing.T) {
	used, why := AllowAll{}.Check(request(t, "Authorization: Bearer app"), &parse.Address{})
	assert.Equal(t, record.OK, why)
	assert.False(t, used.Authorization, "it is the application's")
}

func TestStaticToken(t *testing.T) {
	secret := strings.Repeat("x", 40) + " y"
	gate, err := NewStaticToken(secret)
	require.NoError(t, err)
	for _, row := range []struct {
		name  string
		lines []string
		why   record.Reason
		used  bool
	}{
		{"nothing", nil, record.NoCredential, false},
		{"other scheme", []string{"Authorization: Basic " + secret}, record.NoCredential, false},
		{"no scheme", []string{"Authorization: " + secret}, record.NoCredential, false},
		{"scheme alone", []string{"Authorization: Bearer"}, record.NoCredential, false},
		{"bearer", []string{"Authorization: Bearer " + secret}, record.OK, true},
		{"scheme in other case", []string{"Authorization: bEARER " + secret}, record.OK, true},
		{"more blanks", []string{"Authorization: Bearer   " + secret}, record.OK, true},
		{"wrong bearer", []string{"Authorization: Bearer " + secret[1:]}, record.InvalidToken, true},
		{"longer bearer", []string{"Authorization: Bearer " + secret + "x"}, record.InvalidToken, true},
		{"other case", []string{"Authorization: Bearer " + strings.ToUpper(secret)}, record.InvalidToken, true},
		{"own header", []string{"X-Sandbox-Token: " + secret}, record.OK, false},
		{"own header, application's Authorization", []string{"X-Sandbox-Token: " + secret, "Authorization: Bearer app"}, record.OK, false},
		{"wrong own header, right Authorization", []string{"X-Sandbox-Token: x", "Authorization: Bearer " + secret}, record.InvalidToken, false},
		{"empty own header", []string{"X-Sandbox-Token:", "Authorization: Bearer " + secret}, record.InvalidToken, false},
		{"scheme in own header", []string{"X-Sandbox-Token: Bearer " + secret}, record.InvalidToken, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := request(t, row.lines...)
			used, why := gate.Check(r, &parse.Address{})
			assert.Equal(t, row.why.String(), why.String())
			assert.Equal(t, row.used, used.Authorization)
			assert.Zero(t, testing.AllocsPerRun(10, func() { gate.Check(r, nil) }))
		})
	}
	_, err = NewStaticToken("")
	assert.Error(t, err)
}
