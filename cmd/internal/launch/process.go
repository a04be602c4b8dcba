package launch

import (
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Result is how a process ended.
type Result struct {
	Code           int            // exit code, when Signal is 0
	Signal         syscall.Signal // what killed it; 0 when it exited
	Stdout, Stderr string         // valid UTF-8, at most MaxOutput bytes each
}

// Process is a running or ended process of a job.
type Process struct {
	launcher       *Launcher
	process        *os.Process
	stdout, stderr stream
	ended          chan struct{}
	result         Result

	mu     sync.Mutex // guards reaped; held while a signal is sent
	reaped bool
}

// Pid is the process's id, and its group's.
func (p *Process) Pid() int { return p.process.Pid }

// Ended is closed when the process has ended and Result is there.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Result is how the process ended, once Ended is closed.
func (p *Process) Result() Result {
	<-p.ended
	return p.result
}

// Signal sends a signal to the process and tells whether it was delivered.
func (p *Process) Signal(signal syscall.Signal) bool { return p.send(p.process.Pid, signal) }

// SignalGroup sends a signal to the process and its descendants in its group,
// and tells whether any got it.
func (p *Process) SignalGroup(signal syscall.Signal) bool { return p.send(-p.process.Pid, signal) }

func (p *Process) send(pid int, signal syscall.Signal) bool {
	if signal <= 0 {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	// The id may belong to somebody else as soon as the process is reaped.
	return !p.reaped && unix.Kill(pid, signal) == nil
}

func (p *Process) wait() {
	// First without reaping: until then its id, and its group's, are its own.
	for {
		if err := unix.Waitid(unix.P_PID, p.process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != unix.EINTR {
			break
		}
	}
	p.mu.Lock()
	p.reaped = true
	p.launcher.watcher.gone(p.process.Pid)
	state, err := p.process.Wait()
	p.mu.Unlock()
	if r := p.launcher.reaper; r != nil {
		r.reaped(p.process.Pid)
	}
	p.result.Stdout, p.result.Stderr = p.stdout.finish(), p.stderr.finish()
	if err != nil {
		// Somebody else has reaped it: how it ended is not to be known.
		p.result.Code = 255
		p.result.Stderr += "\nexit status is unknown: " + err.Error()
	} else if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		p.result.Signal = status.Signal()
	} else {
		p.result.Code = state.ExitCode()
	}
	close(p.ended)
}

// Running tells whether the process has not ended yet.
func (p *Process) Running() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.reaped
}
