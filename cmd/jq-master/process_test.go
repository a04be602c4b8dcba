package main

import (
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"gloom/bench/throwaway"
)

// testTimeout limits the time that a test waits for something that must happen.
const testTimeout = 45 * time.Second

// programVariable makes the test binary run as jq-master, so that the race detector checks the
// processes of tests, too.
const programVariable = "JQ_MASTER_TEST_PROGRAM"

func TestMain(m *testing.M) {
	becomeChild()
	if os.Getenv(programVariable) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// process is a jq-master in a process of its own.
type process struct {
	*throwaway.Daemon
	t   testing.TB
	url string // http://host:port
}

// launch starts a daemon on a free port and waits until it serves, perhaps as a standby. The test
// fails if the daemon does not stop cleanly at its end.
func launch(t testing.TB, args ...string) *process {
	t.Helper()
	args = append([]string{"--addr", "127.0.0.1:0", "--log-level", "debug", "--drain", "100ms"}, args...)
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), programVariable+"=1")
	d, err := throwaway.Start(cmd, "jq-master is ready")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("jq-master %s:\n%s", strings.Join(args, " "), &d.Log)
		}
	})
	return &process{d, t, "http://" + d.Field("addr")}
}

// start is like launch, but also waits until the daemon accepts jobs.
func start(t testing.TB, args ...string) *process {
	t.Helper()
	d := launch(t, args...)
	d.waitUntilReady()
	return d
}

// waitUntilReady waits until the daemon accepts jobs.
func (d *process) waitUntilReady() {
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

func eventually(t testing.TB, name string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(testTimeout); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in time: %s", name)
		}
	}
}
