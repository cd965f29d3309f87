//go:build linux

// Package proc reads what the kernel accounts to processes, places them on cores, and tells machines apart.
package proc

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Usage is what some processes have used so far, or between two readings.
type Usage struct {
	CPU          time.Duration // exact, of the threads that live
	User, System time.Duration // in steps of a clock tick
}

// tick is the unit of /proc/PID/stat: USER_HZ, which is 100 on every architecture that Go runs on.
const tick = time.Second / 100

// UsageOf adds up the usage of processes.
func UsageOf(pids []int) (u Usage, err error) {
	for _, pid := range pids {
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
		if err != nil || len(tasks) == 0 {
			return u, fmt.Errorf("process %d is gone", pid)
		}
		for _, path := range tasks {
			content, err := os.ReadFile(path)
			if err != nil {
				continue // the thread has ended
			}
			ns, _, _ := strings.Cut(string(content), " ")
			n, _ := strconv.ParseInt(ns, 10, 64)
			u.CPU += time.Duration(n)
		}
		fields, err := statFields(pid)
		if err != nil {
			return u, err
		}
		u.User += ticks(fields[utime])
		u.System += ticks(fields[stime])
	}
	return u, nil
}

// Sub returns what was used since an earlier reading.
func (u Usage) Sub(before Usage) Usage {
	return Usage{u.CPU - before.CPU, u.User - before.User, u.System - before.System}
}

// Fields of /proc/PID/stat after the command, which may hold blanks and is cut off; see proc_pid_stat(5).
const (
	pgrp  = 2
	utime = 11
	stime = 12
)

func statFields(pid int) ([]string, error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	_, rest, ok := strings.Cut(string(content), ") ")
	fields := strings.Fields(rest)
	if !ok || len(fields) <= stime {
		return nil, fmt.Errorf("/proc/%d/stat is malformed", pid)
	}
	return fields, nil
}

func ticks(s string) time.Duration {
	n, _ := strconv.ParseInt(s, 10, 64)
	return time.Duration(n) * tick
}

// Group returns the processes of a process group.
func Group(leader int) (pids []int) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		if fields, err := statFields(pid); err == nil && fields[pgrp] == strconv.Itoa(leader) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// Resident returns the resident memory of processes in bytes.
func Resident(pids []int) (n int64) {
	for _, pid := range pids {
		content, _ := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
		if fields := strings.Fields(string(content)); len(fields) > 1 {
			pages, _ := strconv.ParseInt(fields[1], 10, 64)
			n += pages * int64(os.Getpagesize())
		}
	}
	return n
}

// Descriptors counts the open descriptors of processes.
func Descriptors(pids []int) (n int) {
	for _, pid := range pids {
		entries, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		n += len(entries)
	}
	return n
}
