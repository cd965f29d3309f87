package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"
)

// section is a part of values.yaml under one heading.
type section struct {
	title  string
	values []value
}

// value is a documented value. A map or list that is documented is one value with all that is in it.
type value struct {
	path  string // router.tls.enabled
	doc   string
	value string // its default as JSON
}

// Lines of values.yaml that mean something here. All others are parts of values that are documented as a whole.
var (
	headingLine = regexp.MustCompile(`^# == (.+)$`)
	docLine     = regexp.MustCompile(`^ *# -- (.+)$`)
	commentLine = regexp.MustCompile(`^ *# (.+)$`)
	keyLine     = regexp.MustCompile(`^( *)([A-Za-z][-A-Za-z0-9]*):(?: |$)`)
)

// parse reads the values and their documentation in the order of the file. It fails if a value has none.
func parse(file []byte) ([]section, error) {
	var defaults map[string]any
	if err := yaml.UnmarshalStrict(file, &defaults); err != nil {
		return nil, err
	}
	var (
		sections []section
		keys     []string // on the way to the current line, one for each level of indentation
		doc      string   // of the next key
		inside   = -1     // level of the documented value that the current line is in
	)
	for i, line := range strings.Split(string(file), "\n") {
		if m := headingLine.FindStringSubmatch(line); m != nil {
			sections = append(sections, section{title: m[1]})
			doc = ""
			continue
		}
		if m := docLine.FindStringSubmatch(line); m != nil {
			doc = m[1]
			continue
		}
		if m := commentLine.FindStringSubmatch(line); m != nil {
			if doc != "" {
				doc += " " + m[1]
			}
			continue
		}
		m := keyLine.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		level := len(m[1]) / 2
		if inside >= 0 && level > inside {
			continue
		}
		inside = -1
		if level > len(keys) || len(sections) == 0 {
			return nil, fmt.Errorf("values.yaml:%d: a key where none can be", i+1)
		}
		keys = append(keys[:level], m[2])
		path := strings.Join(keys, ".")
		found := lookup(defaults, keys)
		if doc == "" {
			if _, isMap := found.(map[string]any); isMap {
				continue // its values speak for themselves
			}
			return nil, fmt.Errorf("values.yaml:%d: %s is not documented", i+1, path)
		}
		b, err := json.Marshal(found)
		if err != nil {
			return nil, err
		}
		s := &sections[len(sections)-1]
		s.values = append(s.values, value{path: path, doc: doc, value: string(b)})
		doc, inside = "", level
	}
	return sections, nil
}

// lookup returns what is at the end of keys, nil if there is nothing.
func lookup(from any, keys []string) any {
	for _, key := range keys {
		m, _ := from.(map[string]any)
		from = m[key]
	}
	return from
}
