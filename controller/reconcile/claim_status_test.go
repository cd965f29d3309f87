package reconcile

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
	ext "github.com/dovakiin0/agent-sandbox/proto/extensions/v1beta1"
)

var (
	earlier = metav1.Unix(1_700_000_000, 0)
	later   = time.Unix(1_800_000_000, 0)
)

func TestClaimReady(t *testing.T) {
	ready := newSandbox("s", readyAt("10.0.0.1"))
	fresh := newSandbox("s")
	expiredSandbox := newSandbox("s", func(sb *agents.Sandbox) {
		sb.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "False", Reason: reasonSandboxExpired, Message: messageSandboxExpired}}
	})
	boom := errors.New("boom")
	for name, c := range map[string]struct {
		outcome claimOutcome
		want    string
	}{
		"template missing":          {claimOutcome{err: &problem{reason: reasonTemplateNotFound, message: `SandboxTemplate "t" not found`}}, `False TemplateNotFound SandboxTemplate "t" not found`},
		"pool missing":              {claimOutcome{err: warmPoolNotFound("p")}, `False WarmPoolNotFound SandboxWarmPool "p" not found`},
		"adoption contention":       {claimOutcome{err: adoptionConflict("sandbox %q is no longer pool-owned", "s")}, `False AdoptionConflict sandbox "s" is no longer pool-owned; the next pass retries from a converged view`},
		"create race":               {claimOutcome{err: &problem{reason: reasonSandboxCreatePending, message: "Sandbox already created; waiting for cache to converge"}}, "False SandboxCreatePending Sandbox already created; waiting for cache to converge"},
		"metadata":                  {claimOutcome{err: &problem{reason: reasonInvalidMetadata, message: "boom"}}, "False InvalidMetadata boom"},
		"env":                       {claimOutcome{err: envRejected("no")}, "False EnvVarsInjectionRejected no"},
		"volumes":                   {claimOutcome{err: &problem{reason: reasonVolumesRejected, message: "boom"}}, "False VolumeClaimTemplatesError boom"},
		"wrapped":                   {claimOutcome{err: fmt.Errorf("outer: %w", &problem{reason: reasonVolumesRejected, message: "boom"})}, "False VolumeClaimTemplatesError boom"},
		"other error":               {claimOutcome{err: boom}, "False ReconcilerError Error seen: boom"},
		"error beats the sandbox":   {claimOutcome{sandbox: ready, err: boom}, "False ReconcilerError Error seen: boom"},
		"not owned on expiry":       {claimOutcome{expired: true, foreign: true}, "False ClaimExpired Claim expired. Sandbox is not controlled by this claim; deletion skipped."},
		"expired":                   {claimOutcome{expired: true}, "False ClaimExpired Claim expired. Sandbox cleanup initiated."},
		"expired beats the sandbox": {claimOutcome{sandbox: ready, expired: true}, "False ClaimExpired Claim expired. Sandbox cleanup initiated."},
		"no sandbox":                {claimOutcome{}, "False SandboxMissing Sandbox does not exist"},
		"sandbox expired":           {claimOutcome{sandbox: expiredSandbox}, "False SandboxExpired Underlying Sandbox resource has expired independently of the Claim."},
		"sandbox is Ready":          {claimOutcome{sandbox: ready}, "True DependenciesReady Pod is Ready"},
		"sandbox is not":            {claimOutcome{sandbox: newSandbox("s", starting("10.0.0.1"))}, "False DependenciesNotReady Pod is Running but not Ready"},
		"sandbox says nothing yet":  {claimOutcome{sandbox: fresh}, "False SandboxNotReady Sandbox is not ready"},
	} {
		t.Run(name, func(t *testing.T) {
			claim := newClaim("c", func(c *ext.SandboxClaim) { c.Generation = 7 })
			status := claimStatus(claim, c.outcome, later)
			got := meta.FindStatusCondition(status.Conditions, "Ready")
			require.NotNil(t, got)
			assert.Equal(t, c.want, conditionText(got))
			assert.EqualValues(t, 7, got.ObservedGeneration)
			assert.Len(t, status.Conditions, 1)
		})
	}
}

