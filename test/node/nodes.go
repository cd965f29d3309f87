package main

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
)

// nodeSet is the nodes that the agent plays, in the order of the flag.
type nodeSet []*corev1.Node

// parseNodes reads a list of the form name=zone,name=zone.
func parseNodes(list string) (nodeSet, error) {
	var nodes nodeSet
	for i, item := range strings.Split(list, ",") {
		name, zone, ok := strings.Cut(item, "=")
		if !ok || name == "" || zone == "" {
			return nil, fmt.Errorf("%q is not of the form name=zone", item)
		}
		if nodes.named(name) != nil {
			return nil, fmt.Errorf("%q appears twice", name)
		}
		nodes = append(nodes, newNode(name, zone, fmt.Sprintf("10.127.0.%d", i+1)))
	}
	return nodes, nil
}

func newNode(name, zone, address string) *corev1.Node {
	now := metav1.Now()
	plenty := corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("1k"),
		corev1.ResourceMemory:           resource.MustParse("1Ti"),
		corev1.ResourceEphemeralStorage: resource.MustParse("1Ti"),
		corev1.ResourcePods:             resource.MustParse("100k"),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name,
			Labels: map[string]string{
				corev1.LabelHostname:           name,
				corev1.LabelTopologyZone:       zone,
				corev1.LabelTopologyRegion:     "local",
				corev1.LabelOSStable:           runtime.GOOS,
				corev1.LabelArchStable:         runtime.GOARCH,
				corev1.LabelInstanceTypeStable: "test-agent",
			},
		},
		Status: corev1.NodeStatus{
			Capacity:    plenty,
			Allocatable: plenty,
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: address},
				{Type: corev1.NodeHostName, Address: name},
			},
			NodeInfo: corev1.NodeSystemInfo{OperatingSystem: runtime.GOOS, Architecture: runtime.GOARCH, KubeletVersion: "v0.0.0-test-agent"},
			Conditions: []corev1.NodeCondition{{
				Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "the test agent is running",
				LastHeartbeatTime: now, LastTransitionTime: now,
			}},
		},
	}
}

func (s nodeSet) named(name string) *corev1.Node {
	for _, node := range s {
		if node.Name == name {
			return node
		}
	}
	return nil
}

// choose picks the next node, counted by turn, among those that the pod's node selector allows, or nil.
func (s nodeSet) choose(pod *corev1.Pod, turn *atomic.Uint32) *corev1.Node {
	selector := labels.SelectorFromSet(pod.Spec.NodeSelector)
	fitting := make(nodeSet, 0, len(s))
	for _, node := range s {
		if selector.Matches(labels.Set(node.Labels)) {
			fitting = append(fitting, node)
		}
	}
	if len(fitting) == 0 {
		return nil
	}
	return fitting[int(turn.Add(1)-1)%len(fitting)]
}

// register creates the nodes that are missing and makes those Ready that are not. A node that is as it should be costs
// no write.
func (s nodeSet) register(ctx context.Context, client kubernetes.Interface) error {
	for _, node := range s {
		current, err := client.CoreV1().Nodes().Get(ctx, node.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			_, err = client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
		case err == nil && !isReady(current):
			current.Status = node.Status
			_, err = client.CoreV1().Nodes().UpdateStatus(ctx, current, metav1.UpdateOptions{})
		}
		if err != nil {
			return fmt.Errorf("register node %s: %w", node.Name, err)
		}
	}
	return nil
}

func isReady(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
