package watch

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/discovery"
)

// reachTimeout bounds the first contact with the API server.
const reachTimeout = 2 * time.Second

// Reach asks the API server that a kubeconfig file names for its version. Who starts the router by hand wants to hear at once
// that the file leads nowhere. An API server that is only slow is no error: the router waits for it, unready, as it does in a
// cluster for one that is away.
func Reach(ctx context.Context, kubeconfig string) error {
	cfg, err := RESTConfig(kubeconfig)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	client, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return fmt.Errorf("--kubeconfig: %w", err)
	}
	if err := client.RESTClient().Get().AbsPath("/version").Do(ctx).Error(); err != nil && ctx.Err() == nil {
		return fmt.Errorf("--kubeconfig: cannot reach the API server %s: %w", cfg.Host, err)
	}
	return nil
}
