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

	"gloom/cmd/jq-master/redistest"
)

// daemon is a running jq-master.
type daemon struct {
	base  string // its URL
	flags []string
	token string
	cmd   *exec.Cmd
	gone  chan struct{} // closed once the process has ended

	mu  sync.Mutex
	log []string
}

// launch starts a daemon on a free port and waits until it serves or has ended.
func launch(flags ...string) (*daemon, error) {
	bin, err := program()
	if err != nil {
		return nil, err
	}
	d := &daemon{flags: flags, gone: make(chan struct{})}
	d.cmd = exec.Command(bin, append([]string{"--addr=127.0.0.1:0", "--drain=5s"}, flags...)...)
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	d.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + scratch, "TMPDIR=" + scratch}
	stderr, err := d.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	serves := make(chan string, 1)
	go func() {
		lines := bufio.NewReaderSize(stderr, 1<<20)
		for {
			line, err := lines.ReadString('\n')
			d.mu.Lock()
			d.log = append(d.log, strings.TrimRight(line, "\n"))
			d.mu.Unlock()
			var fields map[string]any
			if json.Unmarshal([]byte(line), &fields) == nil && fields["message"] == "jq-master serves" {
				addr, _ := fields["addr"].(string)
				select {
				case serves <- addr:
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
	case addr := <-serves:
		d.base = "http://" + addr
		return d, nil
	case <-d.gone:
		return d, fmt.Errorf("ended before it served: %s\n%s", d.cmd.ProcessState, d.said())
	case <-time.After(patience):
		_ = d.cmd.Process.Kill()
		return d, fmt.Errorf("does not serve within %s\n%s", patience, d.said())
	}
}

func (d *daemon) said() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Join(d.log, "\n")
}

// start runs a daemon of a test's own; it must end well.
func start(t *testing.T, flags ...string) *daemon {
	t.Helper()
	d, err := launch(flags...)
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

// ready waits until the daemon hands out.
func (d *daemon) ready(t *testing.T) {
	t.Helper()
	until(t, "ready", func() error {
		r, err := d.try("GET", "/readyz", nil)
		if err != nil || r.status != 200 {
			return errors.Join(err, fmt.Errorf("%s", r))
		}
		return nil
	})
}

// quick are options with which nothing takes long.
var quick = []string{"--backoff-base=50ms", "--backoff-cap=200ms", "--timeout-grace=200ms", "--heartbeat=1s", "--max-body=65536", "--worker-allow=127.0.0.0/8"}

// shared are daemons for all tests that disturb nobody: one with its jobs in
// memory, one with them in Redis.
var shared struct {
	sync.Mutex
	memory, redis *daemon
	server        *redistest.Server
}

// both runs a test on both stores.
func both(t *testing.T, test func(t *testing.T, d *daemon)) {
	t.Helper()
	t.Parallel()
	for _, name := range []string{"memory", "redis"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, sharing(t, name))
		})
	}
}

func sharing(t *testing.T, name string) *daemon {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	var err error
	if name == "memory" {
		if shared.memory == nil {
			if shared.memory, err = launch(quick...); err != nil {
				t.Fatal(err)
			}
			shared.memory.ready(t)
		}
		return shared.memory
	}
	if shared.redis == nil {
		if shared.server, err = redistest.Start("--appendonly", "yes", "--appendfsync", "everysec"); err != nil {
			t.Fatal(err)
		}
		if shared.redis, err = launch(append([]string{"--redis=" + shared.server.URL()}, quick...)...); err != nil {
			t.Fatal(err)
		}
		shared.redis.ready(t)
	}
	return shared.redis
}

func endShared() error {
	err := errors.Join(shared.memory.end(), shared.redis.end())
	if shared.server != nil {
		shared.server.Close()
	}
	return err
}

// until waits for a condition.
func until(t testing.TB, what string, check func() error) {
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
