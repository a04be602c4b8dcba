package proc

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// maxPID is the largest process id of the kernel.
const maxPID = 1 << 22

// cpuClockSched, in the id of a process's clock, selects the scheduler's measurement.
const cpuClockSched = 2

// CPU returns the processor time (user and system, all threads, ended ones too) that process pid
// has used. /proc/PID/stat counts it in ticks of 10 ms; the process's CPU clock has nanoseconds.
func CPU(pid int) (time.Duration, error) {
	if pid <= 0 || pid > maxPID {
		return 0, fmt.Errorf("cpu clock of process %d: the id must be from 1 to %d", pid, maxPID)
	}
	var ts unix.Timespec
	clock := int32(^pid<<3 | cpuClockSched)
	if err := unix.ClockGettime(clock, &ts); err != nil {
		return 0, fmt.Errorf("cpu clock of process %d: %w", pid, err)
	}
	return time.Duration(ts.Nano()), nil
}

// OwnCPU returns the processor time that this process has used.
func OwnCPU() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts) // cannot fail
	return time.Duration(ts.Nano())
}
