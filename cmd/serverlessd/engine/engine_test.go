package engine

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"gloom/cmd/internal/launch"
	"gloom/cmd/internal/link"
	"gloom/cmd/serverlessd/job"
	"gloom/cmd/serverlessd/journal"
	"gloom/cmd/serverlessd/runner"
	"gloom/cmd/serverlessd/store"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
)

func TestMain(m *testing.M) {
	launch.Main()
	os.Exit(m.Run())
}

// testTimeout bounds every wait, even on a busy machine.
const testTimeout = 45 * time.Second

func waitUntil(t *testing.T, name string, check func() error) {
	t.Helper()
	for end := time.Now().Add(testTimeout); ; time.Sleep(5 * time.Millisecond) {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("waited in vain until %s: %v", name, err)
		}
	}
}

func awaitClosed(t *testing.T, name string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(testTimeout):
		t.Fatalf("waited in vain until %s", name)
	}
}

// gatedStore is a store whose calls can be delayed or made to fail.
type gatedStore struct {
	store.Store
	counting, taking, ending testGate
	isAway                   atomic.Bool  // every call fails
	failLeave                atomic.Int32 // how many of the next calls of Leave fail
	leaveCount               atomic.Int32
	takeCalls                atomic.Int32 // jobs
	largest                  atomic.Int64 // maximum number of bytes that one Take has returned
}

// testGate makes its callers wait while it is shut.
type testGate struct{ reached, open chan struct{} }

func newGate() testGate { return testGate{make(chan struct{}, 100), make(chan struct{})} }

func (g testGate) pass(ctx context.Context) error {
	if g.open == nil {
		return nil
	}
	g.reached <- struct{}{}
	select {
	case <-g.open:
		return nil
	case <-ctx.Done():
		return errors.Join(store.ErrAway, ctx.Err())
	}
}

func (g *gatedStore) Counts(ctx context.Context, client string) (map[string]store.Counts, error) {
	if err := g.counting.pass(ctx); err != nil {
		return nil, err
	}
	return g.Store.Counts(ctx, client)
}

func (g *gatedStore) Take(ctx context.Context, t store.TakeRequest) ([]store.TakenJob, error) {
	taken, err := g.Store.Take(ctx, t)
	g.takeCalls.Add(int32(len(taken)))
	size := int64(0)
	for i := range taken {
		size += int64(len(taken[i].Payload))
	}
	g.largest.Store(max(g.largest.Load(), size)) // pick alone takes
	if gateErr := g.taking.pass(ctx); gateErr != nil {
		return nil, gateErr
	}
	return taken, err
}

func (g *gatedStore) Leave(ctx context.Context, sysid string) error {
	g.leaveCount.Add(1)
	if g.failLeave.Add(-1) >= 0 {
		return store.ErrAway
	}
	return g.Store.Leave(ctx, sysid)
}

func (g *gatedStore) awayError() error {
	if g.isAway.Load() {
		return store.ErrAway
	}
	return nil
}

func (g *gatedStore) Ingest(ctx context.Context, piece journal.Range, jobs []journal.Entry, host func() time.Time) (int64, error) {
	if err := g.awayError(); err != nil {
		return 0, err
	}
	return g.Store.Ingest(ctx, piece, jobs, host)
}

func (g *gatedStore) Reserve(ctx context.Context, sysid string, ttl time.Duration) error {
	if err := g.awayError(); err != nil {
		return err
	}
	return g.Store.Reserve(ctx, sysid, ttl)
}

func (g *gatedStore) Renew(ctx context.Context, sysid string, ttl time.Duration, runs []store.Run) ([]store.Run, error) {
	if err := g.awayError(); err != nil {
		return nil, err
	}
	return g.Store.Renew(ctx, sysid, ttl, runs)
}

func (g *gatedStore) Waiting(ctx context.Context) ([]store.DueType, time.Duration, error) {
	if err := g.awayError(); err != nil {
		return nil, 0, err
	}
	return g.Store.Waiting(ctx)
}

func (g *gatedStore) End(ctx context.Context, sysid string, ends []store.RunEnd) ([]bool, error) {
	if err := g.awayError(); err != nil {
		return nil, err
	}
	if err := g.ending.pass(ctx); err != nil {
		return nil, err
	}
	return g.Store.End(ctx, sysid, ends)
}

func (g *gatedStore) Sweep(ctx context.Context, s store.SweepOptions) (store.SweepResult, error) {
	if err := g.awayError(); err != nil {
		return store.SweepResult{}, err
	}
	return g.Store.Sweep(ctx, s)
}

