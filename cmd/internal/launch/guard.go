package launch

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"gloom/cmd/internal/boot"
)

// The guard's process is this same program, started with a variable set to the owner. It reads
// notes of 16 bytes. The first half is the time on the boot clock until which processes may run; 0
// means as long as the program lives. The second half is the id of a process that has begun, the
// negated id of one that is about to be reaped, or 0.
const (
	guardVariable = "JOBD_LAUNCH_GUARD"
	graceVariable = "JOBD_LAUNCH_GRACE" // a duration: how long processes may take to end
	guardName     = "job-guard"
	noteSize      = 16
	// guardInterval bounds how long it takes to notice that the clock has jumped, as it does after a
	// suspend.
	guardInterval = 500 * time.Millisecond
	// killTimeout bounds one attempt to kill all processes that are left.
	killTimeout = 10 * time.Second
)

var mainCalled bool

// Main must be the first call in main of every program that uses a Guard. In a guard's process
// it runs the guard and does not return.
func Main() {
	mainCalled = true
	if owner := os.Getenv(guardVariable); owner != "" {
		grace, _ := time.ParseDuration(os.Getenv(graceVariable)) // without a duration, grace is 0
		runGuard(owner, grace)
		os.Exit(0)
	}
}

// runGuard runs a guard's process.
func runGuard(owner string, grace time.Duration) {
	// The process has the name of its first thread, and the current thread may be another one.
	_ = os.WriteFile("/proc/self/comm", []byte(guardName), 0)
	// A signal to the whole group or control group of the program reaches the guard, too. It must
	// survive, to give the program time to end.
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE)
	state := guardState{owner: owner, processes: make(map[int]bool)}
	notes := make([]byte, 256*noteSize)
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: 0, Events: unix.POLLIN}}, state.timeoutMS())
		switch {
		case err == unix.EINTR:
			continue
		case err == nil && n == 0: // no new note
			if state.deadline != 0 && int64(boot.Since()) >= state.deadline {
				state.expire()
			}
			continue
		}
		// Each note is written in one piece, so only whole notes are read.
		if n, err = unix.Read(0, notes); n <= 0 && err != unix.EINTR {
			state.terminateGroups(grace)
			state.killEverything()
			if group := controlGroupOf(owner); group != "" {
				os.Remove(group)
			}
			return
		}
		for at := 0; at+noteSize <= n; at += noteSize {
			state.applyNote(notes[at:])
		}
	}
}

// guardState is the state of a guard's process.
type guardState struct {
	owner            string
	processes        map[int]bool // leaders of process groups that have not been reaped
	deadline         int64        // the limit on the boot clock, in nanoseconds; 0 for none
	mayHaveSurvivors bool         // processes may still be running after the limit
}

func (s *guardState) applyNote(note []byte) {
	s.deadline = int64(binary.LittleEndian.Uint64(note))
	if pid := int(int64(binary.LittleEndian.Uint64(note[8:]))); pid > 0 {
		s.processes[pid] = true
	} else {
		delete(s.processes, -pid)
	}
}

// timeoutMS returns the time until the clock must be checked again, in milliseconds; -1 for never.
func (s *guardState) timeoutMS() int {
	timeLeft := time.Duration(s.deadline) - boot.Since()
	switch {
	case s.deadline == 0:
		return -1
	case timeLeft > 0:
		return int(min(guardInterval, timeLeft+time.Millisecond).Milliseconds())
	case len(s.processes) > 0:
		return 0
	case s.mayHaveSurvivors:
		return int(killInterval.Milliseconds())
	}
	return int(guardInterval.Milliseconds())
}

