package stack

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// Program is one of the binaries that a stack is made of.
type Program string

// The programs by the names of their binaries.
const (
	ControlPlane Program = "cluster"
	Node         Program = "node"
	Runtime      Program = "runtime"
	Controller   Program = "controller"
	Router       Program = "router"
	Helm         Program = "helm" // not a part of a stack, but what installs the chart on one
)

// source is where go build runs and what it builds, both relative to the root of the repository. The control plane and
// Helm are modules of their own, which go build finds only from inside.
func (p Program) source() (dir, pkg string) {
	switch p {
	case ControlPlane:
		return "test/cluster", "."
	case Helm:
		return "tools/helm", "helm.sh/helm/v4/cmd/helm"
	case Node:
		return ".", "./test/node"
	default:
		return ".", "./" + string(p)
	}
}

// Root is the directory of the repository that the working directory is in.
func Root() (string, error) {
	wd, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := wd; ; dir = filepath.Dir(dir) {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(mod), "module github.com/dovakiin0/agent-sandbox\n") {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("%s is not inside the repository of agent-sandbox", wd)
		}
	}
}

// Build builds a program below the bin directory of the repository and returns its path. It costs little if the program
// is up to date. A build that takes long, as the first one of the control plane does, says so on progress.
func Build(ctx context.Context, root string, p Program, race bool, progress io.Writer) (string, error) {
	bin := filepath.Join(root, "bin")
	args := []string{"build", "-v", "-buildvcs=false"} // -v names each package that is compiled, for the progress lines
	ownModule := p == ControlPlane || p == Helm
	if !ownModule { // the others have a release build in bin
		bin = filepath.Join(bin, "test")
	}
	if race {
		bin = filepath.Join(bin, "race")
		args = append(args, "-race")
	}
	unlock, err := lock(bin)
	if err != nil {
		return "", err
	}
	defer unlock()

	dir, pkg := p.source()
	path := filepath.Join(bin, string(p))
	if ownModule && newerThanAll(path, filepath.Join(root, dir)) {
		return path, nil // go build takes longer to find that out than the program to start
	}
	if p == ControlPlane {
		version, err := kubernetesVersion(ctx, filepath.Join(root, dir))
		if err != nil {
			return "", err
		}
		args = append(args, "-ldflags=-X k8s.io/component-base/version.gitVersion="+version)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "-o", path, pkg)...)
	cmd.Dir = filepath.Join(root, dir)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	output, readErr := follow(stderr, p, progress)
	if err := errors.Join(cmd.Wait(), readErr); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", p, err, output)
	}
	return path, nil
}

// kubernetesVersion is what the module requires, which its API server shall say of itself: a chart may ask for it.
func kubernetesVersion(ctx context.Context, module string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f={{.Version}}", "k8s.io/kubernetes")
	cmd.Dir = module
	out, err := cmd.Output()
	return strings.TrimSpace(string(out)), err
}

// newerThanAll is true if the file is younger than everything in the directory.
func newerThanAll(file, dir string) bool {
	built, err := os.Stat(file)
	if err != nil {
		return false
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil || !info.ModTime().Before(built.ModTime()) {
			return false
		}
	}
	return true
}

// follow reads what go build says until its end and reports how far it got, every few seconds. It returns the output.
func follow(stderr io.Reader, p Program, progress io.Writer) (string, error) {
	var compiled atomic.Int64
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		start := time.Now()
		ticker := time.NewTicker(10 * time.Second)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				fmt.Fprintf(progress, "building %s for %s, %d packages compiled%s\n", p, time.Since(start).Round(time.Second), compiled.Load(), patience(p))
			case <-stop:
				return
			}
		}
	}()
	var output strings.Builder
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		compiled.Add(1)
		output.WriteString(lines.Text() + "\n")
	}
	close(stop)
	<-stopped
	return output.String(), lines.Err()
}

func patience(p Program) string {
	if p == ControlPlane {
		return " (about 2000 in several minutes the first time, none or few later on)"
	}
	return ""
}

// lock keeps several test binaries from building into one directory at once.
func lock(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		file.Close()
		return nil, fmt.Errorf("lock %s: %w", file.Name(), err)
	}
	return func() { file.Close() }, nil // closing it unlocks it
}
