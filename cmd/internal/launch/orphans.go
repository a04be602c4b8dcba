package launch

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
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

// KillOrphans kills the processes on this host that dead programs started under
// Guards with these owners. It returns when they are gone or ctx ends. It looks for all owners
// together, because each look reads the environments of all processes of the host.
func KillOrphans(ctx context.Context, owners ...string) (killCount int, err error) {
	groups := controlGroupsOf(owners)
	if killCount, err = killAll(ctx, owners, groups); err == nil {
		for _, group := range groups {
			os.Remove(group)
		}
	}
	return killCount, err
}

// killAll kills all processes of the control groups of dead owners, and all that have their marks,
// until there are none.
func killAll(ctx context.Context, owners, groups []string) (killCount int, err error) {
	tick := time.NewTicker(killInterval)
	defer tick.Stop()
	seen := make(map[int]string) // when they began
	for {
		leftPIDs, mayMiss := killOnce(owners, groups)
		for _, pid := range leftPIDs {
			if seen[pid] == "" {
				seen[pid] = startTime(pid)
			}
		}
		if len(leftPIDs) == 0 && !mayMiss && allEnded(seen) {
			return len(seen), nil
		}
		for _, group := range groups { // from now on no process can be started in the group
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
func killOnce(owners, groups []string) (pids []int, mayMiss bool) {
	pids, mayMiss = killMarked(owners)
	for _, group := range groups {
		pids = append(pids, killMembers(group)...)
	}
	return pids, mayMiss
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
	data, _ := os.ReadFile(filepath.Join(group, "cgroup.procs"))
	for _, pid := range strings.Fields(string(data)) {
		n, _ := strconv.Atoi(pid)
		pids = append(pids, n)
	}
	return pids
}

// killMarked kills the processes with the mark of one of these owners, and lists them.
// mayMiss means that some processes may be about to get their environment. Zombies have none, and
// other users' processes cannot be read.
func killMarked(owners []string) (pids []int, mayMiss bool) {
	entries, _ := os.ReadDir("/proc")
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		if isMarked, isStarting := hasMark(pid, owners); !isMarked {
			mayMiss = mayMiss || isStarting
			continue
		}
		// The handle is taken before a second look, so it is not that of a later
		// process with the same id.
		process, err := os.FindProcess(pid)
		if err != nil {
			continue
		}
		if isMarked, _ := hasMark(pid, owners); isMarked && process.Signal(syscall.SIGKILL) == nil {
			pids = append(pids, pid)
		}
		process.Release()
	}
	return pids, mayMiss
}

// execGrace is the age up to which a process without an environment may be one that has just begun
// to execute a program.
const execGrace = 2 * time.Second

// hasMark reports whether a process has the mark of one of these owners, or has no environment and
// is so young that it may be about to get the mark.
func hasMark(pid int, owners []string) (isMarked, isStarting bool) {
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
		name, isMark := bytes.CutPrefix(setting, []byte(MarkVariable("")))
		if isMark && slices.ContainsFunc(owners, func(owner string) bool {
			rest, ok := strings.CutPrefix(string(name), owner)
			return ok && (rest == "" || rest[0] == '/')
		}) {
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
func controlGroupOf(owner string) string { return strings.Join(controlGroupsOf([]string{owner}), "") }

// controlGroupsOf returns the paths of the owners' control groups; none without control groups of
// version 2.
func controlGroupsOf(owners []string) (groups []string) {
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
			for _, owner := range owners {
				groups = append(groups, filepath.Join(fields[4], group, "launch-"+owner))
			}
			return groups
		}
	}
	return nil
}
