package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovakiin0/agent-sandbox/proto"
	extensions "github.com/dovakiin0/agent-sandbox/proto/extensions/v1beta1"
	"github.com/dovakiin0/agent-sandbox/test/env"
)

// TestRequestSentWithItsClaim sends a request for a claim in the instant in which it creates the claim. The router
// holds it until the claim is bound, so the client gets its answer at the first attempt; the command ran once.
func TestRequestSentWithItsClaim(t *testing.T) {
	const claims = 5
	s := on(t, env.Get(t))
	s.StartController(t)
	router := s.StartRouter(t, "--route-wait=60s")
	meta := metav1.ObjectMeta{Namespace: s.ns, Name: "python"}
	template := &extensions.SandboxTemplate{ObjectMeta: meta}
	template.Spec.PodTemplate.Spec.Containers = []corev1.Container{{
		Name: "runtime", Image: "registry.example/sandbox-runtime:v1",
		Ports: []corev1.ContainerPort{{ContainerPort: proto.DefaultPort}},
	}}
	s.create(template)
	pool := &extensions.SandboxWarmPool{ObjectMeta: meta, Spec: extensions.SandboxWarmPoolSpec{
		Replicas: new(int32(claims)), TemplateRef: extensions.SandboxTemplateRef{Name: "python"},
	}}
	s.create(pool)
	s.WaitFor(t, pool, "to be ready", func() bool { return pool.Status.ReadyReplicas == claims })

	var all sync.WaitGroup
	for i := range claims {
		name := fmt.Sprint("claim-", i)
		all.Go(func() {
			assert.NoError(t, s.Client.Create(t.Context(), &extensions.SandboxClaim{
				ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: name},
				Spec:       extensions.SandboxClaimSpec{WarmPoolRef: extensions.SandboxWarmPoolRef{Name: "python"}},
			}))
		})
		all.Go(func() {
			status, body, err := executeInClaim(t, router.HTTP, s.ns, name, `sh -c 'echo ran >> log; cat log'`)
			assert.NoError(t, err)
			assert.Equal(t, http.StatusOK, status, body)
			var result struct{ Stdout string }
			assert.NoError(t, json.Unmarshal([]byte(body), &result), body)
			assert.Equal(t, "ran\n", result.Stdout)
		})
	}
	all.Wait()
}

func executeInClaim(t *testing.T, router, namespace, claim, command string) (status int, body string, err error) {
	text, err := json.Marshal(map[string]string{"command": command})
	if err != nil {
		return 0, "", err
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+router+"/execute", bytes.NewReader(text))
	if err != nil {
		return 0, "", err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set(proto.HeaderNamespace, namespace)
	request.Header.Set(proto.HeaderClaim, claim)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	return response.StatusCode, string(answer), err
}
