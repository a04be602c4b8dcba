package launch

import (
	"math"
	"syscall"

	"golang.org/x/sys/unix"
)

// attributes are those of a new process: a group of its own, which the
// terminal's Ctrl-C does not reach, and an end with ours.
func attributes(c Command) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, Credential: c.User}
	if c.Death != 0 {
		a.Pdeathsig = c.Death
	}
	if c.Guard != nil && c.Guard.cgroup != nil {
		a.UseCgroupFD, a.CgroupFD = true, int(c.Guard.cgroup.Fd())
	}
	return a
}

// leaveGroup has a process start outside of the control group, and tells whether
// it was to be inside.
func leaveGroup(a *syscall.SysProcAttr) bool {
	inside := a.UseCgroupFD
	a.UseCgroupFD = false
	return inside
}

// KeepDescriptors has processes inherit none of the descriptors that this program
// has inherited itself.
func KeepDescriptors() { _ = unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC) }

// limit sets limits of a process that has just begun. None is raised above what
// the process may have.
func limit(pid int, limits []Limit) {
	for _, l := range limits {
		var old unix.Rlimit
		if unix.Prlimit(pid, l.Resource, nil, &old) == nil {
			most := min(l.Max, old.Max)
			_ = unix.Prlimit(pid, l.Resource, &unix.Rlimit{Cur: most, Max: most}, nil)
		}
	}
}

// waitEnd waits for the process's end without reaping it.
func (p *Process) waitEnd() {
	for unix.Waitid(unix.P_PID, p.process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
}

// pipeSize is what a pipe holds, in bytes.
func pipeSize(fd uintptr) int {
	if size, err := unix.FcntlInt(fd, unix.F_GETPIPE_SZ, 0); err == nil {
		return size
	}
	return chunk
}
