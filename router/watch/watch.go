// Package watch feeds the route table: from the EndpointSlices of sandboxes, from their Pods, or from a file.
package watch

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/dovakiin0/agent-sandbox/router/route"
	"github.com/rs/zerolog"
)

// Values of Options.Discovery.
const (
	EndpointSlices = "endpointslices"
	Pods           = "pods"
	File           = "file"
)

// Options says where the routes come from.
type Options struct {
	Discovery     string // EndpointSlices, Pods or File
	Namespace     string // the only namespace to watch; empty means all
	Kubeconfig    string // path; empty means the service account of the pod
	RoutesFile    string // path, for File
	Zone          string // the router's own zone; empty means that Run finds out
	AllowLoopback bool   // believe loopback addresses of endpoints; a routes file may always name them
	Log           zerolog.Logger
}

// Table is what a Source writes to: a *route.Table.
type Table interface {
	SetZone(zone string)
	SetSynced()
	Publish(*route.Record)
	Remove(namespace, name string)
	Forget(namespace, name string)
}

// Source is where routes come from.
type Source struct {
	Stats
	run func(context.Context, Table) error
}

// New checks the options and makes a Source. What is wrong for good is an error here: a routes file that cannot be
// read, a kubeconfig that makes no sense. An API server that does not answer is not: Run waits for it.
func New(o Options) (*Source, error) {
	s := &Source{}
	var err error
	switch o.Discovery {
	case EndpointSlices, Pods:
		s.run, err = fromCluster(o, &s.Stats)
	case File:
		s.run, err = fromFile(o, &s.Stats)
	default:
		err = fmt.Errorf("--discovery: %q is none of %s, %s, %s", o.Discovery, EndpointSlices, Pods, File)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Run feeds the table until ctx ends. It is the table's only writer.
func (s *Source) Run(ctx context.Context, t Table) error {
	if err := s.run(ctx, t); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// Stats counts what a Source saw. Its methods are for any goroutine.
type Stats struct {
	updates, stale, invalid, doubts atomic.Uint64
	lastSync, lastWord              atomic.Int64 // Unix nanoseconds; 0 for never, or not applicable
}

// Updates is the number of changes that were read.
func (s *Stats) Updates() uint64 { return s.updates.Load() }

// Stale is the number of changes that were ignored because something newer was known.
func (s *Stats) Stale() uint64 { return s.stale.Load() }

// Invalid is the number of addresses, objects and files that were not believed.
func (s *Stats) Invalid() uint64 { return s.invalid.Load() }

// Doubts is the number of lists that were not believed until a second one confirmed them.
func (s *Stats) Doubts() uint64 { return s.doubts.Load() }

// LastSync is when a complete list of the routes was last read; the zero Time before the first.
func (s *Stats) LastSync() time.Time { return unixNano(s.lastSync.Load()) }

// Staleness is how old the knowledge in the table may be: the time since the API server last said anything, be it
// that nothing changed (it does so about once a minute), or since the routes file went bad; 0 while it is good.
func (s *Stats) Staleness() time.Duration {
	last := unixNano(s.lastWord.Load())
	if last.IsZero() {
		return 0
	}
	return time.Since(last)
}

func unixNano(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n)
}
