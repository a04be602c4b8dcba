package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"gloom/cmd/internal/boot"
	"gloom/cmd/serverlessd/job"
	"gloom/cmd/serverlessd/journal"
	"gloom/cmd/serverlessd/runner"
	"gloom/cmd/serverlessd/store"
)

// TestLockOrders: before a run's end is written, its lock may expire, be renewed, and be taken by
// another daemon, in any order. The end counts unless another daemon has taken the job.
func TestLockOrders(t *testing.T) {
	const other = "0d0d0d"
	for _, c := range []struct {
		order string // of steps
		state job.State
		lock  bool // another's
		tries int
		code  string
	}{
		{"renew end", job.Succeeded, false, 1, "ok"},
		{"end renew", job.Succeeded, false, 1, "ok"},
		{"end end", job.Succeeded, false, 1, "ok"},
		{"expire end", job.Succeeded, false, 1, "ok"},
		{"expire renew", job.Running, false, 1, "lock_expired"},
		{"expire renew end", job.Succeeded, false, 1, "ok"},
		{"expire renew sweep end", job.Succeeded, false, 1, "ok"},
		{"expire take end", job.Running, true, 2, "lock_expired"},
		{"expire take renew end", job.Running, true, 2, "lock_expired"},
		{"expire take renew end renew", job.Running, true, 2, "lock_expired"},
		{"expire end take", job.Succeeded, false, 1, "ok"},
		{"again renew", job.Deferred, false, 1, "retry"},
		{"expire again renew", job.Deferred, false, 1, "retry"},
		{"expire take again", job.Running, true, 2, "lock_expired"},
		{"back renew", job.Waiting, false, 0, ""},
		{"expire back", job.Waiting, false, 0, "lock_expired"},
		{"back take", job.Running, true, 1, ""},
		{"lose end", job.Succeeded, false, 1, "ok"},
		{"lose expire take end", job.Running, true, 2, "lock_expired"},
	} {
		t.Run(c.order, func(t *testing.T) {
			e := withStores(t, 0)
			e.cfg = Config{Dir: t.TempDir(), LockTTL: time.Minute, Options: runner.Options{RetryFor: time.Hour}, KeepDone: time.Hour, KeepUnrun: time.Hour}
			var elapsed time.Duration
			start := time.Now()
			b := newBackend(e, store.OpenAt(filepath.Join(t.TempDir(), "store.db"), func() time.Time { return start.Add(elapsed) }, func() time.Duration { return elapsed }))
			defer b.store.Close()
			e.backends = append(e.backends, b)
			b.sweepOnce()
			elapsed = e.cfg.LockTTL // the daemon has watched the clock for long enough to free locks
			if !b.reserve() {
				t.Fatal("no sysid")
			}
			sysid := b.usableSysid()
			id := e.ids.Next(1)
			entry := journal.Entry{ID: id, Jobtype: "a-x", Payload: []byte("1"), End: 1}
			if _, err := b.store.Ingest(t.Context(), journal.Range{Segment: "s", To: 1}, []journal.Entry{entry}, time.Now); err != nil {
				t.Fatal(err)
			}
			take := func(sysid string, ttl time.Duration) []store.TakenJob {
				taken, err := b.store.Take(t.Context(), store.TakeRequest{Sysid: sysid, Jobtype: "a-x", N: 1, TTL: ttl})
				if err != nil {
					t.Fatal(err)
				}
				return taken
			}
			ttl := time.Hour
			if strings.Contains(c.order, "expire") {
				ttl = -time.Second
			}
			taken := take(sysid, ttl)
			p := &candidate{backend: b, due: &store.DueType{Jobtype: "a-x"}, handler: &job.Handler{Jobtype: "a-x"}}
			r := newBatch(e, p, sysid, taken, time.Now()).runs[0]
			b.runsInHand[id] = r
			for step := range strings.FieldsSeq(c.order) {
				end := store.RunEnd{Run: r.Run, Code: job.CodeOK, Status: 200}
				switch step {
				case "renew":
					b.renew()
				case "expire", "sweep":
					b.sweepOnce()
				case "take":
					take(other, time.Hour)
				case "lose":
					b.loseSysid(sysid)
					if context.Cause(r.batch.ctx) != errLocksLost || e.ids.Sysid() == sysid {
						t.Error("what runs goes on")
					}
				default:
					switch step {
					case "again":
						end.Action, end.Code, end.Status, end.Delay = store.EndRetry, job.CodeRetry, 100, time.Hour
					case "back":
						end = store.RunEnd{Run: r.Run, Action: store.EndGiveBack}
					}
					b.queueEnding(&queuedEnding{run: r, RunEnd: end})
					if err := b.writeAll(b.nextEndings()); err != nil {
						t.Fatal(err)
					}
				}
			}
			rec, err := b.store.Job(t.Context(), id)
			if err != nil || rec.State != c.state || (rec.Lock == other) != c.lock || rec.Tries != c.tries || rec.Code != c.code {
				t.Errorf("%+v, %v", rec, err)
			}
			counts, err := b.store.Counts(t.Context(), "")
			if sum := counts["a-x"]; err != nil || sum.Added != 1 {
				t.Errorf("%+v, %v", sum, err)
			}
			if b.sweepOnce(); b.miscounted != 0 {
				t.Errorf("the counts are off by %d", b.miscounted)
			}
		})
	}
}

