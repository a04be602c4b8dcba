package throwaway

import (
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// startScript starts a program that runs the commands begin and then waits; at SIGTERM it runs the
// commands end. The program counts as started when it prints "is up".
func startScript(t *testing.T, begin, end string) (*Daemon, error) {
	t.Helper()
	d, err := Start(exec.Command("sh", "-c", "trap '"+end+"' TERM; "+begin+"; while :; do sleep 0.05; done"), "is up")
	t.Cleanup(d.Kill)
	return d, err
}

func TestFieldsOfReadyLine(t *testing.T) {
	for _, line := range []string{
		`{"message":"it is up","addr":"a:1","http_addr":"","also":3}`,
		`INF it is up addr=a:1 http_addr= also=3`,
	} {
		d, err := startScript(t, "echo before; echo '"+line+"' >&2", "exit 0")
		if err != nil {
			t.Fatal(err)
		}
		if d.Ready != line || d.Field("addr") != "a:1" || d.Field("http_addr") != "" || d.Field("none") != "" {
			t.Errorf("%q: addr %q, http_addr %q, none %q", d.Ready, d.Field("addr"), d.Field("http_addr"), d.Field("none"))
		}
	}
}

func TestBadEndsAreReported(t *testing.T) {
	for name, c := range map[string]struct{ begin, end, want string }{
		"in order":       {"echo is up", "exit 0", ""},
		"with a status":  {"echo is up", "exit 3", "ended with exit status 3"},
		"after a panic":  {"echo is up; echo panic: oh no", "exit 0", "panic: oh no"},
		"after a race":   {"echo is up; echo WARNING: DATA RACE", "exit 0", "DATA RACE"},
		"in a last word": {"echo is up", "echo fatal error: all is lost; exit 0", "fatal error: all is lost"},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := startScript(t, c.begin, c.end)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(c.begin, "; echo") { // not only ready
				if err := d.Log.Await(c.want); err != nil {
					t.Fatal(err)
				}
			}
			err = d.Stop()
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if d.Running() {
				t.Error("it runs on")
			}
		})
	}
}

func TestStopAfterKillIsNoError(t *testing.T) {
	d, err := startScript(t, "echo is up", "exit 3")
	if err != nil {
		t.Fatal(err)
	}
	d.Kill()
	if err := d.Stop(); err != nil {
		t.Errorf("one that was killed: %v", err)
	}
}

func TestExitBeforeReady(t *testing.T) {
	d, err := startScript(t, "echo no; exit 2", "")
	if err == nil || !strings.Contains(err.Error(), "exit status 2: no") || d.State().ExitCode() != 2 {
		t.Errorf("%v", err)
	}
}

func TestMissingProgram(t *testing.T) {
	d, err := Start(exec.Command("/no/such/program"), "is up")
	if err == nil || d.Running() {
		t.Error("a program that does not exist is started")
	}
	d.Signal(syscall.SIGTERM)
	d.Kill()
	<-d.Exited()
	if err := d.Stop(); err != nil {
		t.Error(err)
	}
}

// TestOutputHeldOpen: a program counts as ended although a process that it has started keeps its
// output open.
func TestOutputHeldOpen(t *testing.T) {
	t.Parallel()
	d, err := Start(exec.Command("sh", "-c", "sleep 1000 & echo is up; wait"), "is up")
	defer syscall.Kill(-d.PID(), syscall.SIGKILL)
	if err != nil {
		t.Fatal(err)
	}
	go d.Kill()
	select {
	case <-d.Exited():
	case <-time.After(45 * time.Second):
		t.Error("it is waited for")
	}
}
