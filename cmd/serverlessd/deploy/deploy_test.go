// Package deploy has the files that install and monitor a serverlessd. Its tests compare these
// files with the real daemon.
package deploy

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/rs/zerolog"

	"gloom/cmd/internal/daemon"
	"gloom/cmd/internal/launch"
	"gloom/cmd/internal/link"
	"gloom/cmd/serverlessd/engine"
	"gloom/cmd/serverlessd/job"
	"gloom/cmd/serverlessd/journal"
	"gloom/cmd/serverlessd/runner"
)

func TestMain(m *testing.M) {
	launch.Main() // the guard of the engine's processes
	os.Exit(m.Run())
}

// metrics returns the names of all metrics of a daemon that has run a job.
func metrics(t *testing.T) map[string]bool {
	t.Helper()
	registry := daemon.NewRegistry()
	e, err := engine.Open(engine.Config{
		Dir: t.TempDir(), Stores: []string{"sqlite:" + filepath.Join(t.TempDir(), "store.db")}, Broker: link.Config{Program: "serverlessd"}, LockTTL: time.Minute, Sweep: time.Minute,
		RetryDelay: time.Second, RetryMax: time.Second, KeepDone: time.Hour, KeepUnrun: time.Hour, JournalMax: 1 << 30,
		MaxResult: 1 << 10, Concurrency: 1, Batch: 1, Drain: time.Second, Options: runner.Options{
			RetryFor: time.Hour, MaxLineBytes: 1 << 20, JobTimeout: time.Minute, JobCPU: time.Minute, MaxProcesses: 1, JobsPerProcess: 1, MaxMemory: 1 << 30, Languages: []string{job.Shell},
		},
	}, zerolog.Nop(), registry)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Shutdown(t.Context()) })
	for end := time.Now().Add(45 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		h := &job.Handler{Jobtype: "a-b", Source: job.Source{Lang: job.Shell, Body: ":"}}
		if err = e.PutHandler(t.Context(), h); err == nil {
			break
		} else if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	if _, err := e.Add(t.Context(), []journal.Batch{{Jobtype: "a-b", Lines: [][]byte{[]byte("x")}}}); err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	defer web.Close()
	for end := time.Now().Add(45 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		resp, err := http.Get(web.URL)
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		names := map[string]bool{}
		for _, m := range regexp.MustCompile(`(?m)^([a-z_:]+)[{ ]`).FindAllStringSubmatch(string(data), -1) {
			names[m[1]] = true
		}
		if names["gloom_sq_ended_total"] {
			return names
		}
		if time.Now().After(end) {
			t.Fatalf("no job has ended:\n%s", data)
		}
	}
}

var metricName = regexp.MustCompile(`\bgloom_[a-z_]+\b`)

// TestDashboardAndAlertsUseMetrics: the dashboard and the alerts use only metrics that exist,
// promtool accepts the alerts, and their tests pass.
func TestDashboardAndAlertsUseMetrics(t *testing.T) {
	names := metrics(t)
	for _, file := range []struct {
		name  string
		exprs []string
	}{{"dashboard.json", dashboard(t)}, {"alerts.yml", alerts(t)}} {
		n := 0
		for _, expr := range file.exprs {
			if strings.Contains(expr, "sum(gloom_sq_jobs") {
				t.Errorf("%s adds up what each daemon of a store counts: %s", file.name, expr)
			}
			for _, m := range metricName.FindAllString(expr, -1) {
				if n++; !names[m] {
					t.Errorf("%s asks for %s, which the daemon does not have: %s", file.name, m, expr)
				}
			}
		}
		if n < 8 {
			t.Errorf("%s asks for %d metrics", file.name, n)
		}
	}
	for _, args := range [][]string{{"check", "rules", "alerts.yml"}, {"test", "rules", "alerts_test.yml"}} {
		if out, err := exec.Command("promtool", args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v (Debian: prometheus; make deps installs it)\n%s", strings.Join(args, " "), err, out)
		}
	}
}

func dashboard(t *testing.T) (exprs []string) {
	data, err := os.ReadFile("dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	if err := json.Unmarshal(data, &d); err != nil {
		t.Fatal(err)
	}
	for _, p := range d.Panels {
		for _, q := range p.Targets {
			exprs = append(exprs, q.Expr)
		}
	}
	return exprs
}

func alerts(t *testing.T) (exprs []string) {
	data, err := os.ReadFile("alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.SplitSeq(string(data), "\n") {
		if expr, ok := strings.CutPrefix(strings.TrimSpace(line), "expr: "); ok {
			exprs = append(exprs, expr)
		}
	}
	return exprs
}
