package launch

import (
	"context"
	"errors"
	"io"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Result says how a process ended.
type Result struct {
	Code       int            // exit code, when Signal is 0
	Signal     syscall.Signal // the signal that killed it; 0 when it exited
	OutputHeld bool           // descendants held an output open until Linger was over
	Err        error          // the result is unknown: another part of the program has waited for the process
}

// Process is a running or ended process.
type Process struct {
	process   *os.Process
	guard     *Guard
	name      string // in the guard
	linger    time.Duration
	stdin     *os.File // nil unless there is something to write
	stdinDone chan struct{}
	outputs   []*stream
	watcher   *groupWatcher // nil without one
	done      chan struct{}
	state     *os.ProcessState
	result    Result

	mu           sync.Mutex // guards the fields below; held while a signal is sent
	mustKillRest bool       // kill the process and, when it has ended, the rest of its group
	hasExited    bool       // the process itself has ended
	isReaped     bool       // its id, and that of its group, may belong to other processes now
}

// forkThread returns a channel of functions, which one locked thread calls; it never ends. All forking
// is done there, because the kernel sends the parent-death signal when the forking thread ends, not
// when the process does.
var forkThread = sync.OnceValue(func() chan func() {
	keepThreads(spareThreads)
	calls := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range calls {
			f()
		}
	}()
	return calls
})

// spareThreads is more than a busy daemon needs: one for each call that waits for a disk.
const spareThreads = 48

// keepThreads makes the Go runtime have at least this many threads, which it never ends. The
// processes that this program starts may use up the system's limit (pids.max, TasksMax). If the
// runtime then needs another thread, it aborts the program.
func keepThreads(n int) {
	release := make(chan struct{})
	var locked, free sync.WaitGroup
	locked.Add(n)
	for range n {
		free.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			locked.Done()
			<-release
		})
	}
	locked.Wait()
	close(release)
	free.Wait()
}

// fork starts a process on forkThread.
func fork(path string, args []string, attr *os.ProcAttr) (process *os.Process, err error) {
	done := make(chan struct{})
	forkThread() <- func() {
		defer close(done)
		orphanReaper().trackFork(func() (pid int) {
			if process, err = os.StartProcess(path, args, attr); err == nil {
				pid = process.Pid
			}
			return pid
		})
	}
	<-done
	if errors.Is(err, unix.EBADF) { // a file had to move to a descriptor beyond the limit
		err = unix.EMFILE
	}
	return process, err
}

// Start starts a process. The error says why it could not start, in words for the job's record.
func Start(command Command) (_ *Process, err error) {
	if len(command.Args) == 0 {
		return nil, errors.New("cannot launch: the command is empty")
	}
	name, env := command.Args[0], command.Env
	if env == nil {
		env = os.Environ()
	}
	if command.Guard != nil {
		env = append(env[:len(env):len(env)], MarkVariable(command.Guard.ownerOf(command.Name)))
	}
	env = dedupEnv(env)
	path, err := findProgram(name, command.Dir, env)
	if err != nil {
		return nil, startError(name, command.Dir, err)
	}

	p := &Process{guard: command.Guard, name: command.Name, linger: command.Linger, done: make(chan struct{})}
	var childFiles []*os.File // the process's ends of pipes, which we close in any case
	defer func() {
		for _, f := range childFiles {
			f.Close()
		}
		if err != nil {
			p.closePipes()
		}
	}()
	stdin, err := p.openStdin(len(command.Stdin) > 0)
	if err != nil {
		return nil, startError(name, "", err)
	}
	childFiles = append(childFiles, stdin)
	for _, to := range []io.Writer{command.Stdout, command.Stderr} {
		out, err := p.openOutput(to)
		if err != nil {
			return nil, startError(name, "", err)
		}
		childFiles = append(childFiles, out)
	}
	files := append(childFiles[:3:3], command.Files...)
	attr := &os.ProcAttr{Dir: command.Dir, Env: env, Files: files, Sys: sysProcAttr(command)}
	p.process, err = fork(path, command.Args, attr)
	if err != nil && leaveGroup(attr.Sys) {
		// The control group may have been removed. Then the guard finds the process by its group
		// or its mark.
		p.process, err = fork(path, command.Args, attr)
	}
	if err != nil {
		return nil, startError(name, command.Dir, err)
	}
	setLimits(p.process.Pid, command.Limits)
	command.Guard.addProcess(p.process.Pid)
	if command.WatchGroup {
		if p.watcher, err = newGroupWatcher(p.process.Pid, env, attr.Sys); err != nil {
			_ = p.process.Kill()
			command.Guard.removeProcess(p.process.Pid)
			_, _ = p.process.Wait()
			orphanReaper().forget(p.process.Pid)
			return nil, startError(name, "", err)
		}
	}
	if p.stdin != nil {
		go p.writeStdin(command.Stdin)
	}
	for _, s := range p.outputs {
		go s.read()
	}
	go p.wait()
	return p, nil
}

