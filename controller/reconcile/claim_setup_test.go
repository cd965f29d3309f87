package reconcile

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/dovakiin0/agent-sandbox/proto"
	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
	ext "github.com/dovakiin0/agent-sandbox/proto/extensions/v1beta1"
)

func TestOwnedSandboxChanged(t *testing.T) {
	ready := func(change ...func(*agents.Sandbox)) *agents.Sandbox {
		return newPoolMember("m", append([]func(*agents.Sandbox){readyAt("10.0.0.1")}, change...)...)
	}
	for name, c := range map[string]struct {
		is   *agents.Sandbox
		want bool
	}{
		"nothing":  {ready(), false},
		"metadata": {ready(func(sb *agents.Sandbox) { sb.Labels["x"] = "y" }), false},
		"other condition": {ready(func(sb *agents.Sandbox) {
			sb.Status.Conditions = append(sb.Status.Conditions, metav1.Condition{Type: "Suspended"})
		}), false},
		"deletion":      {ready(func(sb *agents.Sandbox) { sb.DeletionTimestamp = new(metav1.Now()) }), true},
		"addresses":     {ready(func(sb *agents.Sandbox) { sb.Status.PodIPs = nil }), true},
		"ready status":  {ready(func(sb *agents.Sandbox) { sb.Status.Conditions[0].Status = "False" }), true},
		"ready message": {ready(func(sb *agents.Sandbox) { sb.Status.Conditions[0].Message = "x" }), true},
		"ready gone":    {ready(func(sb *agents.Sandbox) { sb.Status.Conditions = nil }), true},
		"finished": {ready(func(sb *agents.Sandbox) {
			sb.Status.Conditions = append(sb.Status.Conditions, metav1.Condition{Type: "Finished"})
		}), true},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, c.want, ownedSandboxChanged(event.UpdateEvent{ObjectOld: ready(), ObjectNew: c.is}))
		})
	}
}

func TestCandidateEvents(t *testing.T) {
	member := func(change ...func(*agents.Sandbox)) *agents.Sandbox { return newPoolMember("m", change...) }
	onNode := member(func(sb *agents.Sandbox) { sb.Status.NodeName = "node-1" })
	other := member(func(sb *agents.Sandbox) { sb.OwnerReferences[0].Name = "other" })
	claimed := member(controlledByClaim(newClaim("c")))
	deleting := member(func(sb *agents.Sandbox) { sb.DeletionTimestamp = new(metav1.Now()) })
	for name, c := range map[string]struct {
		queued  bool // before
		was, is *agents.Sandbox
		want    bool // queued afterwards
	}{
		"created":              {false, nil, member(), true},
		"created as a claim's": {false, nil, claimed, false},
		"deleted":              {true, member(), nil, false},
		"joins":                {false, claimed, member(), true},
		"leaves":               {true, member(), claimed, false},
		"goes away":            {true, member(), deleting, false},
		"to another pool":      {true, member(), other, false},
		"gets a node":          {false, member(), onNode, true},
		"any other change":     {false, member(), member(readyAt("10.0.0.1"), func(sb *agents.Sandbox) { sb.Status.NodeName = "" }), false},
		"any other, queued":    {true, member(), member(), true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newPoolFixture(t)
			if c.queued {
				f.r.queueMember(member())
			}
			q := &pooled{added: map[string]time.Duration{}}
			h := f.r.memberEvents()
			switch {
			case c.was == nil:
				h.Create(t.Context(), event.CreateEvent{Object: c.is}, q)
			case c.is == nil:
				h.Delete(t.Context(), event.DeleteEvent{Object: c.was}, q)
			default:
				h.Update(t.Context(), event.UpdateEvent{ObjectOld: c.was, ObjectNew: c.is}, q)
			}
			assert.Equal(t, c.want, take(f.r.candidates, poolKey) != "")
		})
	}
}

func TestClaimEvents(t *testing.T) {
	f := newClaimFixture(t)
	events := f.r.claimEvents()
	version := func(rv string, change ...func(*ext.SandboxClaim)) *ext.SandboxClaim {
		return newClaim("c", append(change, func(c *ext.SandboxClaim) { c.ResourceVersion = rv })...)
	}
	update := func(rv string) bool {
		return events.Update(event.UpdateEvent{ObjectOld: version("1"), ObjectNew: version(rv)})
	}
	assert.True(t, events.Create(event.CreateEvent{Object: version("1")}))
	assert.True(t, update("5"), "somebody else's write")
	f.shared.client.remember(version("9"), false)
	assert.False(t, update("7"), "older than our last write, which saw it")
	assert.False(t, update("9"), "our last write")
	assert.True(t, update("9"), "known to the cache now, so a resync")
	f.shared.client.remember(version("12"), false)
	assert.True(t, update("13"), "somebody else's write on top")
	assert.Empty(t, f.shared.client.own, "nothing is kept that the cache has")

	first := f.r.observedAt("uid-of-c")
	f.now = f.now.Add(1)
	assert.Equal(t, first, f.r.observedAt("uid-of-c"), "seen with its creation")
	f.shared.client.remember(version("15"), false)
	gone := event.DeleteEvent{Object: version("16")}
	assert.True(t, f.shared.client.forgetDeleted().Delete(gone), "which every controller asks first")
	assert.False(t, events.Delete(gone))
	assert.Empty(t, f.shared.client.own)
	_, known := f.r.observed.Load("uid-of-c")
	assert.False(t, known)
}

func TestDeletedClaimFreesItsCandidate(t *testing.T) {
	claim := newClaim("c", func(c *ext.SandboxClaim) {
		c.Annotations = map[string]string{proto.AnnotationAssignedSandboxName: "m"}
	})
	for name, c := range map[string]struct {
		sandbox *agents.Sandbox
		want    string
	}{
		"not adopted": {newPoolMember("m"), "m"},
		"adopted":     {newPoolMember("m", controlledByClaim(claim)), ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := newClaimFixture(t, c.sandbox)
			f.r.candidates.dropPool(poolKey)
			f.r.claimDeleted(claim)
			assert.Equal(t, c.want, take(f.r.candidates, poolKey))
		})
	}
}

func TestClaimsThatAPoolOrTemplateWakes(t *testing.T) {
	bound := newClaim("bound", func(c *ext.SandboxClaim) { c.Status.Sandbox.Name = "m" })
	gone := newClaim("gone", func(c *ext.SandboxClaim) {
		c.DeletionTimestamp, c.Finalizers = new(metav1.Now()), []string{"example.com/x"}
	})
	elsewhere := newClaim("elsewhere", func(c *ext.SandboxClaim) { c.Spec.WarmPoolRef.Name = "other" })
	f := newClaimFixture(t, newTemplate(), newPool(), newClaim("unbound"), bound, gone, elsewhere)
	var woken []string
	for _, r := range f.r.unboundClaims(t.Context(), newPool()) {
		woken = append(woken, r.Name)
	}
	assert.Equal(t, []string{"unbound"}, woken, "by the pool")
	woken = nil
	for _, r := range f.r.claimsOfTemplate(t.Context(), newTemplate()) {
		woken = append(woken, r.Name)
	}
	assert.ElementsMatch(t, []string{"unbound", "bound"}, woken, "by the template")
}