func TestClaimReadyTransitionTime(t *testing.T) {
	claim := newClaim("c", func(c *ext.SandboxClaim) {
		c.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "False", Reason: reasonSandboxMissing, LastTransitionTime: earlier}}
	})
	at := func(outcome claimOutcome) metav1.Time {
		return meta.FindStatusCondition(claimStatus(claim, outcome, later).Conditions, "Ready").LastTransitionTime
	}
	assert.Equal(t, earlier, at(claimOutcome{err: errors.New("boom")}), "another reason is no transition")
	sandbox := newSandbox("s", readyAt("10.0.0.1"))
	assert.Equal(t, sandbox.Status.Conditions[0].LastTransitionTime, at(claimOutcome{sandbox: sandbox}), "the sandbox's own")
	claim.Status.Conditions[0].Status = "True"
	assert.Equal(t, metav1.NewTime(later), at(claimOutcome{}))
}

func TestClaimFinished(t *testing.T) {
	finished := metav1.Condition{Type: "Finished", Status: "True", Reason: reasonPodSucceeded, LastTransitionTime: earlier, ObservedGeneration: 3}
	done := newSandbox("s", func(sb *agents.Sandbox) { sb.Status.Conditions = []metav1.Condition{finished} })
	for name, c := range map[string]struct {
		had     bool
		outcome claimOutcome
		want    bool
	}{
		"copied":                            {false, claimOutcome{sandbox: done}, true},
		"removed with the sandbox's":        {true, claimOutcome{sandbox: newSandbox("s")}, false},
		"removed with the sandbox":          {true, claimOutcome{}, false},
		"kept when expired, no sandbox":     {true, claimOutcome{expired: true}, true},
		"kept when expired, not on sandbox": {true, claimOutcome{sandbox: newSandbox("s"), expired: true}, true},
		"kept on a transient error":         {true, claimOutcome{err: errors.New("boom")}, true},
		"kept when nobody looked":           {true, claimOutcome{unseen: true, expired: true}, true},
	} {
		t.Run(name, func(t *testing.T) {
			claim := newClaim("c", func(x *ext.SandboxClaim) {
				if c.had {
					x.Status.Conditions = []metav1.Condition{finished}
				}
			})
			status := claimStatus(claim, c.outcome, later)
			got := meta.FindStatusCondition(status.Conditions, "Finished")
			require.Equal(t, c.want, got != nil)
			if got != nil {
				assert.Equal(t, "Finished", status.Conditions[0].Type, "sorted by type")
				assert.Equal(t, earlier, got.LastTransitionTime)
			}
		})
	}
}

func TestClaimedSandbox(t *testing.T) {
	had := ext.ClaimedSandbox{Name: "old", PodIPs: []string{"10.0.0.9"}}
	for name, c := range map[string]struct {
		outcome claimOutcome
		want    ext.ClaimedSandbox
	}{
		"copied":                   {claimOutcome{sandbox: newSandbox("s", readyAt("10.0.0.1"))}, ext.ClaimedSandbox{Name: "s", PodIPs: []string{"10.0.0.1"}}},
		"copied, no address yet":   {claimOutcome{sandbox: newSandbox("s")}, ext.ClaimedSandbox{Name: "s"}},
		"copied in spite of error": {claimOutcome{sandbox: newSandbox("s"), err: errors.New("boom")}, ext.ClaimedSandbox{Name: "s"}},
		"proven absence":           {claimOutcome{}, ext.ClaimedSandbox{}},
		"gone after expiry":        {claimOutcome{expired: true}, ext.ClaimedSandbox{}},
		"not ours on expiry":       {claimOutcome{expired: true, foreign: true}, ext.ClaimedSandbox{}},
		"transient error":          {claimOutcome{err: errors.New("boom")}, had},
		"pool missing":             {claimOutcome{err: warmPoolNotFound("p")}, had},
		"nobody looked":            {claimOutcome{unseen: true, expired: true}, had},
	} {
		t.Run(name, func(t *testing.T) {
			claim := newClaim("c", func(x *ext.SandboxClaim) { x.Status.Sandbox = had })
			assert.Equal(t, c.want, claimStatus(claim, c.outcome, later).Sandbox)
		})
	}
}

