package main

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

func TestParseNodes(t *testing.T) {
	nodes, err := parseNodes("a=x,b=y")
	require.NoError(t, err)
	require.Len(t, nodes, 2)
	assert.Equal(t, "y", nodes.named("b").Labels[corev1.LabelTopologyZone])
	assert.NotEqual(t, nodes[0].Status.Addresses[0], nodes[1].Status.Addresses[0])
	assert.True(t, isReady(nodes[0]))
	for _, bad := range []string{"", "a", "a=", "=x", "a=x,", "a=x,a=y"} {
		_, err := parseNodes(bad)
		assert.Error(t, err, "%q", bad)
	}
}

func TestChoose(t *testing.T) {
	nodes, err := parseNodes("a=x,b=y,c=y")
	require.NoError(t, err)
	for zone, want := range map[string]string{"": "abcabc", "x": "aaaaaa", "y": "bcbcbc"} {
		pod := &corev1.Pod{}
		if zone != "" {
			pod.Spec.NodeSelector = map[string]string{corev1.LabelTopologyZone: zone}
		}
		var turn atomic.Uint32
		got := ""
		for range len(want) {
			got += nodes.choose(pod, &turn).Name
		}
		assert.Equal(t, want, got, "zone %q", zone)
	}
	assert.Nil(t, nodes.choose(&corev1.Pod{Spec: corev1.PodSpec{NodeSelector: map[string]string{"no": "such"}}}, new(atomic.Uint32)))
}
