//go:build linux

package proc

import (
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dovakiin0/agent-sandbox/bench/report"
)

// ThisMachine describes the machine.
func ThisMachine() report.Machine {
	m := report.Machine{Cores: runtime.NumCPU(), Go: runtime.Version(), OS: osName()}
	cpu := read("/proc/cpuinfo")
	m.CPU = strings.TrimSpace(lineOf(cpu, "model name", ":"))
	m.Virtual = strings.Contains(lineOf(cpu, "flags", ":"), " hypervisor")
	if kb, _, ok := strings.Cut(strings.TrimSpace(lineOf(read("/proc/meminfo"), "MemTotal", ":")), " "); ok {
		n, _ := strconv.ParseInt(kb, 10, 64)
		m.Memory = n << 10
	}
	m.Kernel = strings.TrimSpace(read("/proc/sys/kernel/osrelease"))
	var r unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &r) == nil {
		m.Files = r.Max
	}
	return m
}

func osName() string { return strings.Trim(lineOf(read("/etc/os-release"), "PRETTY_NAME", "="), `"`) }

func read(path string) string {
	content, _ := os.ReadFile(path)
	return string(content)
}

// lineOf returns what follows a key and a separator.
func lineOf(text, key, separator string) string {
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(line, separator); ok && strings.TrimSpace(k) == key {
			return strings.TrimRight(v, "\n")
		}
	}
	return ""
}

// Commit returns the commit of the source in the current folder, and whether files differ from it.
func Commit() (commit string, modified bool) {
	out, err := exec.Command("git", "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		return "unknown", false
	}
	changes, _ := exec.Command("git", "status", "--porcelain", "--untracked-files=no").Output()
	return strings.TrimSpace(string(out)), len(changes) > 0
}
