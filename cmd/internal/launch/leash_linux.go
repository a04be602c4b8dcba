package launch

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// leash is a process in the group of another one. It waits for the end of a pipe, which comes
// when this program ends, and then kills the group.
type leash struct {
	process *os.Process
	pipe    *os.File // the write end of the leash's stdin; when it is closed, the leash kills the group
}

// leashShell is the shell that runs a leash. It takes a few hundred kilobytes, and a millisecond
// to start.
const leashShell = "/bin/sh"

// newLeash makes the leash of a group. Without a shell it returns nil, and only the Guard protects
// the group.
func newLeash(group int, env []string, like *syscall.SysProcAttr) (*leash, error) {
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
	attr := *like
	attr.Pgid, attr.Pdeathsig = group, 0
	l := &leash{pipe: pipe}
	l.process, err = fork(leashShell, []string{"sh", "-c", "read x; kill -9 0"}, &os.ProcAttr{
		Dir: "/", Env: []string{markName + "=" + variable(env, markName)}, Files: []*os.File{r, null, null}, Sys: &attr,
	})
	if err == nil {
		return l, nil
	}
	pipe.Close()
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	return nil, err
}

// end ends the leash, and leaves the group alone.
func (l *leash) end() {
	if l != nil {
		_ = l.process.Kill()
		_, _ = l.process.Wait()
		theReaper().reaped(l.process.Pid)
		l.pipe.Close()
	}
}