func (g *gatedStore) Job(ctx context.Context, id job.ID) (*store.Record, error) {
	if err := g.awayError(); err != nil {
		return nil, err
	}
	return g.Store.Job(ctx, id)
}

func (g *gatedStore) Handlers(ctx context.Context, since int64) (map[string]string, int64, error) {
	if err := g.awayError(); err != nil {
		return nil, 0, err
	}
	return g.Store.Handlers(ctx, since)
}

func sqlite(t *testing.T, path string) *gatedStore {
	t.Helper()
	s, err := store.Open("sqlite:" + path)
	if err != nil {
		t.Fatal(err)
	}
	return &gatedStore{Store: s}
}

// startEngine starts an engine with all its loops, on this directory and these stores.
func startEngine(t *testing.T, dir string, stores ...*gatedStore) *Engine {
	t.Helper()
	return startEngineAs(t, dir, func(*Config) {}, stores...)
}

// startEngineAs is like running, but with changed options.
func startEngineAs(t *testing.T, dir string, change func(*Config), stores ...*gatedStore) *Engine {
	t.Helper()
	return startEngineTo(t, zerolog.NewTestWriter(t), dir, change, stores...)
}

// startEngineTo is like startEngineAs, but also has a writer for the log.
func startEngineTo(t *testing.T, log io.Writer, dir string, change func(*Config), stores ...*gatedStore) *Engine {
	t.Helper()
	cfg := Config{
		Dir: dir, LockTTL: 6 * time.Second, Sweep: 10 * time.Millisecond, RetryDelay: time.Millisecond, RetryMax: time.Millisecond,
		KeepDone: time.Hour, KeepUnrun: time.Hour, MaxResult: 1000, Concurrency: 2, Batch: 5,
		Drain: testTimeout, Options: runner.Options{
			RetryFor: time.Hour, MaxLineBytes: 1000, JobTimeout: time.Minute, JobCPU: time.Minute, MaxProcesses: 2, JobsPerProcess: 100, MaxMemory: 1 << 30, Languages: []string{job.Shell, job.Gloom},
		},
		Broker: link.Config{Program: "serverlessd"},
	}
	var list []store.Store
	for i, s := range stores {
		list = append(list, s)
		cfg.Stores = append(cfg.Stores, fmt.Sprint(i))
	}
	change(&cfg)
	e, err := start(cfg, list, zerolog.New(log), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func add(t *testing.T, e *Engine, jobtype string, lines ...string) []job.ID {
	t.Helper()
	b := journal.Batch{Jobtype: jobtype}
	for _, line := range lines {
		b.Lines = append(b.Lines, []byte(line))
	}
	r, err := e.Add(t.Context(), []journal.Batch{b})
	if err != nil {
		t.Fatal(err)
	}
	ids := make([]job.ID, len(lines))
	for i := range ids {
		ids[i] = r.First[0].Add(i)
	}
	return ids
}

// TestLargePayloads: however large a handler's batches are, only a part of their payloads is in
// memory. All jobs run, and other jobs run at the same time.
func TestLargePayloads(t *testing.T) {
	const line, n = 1 << 20, 18
	s := sqlite(t, filepath.Join(t.TempDir(), "jobs.db"))
	e := startEngineAs(t, t.TempDir(), func(c *Config) { c.MaxLineBytes, c.JournalMax = line, 1<<30 }, s)
	defer e.Shutdown(context.Background())
	for jobtype, size := range map[string]int{"a-x": 10_000, "b-x": 1} {
		waitUntil(t, "there is a handler", func() error {
			return e.PutHandler(t.Context(), &job.Handler{Jobtype: jobtype, Source: job.Source{Lang: job.Shell, Body: "exit 0", Options: job.Options{BatchSize: size}}})
		})
	}
	e.Stop()
	ids := add(t, e, "a-x", slices.Repeat([]string{strings.Repeat("x", line)}, n)...)
	ids = append(ids, add(t, e, "b-x", "1")...)
	for _, id := range ids {
		waitUntil(t, "it is ingested", func() error { return e.journal.AwaitStored(t.Context(), id) })
	}
	e.Start()
	for _, id := range ids {
		awaitState(t, e, id, job.Succeeded)
	}
	if got := s.largest.Load(); got > takeBytes+line {
		t.Errorf("%d bytes of payloads were taken at a time", got)
	}
}

// TestTakenDuringShutdown: jobs that are taken while the daemon stops are given back, and no try is
// counted.
func TestTakenDuringShutdown(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	s := sqlite(t, path)
	s.taking = newGate()
	e := startEngine(t, t.TempDir(), s)
	waitUntil(t, "there is a handler", func() error {
		return e.PutHandler(t.Context(), &job.Handler{Jobtype: "a-x", Source: job.Source{Lang: job.Shell, Body: "exit 0"}})
	})
	ids := add(t, e, "a-x", "1", "2")
	awaitClosed(t, "jobs are taken", s.taking.reached)
	done := make(chan struct{})
	go func() {
		defer close(done)
		e.Shutdown(context.Background())
	}()
	waitUntil(t, "it stops", func() error {
		if _, err := e.Add(t.Context(), nil); !errors.Is(err, ErrDraining) {
			return errors.New("it takes jobs")
		}
		return nil
	})
	if err := e.Health(); !errors.Is(err, ErrDraining) {
		t.Errorf("while it stops: %v", err)
	}
	close(s.taking.open)
	awaitClosed(t, "it has stopped", done)
	secondStore := sqlite(t, path)
	defer secondStore.Close()
	for _, id := range ids {
		if rec, err := secondStore.Job(t.Context(), id); err != nil || rec.State != job.Waiting || rec.Tries != 0 || rec.Code != "" {
			t.Errorf("%+v, %v", rec, err)
		}
	}
}

// TestOldSysids: jobs of the daemon's last run are freed when their lock has expired and not
// before, even if the store refuses to free them at first.
func TestOldSysids(t *testing.T) {
	const old = "0d0d0d"
	dir, s := t.TempDir(), sqlite(t, filepath.Join(t.TempDir(), "jobs.db"))
	if err := os.WriteFile(filepath.Join(dir, "sysids"), []byte(old+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ids := job.NewIDSource(old, time.Now)
	entry := journal.Entry{ID: ids.Next(1), Jobtype: "a-x", Payload: []byte("1"), End: 1}
	_, err := s.Ingest(t.Context(), journal.Range{Segment: "s", To: 1}, []journal.Entry{entry}, time.Now)
	err = errors.Join(err, s.Reserve(t.Context(), old, time.Hour))
	taken, err2 := s.Take(t.Context(), store.TakeRequest{Sysid: old, Jobtype: "a-x", N: 1, TTL: time.Hour})
	if err = errors.Join(err, err2); err != nil || len(taken) != 1 {
		t.Fatal(taken, err)
	}
	s.failLeave.Store(2)
	e := startEngine(t, dir, s)
	waitUntil(t, "the job is freed", func() error {
		rec, err := e.Job(t.Context(), entry.ID)
		if err == nil && rec.State != job.Waiting {
			err = fmt.Errorf("%+v", rec)
		}
		return err
	})
	e.Shutdown(context.Background())
	if n := s.leaveCount.Load(); n != 4 { // two calls that failed, one for the old sysid, one for the new one
		t.Errorf("%d calls of Leave", n)
	}
	if _, err := os.Stat(filepath.Join(dir, "sysids")); !os.IsNotExist(err) {
		t.Errorf("sysids are left: %v", err)
	}
}

// TestManyOldSysids: a start after many crashes looks for the last sysids only.
func TestManyOldSysids(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "sysids"), []byte(strings.Repeat("0a0a0a\n", 10)+strings.Repeat("0d0d0d\n", maxOldSysids)), 0o600); err != nil {
		t.Fatal(err)
	}
	e := &Engine{cfg: Config{Dir: dir}, ids: job.NewIDSource("0e0e0e", time.Now)}
	old, err := e.claimSysids()
	if err != nil || len(old) != maxOldSysids || slices.Contains(old, "0a0a0a") || slices.Contains(old, "0e0e0e") {
		t.Errorf("%d sysids, %v", len(old), err)
	}
}

// TestSysidsOfCopy: a daemon finds its earlier sysids after its directory was renamed. In a copy of
// the directory, it finds only those of the copy.
func TestSysidsOfCopy(t *testing.T) {
	original := filepath.Join(t.TempDir(), "original")
	renamed, copied := original+"-renamed", original+"-copied"
	if err := os.Mkdir(original, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		dir, sysid string
		prepare    func() error
		old        []string
	}{
		{original, "0a0a0a", nil, nil},
		{original, "0b0b0b", nil, []string{"0a0a0a"}},
		{renamed, "0c0c0c", func() error { return os.Rename(original, renamed) }, []string{"0a0a0a", "0b0b0b"}},
		{copied, "0d0d0d", func() error { return os.CopyFS(copied, os.DirFS(renamed)) }, nil},
		{copied, "0e0e0e", nil, []string{"0d0d0d"}},
		{renamed, "0f0f0f", nil, []string{"0a0a0a", "0b0b0b", "0c0c0c"}},
	} {
		if step.prepare != nil {
			if err := step.prepare(); err != nil {
				t.Fatal(err)
			}
		}
		e := &Engine{cfg: Config{Dir: step.dir}, ids: job.NewIDSource(step.sysid, time.Now)}
		if old, err := e.claimSysids(); err != nil || !slices.Equal(old, step.old) {
			t.Errorf("%s in %s: earlier sysids %v, want %v, %v", step.sysid, filepath.Base(step.dir), old, step.old, err)
		}
	}
}

// TestManyOldSysidsAreFast: a start looks for the processes of all sysids together. Each look reads
// the environments of all processes of the host.
func TestManyOldSysidsAreFast(t *testing.T) {
	e := &Engine{ctx: t.Context(), log: zerolog.Nop(), nodeName: "0f0f0f"}
	fastest := func(count int) time.Duration {
		took := time.Hour
		for range 3 { // other processes slow some of them down
			old := slices.Repeat([]string{"0d0d0d"}, count)
			start := time.Now()
			if left := e.endOrphans(old); len(left) != count {
				t.Fatalf("%d of %d sysids have no processes", len(left), count)
			}
			took = min(took, time.Since(start))
		}
		return took
	}
	if one, all := fastest(1), fastest(maxOldSysids); all > maxOldSysids/5*one {
		t.Errorf("%v for one sysid, %v for %d", one, all, maxOldSysids)
	}
}

// TestStateDuringCount: while one store is slow to count, another store gets the journal's jobs.
// Jobs that move to a store during a count are counted once.
func TestStateDuringCount(t *testing.T) {
	fastStore, slowStore := sqlite(t, filepath.Join(t.TempDir(), "fast.db")), sqlite(t, filepath.Join(t.TempDir(), "slow.db"))
	slowStore.counting = newGate()
	e := startEngine(t, t.TempDir(), fastStore, slowStore)
	defer e.Shutdown(context.Background())
	for _, b := range e.backends {
		waitUntil(t, "the stores are there", b.checkReachable)
	}
	type answer struct {
		types map[string]store.Counts
		err   error
	}
	counted := make(chan answer, 1)
	go func() {
		types, err := e.State(t.Context(), "")
		counted <- answer{types, err}
	}()
	awaitClosed(t, "the slow store counts", slowStore.counting.reached)
	var got int64
	n := 0
	waitUntil(t, "the fast store has jobs", func() error {
		add(t, e, "a-x", "1")
		n++
		types, err := fastStore.Store.Counts(t.Context(), "")
		if got = types["a-x"].Added; err == nil && got == 0 {
			err = errors.New("it has none")
		}
		return err
	})
	close(slowStore.counting.open)
	a := <-counted
	if c := a.types["a-x"]; a.err != nil || c.Added != int64(n) || c.Waiting != int64(n) {
		t.Errorf("%d were added, counted are %+v, %v", n, c, a.err)
	}
}

// TestLastRun: a job that waits for its next try shows why the last try failed, also on another
// daemon and after a restart.
func TestLastRun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	e := startEngineAs(t, t.TempDir(), func(c *Config) { c.RetryDelay, c.RetryMax = time.Hour, time.Hour }, sqlite(t, path))
	waitUntil(t, "there is a handler", func() error {
		return e.PutHandler(t.Context(), &job.Handler{Jobtype: "a-x", Source: job.Source{Lang: job.Shell, Body: `echo "no $1" >&2; exit 3`}})
	})
	id := add(t, e, "a-x", "luck")[0]
	look := func(e *Engine) {
		t.Helper()
		rec := awaitState(t, e, id, job.Deferred)
		l := rec.Last
		if l == nil || l.Try != 1 || l.Code != job.CodeError || l.Status != 500 || string(l.Data) != "exit status 3" || string(l.Stderr) != "no luck\n" || time.Since(l.At) > testTimeout {
			t.Fatalf("%+v, %+v", rec, l)
		}
	}
	waitUntil(t, "it has run", func() error {
		if rec, err := e.Job(t.Context(), id); err != nil || rec.State != job.Deferred {
			return fmt.Errorf("%+v, %v", rec, err)
		}
		return nil
	})
	look(e)
	e.Shutdown(context.Background())
	secondEngine := startEngine(t, t.TempDir(), sqlite(t, path))
	defer secondEngine.Shutdown(context.Background())
	look(secondEngine)
}

// TestStatusThatCountsAs500: if a handler gives a status that does not exist, the run names the
// status and counts as 500.
func TestStatusThatCountsAs500(t *testing.T) {
	e := startEngineAs(t, t.TempDir(), func(c *Config) { c.RetryDelay, c.RetryMax = time.Hour, time.Hour }, sqlite(t, filepath.Join(t.TempDir(), "jobs.db")))
	defer e.Shutdown(context.Background())
	waitUntil(t, "there is a handler", func() error {
		return e.PutHandler(t.Context(), &job.Handler{Jobtype: "a-x", Source: job.Source{Lang: job.Shell, Body: `echo "R: $1"`}})
	})
	for payload, data := range map[string]string{"302": "status 302 counts as 500", "999": "status 999 counts as 500", "302 moved": "moved", "500": ""} {
		id := add(t, e, "a-x", payload)[0]
		rec := awaitState(t, e, id, job.Deferred)
		if l := rec.Last; l == nil || l.Status != 500 || string(l.Data) != data {
			t.Errorf("%s: %+v, %+v", payload, rec, l)
		}
	}
}

// TestDamagedNodeName: a daemon starts and runs jobs even if a crash has damaged the file with its
// directory's name; the directory then gets a new name.
func TestDamagedNodeName(t *testing.T) {
	dir, path := t.TempDir(), filepath.Join(t.TempDir(), "jobs.db")
	if err := os.WriteFile(filepath.Join(dir, "node"), []byte("\x00\x00\x00\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	e := startEngine(t, dir, sqlite(t, path))
	waitUntil(t, "there is a handler", func() error {
		return e.PutHandler(t.Context(), &job.Handler{Jobtype: "a-x", Source: job.Source{Lang: job.Shell, Body: "exit 0"}})
	})
	awaitState(t, e, add(t, e, "a-x", "1")[0], job.Succeeded)
	e.Shutdown(context.Background())
	secondEngine := startEngine(t, dir, sqlite(t, path))
	defer secondEngine.Shutdown(context.Background())
	if e.nodeName == "" || secondEngine.nodeName != e.nodeName {
		t.Errorf("the name was %q, and is %q", e.nodeName, secondEngine.nodeName)
	}
}

// TestLostPayload: a job whose row of sq_data is gone does not run with another payload. The job
// ends with a reason, and the other jobs run.
func TestLostPayload(t *testing.T) {
	path, ranPath := filepath.Join(t.TempDir(), "jobs.db"), filepath.Join(t.TempDir(), "ran")
	e := startEngineAs(t, t.TempDir(), func(c *Config) { c.MaxLineBytes = 1 << 20 }, sqlite(t, path))
	defer e.Shutdown(context.Background())
	waitUntil(t, "there is a handler", func() error {
		return e.PutHandler(t.Context(), &job.Handler{Jobtype: "a-x", Source: job.Source{Lang: job.Shell, Body: fmt.Sprintf(`echo "${#1}" >>'%s'`, ranPath)}})
	})
	e.Stop()
	ids := add(t, e, "a-x", strings.Repeat("x", 2000), strings.Repeat("x", 3000), "x")
	for _, id := range ids {
		waitUntil(t, "it is ingested", func() error { return e.journal.AwaitStored(t.Context(), id) })
	}
	db, err := sql.Open("sqlite", path+"?_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), "DELETE FROM sq_data WHERE id = ?", ids[1].String()); err != nil {
		t.Fatal(err)
	}
	e.Start()
	rec := awaitState(t, e, ids[1], job.Abandoned)
	if l := rec.Last; rec.Code != job.CodeNoPayload || l == nil || !strings.Contains(string(l.Data), "sq_data") {
		t.Errorf("%+v, %+v", rec, l)
	}
	if _, data, err := e.Payload(t.Context(), ids[1], math.MaxInt); data != nil || err != nil {
		t.Errorf("its payload is %q, %v", data, err)
	}
	for _, id := range []job.ID{ids[0], ids[2]} {
		awaitState(t, e, id, job.Succeeded)
	}
	if got, err := os.ReadFile(ranPath); string(got) != "2000\n1\n" && string(got) != "1\n2000\n" {
		t.Errorf("payloads of these lengths ran: %q, %v", got, err)
	}
}
