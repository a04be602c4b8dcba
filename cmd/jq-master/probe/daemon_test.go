package probe

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"gloom/bench/throwaway"
	"gloom/bench/throwaway/redistest"
)

// daemon is a running jq-master.
type daemon struct {
	*throwaway.Daemon
	url   string // its URL
	flags []string
	token string
}

// launch starts a daemon on a free port and waits until it serves; it returns an error if the
// daemon ends first.
func launch(flags ...string) (*daemon, error) {
	cmd, err := probe.Command(append([]string{"--addr=127.0.0.1:0", "--drain=5s"}, flags...)...)
	if err != nil {
		return nil, err
	}
	d, err := throwaway.Start(cmd, "jq-master is ready")
	return &daemon{Daemon: d, url: "http://" + d.Field("addr"), flags: flags}, err
}

// start runs a daemon for one test. The test fails if the daemon does not stop cleanly.
func start(t *testing.T, flags ...string) *daemon {
	t.Helper()
	d, err := launch(flags...)
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

// waitUntilReady waits until the daemon hands out jobs.
func (d *daemon) waitUntilReady(t *testing.T) {
	t.Helper()
	waitUntil(t, "ready", func() error {
		r, err := d.try("GET", "/readyz", nil)
		if err != nil || r.status != 200 {
			return errors.Join(err, fmt.Errorf("%s", r))
		}
		return nil
	})
}

// quickFlags holds options that make all waits short.
var quickFlags = []string{"--backoff-base=50ms", "--backoff-cap=200ms", "--timeout-grace=200ms", "--heartbeat=1s", "--max-body=65536", "--worker-allow=127.0.0.0/8"}

// shared holds two daemons for all tests that do not disturb others: one keeps its jobs in memory,
// one in Redis.
var shared struct {
	sync.Mutex
	memory, redis *daemon
	server        *redistest.Server
}

// inBothStores runs a test on both stores.
func inBothStores(t *testing.T, test func(t *testing.T, d *daemon)) {
	t.Helper()
	t.Parallel()
	for _, name := range []string{"memory", "redis"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, sharedDaemon(t, name))
		})
	}
}

func sharedDaemon(t *testing.T, name string) *daemon {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	var err error
	if name == "memory" {
		if shared.memory == nil {
			if shared.memory, err = launch(quickFlags...); err != nil {
				t.Fatal(err)
			}
			shared.memory.waitUntilReady(t)
		}
		return shared.memory
	}
	if shared.redis == nil {
		if shared.server, err = redistest.Start("--appendonly", "yes", "--appendfsync", "everysec"); err != nil {
			t.Fatal(err)
		}
		if shared.redis, err = launch(append([]string{"--redis=" + shared.server.URL()}, quickFlags...)...); err != nil {
			t.Fatal(err)
		}
		shared.redis.waitUntilReady(t)
	}
	return shared.redis
}

// endShared ends them.
func endShared() error {
	var err error
	for _, d := range []*daemon{shared.memory, shared.redis} {
		if d != nil {
			err = errors.Join(err, d.Stop())
		}
	}
	if shared.server != nil {
		shared.server.Close()
	}
	return err
}

// waitUntil waits until a condition holds, and fails the test if it does not.
func waitUntil(t testing.TB, name string, check func() error) {
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
