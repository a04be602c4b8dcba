package proc

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// RaiseFileLimit raises the limit on open files of this process, and of those it
// starts, to at least n.
func RaiseFileLimit(n uint64) error {
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		return fmt.Errorf("limit on open files: %w", err)
	}
	if lim.Cur >= n {
		return nil
	}
	want := unix.Rlimit{Cur: n, Max: max(n, lim.Max)}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &want); err != nil {
		return fmt.Errorf("%d open files are needed, the limit is %d (raise it with ulimit -n): %w", n, lim.Max, err)
	}
	return nil
}

// allowedCPUs is the set of processors that this process could use when it started.
var allowedCPUs = func() (set unix.CPUSet) {
	_ = unix.SchedGetaffinity(0, &set) // if this fails, the set is empty, and Pin reports it
	return set
}()

// Pin binds every thread of process pid, and every later thread, to one processor: the first that
// this process may use.
func Pin(pid int) error {
	for i := range maxProcessors {
		if allowedCPUs.IsSet(i) {
			var set unix.CPUSet
			set.Set(i)
			return setAffinity(pid, &set)
		}
	}
	return fmt.Errorf("pin process %d: the processors that it may use are unknown", pid)
}

// Unpin lets process pid use all processors that this one could use at its start.
func Unpin(pid int) error { return setAffinity(pid, &allowedCPUs) }

func setAffinity(pid int, set *unix.CPUSet) error {
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return fmt.Errorf("bind process %d to processors: %w", pid, err)
	}
	for _, t := range tasks {
		tid, err := strconv.Atoi(t.Name())
		if err != nil {
			continue
		}
		if err := unix.SchedSetaffinity(tid, set); err != nil && err != unix.ESRCH {
			return fmt.Errorf("bind thread %d of process %d to processors: %w", tid, pid, err)
		}
	}
	return nil
}

const maxProcessors = 1024
