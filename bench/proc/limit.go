package proc

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// NeedFiles raises the limit on open files of this process, and of those it
// starts, to at least n.
func NeedFiles(n uint64) error {
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

// Pin binds every thread of process pid, and all it will start, to the given
// processor; processor -1 sets it free.
func Pin(pid, processor int) error {
	var set unix.CPUSet
	if processor >= 0 {
		set.Set(processor)
	} else {
		for i := range maxProcessors {
			set.Set(i)
		}
	}
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return fmt.Errorf("pin process %d: %w", pid, err)
	}
	for _, t := range tasks {
		tid, err := strconv.Atoi(t.Name())
		if err != nil {
			continue
		}
		if err := unix.SchedSetaffinity(tid, &set); err != nil && err != unix.ESRCH {
			return fmt.Errorf("pin thread %d of process %d to processor %d: %w", tid, pid, processor, err)
		}
	}
	return nil
}

const maxProcessors = 1024
