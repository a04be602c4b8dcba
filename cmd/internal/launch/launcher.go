// Package launch starts one process per job and tells how it ended. It knows
// nothing of rows and brokers.
//
// A process lives in a group of its own, is killed by the kernel when the
// daemon dies, and counts as ended when it has ended itself, whatever its
// descendants do with the outputs that they inherited.
package launch

import (
	"errors"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// Options describes the processes of a launcher.
type Options struct {
	Command   string   // words separated by spaces; Placeholder becomes the id
	Dir       string   // "" is the daemon's own directory
	Env       []string // NAME=value, added to the daemon's environment
	MaxOutput int      // bytes kept of each output
}

// ErrClosed is returned by Start after Close.
var ErrClosed = errors.New("launcher is closed")

// Launcher starts processes. Its methods may be called from any goroutine.
type Launcher struct {
	opt     Options
	env     []string
	stdin   *os.File
	forks   chan func()
	watcher *watcher
	reaper  *reaper // nil when orphans are somebody else's

	mu     sync.RWMutex // guards closed; held while a fork is under way
	closed bool
}

// New prepares a launcher. Close it when all its processes have ended.
func New(opt Options) (*Launcher, error) {
	stdin, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	l := &Launcher{
		opt:   opt,
		env:   environment(os.Environ(), opt.Env),
		stdin: stdin,
		forks: make(chan func()),
	}
	if l.watcher, err = newWatcher(); err != nil {
		stdin.Close()
		return nil, err
	}
	if adopts() {
		l.reaper = newReaper()
	}
	go l.fork()
	return l, nil
}

// adopts tells whether the orphans of this host or container become ours.
var adopts = func() bool { return os.Getpid() == 1 }

// Until limits how long processes may run: when it has passed they are killed,
// even if the daemon is stopped or stuck by then. Every call moves the limit.
func (l *Launcher) Until(t time.Time) { l.watcher.limit(t) }

// fork does all forking on one thread that lives as long as the launcher: the
// kernel sends the parent-death signal when the forking thread ends, not when
// the process does.
func (l *Launcher) fork() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for f := range l.forks {
		f()
	}
}

func (l *Launcher) making(process func() int) {
	if l.reaper == nil {
		process()
		return
	}
	l.reaper.forking(process)
}

// Close ends the launcher. No process must be running.
func (l *Launcher) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.closed = true
		close(l.forks)
		l.stdin.Close()
		l.watcher.close()
		if l.reaper != nil {
			l.reaper.close()
		}
	}
}

// Start launches the process of a job. The error tells, for the job's record,
// what kept it from starting.
func (l *Launcher) Start(id int64) (*Process, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.closed {
		return nil, ErrClosed
	}
	argv := words(l.opt.Command, id)
	if len(argv) == 0 {
		return nil, errors.New("cannot launch: the command is empty")
	}
	path, err := find(argv[0], l.opt.Dir, l.env)
	if err != nil {
		return nil, reason(argv[0], l.opt.Dir, err)
	}
	p := &Process{launcher: l, ended: make(chan struct{})}
	p.stdout.limit, p.stderr.limit = l.opt.MaxOutput, l.opt.MaxOutput
	stdout, err := p.stdout.open()
	if err != nil {
		return nil, reason(argv[0], "", err)
	}
	defer stdout.Close()
	stderr, err := p.stderr.open()
	if err != nil {
		p.stdout.pipe.Close()
		return nil, reason(argv[0], "", err)
	}
	defer stderr.Close()

	done := make(chan struct{})
	l.forks <- func() {
		defer close(done)
		l.making(func() int {
			p.process, err = os.StartProcess(path, argv, &os.ProcAttr{
				Dir:   l.opt.Dir,
				Env:   l.env,
				Files: []*os.File{l.stdin, stdout, stderr},
				Sys:   &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
			})
			if err != nil {
				return 0
			}
			l.watcher.begun(p.process.Pid)
			return p.process.Pid
		})
	}
	<-done
	if err != nil {
		p.stdout.pipe.Close()
		p.stderr.pipe.Close()
		return nil, reason(argv[0], l.opt.Dir, err)
	}
	go p.stdout.read()
	go p.stderr.read()
	go p.wait()
	return p, nil
}
