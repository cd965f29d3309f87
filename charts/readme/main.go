// Command readme writes the chart's README.md: a text with a table of all values, which it takes from values.yaml and the
// comments in it.
package main

import (
	_ "embed"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

//go:embed README.md.tmpl
var text string

// marker is the line of the text that the tables replace.
const marker = "<!-- values -->\n"

func main() {
	chart := flag.String("chart", "charts/agent-sandbox", "`directory` of the chart")
	flag.Parse()
	if err := write(*chart); err != nil {
		fmt.Fprintln(os.Stderr, "readme:", err)
		os.Exit(1)
	}
}

func write(chart string) error {
	values, err := os.ReadFile(filepath.Join(chart, "values.yaml"))
	if err != nil {
		return err
	}
	readme, err := render(text, values)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(chart, "README.md"), []byte(readme), 0o644)
}

// render puts the tables of values into the text.
func render(text string, values []byte) (string, error) {
	sections, err := parse(values)
	if err != nil {
		return "", err
	}
	before, after, found := strings.Cut(text, marker)
	if !found {
		return "", fmt.Errorf("README.md.tmpl has no line %q", strings.TrimSpace(marker))
	}
	return before + tables(sections) + after, nil
}

// wide is the length from which a default is left to values.yaml.
const wide = 110

func tables(sections []section) string {
	var b strings.Builder
	for i, s := range sections {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "### %s\n\n| Value | Meaning | Default |\n|---|---|---|\n", s.title)
		for _, v := range s.values {
			value := "`" + v.value + "`"
			if len(v.value) > wide {
				value = "see [values.yaml](values.yaml)"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", v.path, cell(v.doc), cell(value))
		}
	}
	return b.String()
}

// cell keeps s from ending its cell.
func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
