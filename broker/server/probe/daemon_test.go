package probe

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"gloom/bench/proc"
	"gloom/bench/throwaway"
)

// daemon is one running gloomd.
type daemon struct {
	*throwaway.Daemon
	submitAddr, workerAddr, httpAddr string
}

// daemonSpec describes how to start a daemon.
type daemonSpec struct {
	flags            []string
	env              []string // NAME=value, added to a clean environment
	withoutFreePorts bool     // leave out the flags that choose free ports
	openFileLimit    int      // limit on open files; 0 for the limit of the test's process
}

var freePorts = []string{
	"--submit-addr=127.0.0.1:0", "--worker-addr=127.0.0.1:0", "--http-addr=127.0.0.1:0",
	"--log-format=json", "--drain-timeout=1s",
}

// launch starts the process and waits for its start-up line or its end.
func launch(s daemonSpec) (*daemon, error) {
	bin, err := daemonBinary()
	if err != nil {
		return nil, err
	}
	flags := s.flags
	if !s.withoutFreePorts {
		flags = append(append([]string{}, freePorts...), s.flags...)
	}
	cmd := exec.Command(bin, flags...)
	if s.openFileLimit > 0 {
		script := fmt.Sprintf(`ulimit -n %d && exec "$0" "$@"`, s.openFileLimit)
		cmd = exec.Command("sh", append([]string{"-c", script, bin}, flags...)...)
	}
	cmd.Dir = scratchDir
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + scratchDir, "TMPDIR=" + scratchDir}, s.env...)
	d, err := throwaway.Start(cmd, "gloomd is ready")
	return &daemon{d, d.Field("submit_addr"), d.Field("worker_addr"), d.Field("http_addr")}, err
}

// tail returns the end of the daemon's output.
func (d *daemon) tail() string { return throwaway.Tail([]byte(d.Log.String())) }

// start runs a daemon for one test and checks its end: a balanced ledger,
// exit code 0 and no trace of a panic or a race.
func start(t *testing.T, flags ...string) *daemon {
	t.Helper()
	return startSpec(t, daemonSpec{flags: flags})
}

func startSpec(t *testing.T, s daemonSpec) *daemon {
	t.Helper()
	d, err := launch(s)
	if err != nil {
		t.Fatalf("start gloomd: %v", err)
	}
	t.Cleanup(func() {
		if err := d.end(); err != nil {
			t.Errorf("end of gloomd: %v", err)
		}
		if t.Failed() {
			t.Logf("gloomd wrote:\n%s", d.tail())
		}
	})
	return d
}

// refusedWith starts a daemon that must fail to start, and returns its output. Its exit code
// must be code; 2 stands for invalid options, 1 for another failure. If code is 0, either is
// accepted.
func refusedWith(t *testing.T, code int, s daemonSpec) string {
	t.Helper()
	d, err := launch(s)
	if err == nil {
		_ = d.end()
		t.Fatalf("gloomd %s started, want an error", strings.Join(s.flags, " "))
	}
	if d == nil {
		t.Fatal(err)
	}
	if got := d.State().ExitCode(); got != code && !(code == 0 && (got == 1 || got == 2)) {
		t.Errorf("ended with %s, want exit status %d", d.State(), code)
	}
	text := d.Log.String()
	if strings.Contains(text, "goroutine ") {
		t.Errorf("refused with a stack trace:\n%s", text)
	}
	return text
}

// end checks the ledger, stops the daemon, and checks its exit code and output.
func (d *daemon) end() error {
	var errs []error
	if d.Running() && d.httpAddr != "" {
		errs = append(errs, d.checkLedger())
	}
	errs = append(errs, d.Stop())
	if text := d.Log.String(); strings.Contains(text, "invariant") {
		errs = append(errs, errors.New(text))
	}
	return errors.Join(errs...)
}

func (d *daemon) endsWithin(limit time.Duration) bool {
	select {
	case <-d.Exited():
		return true
	case <-time.After(limit):
		return false
	}
}

// usage returns the resources that the process uses, or the zero value if the process has
// ended.
func (d *daemon) usage() proc.Usage {
	u, _ := proc.UsageOf(d.PID())
	return u
}

var sharedDaemon struct {
	once sync.Once
	d    *daemon
	err  error
}

// shared returns the daemon that serves all tests without flags of their own. Each of these
// tests uses its own types and ids.
func shared(t *testing.T) *daemon {
	t.Helper()
	sharedDaemon.once.Do(func() { sharedDaemon.d, sharedDaemon.err = launch(daemonSpec{}) })
	if sharedDaemon.err != nil {
		t.Fatalf("start gloomd: %v", sharedDaemon.err)
	}
	if !sharedDaemon.d.Running() {
		t.Fatalf("the shared daemon is gone: %s\n%s", sharedDaemon.d.State(), sharedDaemon.d.tail())
	}
	return sharedDaemon.d
}

func endShared() error {
	if sharedDaemon.d == nil || sharedDaemon.err != nil {
		return nil
	}
	return sharedDaemon.d.end()
}