// expire kills all processes that it finds. The caller reads the notes again before each call: if
// the program has continued meanwhile, the program's new processes must live.
func (s *guardState) expire() {
	s.killGroups()
	pids, unsure := killOnce([]string{s.owner}, controlGroupsOf([]string{s.owner}))
	// Later than this, no process that was about to begin at the limit can still be without its
	// environment. Others begin all the time on a busy host, and looking for them all the time takes much of
	// a processor while the limit is not moved, for example because the database is away.
	unsure = unsure && int64(boot.Since())-s.deadline < int64(2*execGrace)
	s.mayHaveSurvivors = len(pids) > 0 || unsure
}

func (s *guardState) killGroups() {
	for pid := range s.processes {
		unix.Kill(-pid, syscall.SIGKILL)
		delete(s.processes, pid)
	}
}

// terminateGroups sends the groups SIGTERM, and gives them the time of grace to end.
func (s *guardState) terminateGroups(grace time.Duration) {
	if grace == 0 {
		return
	}
	for pid := range s.processes {
		unix.Kill(-pid, syscall.SIGTERM)
	}
	for deadline := int64(boot.Since()) + int64(grace); int64(boot.Since()) < deadline && len(s.processes) > 0; time.Sleep(killInterval) {
		maps.DeleteFunc(s.processes, func(pid int, _ bool) bool { return unix.Kill(-pid, 0) == unix.ESRCH })
	}
}

// killEverything ends all processes: those of the control group if there is one, and otherwise
// the groups of processes and the processes that have the mark.
func (s *guardState) killEverything() {
	s.killGroups()
	ctx, cancel := context.WithTimeout(context.Background(), killTimeout)
	defer cancel()
	_, _ = killAll(ctx, []string{s.owner}, controlGroupsOf([]string{s.owner}))
}

// Guard is a small process that runs beside this program and ends after it. It kills the processes
// that were started under it, and their descendants, when the program has gone or has not extended
// their time, for example because it is stopped or stuck. The parent-death signal does not
// suffice: it reaches no descendants, and is not sent when the program merely hangs.
type Guard struct {
	owner  string
	grace  time.Duration
	cgroup *os.File // the control group of all guarded processes; nil if there is none
	done   chan struct{}

	mu       sync.Mutex // guards the following
	pid      int        // id of the guard's process; 0 when there is none
	pipe     *os.File
	running  map[int]bool
	deadline int64
	lapses   int // how many limits had already passed when they were moved
	closed   bool
}

// NewGuard starts a guard. The owner is this program's name for KillOrphans, unique on
// this host.
func NewGuard(owner string) (*Guard, error) { return NewGuardWithGrace(owner, 0) }

// NewGuardWithGrace starts a guard that sends SIGTERM to the groups of processes when the
// program is gone, and kills what is left after grace.
func NewGuardWithGrace(owner string, grace time.Duration) (*Guard, error) {
	if !mainCalled {
		return nil, errors.New("launch.Main was not called at the start of the program")
	}
	g := &Guard{owner: owner, grace: grace, cgroup: makeControlGroup(owner), done: make(chan struct{}), running: make(map[int]bool)}
	if err := g.start(); err != nil {
		g.leaveGroup()
		return nil, fmt.Errorf("start the process guard: %w", err)
	}
	go g.restartLoop()
	return g, nil
}

// SetDeadline limits how long processes may run: after this time the guard kills them, even if this
// program is then stopped or stuck. Every call moves the limit.
func (g *Guard) SetDeadline(t time.Time) {
	// The clocks are read in this order, so that a delay in between makes the limit earlier, not
	// later.
	now := int64(boot.Since())
	at := now + int64(time.Until(t))
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.limitPassed() {
		g.lapses++
		g.stop() // it may be searching for processes to kill, and would find those that begin from now on
	}
	g.deadline = at
	g.sendNote(0)
}

// Lapses returns how many limits had already passed when they were moved.
func (g *Guard) Lapses() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.lapses
}

// LapsedSince reports whether a limit has passed since Lapses returned n, or had already passed
// then. If it has, the guard may have killed processes that were started after that call.
func (g *Guard) LapsedSince(n int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.lapses != n || g.limitPassed()
}

