package probe

import (
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"gloom/bench/throwaway"
)

// daemon is a running serverlessd.
type daemon struct {
	*throwaway.Daemon
	*client
	dir   string
	flags []string
}

// languages is the flag that allows all languages of handlers.
const languages = "--langs=http,node,php,python,sh,gloom"

// launch starts a daemon on a free port and waits until it is ready; it returns an error if the
// daemon ends first.
func launch(dir string, flags ...string) (*daemon, error) {
	cmd, err := probe.Command(append([]string{"--addr=127.0.0.1:0", "--dir=" + dir, languages, "--drain=10s"}, flags...)...)
	if err != nil {
		return nil, err
	}
	cmd.Env = append(cmd.Env, "SECRET_OF_THE_DAEMON=hush")
	d, err := throwaway.Start(cmd, "serverlessd is ready")
	return &daemon{d, &client{base: "http://" + d.Field("addr")}, dir, flags}, err
}

// start runs a daemon for one test. The test fails if the daemon does not stop cleanly.
func start(t *testing.T, flags ...string) *daemon {
	t.Helper()
	return startIn(t, t.TempDir(), flags...)
}

func startIn(t *testing.T, dir string, flags ...string) *daemon {
	t.Helper()
	d := startAway(t, dir, flags...)
	d.waitUntilReady(t)
	return d
}

// startAway is like startIn, but does not wait for the store, which is away.
func startAway(t *testing.T, dir string, flags ...string) *daemon {
	t.Helper()
	d, err := launch(dir, flags...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Stop(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// waitUntilReady waits until the store can be reached.
func (d *daemon) waitUntilReady(t *testing.T) {
	t.Helper()
	waitUntil(t, "ready", func() error {
		r, err := d.try("GET", "/readyz", "")
		if err != nil || r.status != 200 {
			return fmt.Errorf("%s, %v", r, err)
		}
		return nil
	})
}

// sharedDaemonState holds a daemon for all tests that do not disturb others. Each test uses clients
// of its own.
type sharedDaemonState struct {
	once sync.Once
	*daemon
	err error
}

var theSharedDaemon sharedDaemonState

// retryFor is the shared daemon's --retry-for.
const retryFor = 4 * time.Second

func sharedDaemon(t *testing.T) *daemon {
	t.Helper()
	t.Parallel()
	theSharedDaemon.once.Do(func() {
		dir, err := os.MkdirTemp(probe.Dir, "shared")
		if err != nil {
			theSharedDaemon.err = err
			return
		}
		theSharedDaemon.daemon, theSharedDaemon.err = launch(dir, "--retry-delay=100ms", "--retry-max=300ms", "--retry-for="+retryFor.String(), "--sweep=200ms",
			"--max-line=4096", "--max-lines=1000", "--max-body=65536", "--max-result=1024", "--concurrency=12")
	})
	if theSharedDaemon.err != nil {
		t.Fatal(theSharedDaemon.err)
	}
	theSharedDaemon.waitUntilReady(t)
	return theSharedDaemon.daemon
}

// waitUntil waits until a condition holds, and fails the test if it does not.
func waitUntil(t *testing.T, name string, check func() error) {
	t.Helper()
	deadline := time.Now().Add(testTimeout)
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s: %v", testTimeout, name, err)
		}
		time.Sleep(wait)
	}
}
