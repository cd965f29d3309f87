package chart

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dovakiin0/agent-sandbox/test/stack"
)

// workflow is what these tests read of a workflow.
type workflow struct {
	Permissions map[string]string
	Jobs        map[string]job
}

type job struct {
	Needs       string
	Permissions map[string]string
	Strategy    struct {
		Matrix struct {
			Include []struct{ Target, Image string }
		}
	}
	Steps []struct {
		ID, Name, Uses, Run string
		With                map[string]any
	}
}

func releaseWorkflow(t *testing.T) workflow {
	t.Helper()
	return readYAML[workflow](t, filepath.Join(root(), ".github/workflows/release.yaml"))
}

var (
	expression = regexp.MustCompile(`\$\{\{[^}]*\}\}`)
	makeTarget = regexp.MustCompile(`\bmake ([a-z-]+)`)
	pinned     = regexp.MustCompile(`@[0-9a-f]{40}$`)
)

// TestReleaseWorkflow checks what can be checked of the workflow where it cannot run.
func TestReleaseWorkflow(t *testing.T) {
	w := releaseWorkflow(t)
	makefile, err := os.ReadFile(filepath.Join(root(), "Makefile"))
	require.NoError(t, err)
	assert.Empty(t, w.Permissions, "each job says what it needs")
	steps := 0
	for name, job := range w.Jobs {
		assert.NotEmpty(t, job.Permissions, name)
		if job.Needs != "" {
			assert.Contains(t, w.Jobs, job.Needs, name)
		}
		for _, step := range job.Steps {
			steps++
			if step.Uses != "" {
				assert.Regexp(t, pinned, step.Uses, "%s: a tag can be moved", name)
			}
			for _, m := range makeTarget.FindAllStringSubmatch(step.Run, -1) {
				assert.Regexp(t, `(?m)^`+m[1]+`:`, string(makefile), "%s: make %s", name, m[1])
			}
			check := exec.Command("bash", "-n")
			check.Stdin = strings.NewReader(expression.ReplaceAllString(step.Run, "X"))
			out, err := check.CombinedOutput()
			assert.NoError(t, err, "%s %s: %s", name, step.Name, out)
		}
	}
	assert.Greater(t, steps, 8)
	for _, path := range []string{"charts/agent-sandbox/Chart.yaml", "artifacthub-repo.yml", "Dockerfile"} { // that its steps name
		assert.FileExists(t, filepath.Join(root(), path))
	}
}

// TestReleasedVersion runs the step that tells the images' tag.
func TestReleasedVersion(t *testing.T) {
	program(t, stack.Helm)
	for _, step := range releaseWorkflow(t).Jobs["verify"].Steps {
		if step.ID != "chart" {
			continue
		}
		output := filepath.Join(t.TempDir(), "output")
		cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", step.Run)
		cmd.Dir, cmd.Env = root(), append(os.Environ(), "GITHUB_OUTPUT="+output)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		text, err := os.ReadFile(output)
		require.NoError(t, err)
		assert.Equal(t, "app-version="+chartVersions(t).AppVersion+"\n", string(text))
		return
	}
	assert.Fail(t, "no step tells the version")
}

// metadata is what these tests read of Chart.yaml.
type metadata struct {
	Version, AppVersion string
	Annotations         map[string]string
}

func chartVersions(t *testing.T) metadata {
	t.Helper()
	return readYAML[metadata](t, filepath.Join(chartDir(), "Chart.yaml"))
}

// TestReleasedImagesAreTheChartsImages: what is pushed is what is pulled.
func TestReleasedImagesAreTheChartsImages(t *testing.T) {
	r := renderSet(t, "defaults", "rel", "ns")
	pulled := []string{
		r.controller().Spec.Template.Spec.Containers[0].Image, r.router().Spec.Template.Spec.Containers[0].Image,
		r.template().Spec.PodTemplate.Spec.Containers[0].Image,
	}
	var pushed []string
	stages := dockerfile(t)
	for _, image := range releaseWorkflow(t).Jobs["images"].Strategy.Matrix.Include {
		pushed = append(pushed, image.Image+":"+chartVersions(t).AppVersion)
		assert.Contains(t, stages, image.Target)
		assert.Contains(t, chartVersions(t).Annotations["artifacthub.io/images"], image.Image+":"+chartVersions(t).AppVersion)
		assert.Equal(t, filepath.Base(image.Image), stages[image.Target].labels["org.opencontainers.image.title"])
	}
	assert.ElementsMatch(t, pulled, pushed)
}

