package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// runAsInit is the work of process 1 of a container: it starts this program once more as the server and then only
// passes signals on and reaps. Commands leave orphans, the kernel gives them to process 1, and a server that waited for
// any child could take away the exit status of a command that it waits for elsewhere. Two processes need no such care.
// It returns the exit code of the server, 128+n when signal n ended it.
func runAsInit() int {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)

	server, err := startAgain()
	if err != nil {
		fmt.Fprintln(os.Stderr, "runtime:", err)
		return 1
	}
	go func() {
		for s := range signals {
			// The server is reaped by the loop below, which ends this process, so the id cannot be another's.
			_ = syscall.Kill(server, s.(syscall.Signal))
		}
	}()
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			fmt.Fprintln(os.Stderr, "runtime: wait:", err)
			return 1
		case pid == server:
			return shellCode(status)
		}
	}
}

// startAgain starts this program with its own arguments and returns the process id.
func startAgain() (int, error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	child, err := os.StartProcess(self, os.Args, &os.ProcAttr{Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}})
	if err != nil {
		return 0, err
	}
	return child.Pid, nil
}

// shellCode is the exit code as a shell reports it: 128+n for a death by signal n.
func shellCode(status syscall.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}
