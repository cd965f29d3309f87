//go:build linux

package proc

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestMain lets this binary be the process that KeepAwake starts.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "awake" {
		fmt.Fprintln(os.Stderr, StayAwake(0, os.Stdout))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func TestUsageCountsWork(t *testing.T) {
	pids := []int{os.Getpid()}
	before, err := UsageOf(pids)
	require.NoError(t, err)
	// Threads are charged at scheduler ticks at the latest, so some work has to be done until it shows.
	const want = 50 * time.Millisecond
	var used Usage
	for used.CPU < want || used.User+used.System == 0 {
		for begin := time.Now(); time.Since(begin) < 10*time.Millisecond; {
		}
		now, err := UsageOf(pids)
		require.NoError(t, err)
		used = now.Sub(before)
	}
	assert.Less(t, used.CPU, time.Duration(runtime.NumCPU())*time.Minute)
}

func TestUsageOfNobody(t *testing.T) {
	_, err := UsageOf([]int{1 << 30})
	assert.Error(t, err)
}

func TestGroupHoldsChildren(t *testing.T) {
	cmd := exec.Command("sh", "-c", "sleep 600 & wait")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, cmd.Start())
	defer func() {
		require.NoError(t, syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL))
		cmd.Wait()
	}()
	assert.Eventually(t, func() bool { return len(Group(cmd.Process.Pid)) == 2 }, 30*time.Second, time.Millisecond)
	assert.Contains(t, Group(cmd.Process.Pid), cmd.Process.Pid)
}

func TestOnCorePlacesChildren(t *testing.T) {
	var out []byte
	err := OnCore(0, func() (err error) {
		out, err = exec.Command("grep", "Cpus_allowed_list", "/proc/self/status").Output()
		return err
	})
	require.NoError(t, err)
	assert.Equal(t, "Cpus_allowed_list:\t0\n", string(out))
}

func TestOnCoreThatIsNotThere(t *testing.T) {
	assert.ErrorContains(t, OnCore(1000, func() error { return nil }), "core 1000")
}

func TestOnCoreComesBack(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, after unix.CPUSet
	require.NoError(t, unix.SchedGetaffinity(0, &before))
	require.NoError(t, OnCore(0, func() error { return nil }))
	require.NoError(t, unix.SchedGetaffinity(0, &after))
	assert.Equal(t, before, after)
}

func TestResidentAndDescriptors(t *testing.T) {
	self := []int{os.Getpid()}
	assert.Greater(t, Resident(self), int64(1<<20))
	before := Descriptors(self)
	f, err := os.Open("/dev/null")
	require.NoError(t, err)
	defer f.Close()
	assert.Equal(t, before+1, Descriptors(self))
}

func TestCalibrate(t *testing.T) {
	d, err := Calibrate(0)
	require.NoError(t, err)
	assert.Greater(t, d, 100*time.Nanosecond)
}

func TestThisMachine(t *testing.T) {
	m := ThisMachine()
	assert.NotEmpty(t, m.CPU)
	assert.NotEmpty(t, m.Kernel)
	assert.NotZero(t, m.Memory)
	assert.NotZero(t, m.Files)
}

func TestKeepAwakeGivesWay(t *testing.T) {
	a, err := KeepAwake([]int{0})
	require.NoError(t, err)
	defer a.Stop()
	pid := a.cmds[0].Process.Pid
	attr, err := unix.SchedGetAttr(pid, 0)
	require.NoError(t, err)
	assert.EqualValues(t, unix.SCHED_IDLE, attr.Policy)
	var cores unix.CPUSet
	require.NoError(t, unix.SchedGetaffinity(pid, &cores))
	assert.True(t, cores.IsSet(0) && cores.Count() == 1)
	assert.Eventually(t, func() bool {
		u, err := UsageOf([]int{pid})
		return err == nil && u.CPU > 50*time.Millisecond
	}, 30*time.Second, 5*time.Millisecond)
	a.Stop()
	assert.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH)
}