// limitPassed reports whether the limit has passed. Callers hold mu.
func (g *Guard) limitPassed() bool { return g.deadline != 0 && int64(boot.Since()) >= g.deadline }

// Close ends the guard, but no process that it guards.
func (g *Guard) Close() {
	g.mu.Lock()
	g.closed = true
	g.stop()
	g.mu.Unlock()
	<-g.done
	g.leaveGroup()
}

func (g *Guard) leaveGroup() {
	if g.cgroup != nil {
		g.cgroup.Close()
		os.Remove(g.cgroup.Name()) // fails if a process is left in it
	}
}

// ownerOf returns the owner of a command's processes.
func (g *Guard) ownerOf(name string) string {
	if name == "" {
		return g.owner
	}
	return g.owner + "/" + name
}

func (g *Guard) addProcess(pid int) {
	if g != nil {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.running[pid] = true
		g.sendNote(pid)
	}
}

// removeProcess notes that a process is about to be reaped.
func (g *Guard) removeProcess(pid int) {
	if g != nil {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.running, pid)
		g.sendNote(-pid)
	}
}

// sendNote writes a note without waiting. If the guard's pipe is full, the guard hangs: it is
// replaced, and the next one gets all notes again. Callers hold mu.
func (g *Guard) sendNote(pid int) {
	if g.pid == 0 {
		return
	}
	var note [noteSize]byte
	binary.LittleEndian.PutUint64(note[:], uint64(g.deadline))
	binary.LittleEndian.PutUint64(note[8:], uint64(pid))
	raw, err := g.pipe.SyscallConn()
	if err == nil {
		_ = raw.Write(func(fd uintptr) bool {
			_, err = retryInterrupted(func() (int, error) { return unix.Write(int(fd), note[:]) })
			return true
		})
	}
	if err != nil {
		g.stop()
	}
}

// stop ends the guard's process. Callers hold mu.
func (g *Guard) stop() {
	if g.pid != 0 {
		unix.Kill(g.pid, syscall.SIGKILL)
	}
}

// start starts the guard's process and sends it all notes.
func (g *Guard) start() error {
	r, pipe, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		pipe.Close()
		return err
	}
	defer null.Close()
	process, err := fork("/proc/self/exe", []string{guardName}, &os.ProcAttr{
		Dir: "/", Env: []string{guardVariable + "=" + g.owner, graceVariable + "=" + g.grace.String(), "GOMAXPROCS=1", "GORACE=atexit_sleep_ms=0"},
		Files: []*os.File{r, null, null}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		pipe.Close()
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	// The pipe has room for more processes than there will be, so a full pipe means that nobody
	// reads it.
	_, _ = unix.FcntlInt(r.Fd(), unix.F_SETPIPE_SZ, 1<<20)
	g.pid, g.pipe = process.Pid, pipe
	process.Release() // restartLoop waits by the id, because it must also notice a stop
	if g.closed {
		g.stop()
	}
	g.sendNote(0)
	for pid := range g.running {
		g.sendNote(pid)
	}
	return nil
}

// restartLoop replaces a guard that was killed or stopped.
func (g *Guard) restartLoop() {
	defer close(g.done)
	for g.needsRestart() {
		for g.start() != nil {
			if g.isClosed() {
				return
			}
			time.Sleep(guardInterval)
		}
	}
}

// needsRestart waits until the guard's process has ended, and reports whether another process is
// needed.
func (g *Guard) needsRestart() bool {
	for {
		var status unix.WaitStatus
		_, err := unix.Wait4(g.pid, &status, unix.WUNTRACED, nil)
		g.mu.Lock()
		switch {
		case err == unix.EINTR:
		case err == nil && status.Stopped():
			g.stop()
		default:
			orphanReaper().forget(g.pid)
			g.pid = 0
			g.pipe.Close()
			defer g.mu.Unlock()
			return !g.closed
		}
		g.mu.Unlock()
	}
}

func (g *Guard) isClosed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}
