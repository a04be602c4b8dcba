package probe

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// daemon is one running gloomd.
type daemon struct {
	submitAddr, workerAddr, httpAddr string

	ready map[string]any // fields of the start-up line
	cmd   *exec.Cmd
	log   journal
	gone  chan struct{} // closed once the process has ended
}

// spec says how to start one.
type spec struct {
	flags []string
	env   []string // NAME=value, on top of a clean environment
	bare  bool     // without the free ports that are given otherwise
	files int      // limit on open files; 0 keeps ours
}

// journal keeps what the daemon wrote to stderr.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) add(line string) {
	j.mu.Lock()
	j.lines = append(j.lines, line)
	j.mu.Unlock()
}

func (j *journal) text() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Join(j.lines, "\n")
}

func (j *journal) tail(n int) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Join(j.lines[max(0, len(j.lines)-n):], "\n")
}

var freePorts = []string{
	"--submit-addr=127.0.0.1:0", "--worker-addr=127.0.0.1:0", "--http-addr=127.0.0.1:0",
	"--log-format=json", "--drain-timeout=1s",
}

// launch starts the process and waits for its start-up line or its end.
func launch(s spec) (*daemon, error) {
	bin, err := daemonBinary()
	if err != nil {
		return nil, err
	}
	flags := s.flags
	if !s.bare {
		flags = append(append([]string{}, freePorts...), s.flags...)
	}
	d := &daemon{gone: make(chan struct{})}
	d.cmd = exec.Command(bin, flags...)
	if s.files > 0 {
		script := fmt.Sprintf(`ulimit -n %d && exec "$0" "$@"`, s.files)
		d.cmd = exec.Command("sh", append([]string{"-c", script, bin}, flags...)...)
	}
	d.cmd.Dir = scratch
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // a test binary that times out leaves nothing behind
	d.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + scratch, "TMPDIR=" + scratch}, s.env...)
	stderr, err := d.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	ready := make(chan map[string]any, 1)
	go func() {
		lines := bufio.NewReaderSize(stderr, 1<<20)
		for {
			line, err := lines.ReadString('\n')
			if line = strings.TrimRight(line, "\n"); line != "" {
				d.log.add(line)
			}
			var fields map[string]any
			if json.Unmarshal([]byte(line), &fields) == nil && fields["message"] == "gloomd is ready" {
				select {
				case ready <- fields:
				default:
				}
			}
			if err != nil {
				break
			}
		}
		_ = d.cmd.Wait()
		close(d.gone)
	}()
	select {
	case d.ready = <-ready:
	case <-d.gone:
		return d, fmt.Errorf("ended before it was ready: %s\n%s", d.cmd.ProcessState, d.log.tail(40))
	case <-time.After(patience):
		_ = d.cmd.Process.Kill()
		<-d.gone
		return d, fmt.Errorf("no start-up line within %s\n%s", patience, d.log.tail(40))
	}
	d.submitAddr, _ = d.ready["submit_addr"].(string)
	d.workerAddr, _ = d.ready["worker_addr"].(string)
	d.httpAddr, _ = d.ready["http_addr"].(string)
	return d, nil
}

// start runs a daemon for one test and checks its end: a balanced ledger,
// exit code 0 and no trace of a panic or a race.
func start(t *testing.T, flags ...string) *daemon {
	t.Helper()
	return startSpec(t, spec{flags: flags})
}

func startSpec(t *testing.T, s spec) *daemon {
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
			t.Logf("gloomd wrote:\n%s", d.log.tail(60))
		}
	})
	return d
}

// refusedWith starts a daemon that must not come up, and returns what it
// wrote. Its exit code is 2 for options that cannot be; code 0 takes 1, a failure,
// as well.
func refusedWith(t *testing.T, code int, s spec) string {
	t.Helper()
	d, err := launch(s)
	if err == nil {
		_ = d.end()
		t.Fatalf("gloomd %s started, it should have refused", strings.Join(s.flags, " "))
	}
	if d == nil {
		t.Fatal(err)
	}
	if got := d.cmd.ProcessState.ExitCode(); got != code && !(code == 0 && (got == 1 || got == 2)) {
		t.Errorf("ended with %s, want exit status %d", d.cmd.ProcessState, code)
	}
	text := d.log.text()
	if strings.Contains(text, "goroutine ") {
		t.Errorf("refused with a stack trace:\n%s", text)
	}
	return text
}

// end stops the daemon the polite way and judges its whole life.
func (d *daemon) end() error {
	var errs []error
	if d.running() {
		if d.httpAddr != "" {
			errs = append(errs, d.checkLedger())
		}
		d.signal(syscall.SIGTERM)
		if !d.endsWithin(scaled(8 * time.Second)) {
			errs = append(errs, fmt.Errorf("still running 8 s after SIGTERM"))
			d.signal(syscall.SIGTERM)
			if !d.endsWithin(scaled(3 * time.Second)) {
				_ = d.cmd.Process.Kill()
				<-d.gone
			}
		} else if code := d.cmd.ProcessState.ExitCode(); code != 0 {
			errs = append(errs, fmt.Errorf("exit after SIGTERM: %s, want exit status 0", d.cmd.ProcessState))
		}
	}
	text := d.log.text()
	for _, bad := range []string{"DATA RACE", "panic:", "fatal error:", "invariant"} {
		if i := strings.Index(text, bad); i >= 0 {
			errs = append(errs, fmt.Errorf("stderr has %q: %s", bad, text[i:min(len(text), i+2000)]))
		}
	}
	return errors.Join(errs...)
}

func (d *daemon) signal(s syscall.Signal) { _ = d.cmd.Process.Signal(s) }

func (d *daemon) running() bool {
	select {
	case <-d.gone:
		return false
	default:
		return true
	}
}

func (d *daemon) endsWithin(limit time.Duration) bool {
	select {
	case <-d.gone:
		return true
	case <-time.After(limit):
		return false
	}
}

// rss is the resident memory in bytes, -1 when it cannot be read.
func (d *daemon) rss() int64 {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", d.cmd.Process.Pid))
	if err != nil {
		return -1
	}
	defer f.Close()
	text, _ := io.ReadAll(f)
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			n, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return n << 10
		}
	}
	return -1
}

// files counts the daemon's open descriptors.
func (d *daemon) files() int {
	names, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", d.cmd.Process.Pid))
	if err != nil {
		return -1
	}
	return len(names)
}

var common struct {
	once sync.Once
	d    *daemon
	err  error
}

// shared is the daemon of all tests that need no special flags. They keep
// apart by types and ids of their own.
func shared(t *testing.T) *daemon {
	t.Helper()
	common.once.Do(func() { common.d, common.err = launch(spec{}) })
	if common.err != nil {
		t.Fatalf("start gloomd: %v", common.err)
	}
	if !common.d.running() {
		t.Fatalf("the shared daemon is gone: %s\n%s", common.d.cmd.ProcessState, common.d.log.tail(60))
	}
	return common.d
}

func endShared() error {
	if common.d == nil || common.err != nil {
		return nil
	}
	return common.d.end()
}
