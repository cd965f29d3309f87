package chart

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestCustomizations renders the three customizations of the project's front page and compares what they are about, the
// template and the pool, with files that a reader can check.
func TestCustomizations(t *testing.T) {
	for _, set := range []string{"gvisor", "pool-of-five", "sandbox-resources"} {
		t.Run(set, func(t *testing.T) {
			t.Parallel()
			r := renderSet(t, set, "agent-sandbox", "agent-sandbox-system")
			var text bytes.Buffer
			for _, kind := range []string{"SandboxTemplate", "SandboxWarmPool"} {
				for _, object := range r.all(kind) {
					document, err := yaml.Marshal(object.Object)
					require.NoError(t, err)
					text.WriteString("---\n")
					text.Write(document)
				}
			}
			versions := chartVersions(t) // a release changes them and nothing that matters here
			got := strings.NewReplacer(versions.Version, "VERSION", versions.AppVersion, "VERSION").Replace(text.String())
			golden := filepath.Join("testdata/golden", set+".yaml")
			if *update {
				require.NoError(t, os.MkdirAll(filepath.Dir(golden), 0o755))
				require.NoError(t, os.WriteFile(golden, []byte(got), 0o644))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			assert.Equal(t, string(want), got, "go test ./test/chart -run TestCustomizations -update writes the file anew")
		})
	}
}

// TestCustomizationsChangeNothingElse compares them with the defaults, object by object.
func TestCustomizationsChangeNothingElse(t *testing.T) {
	plain := byName(renderSet(t, "defaults", "agent-sandbox", "agent-sandbox-system"))
	for set, changed := range map[string]string{
		"gvisor": "SandboxTemplate python-bash-template", "pool-of-five": "SandboxWarmPool python-bash-warmpool", "sandbox-resources": "SandboxTemplate python-bash-template",
	} {
		var differing []string
		for name, text := range byName(renderSet(t, set, "agent-sandbox", "agent-sandbox-system")) {
			if text != plain[name] {
				differing = append(differing, name)
			}
		}
		assert.Equal(t, []string{changed}, differing, set)
	}
}

// byName are the objects as text, but for the Secret, whose token is drawn by lot.
func byName(r *rendered) map[string]string {
	r.Helper()
	texts := map[string]string{}
	for _, object := range r.objects {
		if object.GetKind() == "Secret" {
			continue
		}
		text, err := yaml.Marshal(object.Object)
		require.NoError(r, err)
		texts[object.GetKind()+" "+object.GetName()] = string(text)
	}
	return texts
}
