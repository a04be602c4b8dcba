package launch

import (
	"math"
	"syscall"

	"golang.org/x/sys/unix"
)

// sysProcAttr gives a new process a group of its own, which the terminal's Ctrl-C does not reach,
// and ends it when this program ends.
func sysProcAttr(c Command) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, Credential: c.User}
	if c.DeathSignal != 0 {
		a.Pdeathsig = c.DeathSignal
	}
	if c.Guard != nil && c.Guard.cgroup != nil {
		a.UseCgroupFD, a.CgroupFD = true, int(c.Guard.cgroup.Fd())
	}
	return a
}

// leaveGroup makes a process start outside the control group, and reports whether it would have
// started inside.
func leaveGroup(a *syscall.SysProcAttr) bool {
	useCgroup := a.UseCgroupFD
	a.UseCgroupFD = false
	return useCgroup
}

// KeepDescriptors keeps processes from inheriting this program's own inherited descriptors.
func KeepDescriptors() { _ = unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC) }

// setLimits sets limits of a process that has just begun. It raises no limit above the
// process's hard limit.
func setLimits(pid int, limits []Limit) {
	for _, l := range limits {
		var old unix.Rlimit
		if unix.Prlimit(pid, l.Resource, nil, &old) == nil {
			maxValue := min(l.Max, old.Max)
			_ = unix.Prlimit(pid, l.Resource, &unix.Rlimit{Cur: maxValue, Max: maxValue}, nil)
		}
	}
}

// waitEnd waits for the process's end without reaping it.
func (p *Process) waitEnd() {
	for unix.Waitid(unix.P_PID, p.process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
}

// pipeSize returns how many bytes a pipe holds.
func pipeSize(fd uintptr) int {
	if size, err := unix.FcntlInt(fd, unix.F_GETPIPE_SZ, 0); err == nil {
		return size
	}
	return chunkSize
}
