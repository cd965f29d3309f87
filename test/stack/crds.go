package stack

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// installCRDs applies the CRDs of the chart and waits until the API server serves them.
func installCRDs(ctx context.Context, config *rest.Config, dir string) error {
	c, err := client.New(config, client.Options{})
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("no CRDs in %s", dir)
	}
	crds := make([]*unstructured.Unstructured, 0, len(files))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		crd := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(text, &crd.Object); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(crd), client.FieldOwner("test-stack"), client.ForceOwnership); err != nil {
			return fmt.Errorf("apply %s: %w", file, err)
		}
		crds = append(crds, crd)
	}
	for _, crd := range crds {
		if err := waitEstablished(ctx, c, crd); err != nil {
			return fmt.Errorf("wait for CRD %s: %w", crd.GetName(), err)
		}
	}
	return nil
}

func waitEstablished(ctx context.Context, c client.Client, crd *unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		if err := c.Get(ctx, client.ObjectKeyFromObject(crd), crd); err != nil {
			return err
		}
		conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions") // null at first, which is an error here
		for _, condition := range conditions {
			if c, ok := condition.(map[string]any); ok && c["type"] == "Established" && c["status"] == "True" {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}
