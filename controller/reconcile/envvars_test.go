package reconcile

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	ext "github.com/dovakiin0/agent-sandbox/proto/extensions/v1beta1"
)

func TestInjectEnv(t *testing.T) {
	const rejected, plain = "rejected", "plain"
	fromSecret := corev1.EnvVar{Name: "A", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{Key: "k"}}}
	pod := func(main ...corev1.EnvVar) *corev1.PodSpec {
		return &corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: "init"}},
			Containers:     []corev1.Container{{Name: "main", Env: main}, {Name: "side"}},
		}
	}
	withEnvFrom := pod()
	withEnvFrom.Containers[0].EnvFrom = []corev1.EnvFromSource{{Prefix: "X_"}}
	env := func(pairs ...string) (vars []corev1.EnvVar) {
		for i := 0; i < len(pairs); i += 2 {
			vars = append(vars, corev1.EnvVar{Name: pairs[i], Value: pairs[i+1]})
		}
		return vars
	}
	claim := func(triples ...string) (vars []ext.EnvVar) {
		for i := 0; i < len(triples); i += 3 {
			vars = append(vars, ext.EnvVar{ContainerName: triples[i], Name: triples[i+1], Value: triples[i+2]})
		}
		return vars
	}

	for name, c := range map[string]struct {
		policy ext.EnvVarsInjectionPolicy
		pod    *corev1.PodSpec
		vars   []ext.EnvVar
		fault  string
		want   [3][]corev1.EnvVar // init, main, side
	}{
		"no variables need no policy":       {ext.EnvVarsDisallowed, pod(), nil, "", [3][]corev1.EnvVar{}},
		"disallowed":                        {ext.EnvVarsDisallowed, pod(), claim("", "A", "1"), rejected, [3][]corev1.EnvVar{}},
		"no policy":                         {"", pod(), claim("", "A", "1"), rejected, [3][]corev1.EnvVar{}},
		"the first main container":          {ext.EnvVarsAllowed, pod(), claim("", "A", "1"), "", [3][]corev1.EnvVar{nil, env("A", "1")}},
		"another container":                 {ext.EnvVarsAllowed, pod(), claim("side", "A", "1"), "", [3][]corev1.EnvVar{nil, nil, env("A", "1")}},
		"an init container":                 {ext.EnvVarsAllowed, pod(), claim("init", "A", "1"), "", [3][]corev1.EnvVar{env("A", "1")}},
		"unknown container":                 {ext.EnvVarsAllowed, pod(), claim("nope", "A", "1"), plain, [3][]corev1.EnvVar{}},
		"after the template's":              {ext.EnvVarsAllowed, pod(env("T", "0")...), claim("", "A", "1"), "", [3][]corev1.EnvVar{nil, env("T", "0", "A", "1")}},
		"by name before by default":         {ext.EnvVarsAllowed, pod(), claim("", "A", "1", "main", "B", "2", "", "C", "3"), "", [3][]corev1.EnvVar{nil, env("B", "2", "A", "1", "C", "3")}},
		"allowed: envFrom":                  {ext.EnvVarsAllowed, withEnvFrom, claim("", "A", "1"), rejected, [3][]corev1.EnvVar{}},
		"allowed: envFrom elsewhere":        {ext.EnvVarsAllowed, withEnvFrom, claim("side", "A", "1"), "", [3][]corev1.EnvVar{nil, nil, env("A", "1")}},
		"allowed: already there":            {ext.EnvVarsAllowed, pod(env("A", "0")...), claim("", "A", "1"), plain, [3][]corev1.EnvVar{nil, env("A", "0")}},
		"allowed: twice in the claim":       {ext.EnvVarsAllowed, pod(), claim("", "A", "1", "main", "A", "2"), plain, [3][]corev1.EnvVar{nil, env("A", "2")}},
		"overrides: envFrom":                {ext.EnvVarsOverrides, withEnvFrom, claim("", "A", "1"), "", [3][]corev1.EnvVar{nil, env("A", "1")}},
		"overrides: in place":               {ext.EnvVarsOverrides, pod(env("A", "0", "B", "0")...), claim("", "A", "1", "", "C", "2"), "", [3][]corev1.EnvVar{nil, env("A", "1", "B", "0", "C", "2")}},
		"overrides: valueFrom is dropped":   {ext.EnvVarsOverrides, pod(fromSecret), claim("", "A", "1"), "", [3][]corev1.EnvVar{nil, env("A", "1")}},
		"overrides: twice, the last counts": {ext.EnvVarsOverrides, pod(), claim("", "A", "1", "", "A", "2"), "", [3][]corev1.EnvVar{nil, env("A", "2")}},
	} {
		t.Run(name, func(t *testing.T) {
			spec := c.pod.DeepCopy()
			err := injectEnv(spec, c.vars, c.policy)
			known := (*problem)(nil)
			switch c.fault {
			case "":
				require.NoError(t, err)
			case rejected:
				require.True(t, errors.As(err, &known), "%v", err)
				assert.Equal(t, "EnvVarsInjectionRejected", known.reason)
			case plain:
				require.Error(t, err)
				assert.False(t, errors.As(err, &known), "%v", err)
			}
			assert.Equal(t, c.want, [3][]corev1.EnvVar{spec.InitContainers[0].Env, spec.Containers[0].Env, spec.Containers[1].Env})
		})
	}
}
