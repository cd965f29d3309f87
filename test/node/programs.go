package main

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/dovakiin0/agent-sandbox/test/process"
)

// program is a binary on this machine that stands for images.
type program struct {
	binary       string
	repositories []string // what the repository of such an image ends in
}

func (p program) matches(image string) bool {
	repository, _, _ := strings.Cut(image, "@")
	if colon := strings.LastIndexByte(repository, ':'); colon > strings.LastIndexByte(repository, '/') {
		repository = repository[:colon]
	}
	return p.binary != "" && slices.ContainsFunc(p.repositories, func(end string) bool { return strings.HasSuffix(repository, end) })
}

// parseProgram reads the form repository=binary.
func parseProgram(value string) (program, error) {
	repository, binary, ok := strings.Cut(value, "=")
	if !ok || repository == "" || binary == "" {
		return program{}, fmt.Errorf("%q is not of the form repository=binary", value)
	}
	binary, err := existing(binary)
	return program{binary: binary, repositories: []string{repository}}, err
}

// existing is the absolute path of a file: processes are started in other directories.
func existing(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	_, err = os.Stat(path)
	return path, err
}

// plan decides how to run the pod, and prepares what a program of its own needs before it starts. Its process may write
// below dir/app.
func (a *agent) plan(ctx context.Context, pod *corev1.Pod, dir string, ip netip.Addr) (plan, error) {
	base := filepath.Join(dir, "app")
	p := newPlan(pod, a.runtime, base, listenAddress(ip))
	first := &pod.Spec.Containers[0]
	if i := slices.IndexFunc(a.programs, func(p program) bool { return p.matches(first.Image) }); i >= 0 {
		here := place{host: loopback(ip), mounts: mountPoints(first, filepath.Join(dir, "volumes"))}
		if err := a.mount(ctx, pod, here); err != nil {
			return plan{}, err
		}
		vars, err := a.variables(ctx, pod, ip)
		if err != nil {
			return plan{}, err
		}
		credentials, err := a.credentials(ctx, pod, filepath.Join(dir, "kubeconfig"))
		if err != nil {
			return plan{}, err
		}
		p.command = programCommand(a.programs[i].binary, first, vars, here)
		p.command.Dir = base
		p.command.Env = append(environment(pod.Name, vars, base), credentials...)
		p.probe = probeURL(first, here.host)
	}
	if p.command == nil {
		return p, nil
	}
	return p, os.MkdirAll(base, 0o700)
}

// programCommand starts the binary with the arguments of the container, adapted to the place.
func programCommand(binary string, c *corev1.Container, vars []corev1.EnvVar, here place) *process.Command {
	command := &process.Command{Path: binary}
	for _, arg := range c.Args {
		command.Args = append(command.Args, here.adapt(expand(arg, vars)))
	}
	return command
}

// place is where a program runs instead of a container: it shares the network and the files of this machine.
type place struct {
	host   string            // address of the pod, for where it would listen on all addresses
	mounts map[string]string // directories that stand for mount paths
}

var (
	everywhere = regexp.MustCompile(`([="]|^)(?:0\.0\.0\.0|\[::\])?:(\d+)("|$)`)
	reference  = regexp.MustCompile(`\$\([A-Za-z_][A-Za-z0-9_]*\)`)
)

// adapt changes addresses and paths in an argument or in a file of settings.
func (p place) adapt(text string) string {
	text = everywhere.ReplaceAllString(text, "${1}"+p.host+":${2}${3}")
	var pairs []string
	for _, mount := range slices.SortedFunc(maps.Keys(p.mounts), func(a, b string) int { return len(b) - len(a) }) {
		pairs = append(pairs, mount+"/", p.mounts[mount]+"/")
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// expand replaces $(NAME) by the value of the variable, and leaves what is unknown, as a kubelet does.
func expand(s string, vars []corev1.EnvVar) string {
	return reference.ReplaceAllStringFunc(s, func(ref string) string {
		for _, v := range slices.Backward(vars) {
			if v.Name == ref[2:len(ref)-1] {
				return v.Value
			}
		}
		return ref
	})
}

// probeURL is what the readiness probe of the container asks, if it asks over HTTP.
func probeURL(c *corev1.Container, host string) string {
	if c.ReadinessProbe == nil || c.ReadinessProbe.HTTPGet == nil {
		return ""
	}
	get := c.ReadinessProbe.HTTPGet
	port := get.Port.IntValue()
	if get.Port.Type == intstr.String {
		for _, p := range c.Ports {
			if p.Name == get.Port.StrVal {
				port = int(p.ContainerPort)
			}
		}
	}
	return fmt.Sprintf("%s://%s:%d%s", strings.ToLower(string(get.Scheme)), host, port, get.Path)
}
