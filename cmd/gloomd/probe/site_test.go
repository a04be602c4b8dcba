package probe_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gloom/bench/throwaway"
	"gloom/bench/throwaway/natstest"
	"gloom/broker/admin/api"
	gloom "gloom/clients/go"
)

var gloomdDir string

func TestMain(m *testing.M) {
	flag.Parse()
	throwaway.LimitParallel(2)
	os.Exit(throwaway.Main(&gloomdDir, func() (int, error) {
		if _, err := throwaway.Build(gloomdDir, "gloomd", throwaway.Race); err != nil {
			return 1, err
		}
		return m.Run(), nil
	}))
}

// timeout bounds everything that a test waits for.
const timeout = 60 * time.Second

// site is a broker of a fleet, which may be restarted with the same address.
type site struct {
	t                    *testing.T
	name, nats           string
	submit, worker, http string
	flags                []string
	cable                *cuttableProxy // the cable to the NATS server, if there is only one
	*throwaway.Daemon
}

// startFleet starts NATS servers and brokers named a, b, c.
func startFleet(t *testing.T, servers, brokers int) ([]*natstest.Server, []*site) {
	t.Helper()
	nats, err := natstest.Cluster(servers)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { natstest.Close(nats) })
	var sites []*site
	for i := range brokers {
		s := &site{t: t, name: string(rune('a' + i)), nats: natstest.URLs(nats), submit: "127.0.0.1:0", worker: "127.0.0.1:0", http: "127.0.0.1:0"}
		if servers == 1 {
			s.cable = newCuttableProxy(t, nats[0].URL)
			s.nats = s.cable.url
		}
		s.start()
		sites = append(sites, s)
	}
	for _, s := range sites {
		s.awaitPeers(brokers - 1)
	}
	return nats, sites
}

func (s *site) start() {
	s.t.Helper()
	cmd := exec.Command(filepath.Join(gloomdDir, "gloomd"), append(slices.Clone(s.flags), "--fleet", s.nats, "--fleet-name", s.name,
		"--submit-addr", s.submit, "--worker-addr", s.worker, "--http-addr", s.http, "--max-memory", "256MiB")...)
	d, err := throwaway.Start(cmd, "gloomd is ready")
	if err != nil {
		s.t.Fatal(err)
	}
	s.Daemon = d
	s.submit, s.worker, s.http = d.Field("submit_addr"), d.Field("worker_addr"), d.Field("http_addr")
	s.t.Cleanup(func() {
		if err := d.Stop(); err != nil && s.Daemon == d {
			s.t.Errorf("broker %s: %v", s.name, err)
		}
	})
}

// getJSON sends a request to a broker. It returns false if the broker does not answer.
func (s *site) getJSON(path string, to any) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	r, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.http+path, nil)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	return resp.StatusCode == http.StatusOK && json.NewDecoder(resp.Body).Decode(to) == nil
}

func (s *site) fleet() (f api.Fleet) { s.getJSON("/v1/fleet", &f); return f }

// awaitFinding waits until a broker reports a finding with that cause.
func (s *site) awaitFinding(cause string) {
	s.t.Helper()
	eventually(s.t, "found: "+cause, func() bool {
		var f api.Findings
		return s.getJSON("/v1/findings", &f) && slices.ContainsFunc(f.Items, func(x api.Finding) bool { return x.Cause == cause })
	})
}

func (s *site) status() (x api.Status) { s.getJSON("/v1/status", &x); return x }

func eventually(t *testing.T, name string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(timeout); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("in %s: not %s", timeout, name)
		}
	}
}

// awaitPeers waits until a broker gets heartbeats from that many other brokers.
func (s *site) awaitPeers(n int) {
	s.t.Helper()
	eventually(s.t, fmt.Sprintf("broker %s hears %d others", s.name, n), func() bool {
		count := 0
		for _, b := range s.fleet().Brokers {
			if b.State == "up" {
				count++
			}
		}
		return count == n
	})
}

// startWorker serves types at a broker until the test ends or stop is called.
func (s *site) startWorker(types []string, n int, handler gloom.Handler) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	w := &gloom.Worker{Types: types, Handler: handler, Concurrency: n, Prefetch: n, Options: []gloom.Option{gloom.Addrs(s.worker)}}
	go func() {
		defer close(done)
		_ = w.Run(ctx)
	}()
	stop = func() { cancel(); <-done }
	s.t.Cleanup(stop)
	return stop
}

func (s *site) newSubmitter() *gloom.Submitter {
	s.t.Helper()
	j, err := gloom.Dial(context.Background(), gloom.Addrs(s.submit))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { j.Close() })
	return j
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	t.Cleanup(cancel)
	return ctx
}

func submitOne(t *testing.T, j *gloom.Submitter, job gloom.Job) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	r, err := j.Do(ctx, job)
	return string(r.Body), err
}

// answerWithName answers with the name of its broker, and the body.
func (s *site) answerWithName(_ context.Context, j *gloom.Job) (any, error) {
	return s.name + strings.Trim(string(j.Body), `"`), nil
}

func jsonBody(s string) json.RawMessage { return json.RawMessage(fmt.Sprintf("%q", s)) }
