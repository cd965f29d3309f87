package watch

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/dovakiin0/agent-sandbox/router/route"
	"github.com/fsnotify/fsnotify"
	"github.com/rs/zerolog"
)

const (
	settle     = 50 * time.Millisecond  // how long the routes file must be left alone before it is read: who does not rename writes in steps
	settleMost = 250 * time.Millisecond // when a file that is never left alone is read, counted from its first change
)

// routesFile follows a YAML file of routes, for local use, tests and benchmarks.
type routesFile struct {
	path   string // absolute
	target string // path without symbolic links
	zone   string
	log    zerolog.Logger
	stats  *Stats

	sum    [sha256.Size]byte // of what was last read, good or bad
	routes []*route.Record   // last good ones, until published
	listed map[key]struct{}  // names in the table
}

// fromFile reads the file once, so that what is wrong with it at start is an error at start.
func fromFile(o Options, stats *Stats) (func(context.Context, Table) error, error) {
	if o.RoutesFile == "" {
		return nil, errors.New("--routes-file is needed with --discovery=file")
	}
	path, err := filepath.Abs(o.RoutesFile)
	if err != nil {
		return nil, fmt.Errorf("--routes-file: %w", err)
	}
	f := &routesFile{path: path, zone: configuredZone(o), log: o.Log, stats: stats}
	if _, err := f.read(); err != nil {
		return nil, fmt.Errorf("--routes-file: %w", err)
	}
	return f.run, nil
}

// read reads the file and reports whether it says something else than last time. An error is news only once.
func (f *routesFile) read() (news bool, err error) {
	content, err := os.ReadFile(f.path)
	if err != nil {
		f.sum = [sha256.Size]byte{}
		return false, err
	}
	sum := sha256.Sum256(content)
	if sum == f.sum {
		return false, nil
	}
	f.sum = sum
	routes, err := parseRoutes(content)
	if err != nil {
		return false, fmt.Errorf("%s: %w", f.path, err)
	}
	f.routes = routes
	return true, nil
}

// run publishes the routes, and again whenever the file changes. It watches folders, not the file: a rename puts
// another file in its place, and a mounted ConfigMap changes by a symbolic link beside it.
func (f *routesFile) run(ctx context.Context, t Table) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watching --routes-file: %w", err)
	}
	defer w.Close()
	if err := f.follow(w); err != nil {
		return fmt.Errorf("watching --routes-file: %w", err)
	}
	t.SetZone(f.zone)
	f.publish(t)
	t.SetSynced()
	quiet := time.NewTimer(0) // first to find what changed since New
	defer quiet.Stop()
	var changed time.Time // first change that was not read yet
	change := func() {
		if changed.IsZero() {
			changed = time.Now()
		}
		quiet.Reset(min(settle, time.Until(changed.Add(settleMost))))
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-w.Errors:
			f.log.Warn().Err(err).Msg("watching --routes-file")
			change()
		case e := <-w.Events:
			if f.concerns(e.Name) {
				change()
			}
		case <-quiet.C:
			changed = time.Time{}
			f.reload(t, w)
		}
	}
}

// follow watches the folder of the path and, where symbolic links are in it, the one that it leads to.
func (f *routesFile) follow(w *fsnotify.Watcher) error {
	if target, err := filepath.EvalSymlinks(f.path); err == nil {
		f.target = target
		if err := w.Add(filepath.Dir(target)); err != nil {
			return err
		}
	}
	return w.Add(filepath.Dir(f.path))
}

// concerns reports whether a change of the named file may change the routes file: it is the file, or the link that a
// mounted ConfigMap turns around.
func (f *routesFile) concerns(name string) bool {
	return name == f.path || name == f.target || filepath.Base(name) == "..data"
}

func (f *routesFile) reload(t Table, w *fsnotify.Watcher) {
	news, err := f.read()
	if err != nil {
		f.stats.invalid.Add(1)
		f.stats.lastWord.CompareAndSwap(0, time.Now().UnixNano())
		f.log.Error().Err(err).Msg("the routes file is not used, the routes stay as they were")
		return
	}
	if !news {
		return
	}
	if err := f.follow(w); err != nil {
		f.log.Warn().Err(err).Msg("watching --routes-file")
	}
	f.publish(t)
}

// publish makes the table what the file says.
func (f *routesFile) publish(t Table) {
	before := f.listed
	f.listed = make(map[key]struct{}, len(f.routes))
	for _, r := range f.routes {
		k := key{r.Namespace, r.Name}
		f.listed[k] = struct{}{}
		delete(before, k)
		t.Publish(r)
	}
	for k := range before {
		t.Remove(k.namespace, k.name)
	}
	f.log.Info().Int("sandboxes", len(f.routes)).Str("file", f.path).Msg("read the routes file")
	f.routes = nil
	f.stats.updates.Add(1)
	f.stats.lastWord.Store(0)
	f.stats.lastSync.Store(time.Now().UnixNano())
}
