package chart

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/dovakiin0/agent-sandbox/test/stack"
)

// runWithArguments starts the binaries as the rendered Deployments do, and with --version, which they answer once they have
// read and checked all settings.
func runWithArguments(r *rendered) {
	r.Helper()
	dir := r.TempDir()
	for _, d := range every[appsv1.Deployment](r, "Deployment") {
		p := stack.Controller
		if d.Labels["app.kubernetes.io/component"] == "router" {
			p = stack.Router
			writeFile(r, filepath.Join(dir, "config/config.yaml"), here(one[corev1.ConfigMap](r, "ConfigMap", "-router").Data["config.yaml"], dir))
			writeFile(r, filepath.Join(dir, "auth/token"), strings.Repeat("s", 32))
		}
		container := d.Spec.Template.Spec.Containers[0]
		args := []string{"--version"}
		for _, arg := range container.Args {
			args = append(args, here(arg, dir))
		}
		var env []string
		for _, v := range container.Env {
			env = append(env, v.Name+"="+v.Value)
		}
		out, err := run(r, p, env, args...)
		assert.NoError(r, err, "%s %v\n%s", p, args, out)
	}
}

func writeFile(t testing.TB, path, content string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
}

// here is a text with the directories of the router's container moved below dir.
func here(text, dir string) string { return strings.ReplaceAll(text, "/etc/sandbox-router/", dir+"/") }

// run runs a program to its end.
func run(t testing.TB, p stack.Program, env []string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program(t, p), args...)
	cmd.Env = append([]string{"HOME=" + t.TempDir()}, env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// flagsOf are the flags of a program, each with its default as its help prints it.
func flagsOf(t *testing.T, p stack.Program) map[string]string {
	t.Helper()
	help, err := run(t, p, nil, "--help")
	require.NoError(t, err, help)
	flags := map[string]string{}
	for _, block := range regexp.MustCompile(`(?m)^  -`).Split(help, -1)[1:] {
		name := regexp.MustCompile(`^[a-z0-9-]+`).FindString(block)
		value := ""
		if m := regexp.MustCompile(`\(default "?([^")]*)"?\)\s*$`).FindStringSubmatch(block); m != nil {
			value = m[1]
		}
		flags[name] = value
	}
	require.Greater(t, len(flags), 20, help)
	return flags
}

// values of the chart, as far as these tests read them.
type values struct {
	Router     struct{ Config map[string]any }
	Controller struct{ Config map[string]any }
}

// TestEveryRouterFlagIsAValue compares the router's flags with what the chart can set.
func TestEveryRouterFlagIsAValue(t *testing.T) {
	flags := flagsOf(t, stack.Router)
	settings := readYAML[values](t, filepath.Join(chartDir(), "values.yaml")).Router.Config
	reachable := map[string]bool{"config": true, "version": true} // the chart's own, and no setting
	for key := range settings {
		reachable[key] = true
		assert.Contains(t, flags, key, "router.config.%s is no flag", key)
		assert.True(t, documented(t, key), "router.config.%s has a comment", key)
	}
	for _, set := range []string{"defaults", "tls-only-mutual", "scoped-token", "watch-namespace", "ingress"} {
		for key := range renderSet(t, set, "rel", "ns").routerConfig() {
			reachable[key] = true
			assert.Contains(t, flags, key)
		}
	}
	for name := range flags {
		assert.True(t, reachable[name], "no value sets --%s", name)
	}
	for key, value := range renderSet(t, "defaults", "rel", "ns").routerConfig() {
		if key != "authz-mode" && !strings.HasPrefix(key, "authz-static-token") { // the chart is closed by default, the binary open
			assert.Equal(t, plain(flags[key]), plain(value), "the default of %s differs from the router's", key)
		}
	}
}

// TestEveryControllerFlagIsAValue does the same for the controller.
func TestEveryControllerFlagIsAValue(t *testing.T) {
	flags := flagsOf(t, stack.Controller)
	reachable := map[string]bool{"version": true, "kubeconfig": true} // no setting; the pod has its service account
	for key := range readYAML[values](t, filepath.Join(chartDir(), "values.yaml")).Controller.Config {
		assert.Contains(t, flags, key, "controller.config.%s is no flag", key)
	}
	for _, arg := range renderSet(t, "defaults", "rel", "ns").controller().Spec.Template.Spec.Containers[0].Args {
		name, value, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		reachable[name] = true
		assert.Contains(t, flags, name)
		if name != "extensions" && name != "leader-election-namespace" && name != "zap-log-level" { // the chart serves claims
			assert.Equal(t, plain(flags[name]), plain(value), "the default of --%s differs from the controller's", name)
		}
	}
	for name := range flags {
		if !strings.HasPrefix(name, "zap-") && !strings.Contains(name, "webhook") { // extraArgs; deprecated and ignored
			assert.True(t, reachable[name], "no value sets --%s", name)
		}
	}
}

// plain brings the spellings of a value into one: 180s is 3m0s, 1e+06 is 1000000, and zero values, which help leaves out, "".
func plain(s string) string {
	if d, err := time.ParseDuration(s); err == nil {
		s = d.String()
	} else if f, err := strconv.ParseFloat(s, 64); err == nil {
		s = strconv.FormatFloat(f, 'f', -1, 64)
	}
	if s == "0" || s == "0s" || s == "false" {
		return ""
	}
	return s
}

// documented tells whether a comment that begins with "# --" stands above a key of values.yaml.
func documented(t *testing.T, key string) bool {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(chartDir(), "values.yaml"))
	require.NoError(t, err)
	lines := strings.Split(string(text), "\n")
	for i, line := range lines {
		if !strings.HasPrefix(strings.TrimSpace(line), key+":") {
			continue
		}
		for i--; i >= 0 && strings.HasPrefix(strings.TrimSpace(lines[i]), "#"); i-- {
			if strings.HasPrefix(strings.TrimSpace(lines[i]), "# -- ") {
				return true
			}
		}
	}
	return false
}
