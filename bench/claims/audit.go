//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The API server's audit log is what perturbs least and says most: the server writes each line after it has answered, on a
// goroutine of its own, with the time it took and the status. A proxy would be one more hop for every request, and the
// server's metrics do not tell clients apart.
const policy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: None
  resources:
  - group: ""
    resources: [pods/status, pods/binding] # the nodes write them all the time, and controllers never do
- level: None
  nonResourceURLs: ["*"]
- level: Metadata
`

// auditLog reads the audit log while the API server writes it.
type auditLog struct {
	path   string
	file   *os.File // nil until the server has made it
	rest   []byte   // of the last line, as far as it is there
	events []event  // of the controller, since they were last taken
}

// event is one request of the controller.
type event struct {
	verb, resource string // as pods/status
	code           int
	took           time.Duration // in the API server
}

// writes says whether the request is meant to change something.
func (e *event) writes() bool { return !slices.Contains([]string{"get", "list", "watch"}, e.verb) }

// newAuditLog writes a policy and returns the flags that make the API server follow it.
func newAuditLog(dir string) (*auditLog, []string, error) {
	a := &auditLog{path: filepath.Join(dir, "audit.log")}
	policyFile := filepath.Join(dir, "audit-policy.yaml")
	return a, []string{
		"--audit-policy-file=" + policyFile, "--audit-log-path=" + a.path, "--audit-log-mode=batch",
		"--audit-log-maxsize=4096", // MB; a log that is rotated would have to be followed
	}, os.WriteFile(policyFile, []byte(policy), 0o600)
}

// read reads what has been written since, and reports whether the controller has changed anything.
func (a *auditLog) read() (wrote bool, err error) {
	if a.file == nil {
		file, err := os.Open(a.path)
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		} else if err != nil {
			return false, err
		}
		a.file = file
	}
	more, err := io.ReadAll(a.file)
	if err != nil {
		return false, err
	}
	a.rest = append(a.rest, more...)
	for {
		line, rest, whole := bytes.Cut(a.rest, []byte("\n"))
		if !whole {
			return wrote, nil
		}
		a.rest = rest
		e, ok, err := parseEvent(line)
		if err != nil {
			return false, err
		}
		if ok {
			a.events = append(a.events, e)
			wrote = wrote || e.writes()
		}
	}
}

// take returns the events that were read since the last call.
func (a *auditLog) take() []event {
	events := a.events
	a.events = nil
	return events
}

func (a *auditLog) close() {
	if a != nil && a.file != nil {
		a.file.Close()
	}
}

// others are the clients that are not measured, by how the names they give themselves begin or end: this command, the
// control plane's own controllers, the nodes and the router.
func others(agent string) bool {
	return agent == userAgent || strings.HasPrefix(agent, "cluster/") || strings.HasSuffix(agent, "/node-agent") || strings.HasPrefix(agent, "router/")
}

// parseEvent reads a line of the log. It is not ok if it is not about the controller.
func parseEvent(line []byte) (e event, ok bool, err error) {
	var l struct {
		Verb      string
		UserAgent string
		ObjectRef struct{ Resource, Subresource string }
		Status    struct{ Code int } `json:"responseStatus"`
		Received  time.Time          `json:"requestReceivedTimestamp"`
		Done      time.Time          `json:"stageTimestamp"`
	}
	if err := json.Unmarshal(line, &l); err != nil {
		return e, false, fmt.Errorf("audit log: %w: %s", err, line)
	}
	e = event{verb: l.Verb, resource: l.ObjectRef.Resource, code: l.Status.Code, took: l.Done.Sub(l.Received)}
	if l.ObjectRef.Subresource != "" {
		e.resource += "/" + l.ObjectRef.Subresource
	}
	return e, !others(l.UserAgent), nil
}

// Write is what the controller wrote of one kind.
type Write struct {
	Count    int            `json:"count"`            // answered with an error or not
	Failed   map[string]int `json:"failed,omitempty"` // those answered with an error, by status
	ServerMS float64        `json:"server_ms"`        // mean time in the API server
}

// count sums up writes by kind, "patch pods/status".
func count(events []event) (kinds map[string]*Write) {
	kinds = map[string]*Write{}
	for i := range events {
		e := &events[i]
		if !e.writes() {
			continue
		}
		kind := e.verb + " " + e.resource
		w := kinds[kind]
		if w == nil {
			w = &Write{}
			kinds[kind] = w
		}
		w.Count++
		w.ServerMS += (ms(e.took) - w.ServerMS) / float64(w.Count)
		if e.code >= 400 {
			if w.Failed == nil {
				w.Failed = map[string]int{}
			}
			w.Failed[strconv.Itoa(e.code)]++
		}
	}
	return kinds
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
