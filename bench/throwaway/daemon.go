package throwaway

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// Build puts a program of this repository into a directory, built with the race detector if race is
// set, and returns its path. It is linked once for all packages that use it.
func Build(dir, name string, race bool) (path string, err error) {
	path = filepath.Join(dir, name)
	return path, WithCacheDir("build-"+name, func(cache string) error {
		program := filepath.Join(cache, name)
		// -buildvcs=false leaves the commit out of the program, so that it need not be
		// linked again after every commit. It then reports the version devel.
		args := []string{"build", "-buildvcs=false"}
		if race {
			program += "-race"
			args = append(args, "-race")
		}
		args = append(args, "-o", program, "gloom/cmd/"+name)
		if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
		}
		// Another process copies the file: a child that this process starts at the same time would
		// inherit the open file, and a file that is open for writing cannot be run.
		if out, err := exec.Command("cp", program, path).CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

// Daemon is one run of a program of this repository, in a process of its own, which logs its
// addresses.
type Daemon struct {
	*process
	// Log holds all of its output.
	Log Log
	// Ready is the log line in which the program reported that it was ready.
	Ready string
}

// Start runs a command and waits for a line of its output that contains ready. It is an error if
// the program cannot be started, ends before it prints that line, or runs for a minute without
// printing it; the Daemon then has the output so far. Output that the command redirects is not
// read.
func Start(cmd *exec.Cmd, ready string) (*Daemon, error) {
	d := &Daemon{}
	TrackSources()
	if cmd.Stderr == nil {
		cmd.Stderr = &d.Log
	}
	if cmd.Stdout == nil {
		cmd.Stdout = cmd.Stderr
	}
	line := d.Log.await(ready)
	var err error
	if d.process, err = startProcess(cmd); err != nil {
		return d, err
	}
	timer := time.NewTimer(startTimeout)
	defer timer.Stop()
	select {
	case d.Ready = <-line:
		return d, nil
	case <-d.exited:
	case <-timer.C:
		return d, fmt.Errorf("%s did not print %q within %s: %s", name(cmd), ready, startTimeout, &d.Log)
	}
	select {
	case d.Ready = <-line: // it printed the line, and ended right after
		return d, nil
	default:
		return d, fmt.Errorf("%s ended before it printed %q: %s: %s", name(cmd), ready, cmd.ProcessState, &d.Log)
	}
}

func name(cmd *exec.Cmd) string { return filepath.Base(cmd.Path) }

// Field returns the value of a field of the line Ready, which may be JSON or have name=value; "" if there
// is no such field.
func (d *Daemon) Field(name string) string {
	m := regexp.MustCompile(`\b` + name + `(?:=|":")([^" ]*)`).FindStringSubmatch(d.Ready)
	if m == nil {
		return ""
	}
	return m[1]
}

// PID returns the process's id.
func (d *Daemon) PID() int { return d.cmd.Process.Pid }

// Exited returns a channel that is closed when the program has ended.
func (d *Daemon) Exited() <-chan struct{} { return d.exited }

// Running reports whether the program has not ended.
func (d *Daemon) Running() bool {
	select {
	case <-d.exited:
		return false
	default:
		return true
	}
}

// State returns the exit state of the program, which must have ended.
func (d *Daemon) State() *os.ProcessState { return d.cmd.ProcessState }

// Signal sends the program a signal.
func (d *Daemon) Signal(s syscall.Signal) { d.signal(s) }

// Kill ends the program with SIGKILL.
func (d *Daemon) Kill() { d.end(syscall.SIGKILL, syscall.SIGKILL) }

// Stop ends the program, unless it has ended. It returns an error if the program did not stop in
// time or with exit status 0, or ever reported a race or a panic.
func (d *Daemon) Stop() error {
	if d.cmd.Process == nil { // it could not be started
		return nil
	}
	running := d.Running()
	if !d.end(syscall.SIGTERM, syscall.SIGABRT) {
		return fmt.Errorf("%s did not stop within %s: %s", name(d.cmd), stopTimeout, &d.Log)
	}
	output := d.Log.String()
	for _, symptom := range []string{"DATA RACE", "panic:", "fatal error:"} {
		if i := strings.Index(output, symptom); i >= 0 {
			return errors.New(output[i:min(len(output), i+8000)])
		}
	}
	if running && !d.State().Success() {
		return fmt.Errorf("%s was stopped by a signal and ended with %s: %s", name(d.cmd), d.State(), Tail([]byte(output)))
	}
	return nil
}
