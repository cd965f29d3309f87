package watch

import (
	"context"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
)

// zoneTimeout bounds one attempt to read the router's node.
const zoneTimeout = 5 * time.Second

// zone finds the router's own zone: what was configured, else what the pod was told, else the label of its node. It
// tries for as long as the API server cannot be reached, since no route can be learned then either. One that answers
// with an error leaves the zone unknown, and every endpoint equally near.
func zone(ctx context.Context, o Options, core rest.Interface) string {
	if z := configuredZone(o); z != "" {
		return z
	}
	name := os.Getenv("NODE_NAME")
	if name == "" {
		return ""
	}
	for delay := backoff.DelayFunc(); ; {
		z, err := nodeZone(ctx, core, name)
		if err == nil {
			return z
		}
		o.Log.Warn().Err(err).Str("node", name).Msg("cannot read the zone of the node")
		if apierrors.ReasonForError(err) != "" || ctx.Err() != nil {
			return ""
		}
		select {
		case <-ctx.Done():
		case <-time.After(delay()):
		}
	}
}

func configuredZone(o Options) string {
	for _, z := range []string{o.Zone, os.Getenv("ZONE"), os.Getenv("NODE_ZONE")} {
		if z != "" {
			return z
		}
	}
	return ""
}

func nodeZone(ctx context.Context, core rest.Interface, name string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, zoneTimeout)
	defer cancel()
	var node corev1.Node
	if err := core.Get().Resource("nodes").Name(name).Do(ctx).Into(&node); err != nil {
		return "", err
	}
	return node.Labels[corev1.LabelTopologyZone], nil
}
