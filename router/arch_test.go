package main

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const module = "github.com/dovakiin0/agent-sandbox/"

// arrows are what each package of the router may import of this module. main may import all of them. A new arrow is a
// decision: the data flows accept → relay → parse, auth, route, dial, record, and watch → route; the rest stays apart.
var arrows = map[string][]string{
	"record": {"proto"},
	"parse":  {"proto", "router/record"},
	"auth":   {"proto", "proto/token", "router/parse", "router/record"},
	"route":  {},
	"dial":   {},
	"watch":  {"proto", "router/route"},
	"accept": {},
	"config": {"router/dial", "router/watch"}, // for the types of their settings
	"relay":  {"proto", "router/auth", "router/dial", "router/parse", "router/record", "router/route"},
	"wake":   {"proto", "proto/agents/v1beta1", "router/route"},
}

// owners are the packages that may import a module of others; everybody else goes through them. The router's main is ".".
var owners = map[string][]string{
	"k8s.io/client-go":                    {"watch", "wake"},
	"k8s.io/api":                          {"watch", "wake"},
	"k8s.io/apimachinery":                 {"watch", "wake"},
	"sigs.k8s.io/controller-runtime":      {},
	"github.com/valyala/fasthttp":         {"accept"},
	"github.com/VictoriaMetrics/metrics":  {"record"},
	"github.com/rs/zerolog":               {".", "accept", "record", "watch", "wake"},
	"github.com/fsnotify/fsnotify":        {"watch"},
	"net/http/httputil":                   {},
	"github.com/fasthttp/websocket":       {},
	"github.com/stretchr/testify/require": {},
}

// imports calls fn for each import of each Go file below root, those of tests only if they are asked for.
func imports(t *testing.T, root string, tests bool, fn func(file, path string)) {
	t.Helper()
	files := 0
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && d.Name() == "testdata" {
			return filepath.SkipDir
		}
		if d.IsDir() || filepath.Ext(path) != ".go" || !tests && strings.HasSuffix(path, "_test.go") {
			return nil
		}
		files++
		parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range parsed.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			fn(filepath.ToSlash(path), imported)
		}
		return nil
	}))
	require.Positive(t, files, "no Go files in %s", root)
}

// below reports whether path is root or a package below it.
func below(path, root string) bool { return path == root || strings.HasPrefix(path, root+"/") }

func TestImportsFollowTheArrows(t *testing.T) {
	imports(t, ".", false, func(file, path string) {
		pkg := filepath.ToSlash(filepath.Dir(file))
		if pkg != "." {
			allowed, known := arrows[pkg]
			if !assert.True(t, known, "%s: give the package its arrows", file) {
				return
			}
			if own, ok := strings.CutPrefix(path, module); ok {
				assert.Contains(t, allowed, own, "%s: no arrow leads there", file)
			}
		}
		for theirs, packages := range owners {
			if below(path, theirs) {
				assert.True(t, slices.Contains(packages, pkg), "%s imports %s, which is for %v", file, path, packages)
			}
		}
		for _, half := range []string{"controller", "runtime", "bench", "test"} {
			assert.False(t, below(path, module+half), "%s: router and %s meet in proto", file, half)
		}
	})
}

func TestProtoImportsNothingOfOurs(t *testing.T) {
	imports(t, "../proto", true, func(file, path string) {
		own, ok := strings.CutPrefix(path, module)
		assert.True(t, !ok || below(own, "proto"), "%s imports %s", file, path)
	})
}

// TestNobodyReachesIntoTheRouter: the controller, the runtime, the benchmarks and the tests use its sockets.
func TestNobodyReachesIntoTheRouter(t *testing.T) {
	for _, other := range []string{"../controller", "../runtime", "../bench", "../test"} {
		imports(t, other, true, func(file, path string) {
			assert.False(t, below(path, module+"router"), "%s imports %s", file, path)
		})
	}
}