// TestClockIsSet: if a store's clock is set forward by more than the time of a lock,
// daemons that are alive lose nothing.
func TestClockIsSet(t *testing.T) {
	var clockShift atomic.Int64
	e := withStores(t, 0)
	e.cfg = Config{Dir: t.TempDir(), LockTTL: time.Minute, Options: runner.Options{RetryFor: time.Hour}, KeepDone: time.Hour, KeepUnrun: time.Hour}
	b := newBackend(e, store.OpenAt(filepath.Join(t.TempDir(), "store.db"), func() time.Time { return time.Now().Add(time.Duration(clockShift.Load())) }, nil))
	defer b.store.Close()
	e.backends = append(e.backends, b)
	if !b.reserve() {
		t.Fatal("no sysid")
	}
	sysid, id := b.usableSysid(), e.ids.Next(1)
	entry := journal.Entry{ID: id, Jobtype: "a-x", Payload: []byte("1"), End: 1}
	if _, err := b.store.Ingest(t.Context(), journal.Range{Segment: "s", To: 1}, []journal.Entry{entry}, time.Now); err != nil {
		t.Fatal(err)
	}
	if taken, err := b.store.Take(t.Context(), store.TakeRequest{Sysid: sysid, Jobtype: "a-x", N: 1, TTL: e.cfg.LockTTL}); err != nil || len(taken) != 1 {
		t.Fatal(taken, err)
	}
	b.sweepOnce()
	clockShift.Add(int64(2 * e.cfg.LockTTL))
	b.sweepOnce()
	if rec, err := b.store.Job(t.Context(), id); err != nil || rec.State != job.Running || rec.Lock != sysid {
		t.Errorf("the job: %+v, %v", rec, err)
	}
	if !b.renew() || b.usableSysid() != sysid {
		t.Error("the sysid is lost")
	}
}

// addBlockingHandler adds a handler whose jobs run until a file exists.
func addBlockingHandler(t *testing.T, e *Engine, jobtype, file string) {
	t.Helper()
	waitUntil(t, "there is a handler", func() error {
		return e.PutHandler(t.Context(), &job.Handler{Jobtype: jobtype, Source: job.Source{
			Lang: job.Shell, Body: fmt.Sprintf("echo $JOB_TRY >>%s.tries; while [ ! -e %s ]; do sleep 0.05; done", file, file),
		}})
	})
}

func awaitState(t *testing.T, e *Engine, id job.ID, want job.State) *store.Record {
	t.Helper()
	var rec *store.Record
	waitUntil(t, "the job is "+string(want), func() (err error) {
		if rec, err = e.Job(t.Context(), id); err == nil && rec.State != want {
			err = fmt.Errorf("%+v", rec)
		}
		return err
	})
	return rec
}

