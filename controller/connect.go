package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovakiin0/agent-sandbox/controller/config"
	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
	ext "github.com/dovakiin0/agent-sandbox/proto/extensions/v1beta1"
)

const (
	connectTimeout = 10 * time.Second // for the first answer of the API server
	crdTimeout     = 10 * time.Second // for CRDs that were applied a moment ago to be served
)

// connect returns the way to the API server, after a first request to it has shown that it is there and serves our types.
func connect(ctx context.Context, c *config.Config) (*rest.Config, error) {
	restConfig, err := ctrl.GetConfig()
	if err != nil {
		return nil, fmt.Errorf("no API server: not in a cluster, and neither --kubeconfig nor KUBECONFIG names a usable file: %w", err)
	}
	restConfig.QPS, restConfig.Burst = float32(c.QPS), c.Burst
	restConfig.DisableCompression = true // only long lists are compressed, which costs more than it saves so near to the API server

	first := rest.CopyConfig(restConfig)
	first.Timeout = connectTimeout
	server, err := discovery.NewDiscoveryClientForConfig(first)
	if err != nil {
		return nil, fmt.Errorf("the kubeconfig of the API server %s: %w", restConfig.Host, err)
	}
	if _, err := server.ServerVersion(); err != nil {
		return nil, fmt.Errorf("cannot reach the API server %s, which --kubeconfig, KUBECONFIG or the cluster names: %w", restConfig.Host, err)
	}
	groups := []schema.GroupVersion{agents.GroupVersion}
	if c.Reconcile.Extensions {
		groups = append(groups, ext.GroupVersion)
	}
	for _, group := range groups {
		if err := wait.PollUntilContextTimeout(ctx, crdTimeout/20, crdTimeout, true, func(context.Context) (bool, error) {
			_, err := server.ServerResourcesForGroupVersion(group.String())
			if apierrors.IsNotFound(err) {
				return false, nil
			}
			return err == nil, err
		}); err != nil {
			return nil, fmt.Errorf("the API server %s does not serve %s, install the CRDs first: %w", restConfig.Host, group, err)
		}
	}
	return restConfig, nil
}

// watchConnection returns the constructor of the cache. Watches with a connection of their own do not queue behind bursts
// of writes, whose answers share the flow control window of the connection.
func watchConnection(separate bool) cache.NewCacheFunc {
	return func(c *rest.Config, o cache.Options) (cache.Cache, error) {
		if separate {
			own, err := newConnection(c)
			if err != nil {
				return nil, err
			}
			o.HTTPClient = own
		}
		return cache.New(c, o)
	}
}

// writeConnections returns the constructor of the client, which spreads its requests over n connections.
func writeConnections(n int) client.NewClientFunc {
	return func(c *rest.Config, o client.Options) (client.Client, error) {
		if n > 1 {
			spread := &rotation{}
			for range n {
				one, err := newConnection(c)
				if err != nil {
					return nil, err
				}
				spread.transports = append(spread.transports, one.Transport)
			}
			o.HTTPClient = &http.Client{Transport: spread, Timeout: c.Timeout}
		}
		return client.New(c, o)
	}
}

// newConnection returns an HTTP client that shares no connection with another. client-go shares transports among equal
// configurations; two with dialers of their own are not equal.
func newConnection(c *rest.Config) (*http.Client, error) {
	own := rest.CopyConfig(c)
	if own.Dial == nil {
		own.Dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	return rest.HTTPClientFor(own)
}

// rotation sends requests over its transports in turn.
type rotation struct {
	transports []http.RoundTripper
	next       atomic.Uint64
}

// RoundTrip implements http.RoundTripper.
func (r *rotation) RoundTrip(req *http.Request) (*http.Response, error) {
	return r.transports[r.next.Add(1)%uint64(len(r.transports))].RoundTrip(req)
}
