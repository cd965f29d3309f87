package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/valyala/fasthttp"
)

// result is the body of every answer of POST /execute.
type result struct {
	Stdout   string `json:"stdout"`
	Stderr   string `json:"stderr"`
	ExitCode int    `json:"exit_code"` // -n after a death by signal n
}

// execute runs a command to its end. The answer is 200 whatever becomes of the command, since published clients send
// the request again on a 5xx. A command goes on when its client goes away, as clients expect of this endpoint; the
// execution timeout bounds it. Sessions (GET /exec) end with their client.
func (s *server) execute(ctx *fasthttp.RequestCtx, _ string) {
	body, err := io.ReadAll(bodyOf(ctx))
	if err != nil {
		answer(ctx, fasthttp.StatusBadRequest, detail{"There was an error parsing the body"})
		return
	}
	command, invalid := readCommand(string(ctx.Request.Header.ContentType()), body)
	if invalid != nil {
		answer(ctx, fasthttp.StatusUnprocessableEntity, detail{[]invalidField{*invalid}})
		return
	}
	res, err := s.runCommand(command)
	if err != nil {
		res = result{Stderr: "Failed to execute command: " + err.Error(), ExitCode: 1}
	}
	answer(ctx, fasthttp.StatusOK, res)
}

// runCommand returns when the command has ended and nothing holds its output open any more, or with an error when that
// takes longer than the execution timeout.
func (s *server) runCommand(line string) (result, error) {
	args, err := split(line)
	if err != nil {
		return result{}, err
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = string(s.files)
	cmd.Stdin = os.Stdin
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return result{}, err
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return result{}, err
	}
	p, err := s.commands.start(cmd)
	if err != nil {
		return result{}, err
	}
	defer s.commands.release(p)

	timeout := time.AfterFunc(s.execTimeout, func() {
		p.signal(syscall.SIGKILL)
		// A descendant in a session of its own survives and may hold the pipes open.
		stdout.Close()
		stderr.Close()
	})
	var out, errOut strings.Builder
	var reading sync.WaitGroup
	reading.Go(func() { io.Copy(&out, stdout) })
	reading.Go(func() { io.Copy(&errOut, stderr) })
	reading.Wait()
	status := p.wait()
	if !timeout.Stop() {
		return result{}, fmt.Errorf("command timed out after %v seconds", s.execTimeout.Seconds())
	}
	res := result{Stdout: text(out.String()), Stderr: text(errOut.String()), ExitCode: status.ExitStatus()}
	if status.Signaled() {
		res.ExitCode = -int(status.Signal())
	}
	return res, nil
}

// text is output as Python's text mode reads it: every line end is a newline. The JSON encoder replaces bytes that are
// no UTF-8 by U+FFFD.
func text(output string) string {
	return strings.ReplaceAll(strings.ReplaceAll(output, "\r\n", "\n"), "\r", "\n")
}
