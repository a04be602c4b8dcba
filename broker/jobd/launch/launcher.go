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
	opt   Options
	env   []string
	stdin *os.File
	forks chan func()

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
	go l.fork()
	return l, nil
}

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

// Close ends the launcher. No process must be running.
func (l *Launcher) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.closed = true
		close(l.forks)
		l.stdin.Close()
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
	p := &Process{ended: make(chan struct{})}
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
		p.process, err = os.StartProcess(path, argv, &os.ProcAttr{
			Dir:   l.opt.Dir,
			Env:   l.env,
			Files: []*os.File{l.stdin, stdout, stderr},
			Sys:   &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
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
