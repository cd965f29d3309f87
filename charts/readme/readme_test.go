package main

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

const chart = "../agent-sandbox/"

func read(t *testing.T, file string) []byte {
	t.Helper()
	b, err := os.ReadFile(chart + file)
	require.NoError(t, err)
	return b
}

func TestReadmeIsCurrent(t *testing.T) {
	want, err := render(text, read(t, "values.yaml"))
	require.NoError(t, err)
	assert.Equal(t, want, string(read(t, "README.md")), "run: make generate")
}

func TestTables(t *testing.T) {
	got, err := render("before\n"+marker+"after\n", []byte(`# no section
# == One

# -- A number.
a: 0
b:
  # -- Two | lines
  # of text.
  c: false
  # -- A map as a whole.
  d:
    # no documentation of its own
    e: x
    f: [1]

# == Two

# -- A list.
g:
  - h: 1
`))
	require.NoError(t, err)
	assert.Equal(t, "before\n"+
		"### One\n\n| Value | Meaning | Default |\n|---|---|---|\n"+
		"| `a` | A number. | `0` |\n"+
		"| `b.c` | Two \\| lines of text. | `false` |\n"+
		"| `b.d` | A map as a whole. | `{\"e\":\"x\",\"f\":[1]}` |\n"+
		"\n### Two\n\n| Value | Meaning | Default |\n|---|---|---|\n"+
		"| `g` | A list. | `[{\"h\":1}]` |\n"+
		"after\n", got)
}

func TestFaults(t *testing.T) {
	for file, want := range map[string]string{
		"# == S\na: 1\n":                        "values.yaml:2: a is not documented",
		"# == S\na:\n  b: []\n":                 "values.yaml:3: a.b is not documented",
		"# == S\n# -- A.\na: {}\nb: \"\"\n":     "values.yaml:4: b is not documented",
		"# == S\n# -- A.\na: 1\na: 2\n":         "already set",
		"# -- A.\na: 1\n":                       "values.yaml:2: a key where none can be",
		"# == S\n\n# -- A.\n# == T\n\na: 1\n":   "a is not documented",
		"# == S\na:\n      # -- B.\n      b: 1": "values.yaml:4: a key where none can be",
	} {
		_, err := render(marker, []byte(file))
		assert.ErrorContains(t, err, want, file)
	}
	_, err := render("no marker", []byte("# == S\n# -- A.\na: 1\n"))
	assert.ErrorContains(t, err, "README.md.tmpl")
}

// TestSchemaKnowsTheValues holds values.yaml against the schema: each knows the keys of the other, and no object takes
// keys that neither knows. Keys of earlier charts are in the schema only, and say so.
func TestSchemaKnowsTheValues(t *testing.T) {
	var values map[string]any
	require.NoError(t, yaml.Unmarshal(read(t, "values.yaml"), &values))
	var root map[string]any
	require.NoError(t, json.Unmarshal(read(t, "values.schema.json"), &root))
	s := schema{root["definitions"].(map[string]any)}
	values["global"] = map[string]any{}
	s.compare(t, "", values, root)

	for name, definition := range s.definitions {
		if d := definition.(map[string]any); d["properties"] != nil {
			assert.Contains(t, d, "additionalProperties", name)
		}
	}
}

type schema struct{ definitions map[string]any }

// compare walks down maps. What users fill as they like ends the walk.
func (s schema) compare(t *testing.T, path string, values, node map[string]any) {
	t.Helper()
	properties, ok := s.resolve(node)["properties"].(map[string]any)
	if !ok {
		return
	}
	assert.Equal(t, false, s.resolve(node)["additionalProperties"], "%s takes any key", path)
	known := slices.DeleteFunc(slices.Sorted(maps.Keys(properties)), func(key string) bool {
		p := s.resolve(properties[key].(map[string]any))
		return p["deprecated"] == true || strings.HasSuffix(path, "emplate") && key == "security" // of the lists only
	})
	if !assert.Equal(t, slices.Sorted(maps.Keys(values)), known, path) {
		return
	}
	for _, key := range known {
		if child, isMap := values[key].(map[string]any); isMap && len(child) > 0 {
			s.compare(t, path+"."+key, child, properties[key].(map[string]any))
		}
	}
}

// resolve follows $ref, and keeps what stands beside it.
func (s schema) resolve(node map[string]any) map[string]any {
	ref, ok := node["$ref"].(string)
	if !ok {
		return node
	}
	all := maps.Clone(s.resolve(s.definitions[strings.TrimPrefix(ref, "#/definitions/")].(map[string]any)))
	maps.Copy(all, node)
	return all
}
