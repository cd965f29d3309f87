package config

import (
	"bytes"
	"flag"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dovakiin0/agent-sandbox/controller/reconcile"
)

func TestDefaults(t *testing.T) {
	c, err := Parse(nil, io.Discard)
	require.NoError(t, err)
	assert.Equal(t, reconcile.DefaultOptions(), c.Reconcile)
	assert.Equal(t, reconcile.Options{
		ClusterDomain: "cluster.local", SandboxWorkers: 100, TemplateWorkers: 1, WarmPoolWorkers: 1, ClaimWorkers: 50,
		WarmPoolMaxBatch: 300, WarmPoolReadinessGrace: 5 * time.Minute, WarmPoolUnschedulableRecheck: time.Minute,
		WarmPoolEviction: true, ClaimEvents: true, ClaimObservabilityAnnotations: true,
	}, c.Reconcile)
	assert.Equal(t, ":8080", c.MetricsAddress)
	assert.Equal(t, ":8081", c.ProbeAddress)
	assert.True(t, c.LeaderElect)
	assert.Equal(t, -1.0, c.QPS)
	assert.Equal(t, 10, c.Burst)
	assert.Equal(t, 1, c.Connections)
	assert.True(t, c.SeparateWatchConnection)
	assert.Equal(t, 1000000, c.BlockProfileRate)
	assert.Equal(t, 10, c.MutexProfileFraction)
	assert.False(t, c.Pprof || c.PprofDebug || c.TrackedOnly || c.Version || c.Tracing)
	assert.False(t, c.Log.Development)
	assert.Empty(t, c.Warnings())
}

func TestFlags(t *testing.T) {
	c, err := Parse(strings.Fields(`
		--extensions --cluster-domain=corp.example --metrics-bind-address=0 --health-probe-bind-address=:1
		--leader-elect=false --leader-election-namespace=ns --kube-api-qps=5 --kube-api-burst=7 --api-connections=4
		--separate-watch-connection=false --cache-label-selectors --enable-tracing --enable-pprof --enable-pprof-debug
		--pprof-block-profile-rate=1 --pprof-mutex-profile-fraction=2 --sandbox-concurrent-workers=3
		--sandbox-claim-concurrent-workers=4 --sandbox-warm-pool-concurrent-workers=5 --sandbox-template-concurrent-workers=6
		--sandbox-warm-pool-max-batch-size=7 --sandbox-warm-pool-replenish-delay=8s --sandbox-warm-pool-max-refill-rate=1.5
		--sandbox-warm-pool-readiness-grace-period=9s --sandbox-warm-pool-unschedulable-recheck-interval=10s
		--enable-warm-pool-eviction=false --disable-claim-events --disable-claim-observability-annotations=true
		--sandbox-write-behind-window=100ms --zap-log-level=debug --kubeconfig=
		--enable-webhook=false --manage-webhook-certs=false --webhook-port=1 --webhook-cert-dir=/x --webhook-cert-name=a
		--webhook-key-name=b --webhook-service-name=c --webhook-namespace=d`), io.Discard)
	require.NoError(t, err)
	assert.Equal(t, reconcile.Options{
		Extensions: true, ClusterDomain: "corp.example", SandboxWorkers: 3, ClaimWorkers: 4, WarmPoolWorkers: 5, TemplateWorkers: 6,
		WarmPoolMaxBatch: 7, WarmPoolReplenishDelay: 8 * time.Second, WarmPoolMaxRefillRate: 1.5,
		WarmPoolReadinessGrace: 9 * time.Second, WarmPoolUnschedulableRecheck: 10 * time.Second,
		WriteBehindWindow: 100 * time.Millisecond,
	}, c.Reconcile)
	assert.Equal(t, "0", c.MetricsAddress)
	assert.Equal(t, ":1", c.ProbeAddress)
	assert.False(t, c.LeaderElect)
	assert.Equal(t, "ns", c.LeaderElectionNamespace)
	assert.Equal(t, 5.0, c.QPS)
	assert.Equal(t, 7, c.Burst)
	assert.Equal(t, 4, c.Connections)
	assert.False(t, c.SeparateWatchConnection)
	assert.True(t, c.Pprof && c.PprofDebug && c.TrackedOnly && c.Tracing)
	assert.Equal(t, 1, c.BlockProfileRate)
	assert.Equal(t, 2, c.MutexProfileFraction)
	assert.Equal(t, []string{"18 workers share --kube-api-burst=7: most will wait for each other"}, c.Warnings())
}

func TestMistakesNameTheirFlag(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--sandbox-concurrent-workers=0", "--sandbox-concurrent-workers must be greater than 0, not 0"},
		{"--sandbox-claim-concurrent-workers=-1", "--sandbox-claim-concurrent-workers must be greater than 0, not -1"},
		{"--sandbox-warm-pool-concurrent-workers=0", "--sandbox-warm-pool-concurrent-workers must be greater than 0, not 0"},
		{"--sandbox-warm-pool-max-batch-size=0", "--sandbox-warm-pool-max-batch-size must be greater than 0, not 0"},
		{"--sandbox-warm-pool-max-refill-rate=NaN", "--sandbox-warm-pool-max-refill-rate must be a finite number, 0 or more, not NaN"},
		{"--sandbox-warm-pool-max-refill-rate=+Inf", "--sandbox-warm-pool-max-refill-rate must be a finite number, 0 or more, not +Inf"},
		{"--sandbox-warm-pool-max-refill-rate=-1", "--sandbox-warm-pool-max-refill-rate must be a finite number, 0 or more, not -1"},
		{"--sandbox-warm-pool-replenish-delay=-1s", "--sandbox-warm-pool-replenish-delay must be 0 or more, not -1s"},
		{"--sandbox-write-behind-window=-1s", "--sandbox-write-behind-window must be 0 or more, not -1s"},
		{"--sandbox-warm-pool-readiness-grace-period=0", "--sandbox-warm-pool-readiness-grace-period must be greater than 0, not 0s"},
		{"--sandbox-warm-pool-unschedulable-recheck-interval=0", "--sandbox-warm-pool-unschedulable-recheck-interval must be greater than 0, not 0s"},
		{"--kube-api-burst=0", "--kube-api-burst must be greater than 0, not 0"},
		{"--api-connections=0", "--api-connections must be 1 or more, not 0"},
		{"--cluster-domain=", `--cluster-domain must be a DNS domain, not ""`},
		{"--enable-webhook", "--enable-webhook must be false: only v1beta1 is served, which needs no conversion webhook"},
		{"--no-such-flag", "flag provided but not defined: -no-such-flag"},
		{"--disable-claim-events=maybe", `invalid boolean value "maybe" for -disable-claim-events: strconv.ParseBool: parsing "maybe": invalid syntax`},
		{"stray", `unexpected argument "stray": only flags are taken`},
	} {
		_, err := Parse([]string{c.args}, io.Discard)
		assert.EqualError(t, err, c.want, c.args)
	}
}

func TestManyWorkers(t *testing.T) {
	c, err := Parse([]string{"--sandbox-concurrent-workers=950"}, io.Discard)
	require.NoError(t, err)
	assert.Equal(t, []string{"1002 workers in all: more than 1000 rarely help and load the API server"}, c.Warnings())
}

func TestHelp(t *testing.T) {
	var out bytes.Buffer
	_, err := Parse([]string{"-h"}, &out)
	require.ErrorIs(t, err, flag.ErrHelp)
	assert.Contains(t, out.String(), "sandbox-concurrent-workers")
}
