//go:build linux

// Package scenario says what the kinds of work are, and measures contestants at them.
package scenario

import (
	"fmt"
	"slices"
	"time"

	"github.com/dovakiin0/agent-sandbox/bench/report"
)

// Scenario is one kind of work.
type Scenario struct {
	Name, Title string
	Family      string // the scenario that this one differs from in size only
	Sandboxes   int
	Connections int
	Request     request

	Rate          float64       // requests per second; 0: a closed loop
	Count         int           // so many requests from cold, instead of a time
	PerConnection int           // requests of a connection; 0: no limit
	Cold          bool          // no warm-up
	Time          time.Duration // measured, if not that of the session

	Idle    int  // connections that stand by
	Tunnels bool // they are WebSockets
	Beside  beside

	// Options: what options cost is shown here.
	Options bool
	// Follows: only for contestants that follow the routes file.
	Follows bool
	// Ends: the contestant is told to drain during the run.
	Ends bool

	Shows []report.Metric
}

// Describe is the scenario as reports have it.
func (s *Scenario) Describe() report.Scenario {
	unit := "request"
	switch {
	case s.Request.webSocket:
		unit = "message"
	case s.Request.events:
		unit = "event"
	}
	return report.Scenario{
		Name: s.Name, Title: s.Title, Family: s.Family, Unit: unit, Sandboxes: s.Sandboxes, Connections: s.Connections, Rate: s.Rate, Shows: s.Shows,
	}
}

var (
	usual     = []report.Metric{report.CPU, report.User, report.System, report.Rate, report.P50, report.P99, report.Resident, report.Allocs, report.Reuse}
	steady    = []report.Metric{report.CPU, report.User, report.System, report.P50, report.P90, report.P99, report.P999, report.Rate}
	streaming = []report.Metric{report.Throughput, report.User, report.System, report.Rate, report.Resident, report.Allocs}
)

var (
	small  = request{path: "/fixed/64", length: 64}
	post   = request{path: "/echo", body: 1 << 10, echoed: true}
	answer = request{path: "/fixed/1000000", length: 1_000_000}
	upload = request{path: "/sink", body: 1_000_000, length: 64}
)

// All are the scenarios. s1 to s6 and rate are those of the figures that the router is judged by.
func All() []Scenario {
	all := []Scenario{
		{Name: "s1", Title: "GET, 64-byte answers, 1,000 sandboxes, 64 connections", Sandboxes: 1000, Connections: 64, Request: small, Options: true, Shows: usual},
		{Name: "s2", Title: "POST 1 KB, answered with 1 KB", Sandboxes: 1000, Connections: 64, Request: post, Options: true, Shows: usual},
		{Name: "rate", Title: "GET at a fixed 3,000 requests/s", Sandboxes: 1000, Connections: 64, Request: small, Rate: 3000, Options: true, Shows: steady},
		{
			Name: "s3", Title: "10,000 idle connections beside 64 active ones", Sandboxes: 1000, Connections: 64, Request: small, Idle: 10_000,
			Shows: []report.Metric{report.PerIdle, report.GrowPerIdle, report.Idle, report.CPU, report.Rate, report.P99, report.Files},
		},
		{Name: "s4", Title: "1 MB answers, 16 connections", Sandboxes: 1000, Connections: 16, Request: answer, Shows: streaming},
		{
			Name: "s5", Title: "WebSocket echo, 64-byte messages, 64 connections", Sandboxes: 1000, Connections: 64,
			Request: request{path: "/ws", webSocket: true}, Options: true, Shows: usual[:7],
		},
		{Name: "s6", Title: "10,000 sandboxes, 50,000 requests from cold", Sandboxes: 10_000, Connections: 64, Request: small, Count: 50_000, Shows: usual},
		{Name: "rate12k", Title: "GET at a fixed 12,000 requests/s", Sandboxes: 1000, Connections: 64, Request: small, Rate: 12_000, Shows: steady},
		{Name: "upload", Title: "1 MB uploads, 16 connections", Sandboxes: 1000, Connections: 16, Request: upload, Shows: streaming},
		{
			Name: "chunked", Title: "chunked both ways, 4 chunks of 1 KB, 64 connections", Sandboxes: 1000, Connections: 64,
			Request: request{path: "/chunked/4/1024", body: 4 << 10, chunked: true, length: 4 << 10}, Shows: usual,
		},
		{
			Name: "sse", Title: "event streams, 50 events each, 20 ms apart, 64 connections", Sandboxes: 1000, Connections: 64,
			Request: request{path: "/sse/50/20", length: -1, events: true},
			Shows:   []report.Metric{report.EventP50, report.EventP99, report.CPU, report.Rate, report.Resident},
		},
		{Name: "conns", Title: "a new connection for each request, 64 at a time", Sandboxes: 1000, Connections: 64, Request: small, PerConnection: 1, Shows: usual},
		{
			Name: "slow", Title: "GET at 3,000 requests/s beside 200 slow clients", Sandboxes: 1000, Connections: 64, Request: small, Rate: 3000, Beside: slowClients,
			Shows: append(slices.Clone(steady), report.SlowDone, report.SlowFailed),
		},
		{
			Name: "churn", Title: "GET while 20 of 1,000 sandboxes move to other pods, ten times a second", Sandboxes: 1000, Connections: 64, Request: small,
			Beside: moveSandboxes, Follows: true, Shows: append(slices.Clone(usual), report.Updates, report.Stale),
		},
		{
			Name: "drain", Title: "GET while the proxy is told to end", Sandboxes: 1000, Connections: 64, Request: small, Cold: true, Time: 30 * time.Second,
			Beside: drain, Ends: true, Shows: []report.Metric{report.Drained, report.Errors, report.P99, report.Max},
		},
		{
			Name: "start", Title: "the first second after start at 3,000 requests/s", Sandboxes: 1000, Connections: 64, Request: small, Rate: 3000, Cold: true,
			Time: time.Second, Shows: append([]report.Metric{report.Ready}, steady...),
		},
		{
			Name: "tunnels", Title: "4,000 idle WebSockets beside 64 active connections", Sandboxes: 1000, Connections: 64, Request: small, Idle: 4000, Tunnels: true,
			Shows: []report.Metric{report.PerIdle, report.GrowPerIdle, report.Idle, report.CPU, report.Rate, report.P99, report.Files},
		},
	}
	for _, n := range []int{1, 100, 10_000} {
		all = append(all, scaled(all[0], n, all[0].Connections))
	}
	for _, n := range []int{1, 16, 256, 1024} {
		all = append(all, scaled(all[0], all[0].Sandboxes, n))
	}
	return all
}

// scaled is a scenario with other numbers of sandboxes and connections.
func scaled(s Scenario, sandboxes, connections int) Scenario {
	s.Family, s.Name = s.Name, fmt.Sprintf("%s-n%d-c%d", s.Name, sandboxes, connections)
	s.Title = fmt.Sprintf("GET, 64-byte answers; sandboxes: %d, connections: %d", sandboxes, connections)
	s.Sandboxes, s.Connections, s.Options = sandboxes, connections, false
	return s
}

// Find returns the scenarios of some names. unknown are names that there are none of.
func Find(names []string) (found []Scenario, unknown []string) {
	all := All()
	for _, name := range names {
		i := slices.IndexFunc(all, func(s Scenario) bool { return s.Name == name })
		if i < 0 {
			unknown = append(unknown, name)
			continue
		}
		found = append(found, all[i])
	}
	return found, unknown
}
