package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
)

// Set by the linker (-X main.gitVersion=...); the Go toolchain's own stamp stands in.
var gitVersion, gitCommit, buildDate string

// buildInfo says what this binary was built from.
type buildInfo struct {
	version, commit, date string
}

func build() buildInfo {
	b := buildInfo{version: gitVersion, commit: gitCommit, date: buildDate}
	if info, ok := debug.ReadBuildInfo(); ok {
		b.version = cmp.Or(b.version, info.Main.Version)
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				b.commit = cmp.Or(b.commit, s.Value)
			case "vcs.time":
				b.date = cmp.Or(b.date, s.Value)
			}
		}
	}
	return buildInfo{version: cmp.Or(b.version, "unknown"), commit: cmp.Or(b.commit, "unknown"), date: cmp.Or(b.date, "unknown")}
}

func platform() string { return runtime.GOOS + "/" + runtime.GOARCH }

// String is what --version prints.
func (b buildInfo) String() string {
	return fmt.Sprintf("agent-sandbox-controller %s (commit %s, built %s, %s, %s)", b.version, b.commit, b.date, runtime.Version(), platform())
}

func registerBuildInfo(registry prometheus.Registerer) error {
	b := build()
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "agent_sandbox_build_info",
		Help: "Always 1; the labels tell what the binary was built from.",
	}, []string{"git_version", "git_commit", "build_date", "go_version", "compiler", "platform"})
	info.WithLabelValues(b.version, b.commit, b.date, runtime.Version(), runtime.Compiler, platform()).Set(1)
	return registry.Register(info)
}
