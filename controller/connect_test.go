package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
)

// kubeconfig writes one that names the server.
func kubeconfig(t *testing.T, server string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(path, fmt.Appendf(nil, `
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`, server), 0o600))
	return path
}

func TestUnreachableServerIsOneClearLine(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	gone := "http://" + l.Addr().String()
	require.NoError(t, l.Close())

	start := time.Now()
	err = run(t.Context(), []string{"--kubeconfig=" + kubeconfig(t, gone)})
	require.ErrorContains(t, err, "cannot reach the API server "+gone+", which --kubeconfig, KUBECONFIG or the cluster names")
	assert.NotContains(t, err.Error(), "\n")
	assert.Less(t, time.Since(start), 2*connectTimeout)

	err = run(t.Context(), []string{"--kubeconfig=" + filepath.Join(t.TempDir(), "none")})
	require.ErrorContains(t, err, "neither --kubeconfig nor KUBECONFIG names a usable file")
}

func TestMissingCRDsAreOneClearLine(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/version" {
			fmt.Fprint(w, `{"gitVersion":"v1.37.2"}`)
			return
		}
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
	}))
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	err := run(ctx, []string{"--kubeconfig=" + kubeconfig(t, server.URL)})
	assert.ErrorContains(t, err, "does not serve agents.x-k8s.io/v1beta1, install the CRDs first")
}

func TestConnectionsAreNotShared(t *testing.T) {
	var opened atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.EnableHTTP2 = true
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	server.StartTLS()
	defer server.Close()

	c := &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	spread := &rotation{}
	for range 3 {
		one, err := newConnection(c)
		require.NoError(t, err)
		spread.transports = append(spread.transports, one.Transport)
	}
	client := &http.Client{Transport: spread}
	defer client.CloseIdleConnections()
	for range 9 {
		response, err := client.Get(server.URL)
		require.NoError(t, err)
		assert.Equal(t, 2, response.ProtoMajor)
		response.Body.Close()
	}
	assert.Equal(t, int32(3), opened.Load())
}

func TestVersion(t *testing.T) {
	gitVersion, gitCommit, buildDate = "v1.2.3", "abc", "today"
	defer func() { gitVersion, gitCommit, buildDate = "", "", "" }()
	assert.Contains(t, build().String(), "agent-sandbox-controller v1.2.3 (commit abc, built today, go")
	require.NoError(t, run(t.Context(), []string{"--version"}))
	require.NoError(t, registerBuildInfo(prometheus.NewRegistry()))
}
