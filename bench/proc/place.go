//go:build linux

package proc

import (
	"fmt"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// OnCore calls f on a thread that runs on one core only. A process that f starts inherits the place.
func OnCore(core int, f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return fmt.Errorf("sched_getaffinity: %w", err)
	}
	if err := place(0, core); err != nil {
		return err
	}
	defer unix.SchedSetaffinity(0, &before)
	return f()
}

// Stay puts this process on one core. Threads that begin later inherit the place from those that begin them.
func Stay(core int) error {
	return eachThread(func(tid int) error { return place(tid, core) })
}

// eachThread calls f for the threads of this process.
func eachThread(f func(tid int) error) error {
	for range 2 { // a second time for threads that began meanwhile
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return err
		}
		for _, t := range tasks {
			tid, _ := strconv.Atoi(t.Name())
			if err := f(tid); err != nil && err != unix.ESRCH {
				return err
			}
		}
	}
	return nil
}

func place(tid, core int) error {
	var set unix.CPUSet
	set.Set(core)
	if err := unix.SchedSetaffinity(tid, &set); err != nil {
		if err == unix.ESRCH {
			return err
		}
		return fmt.Errorf("core %d: sched_setaffinity: %w", core, err)
	}
	return nil
}

// RaiseFiles raises the limit of open files to what is allowed, for this process and those it starts.
func RaiseFiles() (limit uint64, err error) {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return 0, err
	}
	r.Cur = r.Max
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return 0, err
	}
	return r.Cur, nil
}
