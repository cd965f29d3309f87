package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"os/exec"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	executil "k8s.io/client-go/util/exec"

	"github.com/dovakiin0/agent-sandbox/proto"
)

func (d *demo) url(path string) string { return "http://" + d.router.HTTP + path }

// ask sends a request for the claimed sandbox through the router and returns the status and the body of the answer.
func (d *demo) ask(ctx context.Context, method, path, contentType string, body []byte) (int, string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, d.url(path), bytes.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	request.Header.Set(proto.HeaderID, d.claim.Status.Sandbox.Name)
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	return response.StatusCode, string(answer), err
}

func (d *demo) runPython(ctx context.Context) error {
	command := `python3 -c 'import os, sys; print("Python", sys.version.split()[0], "in", os.getcwd()); print(sum(n * n for n in range(1000)))'`
	want := "332833500"
	if _, err := exec.LookPath("python3"); err != nil {
		d.say("There is no python3 on this machine, whose programs the sandboxes use, so a shell must do.")
		command, want = `sh -c 'echo sh in $(pwd); echo $((1234 * 5678))'`, "7006652"
	}
	request, err := json.Marshal(map[string]string{"command": command})
	if err != nil {
		return err
	}
	d.say("POST /execute %s", request)
	start := time.Now()
	status, body, err := d.ask(ctx, http.MethodPost, "/execute", "application/json", request)
	if err != nil {
		return err
	}
	var result struct {
		Stdout   string `json:"stdout"`
		Stderr   string `json:"stderr"`
		ExitCode int    `json:"exit_code"`
	}
	if err := json.Unmarshal([]byte(body), &result); err != nil || status != http.StatusOK {
		return fmt.Errorf("answered %d: %s", status, body)
	}
	if result.ExitCode != 0 || !strings.Contains(result.Stdout, want) {
		return fmt.Errorf("no %s in the output: %s", want, body)
	}
	d.say("exit code %d after %s, output:", result.ExitCode, brief(time.Since(start)))
	d.quote(result.Stdout)
	return nil
}

func (d *demo) copyFile(ctx context.Context) error {
	content := make([]byte, 1<<20)
	if _, err := rand.Read(content); err != nil {
		return err
	}
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	part, err := w.CreateFormFile("file", "data/random.bin")
	if err != nil {
		return err
	}
	if _, err := part.Write(content); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	status, body, err := d.ask(ctx, http.MethodPost, "/upload", w.FormDataContentType(), form.Bytes())
	if err != nil {
		return err
	}
	if status != http.StatusOK {
		return fmt.Errorf("upload answered %d: %s", status, body)
	}
	d.say("POST /upload: %s", body)
	if status, body, err = d.ask(ctx, http.MethodGet, "/download/data/random.bin", "", nil); err != nil {
		return err
	}
	if status != http.StatusOK || body != string(content) {
		return fmt.Errorf("download answered %d and %d bytes, not those that were uploaded", status, len(body))
	}
	d.say("GET /download/data/random.bin: the same %d bytes", len(body))
	return nil
}

// openShell drives /exec with the client that kubectl uses for its own exec.
func (d *demo) openShell(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	config := &rest.Config{Host: d.url("")}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return named{d.claim.Status.Sandbox.Name, next}
	})
	query := url.Values{"command": {"sh"}, "stdin": {"true"}, "stdout": {"true"}, "tty": {"true"}}
	executor, err := remotecommand.NewWebSocketExecutor(config, http.MethodGet, d.url("/exec?"+query.Encode()))
	if err != nil {
		return err
	}
	// The size of the window is on its way beside the input, so the shell waits for it.
	const input = "until stty size | grep -q '40 120'; do sleep 0.1; done\nstty size\necho \"6 times 7 is $((6 * 7))\"\nexit 7\n"
	var output bytes.Buffer
	err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{
		Stdin: strings.NewReader(input), Stdout: &output, Tty: true, TerminalSizeQueue: &window{{Width: 120, Height: 40}},
	})
	d.quote(output.String())
	var exit executil.CodeExitError
	if !errors.As(err, &exit) || exit.Code != 7 {
		return fmt.Errorf("the shell ended with %w, want exit code 7", err)
	}
	d.say("the shell ended with exit code %d", exit.Code)
	for _, want := range []string{"40 120", "6 times 7 is 42"} {
		if !strings.Contains(output.String(), want) {
			return fmt.Errorf("no %q in the output", want)
		}
	}
	return nil
}

// named is a RoundTripper that addresses each request to a sandbox.
type named struct {
	sandbox string
	next    http.RoundTripper
}

func (n named) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(request.Context())
	request.Header.Set(proto.HeaderID, n.sandbox)
	return n.next.RoundTrip(request)
}

// window is the sizes that a terminal window takes.
type window []remotecommand.TerminalSize

func (w *window) Next() *remotecommand.TerminalSize {
	if len(*w) == 0 {
		return nil
	}
	size := (*w)[0]
	*w = (*w)[1:]
	return &size
}

// quote prints output of a program.
func (d *demo) quote(output string) {
	for line := range strings.Lines(output) {
		fmt.Fprintf(d.out, "    | %s\n", strings.TrimRight(line, "\r\n"))
	}
}
