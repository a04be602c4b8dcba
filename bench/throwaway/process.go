package throwaway

import (
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

const (
	startTimeout = 60 * time.Second
	stopTimeout  = 60 * time.Second
	// outputTimeout limits how long child processes may keep a program's output open after the
	// program has ended.
	outputTimeout = 5 * time.Second
)

// process is one run of a program. It ends with this process.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed when it has ended and its output is read
}

// startProcess starts a program. If it cannot be started, it counts as ended.
func startProcess(cmd *exec.Cmd) (*process, error) {
	// The process has its own process group, so that a terminal's ^C does not reach it: its starter
	// decides when it ends. It dies with the thread that forked it, so this thread is locked.
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid, cmd.SysProcAttr.Pdeathsig = true, syscall.SIGKILL
	cmd.WaitDelay = outputTimeout
	p := &process{cmd: cmd, exited: make(chan struct{})}
	startErr := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.exited)
		err := cmd.Start()
		startErr <- err
		if err == nil {
			_ = cmd.Wait() // its exit state is in cmd.ProcessState
		}
	}()
	err := <-startErr
	if err != nil {
		<-p.exited
	}
	return p, err
}

// exitsWithin reports whether the process ends within d.
func (p *process) exitsWithin(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-p.exited:
		return true
	case <-timer.C:
		return false
	}
}

func (p *process) signal(s syscall.Signal) {
	if p.cmd.Process != nil {
		_ = p.cmd.Process.Signal(s)
	}
}

// end ends the process and waits for it. A process that does not end after the first signal gets
// the second, and end returns false.
func (p *process) end(first, second syscall.Signal) bool {
	p.signal(first)
	if p.exitsWithin(stopTimeout) {
		return true
	}
	p.signal(second)
	<-p.exited
	return false
}