// TestStoreOutage: while a store is away, runs continue and jobs are accepted. When it is back, the
// ends of the runs are written, and the new jobs run.
func TestStoreOutage(t *testing.T) {
	s, file := sqlite(t, filepath.Join(t.TempDir(), "jobs.db")), filepath.Join(t.TempDir(), "go")
	e := startEngine(t, t.TempDir(), s)
	defer e.Shutdown(context.Background())
	addBlockingHandler(t, e, "a-x", file)
	first := add(t, e, "a-x", "1")[0]
	awaitState(t, e, first, job.Running)
	s.isAway.Store(true)
	waitUntil(t, "the engine notices that the store is away", func() error {
		if e.Health() == nil {
			return errors.New("all is well")
		}
		return nil
	})
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	second := add(t, e, "a-x", "2")[0]
	if rec, err := e.Job(t.Context(), second); err != nil || rec.State != job.Waiting {
		t.Errorf("what is accepted meanwhile: %+v, %v", rec, err)
	}
	if _, err := e.Job(t.Context(), first); !errors.Is(err, store.ErrAway) {
		t.Errorf("what the store has: %v", err)
	}
	waitUntil(t, "the run has ended", func() error {
		if e.backends[0].allWritten() {
			return errors.New("no end is to be written")
		}
		return nil
	})
	s.isAway.Store(false)
	for _, id := range []job.ID{first, second} {
		if rec := awaitState(t, e, id, job.Succeeded); rec.Tries != 1 {
			t.Errorf("%+v", rec)
		}
	}
	types, err := e.State(t.Context(), "")
	if c := types["a-x"]; err != nil || c.OK != 2 || c.Added != 2 {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestEndsAfterLongOutage: when a store is back after a long outage, no job is taken again before the
// ends of the runs are written, although the writes answer later than other calls.
func TestEndsAfterLongOutage(t *testing.T) {
	s, file := sqlite(t, filepath.Join(t.TempDir(), "jobs.db")), filepath.Join(t.TempDir(), "go")
	s.ending = newGate()
	e := startEngineAs(t, t.TempDir(), func(cfg *Config) { cfg.LockTTL = time.Second }, s)
	defer e.Shutdown(context.Background())
	b := e.backends[0]
	addBlockingHandler(t, e, "a-x", file)
	id := add(t, e, "a-x", "1")[0]
	awaitState(t, e, id, job.Running)
	s.isAway.Store(true)
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "the run has ended, and its lock is lost", func() error {
		if b.allWritten() || b.currentSysid() != "" {
			return errors.New("not yet")
		}
		return nil
	})
	b.mu.Lock()
	b.lostAt -= time.Hour
	b.mu.Unlock()
	s.isAway.Store(false)
	time.Sleep(3 * time.Second) // long enough to take the job again
	close(s.ending.open)
	if rec := awaitState(t, e, id, job.Succeeded); rec.Tries != 1 {
		t.Errorf("%+v", rec)
	}
	if tries, err := os.ReadFile(file + ".tries"); err != nil || string(tries) != "1\n" {
		t.Errorf("%q, %v", tries, err)
	}
}

// TestLostSysid: a daemon whose sysid was removed ends its runs, and takes the jobs again under a
// new sysid.
func TestLostSysid(t *testing.T) {
	s, file := sqlite(t, filepath.Join(t.TempDir(), "jobs.db")), filepath.Join(t.TempDir(), "go")
	e := startEngine(t, t.TempDir(), s)
	defer e.Shutdown(context.Background())
	addBlockingHandler(t, e, "a-x", file)
	id := add(t, e, "a-x", "1")[0]
	awaitState(t, e, id, job.Running)
	old := e.backends[0].currentSysid()
	if err := s.Store.Leave(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "it has another", func() error {
		if now := e.backends[0].currentSysid(); now == "" || now == old {
			return fmt.Errorf("sysid %q", now)
		}
		return nil
	})
	waitUntil(t, "it runs again", func() error {
		if tries, err := os.ReadFile(file + ".tries"); err != nil || !strings.Contains(string(tries), "2\n") {
			return fmt.Errorf("%q, %v", tries, err)
		}
		return nil
	})
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if rec := awaitState(t, e, id, job.Succeeded); rec.Tries < 2 {
		t.Errorf("%+v", rec)
	}
}

// TestHostWasSuspended: after a suspend during which its locks have expired, the daemon gives up its
// sysid at once.
func TestHostWasSuspended(t *testing.T) {
	e := startEngineAs(t, t.TempDir(), func(cfg *Config) { cfg.LockTTL = time.Hour }, sqlite(t, filepath.Join(t.TempDir(), "jobs.db")))
	defer e.Shutdown(context.Background())
	b := e.backends[0]
	waitUntil(t, "it takes jobs", e.Health)
	old := b.currentSysid()
	b.mu.Lock()
	b.renewedAt -= 2 * time.Hour // as if the clock had jumped
	b.mu.Unlock()
	waitUntil(t, "it has another sysid", func() error {
		if now := b.usableSysid(); now == "" || now == old {
			return fmt.Errorf("sysid %q", now)
		}
		return nil
	})
}

// TestOneStoreAway: a store that is away delays only its own jobs.
func TestOneStoreAway(t *testing.T) {
	reachable, unreachable := sqlite(t, filepath.Join(t.TempDir(), "there.db")), sqlite(t, filepath.Join(t.TempDir(), "away.db"))
	file := filepath.Join(t.TempDir(), "go")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	e := startEngine(t, t.TempDir(), reachable, unreachable)
	defer e.Shutdown(context.Background())
	addBlockingHandler(t, e, "a-x", file)
	e.Stop()
	// Both stores get jobs.
	var ids [2]job.ID
	waitUntil(t, "both have jobs", func() error {
		id := add(t, e, "a-x", "1")[0]
		waitUntil(t, "it is ingested", func() error { return e.journal.AwaitStored(t.Context(), id) })
		for i, s := range []*gatedStore{reachable, unreachable} {
			if _, err := s.Job(t.Context(), id); err == nil {
				ids[i] = id
			}
		}
		if ids[0] == "" || ids[1] == "" {
			return fmt.Errorf("%q", ids)
		}
		return nil
	})
	unreachable.isAway.Store(true)
	waitUntil(t, "the engine notices that one store is away", func() error {
		if err := e.Degraded(); err == nil || !strings.Contains(err.Error(), unreachable.Name()) {
			return fmt.Errorf("degraded: %v", err)
		}
		return nil
	})
	if err := e.Health(); err != nil {
		t.Errorf("it is not ready with one of two stores: %v", err)
	}
	e.Start()
	awaitState(t, e, ids[0], job.Succeeded)
	if _, err := e.Job(t.Context(), ids[1]); !errors.Is(err, store.ErrAway) {
		t.Errorf("what the other one has: %v", err)
	}
	if _, err := e.Job(t.Context(), e.ids.Next(1)); !errors.Is(err, store.ErrAway) {
		t.Errorf("what it may have: %v", err)
	}
	awaitState(t, e, add(t, e, "a-x", "2")[0], job.Succeeded)
	unreachable.isAway.Store(false)
	awaitState(t, e, ids[1], job.Succeeded)
}

// TestLimitOfSeveralStores: this daemon's runs may continue until the first of the stores' sysids
// expires, whichever was renewed last.
func TestLimitOfSeveralStores(t *testing.T) {
	e := withStores(t, 2)
	e.cfg = Config{Dir: t.TempDir(), LockTTL: time.Minute}
	if e.guardDeadline() != 0 {
		t.Error("there is a limit without a sysid")
	}
	a, b := e.backends[0], e.backends[1]
	if !a.reserve() || !b.reserve() {
		t.Fatal("no sysids")
	}
	a.renewedAt = boot.Since() - 30*time.Second
	if !b.renew() {
		t.Fatal("not renewed")
	}
	if got, want := e.guardDeadline(), a.renewedAt+time.Minute; got != want {
		t.Errorf("the limit is %v, want %v", got, want)
	}
	// The sysid of a store that does not answer is given up before the guard ends all runs.
	a.renewedAt = boot.Since() - time.Minute + renewMargin/2
	if a.renew() || a.currentSysid() != "" {
		t.Fatal("renewed too late")
	}
	if got, want := e.guardDeadline(), b.renewedAt+time.Minute; got != want {
		t.Errorf("the limit is %v, want %v", got, want)
	}
}
