package launch

import (
	"fmt"
	"math"
	"os"
	"sync"
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

// oomPreference makes the kernel kill a process that this program has started, rather than the
// program, when the machine or the control group has no memory left. The kernel treats the process
// as if it used that many thousandths of the memory more than it does. Otherwise many small
// processes would end the program, which may be larger than each of them. A program that has half
// of the memory is still killed first.
const oomPreference = 500

// oomScore returns the kernel's oom_score_adj for started processes.
var oomScore = sync.OnceValue(func() (score int) {
	text, _ := os.ReadFile("/proc/self/oom_score_adj")
	_, _ = fmt.Sscan(string(text), &score)
	return min(score+oomPreference, 1000)
})

// setLimits sets limits of a process that has just begun, and its oomScore. It raises no limit above
// the process's hard limit.
func setLimits(pid int, limits []Limit) {
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), fmt.Append(nil, oomScore()), 0)
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
	p.pollEnd()
	for unix.Waitid(unix.P_PID, p.process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
}

// pollEnd waits until the process seems to have ended, and keeps no thread waiting meanwhile. If
// each process needed a thread, a job could end this program by using up the system's limit on
// processes: the Go runtime aborts if it gets no further thread. pollEnd returns at once if the
// kernel or the limit on open files does not allow such a wait.
func (p *Process) pollEnd() {
	fd, err := unix.PidfdOpen(p.process.Pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	defer f.Close()
	if conn, err := f.SyscallConn(); err == nil {
		_ = conn.Read(func(fd uintptr) bool {
			n, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
			return n != 0
		})
	}
}

// pipeSize returns how many bytes a pipe holds.
func pipeSize(fd uintptr) int {
	if size, err := unix.FcntlInt(fd, unix.F_GETPIPE_SZ, 0); err == nil {
		return size
	}
	return chunkSize
}
