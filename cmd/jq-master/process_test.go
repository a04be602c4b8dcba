package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is how long a test waits for what must come.
const patience = 45 * time.Second

// asProgram makes the test binary be jq-master, so that what its processes do is
// watched for races, too.
const asProgram = "JQ_MASTER_TEST_PROGRAM"

func TestMain(m *testing.M) {
	becomeChild()
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// process is a jq-master in a process of its own.
type process struct {
	t    testing.TB
	args []string
	url  string // http://host:port
	cmd  *exec.Cmd
	out  *output
	gone chan error // what the process ended with
}

// output is what a daemon logs.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
	addr chan string // where it serves
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

func (o *output) read(p *bufio.Scanner) {
	for p.Scan() {
		o.mu.Lock()
		o.text.Write(p.Bytes())
		o.text.WriteByte('\n')
		o.mu.Unlock()
		var line struct{ Message, Addr string }
		if json.Unmarshal(p.Bytes(), &line) == nil && line.Message == "jq-master serves" {
			o.addr <- line.Addr
		}
	}
}

// launch starts a daemon with some flags on a free port and waits until it
// serves, perhaps as a standby. It must end well when the test does.
func launch(t testing.TB, args ...string) *process {
	t.Helper()
	d := &process{t: t, args: append([]string{"--addr", "127.0.0.1:0", "--log-level", "debug", "--drain", "100ms"}, args...)}
	d.begin()
	t.Cleanup(func() {
		if err := d.stop(); err != nil {
			t.Errorf("jq-master ended with %v", err)
		}
		if t.Failed() {
			t.Logf("jq-master %s:\n%s", strings.Join(d.args, " "), d.out)
		}
	})
	return d
}

// start is launch, and waits until the daemon takes jobs.
func start(t testing.TB, args ...string) *process {
	t.Helper()
	d := launch(t, args...)
	d.ready()
	return d
}

func (d *process) begin() {
	d.t.Helper()
	d.cmd = exec.Command(os.Args[0], d.args...)
	d.cmd.Env = append(os.Environ(), asProgram+"=1")
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stderr, err := d.cmd.StderrPipe()
	if err != nil {
		d.t.Fatal(err)
	}
	if err := d.cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	d.out, d.gone = &output{addr: make(chan string, 1)}, make(chan error, 1)
	go func(cmd *exec.Cmd, out *output, gone chan error) {
		lines := bufio.NewScanner(stderr)
		lines.Buffer(nil, 1<<20)
		out.read(lines)
		gone <- cmd.Wait()
	}(d.cmd, d.out, d.gone)
	select {
	case addr := <-d.out.addr:
		d.url = "http://" + addr
	case err := <-d.gone:
		d.t.Fatalf("jq-master has ended: %v\n%s", err, d.out)
	case <-time.After(patience):
		d.t.Fatalf("jq-master does not serve\n%s", d.out)
	}
}

// ready waits until the daemon takes jobs.
func (d *process) ready() {
	d.t.Helper()
	eventually(d.t, "jq-master takes jobs", func() bool {
		resp, err := http.Get(d.url + "/readyz")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

// kill ends the process at once, as a crash does.
func (d *process) kill() {
	_ = d.cmd.Process.Kill()
	<-d.gone
	d.gone = nil
}

// stop has the process drain; nil is a good end, or that it had ended before.
func (d *process) stop() error {
	if d.gone == nil {
		return nil
	}
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-d.gone:
		d.gone = nil
		return err
	case <-time.After(patience):
		d.kill()
		return errors.New("no end in time")
	}
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in time: %s", what)
		}
	}
}
