package report

import "fmt"

// Metric names a figure of a run. The name ends with the unit.
type Metric string

// Metrics. CPU is the proxy's, from the kernel's accounting.
const (
	CPU         Metric = "cpu_us"             // CPU for each answered request, message or event
	User        Metric = "user_us"            // its part in user mode, from clock ticks
	System      Metric = "sys_us"             // its part in the kernel
	Rate        Metric = "rate_per_s"         // answers, messages or events
	P50         Metric = "p50_us"             // latency; in an open loop from the time a request was due
	P90         Metric = "p90_us"             //
	P99         Metric = "p99_us"             //
	P999        Metric = "p999_us"            //
	Max         Metric = "max_us"             //
	EventP50    Metric = "event_p50_us"       // age of events
	EventP99    Metric = "event_p99_us"       //
	Throughput  Metric = "mb_per_cpu_s"       // 10^6 bytes of bodies, both ways, for each second of CPU
	Resident    Metric = "rss_bytes"          // resident memory at the end
	Base        Metric = "rss_base_bytes"     // resident memory before the load
	Idle        Metric = "idle_connections"   // that stood by; fewer than the scenario has if descriptors did not suffice
	PerIdle     Metric = "rss_per_idle_bytes" // resident memory, all of it, for each idle connection
	GrowPerIdle Metric = "rss_growth_per_idle_bytes"
	Files       Metric = "open_files"          // at the end
	Allocs      Metric = "allocs_per_request"  // of the Go heap, where the proxy tells
	Reuse       Metric = "reuse"               // share of requests that needed no new connection to a sandbox
	Errors      Metric = "errors"              // all kinds, but connections refused by a proxy that has drained
	Busy        Metric = "proxy_busy"          // share of its core
	LoadBusy    Metric = "load_busy"           // of the core of generator and backend, or of the busier of their two
	Calibration Metric = "calibration_ns"      // a fixed piece of work, mean of before and after
	Ready       Metric = "ready_ms"            // from the start of the process to its first answer
	Drained     Metric = "drain_ms"            // from the signal to the end of the process
	Updates     Metric = "updates"             // of the routes file
	Stale       Metric = "stale_routes"        // sandboxes still answered by a pod that was replaced
	SlowDone    Metric = "slow_clients_done"   // requests of slow clients
	SlowFailed  Metric = "slow_clients_failed" //
)

var titles = map[Metric]string{
	CPU: "CPU µs", User: "user µs", System: "sys µs", Rate: "rate /s", P50: "p50 µs", P90: "p90 µs", P99: "p99 µs", P999: "p99.9 µs",
	Max: "max µs", EventP50: "event p50 µs", EventP99: "event p99 µs", Throughput: "MB per CPU s", Resident: "RSS MB",
	Base: "RSS at start MB", Idle: "idle", PerIdle: "KB per idle", GrowPerIdle: "growth KB per idle", Files: "open files", Allocs: "allocs",
	Reuse: "reuse", Errors: "errors", Busy: "busy", LoadBusy: "load busy", Calibration: "calibration ns", Ready: "ready ms",
	Drained: "drain ms", Updates: "updates", Stale: "stale routes", SlowDone: "slow done", SlowFailed: "slow failed",
}

// Title is what tables call the metric.
func (m Metric) Title() string {
	if t := titles[m]; t != "" {
		return t
	}
	return string(m)
}

// Format shows a value as tables do.
func (m Metric) Format(v float64) string {
	switch m {
	case Resident, Base:
		return fmt.Sprintf("%.0f", v/1e6)
	case PerIdle, GrowPerIdle:
		return fmt.Sprintf("%.1f", v/1e3)
	case CPU, User, System:
		return fmt.Sprintf("%.1f", v)
	case Allocs, Reuse, Busy, LoadBusy:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

// Compared says whether contestants are compared by the metric, and so whether summaries hold its ratios.
func (m Metric) Compared() bool {
	switch m {
	case CPU, P50, P99, P999, Throughput, PerIdle, Rate:
		return true
	}
	return false
}
