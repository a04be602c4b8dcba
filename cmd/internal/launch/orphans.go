package launch

import (
	"bytes"
	"context"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// markName is the variable by which the processes of a dead daemon are known.
const markName = "JOBD_OWNER"

// Mark is the setting that makes KillMarked find a daemon's processes and
// their descendants. Put it into Options.Env.
func Mark(owner string) string { return markName + "=" + owner }

// KillMarked kills all processes of this host that carry the mark, and returns
// when they are gone or ctx ends. The kernel has killed a dead daemon's own
// children by then; what is left are their descendants.
func KillMarked(ctx context.Context, owner string) (killed int, err error) {
	mark := []byte(Mark(owner))
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	seen := make(map[int]bool)
	for {
		left := marked(mark)
		if len(left) == 0 {
			return len(seen), nil
		}
		for _, pid := range left {
			unix.Kill(pid, syscall.SIGKILL)
			seen[pid] = true
		}
		select {
		case <-ctx.Done():
			return len(seen), ctx.Err()
		case <-tick.C:
		}
	}
}

// marked lists the processes with the setting in their environment. Zombies
// have none, and other users' processes are not ours to read.
func marked(mark []byte) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var pids []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		env, err := os.ReadFile("/proc/" + entry.Name() + "/environ")
		if err != nil {
			continue
		}
		for setting := range bytes.SplitSeq(env, []byte{0}) {
			if bytes.Equal(setting, mark) {
				pids = append(pids, pid)
				break
			}
		}
	}
	return pids
}
