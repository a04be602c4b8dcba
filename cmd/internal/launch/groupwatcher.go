package launch

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// groupWatcher is a process in the group of another process. It waits until a pipe ends, because
// this program has ended, and then kills the group.
type groupWatcher struct {
	process *os.Process
	pipe    *os.File // the write end of the watcher's stdin; when it is closed, the watcher kills the group
}

// watcherShell is the shell that runs a group watcher. It takes a few hundred kilobytes, and a
// millisecond to start.
const watcherShell = "/bin/sh"

// newGroupWatcher starts the watcher of a group. Without a shell it returns nil, and only the Guard
// protects the group.
func newGroupWatcher(group int, env []string, template *syscall.SysProcAttr) (*groupWatcher, error) {
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
	attr := *template
	attr.Pgid, attr.Pdeathsig = group, 0
	w := &groupWatcher{pipe: pipe}
	w.process, err = fork(watcherShell, []string{"sh", "-c", "read x; kill -9 0"}, &os.ProcAttr{
		Dir: "/", Env: []string{markName + "=" + lookupEnv(env, markName)}, Files: []*os.File{r, null, null}, Sys: &attr,
	})
	if err == nil {
		return w, nil
	}
	pipe.Close()
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	return nil, err
}

// stop ends the watcher, and leaves the group alone.
func (w *groupWatcher) stop() {
	if w != nil {
		_ = w.process.Kill()
		_, _ = w.process.Wait()
		orphanReaper().forget(w.process.Pid)
		w.pipe.Close()
	}
}
