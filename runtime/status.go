package main

import (
	"fmt"
	"strconv"
	"syscall"
)

// exitStatus is the part of Kubernetes' metav1.Status that ends a session on the error channel.
type exitStatus struct {
	Status  string       `json:"status"` // "Success" or "Failure"
	Message string       `json:"message,omitempty"`
	Reason  string       `json:"reason,omitempty"`
	Details *exitDetails `json:"details,omitempty"`
}

type exitDetails struct {
	Causes []exitCause `json:"causes"`
}

type exitCause struct {
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// exited tells the exit code of a command that ran: 0 to 255, 128+n after a death by signal n.
func exited(status syscall.WaitStatus) exitStatus {
	code := shellCode(status)
	if code == 0 {
		return exitStatus{Status: "Success"}
	}
	return exitStatus{
		Status:  "Failure",
		Reason:  "NonZeroExitCode",
		Message: fmt.Sprintf("command terminated with exit code %d", code),
		Details: &exitDetails{Causes: []exitCause{{Reason: "ExitCode", Message: strconv.Itoa(code)}}},
	}
}

// notStarted tells why there was no command to run.
func notStarted(err error) exitStatus {
	return exitStatus{Status: "Failure", Reason: "InternalError", Message: err.Error()}
}
