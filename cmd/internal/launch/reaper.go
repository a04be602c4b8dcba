package launch

import (
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// reaper takes care of strangers: a process with the id 1, as in a container,
// inherits whatever its jobs leave behind, and must wait for it.
type reaper struct {
	mu  sync.Mutex // guards own; held while forking
	own map[int]bool

	stop chan struct{}
	done chan struct{}
}

// reapEvery keeps a storm of ends from becoming one of looks.
const reapEvery = 200 * time.Millisecond

func newReaper() *reaper {
	r := &reaper{own: make(map[int]bool), stop: make(chan struct{}), done: make(chan struct{})}
	go r.run()
	return r
}

func (r *reaper) run() {
	defer close(r.done)
	ends := make(chan os.Signal, 1)
	signal.Notify(ends, syscall.SIGCHLD)
	defer signal.Stop(ends)
	for {
		select {
		case <-r.stop:
			return
		case <-ends:
			r.reap()
		}
		select {
		case <-r.stop:
			return
		case <-time.After(reapEvery):
		}
	}
}

// reap waits for dead children that nobody here has started.
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
		stat, err := os.ReadFile("/proc/" + entry.Name() + "/stat")
		if err != nil {
			continue
		}
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if len(fields) < 2 || fields[0] != "Z" || fields[1] != strconv.Itoa(self) {
			continue
		}
		r.mu.Lock()
		if !r.own[pid] {
			syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
		}
		r.mu.Unlock()
	}
}

// forking is held while a child of ours is being made.
func (r *reaper) forking(make func() int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if pid := make(); pid > 0 {
		r.own[pid] = true
	}
}

// reaped says that a child of ours has been waited for.
func (r *reaper) reaped(pid int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.own, pid)
}

func (r *reaper) close() {
	close(r.stop)
	<-r.done
}