// stage is a stage of the Dockerfile, with what it has from the stage that it is made from.
type stage struct {
	user, entrypoint string
	labels           map[string]string
	copied           map[string]string // from what, by the path in the image
	runs             []string
}

var (
	from   = regexp.MustCompile(`^FROM (?:--platform=\S+ )?(\S+) AS (\S+)$`)
	copies = regexp.MustCompile(`^COPY (?:--from=(\S+) )?(?:--chown=\S+ )?(.+) (\S+)$`)
	pair   = regexp.MustCompile(`([a-z.]+)="([^"]*)"`)
)

// dockerfile reads the Dockerfile and checks it line by line.
func dockerfile(t *testing.T) map[string]stage {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root(), "Dockerfile"))
	require.NoError(t, err)
	ignore, err := os.ReadFile(filepath.Join(root(), ".dockerignore"))
	require.NoError(t, err)
	stages := map[string]stage{}
	var name string
	for line := range strings.SplitSeq(strings.ReplaceAll(string(text), "\\\n", " "), "\n") {
		s := stages[name]
		switch word, rest, _ := strings.Cut(line, " "); word {
		case "FROM":
			m := from.FindStringSubmatch(line)
			require.NotNil(t, m, line)
			name = m[2]
			base := stages[m[1]]
			s = stage{user: base.user, labels: map[string]string{}, copied: map[string]string{}}
			for key, value := range base.labels {
				s.labels[key] = value
			}
		case "USER":
			s.user = rest
		case "ENTRYPOINT":
			s.entrypoint = rest
		case "RUN":
			s.runs = append(s.runs, rest)
		case "LABEL":
			for _, m := range pair.FindAllStringSubmatch(rest, -1) {
				s.labels[m[1]] = m[2]
			}
		case "COPY":
			m := copies.FindStringSubmatch(line)
			require.NotNil(t, m, line)
			s.copied[m[3]] = m[1]
			for source := range strings.FieldsSeq(m[2]) {
				if m[1] != "" {
					assert.Contains(t, stages, m[1], line)
					continue
				}
				_, err := os.Stat(filepath.Join(root(), source))
				assert.NoError(t, err, line)
				assert.Contains(t, strings.Split(string(ignore), "\n"), "!"+source, "it does not get into the build")
			}
		}
		stages[name] = s
	}
	return stages
}

// TestDockerfile: three images, none runs as root, and each starts a program that the build makes.
func TestDockerfile(t *testing.T) {
	stages := dockerfile(t)
	build := strings.Join(stages["build"].runs, " ")
	assert.Contains(t, build, "CGO_ENABLED=0")
	assert.Contains(t, build, "GOARCH=$TARGETARCH")
	for _, m := range regexp.MustCompile(` (\./[a-z]+)`).FindAllStringSubmatch(build, -1) {
		assert.FileExists(t, filepath.Join(root(), m[1], "main.go"))
	}
	for _, m := range regexp.MustCompile(`-X main\.(\w+)=`).FindAllStringSubmatch(build, -1) {
		assert.True(t, slices.ContainsFunc([]string{"router/main.go", "controller/version.go"}, func(file string) bool {
			source, err := os.ReadFile(filepath.Join(root(), file))
			require.NoError(t, err)
			return regexp.MustCompile(`(?m)^var .*\b` + m[1] + `\b`).Match(source)
		}), "no program has a variable main.%s", m[1])
	}
	deps := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f={{.ImportPath}}", "./router", "./controller", "./runtime")
	deps.Dir = root()
	packages, err := deps.Output()
	require.NoError(t, err)
	for _, m := range regexp.MustCompile(`(?m)^github.com/dovakiin0/agent-sandbox/([^/\n]+)`).FindAllStringSubmatch(string(packages), -1) {
		assert.Contains(t, stages["build"].copied, m[1], "a package that the programs need is not in the build")
	}
	for name, user := range map[string]string{"controller": "65532:65532", "router": "65532:65532", "runtime": "1000:1000"} {
		s := stages[name]
		assert.Equal(t, user, s.user, "%s: as in the chart, and a number, so that a kubelet can tell that it is not root", name)
		assert.Empty(t, s.runs, "%s: a RUN would be emulated on other architectures", name)
		program := strings.Trim(s.entrypoint, `[]"`)
		assert.Equal(t, "build", s.copied[program], "%s starts %s", name, program)
		for _, label := range []string{"title", "description", "source", "licenses", "version", "revision", "created"} {
			assert.NotEmpty(t, s.labels["org.opencontainers.image."+label], "%s: label %s", name, label)
		}
	}
}