// openStdin makes the pipe for standard input, and returns the process's end of it.
func (p *Process) openStdin(hasInput bool) (*os.File, error) {
	if !hasInput {
		return os.Open(os.DevNull)
	}
	r, w, err := os.Pipe()
	if err == nil {
		p.stdin, p.stdinDone = w, make(chan struct{})
	}
	return r, err
}

// openOutput makes the pipe for an output, and returns the process's end of it.
func (p *Process) openOutput(to io.Writer) (*os.File, error) {
	if to == nil {
		return os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	}
	r, w, err := os.Pipe()
	if err == nil {
		p.outputs = append(p.outputs, &stream{writer: to, pipe: r, done: make(chan struct{})})
	}
	return w, err
}

// closePipes closes our ends of the pipes.
func (p *Process) closePipes() {
	if p.stdin != nil {
		p.stdin.Close()
	}
	for _, s := range p.outputs {
		s.pipe.Close()
	}
}

func (p *Process) writeStdin(text []byte) {
	defer close(p.stdinDone)
	_, _ = p.stdin.Write(text) // a process that has not read its input does not need it
	p.stdin.Close()
}

// Pid returns the id of the process and of its group.
func (p *Process) Pid() int { return p.process.Pid }

// Ended returns a channel that is closed when the process has ended and its outputs are read.
func (p *Process) Ended() <-chan struct{} { return p.done }

// Flush passes to Stdout and Stderr what the process has written by now. Nothing else writes to
// them meanwhile.
func (p *Process) Flush() {
	for _, s := range p.outputs {
		s.flush()
	}
}

// Result waits for the end of the process and returns how it ended.
func (p *Process) Result() Result {
	<-p.done
	return p.result
}

// Running reports whether the process has not ended yet.
func (p *Process) Running() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.hasExited
}

// Signal sends a signal to the process and reports whether it was delivered.
func (p *Process) Signal(signal syscall.Signal) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return signal > 0 && !p.hasExited && unix.Kill(p.process.Pid, signal) == nil
}

// SignalGroup sends a signal to the process and its descendants in its group, and reports whether
// any got it. Until Ended, that includes descendants that have outlived the process.
func (p *Process) SignalGroup(signal syscall.Signal) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return signal > 0 && !p.isReaped && unix.Kill(-p.process.Pid, signal) == nil
}

// KillRest kills whatever is left of the group once the process has ended.
func (p *Process) KillRest() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mustKillRest = true
}

// Kill kills the group and, if the process has a Guard and a Name, descendants that
// have left the group. It returns when the process has ended and they are gone, or ctx
// ends.
func (p *Process) Kill(ctx context.Context) {
	p.KillRest()
	p.SignalGroup(syscall.SIGKILL)
	select {
	case <-p.done:
	case <-ctx.Done():
	}
	if p.guard != nil && p.name != "" {
		_, _ = KillOrphans(ctx, p.guard.ownerOf(p.name))
	}
}

func (p *Process) wait() {
	p.waitEnd()
	p.mu.Lock()
	p.hasExited = true
	p.mu.Unlock()
	// Until the process is reaped, its id and its group's are not reused.
	deadline := time.Now().Add(p.linger)
	for _, s := range p.outputs {
		p.result.OutputHeld = s.finish(deadline) || p.result.OutputHeld
	}
	p.result.OutputHeld = p.result.OutputHeld && p.linger > 0
	p.mu.Lock()
	if !p.isReaped {
		if p.result.OutputHeld || p.mustKillRest {
			_ = unix.Kill(-p.process.Pid, unix.SIGKILL)
		}
		p.watcher.stop()
		p.guard.removeProcess(p.process.Pid)
		p.state, p.result.Err = p.process.Wait()
		p.isReaped = true
	}
	p.mu.Unlock()
	orphanReaper().forget(p.process.Pid)
	if p.stdin != nil {
		p.stdin.SetWriteDeadline(time.Unix(1, 0))
		<-p.stdinDone
	}
	if p.result.Err != nil {
		p.result.Code = 255
	} else if status, ok := p.state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		p.result.Signal = status.Signal()
	} else {
		p.result.Code = p.state.ExitCode()
	}
	close(p.done)
}
