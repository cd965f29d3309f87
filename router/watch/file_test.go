package watch

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dovakiin0/agent-sandbox/router/route"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const routesYAML = `
sandboxes:
- id: s1
  namespace: tenant
  uid: u-1
  claim: c1
  state: Running
  endpoints:
  - {address: 127.0.0.11, zone: a, ready: true, uid: pod-1}
  - {address: "fd00::1", ready: false}
- id: s2
  state: Suspended
`

func TestRoutesFileFormat(t *testing.T) {
	got, err := parseRoutes([]byte(routesYAML))
	require.NoError(t, err)
	require.Equal(t, []*route.Record{
		{
			Namespace: "tenant", Name: "s1", UID: "u-1", Claim: "c1", Endpoints: []route.Address{
				{Addr: addr("127.0.0.11"), Zone: "a", PodUID: "pod-1"},
				{Addr: addr("fd00::1"), Condition: route.NotReady},
			},
		},
		{Namespace: "default", Name: "s2", State: route.StateSuspended},
	}, got)
	got, err = parseRoutes([]byte("sandboxes: []"))
	require.NoError(t, err)
	require.Empty(t, got)
}

func TestRoutesFileErrors(t *testing.T) {
	for content, want := range map[string]string{
		"":                                     "the key sandboxes is missing",
		"sandboxes:":                           "the key sandboxes is missing",
		"routes: []":                           `unknown field "routes"`,
		"sandboxes: [{id: s1, ports: [1]}]":    `unknown field "ports"`,
		"sandboxes: [{id: s1}, {id: s1}]":      "sandboxes[1]: default/s1 is listed twice",
		"sandboxes: [{id: s1, id: s2}]":        `key "id" already set`,
		"sandboxes: [{}]":                      `sandboxes[0]: id "" is no DNS label`,
		"sandboxes: [{id: S_1}]":               `sandboxes[0]: id "S_1" is no DNS label`,
		"sandboxes: [{id: s1, namespace: a/}]": `sandboxes[0]: namespace "a/" is no DNS label`,
		"sandboxes: [{id: s1, claim: -}]":      `sandboxes[0]: claim "-" is no DNS label`,
		"sandboxes: [{id: s1, state: Asleep}]": `sandboxes[0]: state "Asleep" is unknown`,
		"sandboxes: [{id: s1, endpoints: [{address: 0.0.0.0}]}]":         `sandboxes[0]: address "0.0.0.0" is no unicast IP address`,
		"sandboxes: [{id: s1, endpoints: [{address: 169.254.169.254}]}]": `sandboxes[0]: address "169.254.169.254" is no unicast IP address`,
		"sandboxes: [{id: s1, endpoints: [{address: localhost}]}]":       `sandboxes[0]: address "localhost" is no unicast IP address`,
		"sandboxes: [": "error converting YAML",
	} {
		_, err := parseRoutes([]byte(content))
		if assert.Error(t, err, content) {
			assert.Contains(t, err.Error(), want, content)
		}
	}
}

// safeBuffer is a log that a test reads while it is written.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// running is a Source that runs until the test ends.
type running struct {
	*Source
	fixture
	log *safeBuffer
}

func run(t *testing.T, o Options) *running {
	t.Helper()
	r := &running{fixture: *newFixture(), log: &safeBuffer{}}
	o.Log = zerolog.New(r.log)
	s, err := New(o)
	require.NoError(t, err)
	r.Source = s
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- s.Run(ctx, r.table) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-done)
	})
	return r
}

// eventually waits for what must come soon.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	require.Eventually(t, condition, 30*time.Second, 2*time.Millisecond, what)
}

func write(t *testing.T, path, content string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
}

func only(name string) string {
	return "sandboxes: [{id: " + name + ", endpoints: [{address: 127.0.0.1, uid: p-" + name + "}]}]\n"
}

func TestFileSource(t *testing.T) {
	t.Setenv("ZONE", "zone-a")
	folder := t.TempDir()
	path := filepath.Join(folder, "routes.yaml")
	write(t, path, only("s1"))
	r := run(t, Options{Discovery: File, RoutesFile: path})
	eventually(t, "first read", r.table.Synced)
	require.Equal(t, "p-s1", r.pod("s1"))
	require.Zero(t, r.Staleness())
	require.NotZero(t, r.LastSync())

	write(t, path, only("s2"))
	eventually(t, "write", func() bool { return r.pod("s2") == "p-s2" })
	require.Equal(t, "Gone", r.pod("s1"))

	write(t, filepath.Join(folder, "new"), only("s3"))
	require.NoError(t, os.Rename(filepath.Join(folder, "new"), path))
	eventually(t, "rename", func() bool { return r.pod("s3") == "p-s3" })

	write(t, path, "sandboxes: [{id: s4},")
	eventually(t, "complaint", func() bool { return r.Invalid() == 1 })
	require.Equal(t, "p-s3", r.pod("s3"), "the last good routes stay")
	require.NotZero(t, r.Staleness())
	require.Contains(t, r.log.String(), "yaml")

	require.NoError(t, os.Remove(path))
	eventually(t, "another complaint", func() bool { return strings.Contains(r.log.String(), "no such file") })
	require.Equal(t, "p-s3", r.pod("s3"))

	write(t, path, only("s3")+"# once more\n")
	eventually(t, "good again", func() bool { return r.Staleness() == 0 })
	require.Equal(t, "p-s3", r.pod("s3"))
}

func TestFileSourceFollowsConfigMaps(t *testing.T) {
	folder := t.TempDir()
	version := func(name, content string) {
		require.NoError(t, os.Mkdir(filepath.Join(folder, name), 0o700))
		write(t, filepath.Join(folder, name, "routes.yaml"), content)
		require.NoError(t, os.Symlink(name, filepath.Join(folder, "..data_tmp")))
		require.NoError(t, os.Rename(filepath.Join(folder, "..data_tmp"), filepath.Join(folder, "..data")))
	}
	version("..1", only("s1"))
	path := filepath.Join(folder, "routes.yaml")
	require.NoError(t, os.Symlink(filepath.Join("..data", "routes.yaml"), path))
	r := run(t, Options{Discovery: File, RoutesFile: path})
	eventually(t, "first read", r.table.Synced)
	require.Equal(t, "p-s1", r.pod("s1"))
	for _, next := range []string{"2", "3"} {
		version(".."+next, only("s"+next))
		require.NoError(t, os.RemoveAll(filepath.Join(folder, "..1")))
		eventually(t, "swap", func() bool { return r.pod("s"+next) == "p-s"+next })
	}
}

func TestFileSourceFollowsALink(t *testing.T) {
	elsewhere := filepath.Join(t.TempDir(), "real.yaml")
	write(t, elsewhere, only("s1"))
	path := filepath.Join(t.TempDir(), "routes.yaml")
	require.NoError(t, os.Symlink(elsewhere, path))
	r := run(t, Options{Discovery: File, RoutesFile: path})
	eventually(t, "first read", r.table.Synced)
	write(t, elsewhere, only("s2"))
	eventually(t, "write", func() bool { return r.pod("s2") == "p-s2" })
}

func TestFileSourceFindsWhatChangedBeforeItRan(t *testing.T) {
	path := filepath.Join(t.TempDir(), "routes.yaml")
	write(t, path, only("s1"))
	s, err := New(Options{Discovery: File, RoutesFile: path})
	require.NoError(t, err)
	write(t, path, only("s2"))
	f := newFixture()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- s.Run(ctx, f.table) }()
	eventually(t, "the change", func() bool { return f.pod("s2") == "p-s2" })
	cancel()
	require.NoError(t, <-done)
}

func TestStartUpErrors(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	bad := filepath.Join(t.TempDir(), "bad")
	write(t, bad, "{")
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for name, c := range map[string]struct {
		o    Options
		want string
	}{
		"unknown source":     {Options{Discovery: "dns"}, `--discovery: "dns"`},
		"no routes file":     {Options{Discovery: File}, "--routes-file is needed"},
		"missing file":       {Options{Discovery: File, RoutesFile: missing}, "--routes-file: open " + missing},
		"bad file":           {Options{Discovery: File, RoutesFile: bad}, "--routes-file: " + bad},
		"missing kubeconfig": {Options{Discovery: EndpointSlices, Kubeconfig: missing}, "--kubeconfig: stat " + missing},
		"bad kubeconfig":     {Options{Discovery: Pods, Kubeconfig: bad}, "--kubeconfig: "},
		"not in a cluster":   {Options{Discovery: EndpointSlices}, "--kubeconfig is not set"},
	} {
		_, err := New(c.o)
		if assert.Error(t, err, name) {
			assert.Contains(t, err.Error(), c.want, name)
		}
	}
}

// TestFileThatIsNeverLeftAlone: a file that is replaced again and again, faster than it settles, is read all the same.
func TestFileThatIsNeverLeftAlone(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "routes.yaml")
	write(t, path, only("s0"))
	r := run(t, Options{Discovery: File, RoutesFile: path})
	eventually(t, "the first routes", func() bool { return r.Updates() == 1 })
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for n := 1; ; n++ {
			select {
			case <-stop:
				return
			case <-time.After(settle / 10):
			}
			next := path + ".next"
			if assert.NoError(t, os.WriteFile(next, []byte(only("s"+strconv.Itoa(n))), 0o600)) {
				assert.NoError(t, os.Rename(next, path))
			}
		}
	}()
	eventually(t, "more routes", func() bool { return r.Updates() > 3 })
	close(stop)
	<-stopped
}