func TestClaimStatusPatch(t *testing.T) {
	claim := newClaim("c", func(c *ext.SandboxClaim) { c.ResourceVersion = "5" })
	sandbox := newSandbox("s", readyAt("10.0.0.1"))
	status := claimStatus(claim, claimOutcome{sandbox: sandbox}, later)
	patchTo := func(status ext.SandboxClaimStatus) string {
		want := claim.DeepCopy()
		want.Status = status
		text, err := json.Marshal(diff(claim, want))
		require.NoError(t, err)
		return string(text)
	}
	assert.JSONEq(t, `{"status":{
		"conditions":[{"type":"Ready","status":"True","reason":"DependenciesReady","message":"Pod is Ready",
			"observedGeneration":1,"lastTransitionTime":"2023-11-14T22:13:20Z"}],
		"sandbox":{"name":"s","podIPs":["10.0.0.1"]}}}`, patchTo(status))

	claim.Status = status
	assert.Equal(t, "{}", patchTo(status), "no no-op writes")
	cleared := ext.SandboxClaimStatus{Conditions: status.Conditions}
	assert.JSONEq(t, `{"status":{"sandbox":null}}`, patchTo(cleared))
}

func TestClaimExpiry(t *testing.T) {
	ttl := func(seconds int32) *ext.ClaimLifecycle { return &ext.ClaimLifecycle{TTLSecondsAfterFinished: &seconds} }
	finished := func(status metav1.ConditionStatus) []metav1.Condition {
		return []metav1.Condition{{Type: "Finished", Status: status, LastTransitionTime: earlier}}
	}
	at := func(t time.Time) *metav1.Time { return &metav1.Time{Time: t} }
	for name, c := range map[string]struct {
		lifecycle  *ext.ClaimLifecycle
		conditions []metav1.Condition
		want       time.Time
	}{
		"no lifecycle":        {nil, finished("True"), time.Time{}},
		"empty lifecycle":     {&ext.ClaimLifecycle{}, finished("True"), time.Time{}},
		"shutdown time":       {&ext.ClaimLifecycle{ShutdownTime: at(later)}, nil, later},
		"ttl, not finished":   {ttl(60), nil, time.Time{}},
		"ttl, finished false": {ttl(60), finished("False"), time.Time{}},
		"ttl":                 {ttl(60), finished("True"), earlier.Add(time.Minute)},
		"ttl zero":            {ttl(0), finished("True"), earlier.Time},
		"ttl before shutdown": {&ext.ClaimLifecycle{ShutdownTime: at(later), TTLSecondsAfterFinished: new(int32(60))}, finished("True"), earlier.Add(time.Minute)},
		"shutdown before ttl": {&ext.ClaimLifecycle{ShutdownTime: at(earlier.Add(time.Second)), TTLSecondsAfterFinished: new(int32(60))}, finished("True"), earlier.Add(time.Second)},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, c.want, claimExpiry(c.lifecycle, c.conditions))
			if !c.want.IsZero() {
				assert.True(t, claimExpired(c.lifecycle, c.conditions, c.want), "expired at the very moment")
				assert.False(t, claimExpired(c.lifecycle, c.conditions, c.want.Add(-time.Nanosecond)))
			} else {
				assert.False(t, claimExpired(c.lifecycle, c.conditions, later.AddDate(100, 0, 0)))
			}
		})
	}
}
