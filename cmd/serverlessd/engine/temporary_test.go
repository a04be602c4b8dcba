package engine

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"gloom/bench/throwaway"
	"gloom/cmd/serverlessd/job"
	"gloom/cmd/serverlessd/journal"
	"gloom/cmd/serverlessd/store"
)

// TestTemporaryFault: while the store refuses the journal's jobs for a time, nothing is set aside,
// the daemon says why it is not ready, and the store's jobs run. When the store accepts jobs again,
// everything recovers by itself.
func TestTemporaryFault(t *testing.T) {
	path, dir := filepath.Join(t.TempDir(), "jobs.db"), t.TempDir()
	do := func(text string) {
		db, err := sql.Open("sqlite", path+"?_pragma=busy_timeout(5000)")
		if err == nil {
			_, err = db.Exec(text)
			db.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var log throwaway.Log
	e := startEngineTo(t, &log, dir, func(*Config) {}, sqlite(t, path))
	defer e.Shutdown(context.Background())
	waitUntil(t, "there is a handler", func() error {
		return e.PutHandler(t.Context(), &job.Handler{Jobtype: "a-x", Source: job.Source{Lang: job.Shell, Body: "exit 0"}})
	})
	waitUntil(t, "all is well", e.Health)
	e.Stop()
	before := add(t, e, "a-x", "before")[0]
	waitUntil(t, "it is ingested", func() error { return e.journal.AwaitStored(t.Context(), before) })
	do("CREATE TRIGGER no BEFORE INSERT ON sq_jobs BEGIN SELECT RAISE(ABORT, 'another schema'); END")
	faultIDs := add(t, e, "a-x", "1", "2")
	reason := func() error {
		if err := e.Health(); err == nil || !strings.Contains(err.Error(), "bring jobs from the journal to the store") || !strings.Contains(err.Error(), "another schema") {
			return fmt.Errorf("health: %v", err)
		}
		return nil
	}
	waitUntil(t, "it is told", reason)
	e.Start()
	waitUntil(t, "what the store has runs", func() error {
		if err := reason(); err != nil {
			t.Fatalf("not told any more: %v", err)
		}
		rec, err := e.Job(t.Context(), before)
		if err == nil && rec.State != job.Succeeded {
			err = fmt.Errorf("%+v", rec)
		}
		return err
	})
	if s := e.journal.Stats(); s.AsideFiles != 0 || s.Jobs != 2 {
		t.Errorf("journal: %+v", s)
	}
	if n := strings.Count(log.String(), "another schema"); n != 1 {
		t.Errorf("told %d times:\n%s", n, log.String())
	}
	do("DROP TRIGGER no")
	for _, id := range faultIDs {
		awaitState(t, e, id, job.Succeeded)
	}
	waitUntil(t, "all is well", e.Health)
}

// TestTakeRefused: a call that was refused and is no longer made does not keep the daemon
// unhealthy.
func TestTakeRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	db, err := sql.Open("sqlite", path+"?_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	e := startEngine(t, t.TempDir(), sqlite(t, path))
	defer e.Shutdown(context.Background())
	waitUntil(t, "there is a handler", func() error {
		return e.PutHandler(t.Context(), &job.Handler{Jobtype: "a-x", Source: job.Source{Lang: job.Shell, Body: "exit 0"}})
	})
	if _, err := db.Exec("CREATE TRIGGER no BEFORE UPDATE ON sq_jobs WHEN old.type = 'a-x' BEGIN SELECT RAISE(ABORT, 'not now'); END"); err != nil {
		t.Fatal(err)
	}
	id := add(t, e, "a-x", "1")[0]
	waitUntil(t, "it is told", func() error {
		if err := e.Health(); err == nil || !strings.Contains(err.Error(), "take jobs") {
			return errors.Join(errors.New("health"), err)
		}
		return nil
	})
	if err := e.Delete(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "all is well", e.Health)
}

// smallPacketStore is a store whose packets are too small for some calls.
type smallPacketStore struct {
	store.Store
	taking, renewing, ending atomic.Bool
}

var errPacketTooSmall = errors.New("larger than max_allowed_packet")

func (s *smallPacketStore) Take(ctx context.Context, want store.TakeRequest) ([]store.TakenJob, error) {
	if s.taking.Load() {
		return nil, errPacketTooSmall
	}
	return s.Store.Take(ctx, want)
}

func (s *smallPacketStore) Renew(ctx context.Context, sysid string, ttl time.Duration, runs []store.Run) ([]store.Run, error) {
	if s.renewing.Load() {
		return nil, errPacketTooSmall
	}
	return s.Store.Renew(ctx, sysid, ttl, runs)
}

func (s *smallPacketStore) End(ctx context.Context, sysid string, ends []store.RunEnd) ([]bool, error) {
	if s.ending.Load() {
		return nil, errPacketTooSmall
	}
	return s.Store.End(ctx, sysid, ends)
}

// TestSmallPackets: if a store's packets are too small for the daemon's own records, the daemon
// reports the store as unhealthy, and continues once the packets are larger.
func TestSmallPackets(t *testing.T) {
	g := sqlite(t, filepath.Join(t.TempDir(), "jobs.db"))
	s := &smallPacketStore{Store: g.Store}
	g.Store = s
	e := startEngineAs(t, t.TempDir(), func(cfg *Config) { cfg.LockTTL = time.Second }, g)
	defer e.Shutdown(context.Background())
	waitUntil(t, "there is a handler", func() error {
		return e.PutHandler(t.Context(), &job.Handler{Jobtype: "a-x", Source: job.Source{Lang: job.Shell, Body: "exit 0"}})
	})
	for name, isRefusing := range map[string]*atomic.Bool{actionTake: &s.taking, actionRenew: &s.renewing, "write how jobs ended": &s.ending} {
		waitUntil(t, "all is well", e.Health)
		isRefusing.Store(true)
		id := add(t, e, "a-x", "1")[0]
		waitUntil(t, "it is told", func() error {
			if err := e.Health(); !errors.Is(err, errPacketTooSmall) || !strings.Contains(err.Error(), name) {
				return fmt.Errorf("health: %v", err)
			}
			return nil
		})
		isRefusing.Store(false)
		awaitState(t, e, id, job.Succeeded)
	}
	waitUntil(t, "all is well", e.Health)
}

// TestUnwrittenEndings: while the store refuses to write how jobs ended, a limited number of jobs is
// taken. Once it writes again, all others run.
func TestUnwrittenEndings(t *testing.T) {
	const jobs = 2*maxQueuedJobs + 1
	g := sqlite(t, filepath.Join(t.TempDir(), "jobs.db"))
	s := &smallPacketStore{Store: g.Store}
	g.Store = s
	e := startEngineAs(t, t.TempDir(), func(cfg *Config) { cfg.Batch, cfg.Languages, cfg.LockTTL = 500, []string{job.HTTP}, time.Minute }, g)
	defer e.Shutdown(context.Background())
	// One request runs a batch: thousands of processes would take minutes on a busy machine.
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.Header.Get("job-count"))
		_, _ = io.WriteString(w, strings.Repeat("200\n", n))
	}))
	defer server.Close()
	waitUntil(t, "there is a handler", func() error {
		return e.PutHandler(t.Context(), &job.Handler{Jobtype: "a-x", Source: job.Source{Lang: job.HTTP, Body: server.URL, Options: job.Options{Batch: true}}})
	})
	s.ending.Store(true)
	last := add(t, e, "a-x", slices.Repeat([]string{"1"}, jobs)...)[jobs-1]
	waitUntil(t, "the queue is full", func() error {
		b := e.backends[0]
		b.mu.Lock()
		defer b.mu.Unlock()
		if running, _ := e.runningBatches(); running > 0 || !b.isQueueFull() {
			return fmt.Errorf("%d endings are queued, %d batches run", len(b.queue), running)
		}
		return nil
	})
	if n := g.takeCalls.Load(); n > 2*maxQueuedJobs {
		t.Errorf("%d jobs were taken", n)
	}
	s.ending.Store(false)
	awaitState(t, e, last, job.Succeeded)
}

// TestReadyKnowsTheJournal: a daemon that can accept no jobs is not ready, and says why.
func TestReadyKnowsTheJournal(t *testing.T) {
	dir := t.TempDir()
	e := startEngine(t, dir, sqlite(t, filepath.Join(t.TempDir(), "jobs.db")))
	defer e.Shutdown(context.Background())
	waitUntil(t, "it is ready", e.Health)
	path := filepath.Join(dir, "journal")
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	lines := []journal.Batch{{Jobtype: "a-x", Lines: [][]byte{[]byte("1")}}}
	if _, err := e.Add(t.Context(), lines); !errors.Is(err, journal.ErrFailed) {
		t.Errorf("a job was added to a removed journal: %v", err)
	}
	if err := e.Health(); !errors.Is(err, journal.ErrFailed) {
		t.Errorf("the daemon is ready: %v", err)
	}
	if err := os.Rename(path+".away", path); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Add(t.Context(), lines); err != nil {
		t.Error(err)
	}
	waitUntil(t, "it is ready again", e.Health)
}
