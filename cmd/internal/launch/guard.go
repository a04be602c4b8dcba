package launch

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The guard is a small process beside the daemon that outlives it. It knows the
// running jobs, and kills their groups when the daemon is gone, or has not
// prolonged their time: it may be stopped, or stuck. The parent-death signal
// alone reaches a job's own process only, and never in a daemon that merely
// hangs.
//
// It is this same program, started with a variable set. It reads lines: "+PID"
// and "-PID" for jobs that have begun and ended, and "!NS", the time on the
// boot clock until which they may run, 0 for as long as the daemon lives.
const (
	guardVariable = "JOBD_LAUNCH_GUARD"
	guardName     = "job-guard"
	// guardTick bounds how late a clock that jumped, as after a suspend, is
	// noticed.
	guardTick = 500 * time.Millisecond
)

func init() {
	if os.Getenv(guardVariable) != "" {
		guard(os.Stdin)
		os.Exit(0)
	}
}

// guard is the guard's whole life.
func guard(in io.Reader) {
	if name, err := unix.BytePtrFromString(guardName); err == nil {
		unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(name)), 0, 0, 0)
	}
	// Whoever ends the daemon with its whole group or control group must give it
	// the time to end in order.
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE)
	lines := make(chan string, 1024)
	go func() {
		defer close(lines)
		for scan := bufio.NewScanner(in); scan.Scan(); {
			lines <- scan.Text()
		}
	}()
	g := guarded{jobs: make(map[int]bool)}
	for {
		select {
		case line, ok := <-lines:
			if !ok {
				g.kill()
				return
			}
			g.note(line)
		case <-g.due():
			// What the daemon has said by now counts.
			for pending := true; pending; {
				select {
				case line, ok := <-lines:
					if ok {
						g.note(line)
					}
					pending = ok
				default:
					pending = false
				}
			}
			if g.until != 0 && bootTime() >= g.until {
				g.kill()
			}
		}
	}
}

// guarded is what the guard knows.
type guarded struct {
	jobs  map[int]bool // by process group
	until int64        // on the boot clock, in nanoseconds; 0 for no limit
}

func (g *guarded) note(line string) {
	var n int64
	if line == "" {
		return
	}
	fmt.Sscan(line[1:], &n)
	switch line[0] {
	case '+':
		g.jobs[int(n)] = true
	case '-':
		delete(g.jobs, int(n))
	case '!':
		g.until = n
	}
}

// due fires when it is time to look at the clock.
func (g *guarded) due() <-chan time.Time {
	if g.until == 0 || len(g.jobs) == 0 {
		return nil
	}
	left := time.Duration(g.until - bootTime())
	return time.After(min(guardTick, max(left, 0)))
}

func (g *guarded) kill() {
	for pid := range g.jobs {
		unix.Kill(-pid, syscall.SIGKILL)
		delete(g.jobs, pid)
	}
}

// bootTime is the time since boot, suspends included: the same for all
// processes of a host.
func bootTime() int64 {
	var t unix.Timespec
	unix.ClockGettime(unix.CLOCK_BOOTTIME, &t)
	return t.Nano()
}

// watcher is the daemon's side: it tells the guard, and starts another one when
// that ends.
type watcher struct {
	mu     sync.Mutex // guards the following
	pipe   *os.File
	jobs   map[int]bool
	until  int64
	closed bool
	ended  chan struct{}
}

func newWatcher() (*watcher, error) {
	w := &watcher{jobs: make(map[int]bool), ended: make(chan struct{})}
	process, err := w.start()
	if err != nil {
		return nil, fmt.Errorf("start the guard of processes: %w", err)
	}
	go w.keep(process)
	return w, nil
}

// start starts a guard and tells it all.
func (w *watcher) start() (*os.Process, error) {
	r, pipe, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		pipe.Close()
		return nil, err
	}
	defer null.Close()
	process, err := os.StartProcess("/proc/self/exe", []string{guardName}, &os.ProcAttr{
		Dir: "/", Env: []string{guardVariable + "=1", "GOMAXPROCS=1", "GORACE=atexit_sleep_ms=0"}, Files: []*os.File{r, null, null},
		Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		pipe.Close()
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		pipe.Close()
		return process, nil
	}
	w.pipe = pipe
	var all strings.Builder
	fmt.Fprintf(&all, "!%d\n", w.until)
	for pid := range w.jobs {
		fmt.Fprintf(&all, "+%d\n", pid)
	}
	io.WriteString(pipe, all.String())
	return process, nil
}

// keep replaces a guard that somebody has killed.
func (w *watcher) keep(process *os.Process) {
	defer close(w.ended)
	for {
		process.Wait()
		w.mu.Lock()
		closed := w.closed
		if w.pipe != nil {
			w.pipe.Close()
			w.pipe = nil
		}
		w.mu.Unlock()
		if closed {
			return
		}
		for {
			var err error
			if process, err = w.start(); err == nil {
				break
			}
			time.Sleep(guardTick)
			w.mu.Lock()
			closed = w.closed
			w.mu.Unlock()
			if closed {
				return
			}
		}
	}
}

func (w *watcher) say(format string, n int64) {
	if w.pipe != nil {
		fmt.Fprintf(w.pipe, format, n) // if it fails, the next guard hears it
	}
}

func (w *watcher) begun(pid int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.jobs[pid] = true
	w.say("+%d\n", int64(pid))
}

func (w *watcher) gone(pid int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.jobs, pid)
	w.say("-%d\n", int64(pid))
}

func (w *watcher) limit(until time.Time) {
	// In this order, a delay between the two makes the limit earlier.
	now := bootTime()
	at := now + int64(time.Until(until))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.until = at
	w.say("!%d\n", at)
}

func (w *watcher) close() {
	w.mu.Lock()
	w.closed = true
	if w.pipe != nil {
		w.pipe.Close()
		w.pipe = nil
	}
	w.mu.Unlock()
	<-w.ended
}
