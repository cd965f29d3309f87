package config

import (
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// parse reads the settings with args and an environment.
func parse(env map[string]string, args ...string) (*Config, error) {
	return Parse(args, func(name string) string { return env[name] }, io.Discard)
}

// write puts content into a file of its own.
func write(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func TestDefaults(t *testing.T) {
	c, err := parse(nil)
	require.NoError(t, err)
	assert.Equal(t, [4]string{":8080", "", ":9090", ":8081"}, [4]string{c.HTTP, c.HTTPS, c.Metrics, c.Probes})
	assert.Equal(t, "endpointslices", c.Discovery)
	assert.Equal(t, 180*time.Second, c.ProxyTimeout)
	assert.Equal(t, c.ProxyTimeout, c.ResponseHeaderTimeout)
	assert.Equal(t, time.Hour, c.StreamIdleTimeout)
	assert.Equal(t, 30*time.Second, c.ShutdownTimeout)
	assert.Equal(t, 5*time.Second, c.RouteWait)
	assert.Equal(t, 300*time.Millisecond, c.UnknownWait)
	assert.Equal(t, 3, c.MaxRetries)
	assert.Equal(t, [2]time.Duration{200 * time.Millisecond, 800 * time.Millisecond}, [2]time.Duration{c.RetryInitialDelay, c.RetryMaxDelay})
	assert.Zero(t, c.MaxBodyBytes)
	assert.Zero(t, c.MaxConnsPerSandbox)
	assert.Zero(t, c.MaxInflight)
	assert.Equal(t, [2]time.Duration{time.Hour, 24 * time.Hour}, [2]time.Duration{c.WebSocketIdle, c.WebSocketLifetime})
	assert.Equal(t, AllowAll, c.AuthzMode)
	assert.Equal(t, "errors", c.AccessLog)
	assert.Equal(t, "preserve", c.UpstreamHost)
	assert.Less(t, c.UpstreamIdleTimeout, 5*time.Second, "below the keep-alive time of common servers")
}

func TestPrecedence(t *testing.T) {
	env := map[string]string{"PROXY_TIMEOUT_SECONDS": "40"}
	file := "--config=" + write(t, "proxy-timeout: 30s\nwebsocket-idle-timeout: 31s\n")

	c, err := parse(env, file, "--proxy-timeout=20s")
	require.NoError(t, err)
	assert.Equal(t, 20*time.Second, c.ProxyTimeout, "flag > file")

	c, err = parse(env, file)
	require.NoError(t, err)
	assert.Equal(t, 30*time.Second, c.ProxyTimeout, "file > environment")
	assert.Equal(t, 31*time.Second, c.WebSocketIdle)

	c, err = parse(env)
	require.NoError(t, err)
	assert.Equal(t, 40*time.Second, c.ProxyTimeout, "environment > default")

	c, err = parse(env, "--proxy-timeout=180s")
	require.NoError(t, err)
	assert.Equal(t, 180*time.Second, c.ProxyTimeout, "a flag with the default's value is a flag")

	env["SANDBOX_ROUTER_CONFIG"] = write(t, "proxy-timeout: 50s\n")
	c, err = parse(env)
	require.NoError(t, err)
	assert.Equal(t, 50*time.Second, c.ProxyTimeout, "the file that the environment names")
	c, err = parse(env, file)
	require.NoError(t, err)
	assert.Equal(t, 30*time.Second, c.ProxyTimeout, "--config > SANDBOX_ROUTER_CONFIG")
}

func TestEnvironment(t *testing.T) {
	c, err := parse(map[string]string{
		"KUBECONFIG": "/k", "PROXY_TIMEOUT_SECONDS": "1.5", "WEBSOCKET_IDLE_TIMEOUT_SECONDS": "2", "WEBSOCKET_MAX_LIFETIME_SECONDS": "3",
		"WEBSOCKET_MAX_CONNECTIONS_PER_CLIENT": "4", "TRUSTED_PROXY_CIDRS": "10.0.0.0/8, fd00::/8",
	})
	require.NoError(t, err)
	assert.Equal(t, "/k", c.Kubeconfig)
	assert.Equal(t, 1500*time.Millisecond, c.ProxyTimeout)
	assert.Equal(t, 1500*time.Millisecond, c.ResponseHeaderTimeout, "follows --proxy-timeout")
	assert.Equal(t, 2*time.Second, c.WebSocketIdle)
	assert.Equal(t, 3*time.Second, c.WebSocketLifetime)
	assert.Equal(t, 4, c.WebSocketPerClient)
	require.Len(t, c.TrustedProxies, 2)
	assert.Equal(t, "10.0.0.0/8", c.TrustedProxies[0].String())
	assert.Equal(t, "fd00::/8", c.TrustedProxies[1].String())

	for _, e := range environment[1:] {
		_, err := parse(map[string]string{e.variable: "bad"})
		require.Error(t, err, e.variable)
		assert.True(t, strings.Contains(err.Error(), e.variable) || strings.Contains(err.Error(), "--"+e.flag), err.Error())
	}
}

func TestToken(t *testing.T) {
	file := "--authz-static-token-file=" + write(t, " of-file\n")
	for _, row := range []struct {
		name        string
		env         map[string]string
		args        []string
		mode, token string
	}{
		{"none", nil, nil, AllowAll, ""},
		{"older router", map[string]string{"ROUTER_AUTH_TOKEN": " t\n"}, nil, StaticToken, "t"},
		{"older router, open", map[string]string{"ROUTER_AUTH_TOKEN": "t", "ALLOW_UNAUTHENTICATED_ROUTER": "Yes"}, nil, AllowAll, "t"},
		{"older router, not open", map[string]string{"ROUTER_AUTH_TOKEN": "t", "ALLOW_UNAUTHENTICATED_ROUTER": "0"}, nil, StaticToken, "t"},
		{"mode chosen", map[string]string{"ROUTER_AUTH_TOKEN": "t"}, []string{"--authz-mode=allow-all"}, AllowAll, "t"},
		{"file", nil, []string{"--authz-mode=static-token", file}, StaticToken, "of-file"},
		{"file before environment", map[string]string{"ROUTER_AUTH_TOKEN": "t"}, []string{file}, StaticToken, "of-file"},
	} {
		c, err := parse(row.env, row.args...)
		require.NoError(t, err, row.name)
		assert.Equal(t, row.mode, c.AuthzMode, row.name)
		assert.Equal(t, row.token, c.StaticToken, row.name)
	}
}

// TestFileTakesEveryFlag writes each default into a file and reads it back.
func TestFileTakesEveryFlag(t *testing.T) {
	fs := (&Config{}).flags(io.Discard)
	fs.VisitAll(func(f *flag.Flag) {
		if f.Name == "config" {
			return
		}
		_, err := parse(nil, "--config="+write(t, f.Name+": \""+f.DefValue+"\"\n"))
		assert.NoError(t, err, f.Name)
	})
	c, err := parse(nil, "--config="+write(t, "max-request-body-bytes: 1073741824\nmax-header-bytes: 1048576\nupstream-max-retries: 0\n"+
		"allow-loopback-pod-ip: true\naccess-log: off\ntrusted-proxy-cidrs: 10.0.0.0/8,127.0.0.1/32\ndial-translate: 10.128.0.0/9=127.128.0.0/9\n"))
	require.NoError(t, err)
	assert.EqualValues(t, 1<<30, c.MaxBodyBytes)
	assert.Equal(t, 1<<20, c.MaxHeaderBytes)
	assert.Zero(t, c.MaxRetries)
	assert.True(t, c.AllowLoopback)
	assert.Len(t, c.TrustedProxies, 2)
	assert.True(t, c.DialTranslate.From.IsValid())
}

func TestBadFiles(t *testing.T) {
	for content, want := range map[string]string{
		"proxy-timeot: 1s\n":                     `unknown key "proxy-timeot"`,
		"config: other.yaml\n":                   `unknown key "config"`,
		"proxy-timeout: soon\n":                  "proxy-timeout",
		"proxy-timeout: 30\n":                    "proxy-timeout",
		"zone:\n":                                "zone: want one plain value",
		"trusted-proxy-cidrs: [10.0.0.0/8]\n":    "trusted-proxy-cidrs: want one plain value",
		"zone: {a: b}\n":                         "zone: want one plain value",
		"proxy-timeout: 1s\nproxy-timeout: 2s\n": "proxy-timeout",
		"- a\n":                                  "--config",
		"a: [\n":                                 "--config",
		"max-request-body-bytes: 1.5\n":          "max-request-body-bytes",
	} {
		_, err := parse(nil, "--config="+write(t, content))
		assert.ErrorContains(t, err, want, content)
	}
	_, err := parse(nil, "--config=/nowhere/at/all")
	assert.ErrorContains(t, err, "--config")
}

func TestBadValuesNameTheirFlag(t *testing.T) {
	for _, arg := range []string{
		"--mtls-mode=maybe", "--discovery=dns", "--authz-mode=none", "--access-log=some", "--log-level=loud", "--upstream-host=x",
		"--dial-translate=10.0.0.0/8", "--trusted-proxy-cidrs=10.0.0.1", "--trusted-proxy-cidrs=10.0.0.0/8,x",
		"--proxy-timeout=-1s", "--response-header-timeout=-1s", "--stream-idle-timeout=-1s", "--client-header-timeout=0s",
		"--client-idle-timeout=0s", "--upstream-idle-timeout=0s", "--dial-timeout=0s", "--shutdown-timeout=-1s", "--drain-delay=-1s",
		"--route-wait=-1s", "--unknown-wait=-1s", "--websocket-idle-timeout=-1s", "--websocket-max-lifetime=-1s",
		"--upstream-retry-initial-delay=-1s", "--upstream-retry-max-delay=-1s", "--upstream-max-retries=-1", "--max-header-bytes=100",
		"--max-request-body-bytes=-1", "--max-connections-per-sandbox=-1", "--max-inflight-per-sandbox=-1",
		"--websocket-max-connections-per-client=-1", "--client-min-body-rate=-1", "--authz-static-token-file=/nowhere/at/all",
		"--authz-mode=static-token", "--authz-mode=scoped-token", "--authz-scoped-token-secret-file=/nowhere/at/all", "--https-bind-address=:8443", "--mtls-mode=required", "--discovery=file",
		"--proxy-timeout=soon", "--upstream-max-retries=many", "--enable-pprof=perhaps",
	} {
		_, err := parse(nil, arg)
		require.Error(t, err, arg)
		name, _, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		if arg == "--discovery=file" {
			name = "routes-file"
		}
		assert.Contains(t, err.Error(), "-"+name, arg)
	}
	_, err := parse(nil, "--http-bind-address=")
	assert.ErrorContains(t, err, "--http-bind-address")
	_, err = parse(nil, "--no-such-flag")
	assert.ErrorContains(t, err, "no-such-flag")
	_, err = parse(nil, "serve")
	assert.ErrorContains(t, err, `"serve"`)

	_, err = parse(nil, "--mtls-mode=maybe", "--proxy-timeout=-1s")
	assert.ErrorContains(t, err, "--mtls-mode")
	assert.ErrorContains(t, err, "--proxy-timeout", "all faults are told at once")
}

func TestHelp(t *testing.T) {
	var out strings.Builder
	_, err := Parse([]string{"--help"}, func(string) string { return "" }, &out)
	assert.ErrorIs(t, err, ErrHelp)
	(&Config{}).flags(io.Discard).VisitAll(func(f *flag.Flag) { assert.Contains(t, out.String(), "-"+f.Name) })
}
