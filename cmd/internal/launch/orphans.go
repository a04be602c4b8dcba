package launch

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"gloom/cmd/internal/boot"
	"gloom/cmd/internal/process"
)

// markName is the environment variable that marks the processes of a program. If the program has
// died and had no control group for its processes, they are found by this mark.
const markName = "JOBD_OWNER"

// MarkVariable returns the environment setting that marks the processes of a guard with this owner,
// and their descendants. In their environment, a slash and the Name of the Command may follow it.
func MarkVariable(owner string) string { return markName + "=" + owner }

// KillOrphans kills the processes on this host that a dead program started under a
// Guard with that owner. It returns when they are gone or ctx ends.
func KillOrphans(ctx context.Context, owner string) (killCount int, err error) {
	killCount, err = killAll(ctx, owner)
	if group := controlGroupOf(owner); err == nil && group != "" {
		os.Remove(group)
	}
	return killCount, err
}

// killAll kills all processes of a dead owner's control group, and all that have its mark,
// until there are none.
func killAll(ctx context.Context, owner string) (killCount int, err error) {
	tick := time.NewTicker(killInterval)
	defer tick.Stop()
	seen := make(map[int]string) // when they began
	for {
		leftPIDs, mayMiss := killOnce(owner)
		for _, pid := range leftPIDs {
			if seen[pid] == "" {
				seen[pid] = startTime(pid)
			}
		}
		if len(leftPIDs) == 0 && !mayMiss && allEnded(seen) {
			return len(seen), nil
		}
		if group := controlGroupOf(owner); group != "" { // from now on no process can be started in the group
			_ = os.WriteFile(filepath.Join(group, "cgroup.kill"), []byte("1"), 0)
		}
		select {
		case <-ctx.Done():
			return len(seen), ctx.Err()
		case <-tick.C:
		}
	}
}

// startTime returns the time at which a process began, as /proc has it, or "" once it is gone.
func startTime(pid int) string {
	start, state := process.StartTime(pid)
	if state == "Z" || state == "X" {
		return ""
	}
	return start
}

// allEnded reports whether all killed processes are gone: a process that ends loses its
// environment, and so the mark, before its files are closed.
func allEnded(pids map[int]string) bool {
	for pid, start := range pids {
		if start != "" && startTime(pid) == start {
			return false
		}
	}
	return true
}

// killInterval is the interval at which the remaining processes are looked for.
const killInterval = 10 * time.Millisecond

// killOnce kills the processes that it finds, and lists them. mayMiss means that other processes
// may be about to get the mark.
func killOnce(owner string) (pids []int, mayMiss bool) {
	pids, mayMiss = killMarked([]byte(MarkVariable(owner)))
	return append(pids, killMembers(controlGroupOf(owner))...), mayMiss
}

// killMembers kills the processes in a control group, and lists them. It kills them one by one,
// because the use of a group's kill file makes the group unusable: on some kernels (seen on 6.18)
// processes that are started in the group later are killed too.
func killMembers(group string) (pids []int) {
	handles := make(map[int]*os.Process)
	for _, pid := range memberPIDs(group) {
		if process, err := os.FindProcess(pid); err == nil {
			handles[pid] = process
		}
	}
	// As in killMarked, the process is checked again after the handle was taken, to be sure that the
	// handle belongs to a member.
	for _, pid := range memberPIDs(group) {
		if process := handles[pid]; process != nil && process.Signal(syscall.SIGKILL) == nil {
			pids = append(pids, pid)
		}
	}
	for _, process := range handles {
		process.Release()
	}
	return pids
}

func memberPIDs(group string) (pids []int) {
	if group == "" {
		return nil
	}
	data, _ := os.ReadFile(filepath.Join(group, "cgroup.procs"))
	for _, pid := range strings.Fields(string(data)) {
		n, _ := strconv.Atoi(pid)
		pids = append(pids, n)
	}
	return pids
}

// killMarked kills the processes with the setting in their environment, and lists them.
// mayMiss means that some processes may be about to get their environment. Zombies have none, and
// other users' processes cannot be read.
func killMarked(mark []byte) (pids []int, mayMiss bool) {
	entries, _ := os.ReadDir("/proc")
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		if isMarked, isStarting := hasMark(pid, mark); !isMarked {
			mayMiss = mayMiss || isStarting
			continue
		}
		// The handle is taken before a second look, so it is not that of a later
		// process with the same id.
		process, err := os.FindProcess(pid)
		if err != nil {
			continue
		}
		if isMarked, _ := hasMark(pid, mark); isMarked && process.Signal(syscall.SIGKILL) == nil {
			pids = append(pids, pid)
		}
		process.Release()
	}
	return pids, mayMiss
}

// execGrace is the age up to which a process without an environment may be one that has just begun
// to execute a program.
const execGrace = 2 * time.Second

// hasMark reports whether a process has the setting, or has no environment and is so young that it
// may be about to get the setting.
func hasMark(pid int, mark []byte) (isMarked, isStarting bool) {
	env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return false, false
	}
	if len(env) == 0 {
		t, ok := readTimes(pid)
		_, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/exe") // kernel threads and zombies have none
		return false, ok && err == nil && boot.Since()-t.startedAt < execGrace
	}
	for setting := range bytes.SplitSeq(env, []byte{0}) {
		if rest, ok := bytes.CutPrefix(setting, mark); ok && (len(rest) == 0 || rest[0] == '/') {
			return true, false
		}
	}
	return false, false
}

// makeControlGroup makes the owner's control group. It returns nil where this program may not make
// control groups.
func makeControlGroup(owner string) *os.File {
	group := controlGroupOf(owner)
	if group == "" || unix.Access(filepath.Join(filepath.Dir(group), "cgroup.procs"), unix.W_OK) != nil {
		return nil
	}
	if err := os.Mkdir(group, 0o755); err != nil && !os.IsExist(err) {
		return nil
	}
	dir, err := os.Open(group)
	if err != nil {
		os.Remove(group)
		return nil
	}
	return dir
}

// controlGroupOf returns the path of the owner's control group, which is inside our own; "" without
// control groups of version 2.
func controlGroupOf(owner string) string {
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	data, _ := os.ReadFile("/proc/self/cgroup")
	group := ""
	for line := range strings.Lines(string(data)) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			group = path
		}
	}
	for line := range strings.Lines(string(mounts)) {
		before, after, _ := strings.Cut(line, " - ")
		fields := strings.Fields(before)
		if strings.HasPrefix(after, "cgroup2 ") && len(fields) > 4 && fields[3] == "/" && group != "" {
			return filepath.Join(fields[4], group, "launch-"+owner)
		}
	}
	return ""
}
