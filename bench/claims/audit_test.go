//go:build linux

package main

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// line is an event as kube-apiserver logs it, shortened by fields that are not read.
func line(agent, verb, reference string, code int, took time.Duration) string {
	received := time.Date(2026, 11, 30, 12, 0, 0, 123456000, time.UTC)
	const stamp = "2006-01-02T15:04:05.000000Z07:00"
	return fmt.Sprintf(`{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","stage":"ResponseComplete","verb":%q,`+
		`"user":{"username":"admin","groups":["system:masters"]},"userAgent":%q,"objectRef":%s,"responseStatus":{"metadata":{},"code":%d},`+
		`"requestReceivedTimestamp":%q,"stageTimestamp":%q}`+"\n",
		verb, agent, reference, code, received.Format(stamp), received.Add(took).Format(stamp))
}

const (
	controller = "controller/v0.0.0 (linux/amd64) kubernetes/$Format"
	sandbox    = `{"resource":"sandboxes","namespace":"default","name":"a","apiGroup":"agents.x-k8s.io","apiVersion":"v1beta1"}`
	claimState = `{"resource":"sandboxclaims","namespace":"default","name":"c","apiGroup":"extensions.agents.x-k8s.io","apiVersion":"v1beta1","subresource":"status"}`
)

func TestOnlyTheControllerIsCounted(t *testing.T) {
	for agent, counts := range map[string]bool{
		controller: true,
		"agent-sandbox-controller/v1.0 (linux/amd64) kubernetes/abc": true,
		"their-controller": true,
		userAgent:          false,
		"cluster/v0.0.0 (linux/amd64) kubernetes/$Format":         false,
		"router/v0.0.0 (linux/amd64) kubernetes/$Format":          false,
		"node/v0.0.0 (linux/amd64) kubernetes/$Format/node-agent": false,
	} {
		e, ok, err := parseEvent([]byte(line(agent, "patch", claimState, 200, 2500*time.Microsecond)))
		require.NoError(t, err)
		assert.Equal(t, counts, ok, agent)
		assert.Equal(t, event{verb: "patch", resource: "sandboxclaims/status", code: 200, took: 2500 * time.Microsecond}, e)
	}
	_, _, err := parseEvent([]byte("{"))
	assert.Error(t, err)
}

func TestCount(t *testing.T) {
	events := []event{
		{"patch", "sandboxes", 200, 4 * time.Millisecond},
		{"patch", "sandboxes", 409, time.Millisecond},
		{"patch", "sandboxes", 409, time.Millisecond},
		{"patch", "sandboxes", 404, 2 * time.Millisecond},
		{"create", "pods", 201, 3 * time.Millisecond},
		{"get", "sandboxes", 200, time.Millisecond},
		{"list", "sandboxes", 200, time.Millisecond},
		{"watch", "sandboxes", 200, time.Hour},
	}
	kinds := count(events)
	assert.Len(t, kinds, 2, "reads are no writes")
	assert.Equal(t, &Write{Count: 1, ServerMS: 3}, kinds["create pods"])
	patches := kinds["patch sandboxes"]
	require.NotNil(t, patches)
	assert.Equal(t, 4, patches.Count)
	assert.Equal(t, map[string]int{"409": 2, "404": 1}, patches.Failed)
	assert.InDelta(t, 2, patches.ServerMS, 1e-9)
}

func TestTheLogIsReadWhileItGrows(t *testing.T) {
	a, args, err := newAuditLog(t.TempDir())
	require.NoError(t, err)
	defer a.close()
	assert.Contains(t, args, "--audit-log-path="+a.path)
	wrote, err := a.read()
	require.NoError(t, err, "the server makes it with its first line")
	assert.False(t, wrote)

	file, err := os.Create(a.path)
	require.NoError(t, err)
	defer file.Close()
	add := func(text string) (wrote bool) {
		_, err := file.WriteString(text)
		require.NoError(t, err)
		wrote, err = a.read()
		require.NoError(t, err)
		return wrote
	}
	assert.False(t, add(line(userAgent, "create", claimState, 201, 0)), "another's")
	assert.False(t, add(line(controller, "get", sandbox, 200, 0)), "a read")
	whole := line(controller, "patch", sandbox, 200, 0)
	assert.False(t, add(whole[:50]), "the line is not there yet")
	assert.True(t, add(whole[50:]+whole+whole[:10]))
	assert.True(t, add(whole[10:]))
	assert.Len(t, a.take(), 4)
	assert.Empty(t, a.take())

	_, err = file.WriteString("no event\n")
	require.NoError(t, err)
	_, err = a.read()
	assert.ErrorContains(t, err, "no event")
}
