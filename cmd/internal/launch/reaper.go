package launch

import (
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"gloom/cmd/internal/process"
)

// reaper waits for adopted processes. A process with the id 1, as in a container, adopts the
// descendants of its ended processes, and must wait for each of them to end.
type reaper struct {
	mu   sync.Mutex // guards pids; held while forking
	pids map[int]bool
}

// orphanReaper returns the process's reaper, or nil if the process adopts no orphans.
var orphanReaper = sync.OnceValue(func() *reaper {
	if !reapsOrphans() {
		return nil
	}
	return newReaper()
})

// reapsOrphans reports whether this process adopts the orphans of this host or container.
var reapsOrphans = func() bool { return os.Getpid() == 1 }

// minReapInterval is the shortest time between two searches, so that many processes that end at once
// do not cause as many searches.
const minReapInterval = 200 * time.Millisecond

func newReaper() *reaper {
	r := &reaper{pids: make(map[int]bool)}
	ends := make(chan os.Signal, 1)
	signal.Notify(ends, syscall.SIGCHLD)
	go func() {
		for range ends {
			r.reap()
			time.Sleep(minReapInterval)
		}
	}()
	return r
}

// reap waits for dead children that this program did not start.
func (r *reaper) reap() {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return
	}
	self := os.Getpid()
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		fields := process.Stat(pid)
		if len(fields) < 2 || fields[0] != "Z" || fields[1] != strconv.Itoa(self) {
			continue
		}
		r.mu.Lock()
		if !r.pids[pid] {
			syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
		}
		r.mu.Unlock()
	}
}

// trackFork records the child that fork starts. No child is reaped meanwhile.
func (r *reaper) trackFork(fork func() int) {
	if r == nil {
		fork()
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if pid := fork(); pid > 0 {
		r.pids[pid] = true
	}
}

// forget records that a child of ours has been waited for.
func (r *reaper) forget(pid int) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pids, pid)
}
