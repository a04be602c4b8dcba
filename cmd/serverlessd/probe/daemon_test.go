package probe

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// daemon is a running serverlessd.
type daemon struct {
	*client
	dir   string
	flags []string
	cmd   *exec.Cmd
	gone  chan struct{} // closed once the process has ended

	mu  sync.Mutex
	log []string
}

// languages are all that a handler may be in.
const languages = "--langs=http,node,php,python,sh,gloom"

// launch starts a daemon on a free port and waits until it is ready or has ended.
func launch(dir string, flags ...string) (*daemon, error) {
	bin, err := program()
	if err != nil {
		return nil, err
	}
	d := &daemon{dir: dir, flags: flags, gone: make(chan struct{})}
	d.cmd = exec.Command(bin, append([]string{"--addr=127.0.0.1:0", "--dir=" + dir, languages, "--drain=10s"}, flags...)...)
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	d.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + scratch, "TMPDIR=" + scratch, "SECRET_OF_THE_DAEMON=hush"}
	stderr, err := d.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	ready := make(chan string, 1)
	go func() {
		lines := bufio.NewReaderSize(stderr, 1<<20)
		for {
			line, err := lines.ReadString('\n')
			d.mu.Lock()
			d.log = append(d.log, strings.TrimRight(line, "\n"))
			d.mu.Unlock()
			var fields map[string]any
			if json.Unmarshal([]byte(line), &fields) == nil && fields["message"] == "serverlessd is ready" {
				addr, _ := fields["addr"].(string)
				select {
				case ready <- addr:
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
	case addr := <-ready:
		d.client = &client{base: "http://" + addr}
		return d, nil
	case <-d.gone:
		return d, fmt.Errorf("ended before it was ready: %s\n%s", d.cmd.ProcessState, d.said())
	case <-time.After(patience):
		_ = d.cmd.Process.Kill()
		return d, fmt.Errorf("not ready within %s\n%s", patience, d.said())
	}
}

// said is what the daemon has logged.
func (d *daemon) said() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Join(d.log, "\n")
}

// start runs a daemon of a test's own; it must end well.
func start(t *testing.T, flags ...string) *daemon {
	t.Helper()
	return startIn(t, t.TempDir(), flags...)
}

func startIn(t *testing.T, dir string, flags ...string) *daemon {
	t.Helper()
	d := startAway(t, dir, flags...)
	d.ready(t)
	return d
}

// startAway is startIn for a store that is not there.
func startAway(t *testing.T, dir string, flags ...string) *daemon {
	t.Helper()
	d, err := launch(dir, flags...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.end(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// ready waits until the store is there.
func (d *daemon) ready(t *testing.T) {
	t.Helper()
	until(t, "ready", func() error {
		r, err := d.try("GET", "/readyz", "")
		if err != nil || r.status != 200 {
			return fmt.Errorf("%s, %v", r, err)
		}
		return nil
	})
}

// end asks the daemon to stop, unless it has ended.
func (d *daemon) end() error {
	if d == nil {
		return nil
	}
	select {
	case <-d.gone:
	default:
		_ = d.cmd.Process.Signal(syscall.SIGTERM)
	}
	select {
	case <-d.gone:
	case <-time.After(patience):
		_ = d.cmd.Process.Signal(syscall.SIGABRT)
		<-d.gone
		return errors.New("did not stop: " + d.said())
	}
	if said := d.said(); strings.Contains(said, "DATA RACE") || strings.Contains(said, "panic:") {
		return errors.New(said)
	}
	return nil
}

// kill ends it as power would.
func (d *daemon) kill() {
	_ = d.cmd.Process.Kill()
	<-d.gone
}

// shared is one daemon for all tests that disturb nobody; each has clients of
// its own.
type shared struct {
	once sync.Once
	*daemon
	err error
}

var common shared

func sharing(t *testing.T) *daemon {
	t.Helper()
	t.Parallel()
	common.once.Do(func() {
		dir, err := os.MkdirTemp(scratch, "shared")
		if err != nil {
			common.err = err
			return
		}
		common.daemon, common.err = launch(dir, "--retry-delay=100ms", "--retry-max=300ms", "--retry-for=2s", "--sweep=200ms",
			"--max-line=4096", "--max-body=65536", "--max-result=1024", "--concurrency=12")
	})
	if common.err != nil {
		t.Fatal(common.err)
	}
	common.ready(t)
	return common.daemon
}

func (s *shared) end() error { return s.daemon.end() }

// until waits for a condition.
func until(t *testing.T, what string, check func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s: %v", patience, what, err)
		}
		time.Sleep(wait)
	}
}
