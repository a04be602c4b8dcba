package bridge

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"gloom/cmd/internal/boot"
	"gloom/cmd/internal/failpoint"
	"gloom/cmd/internal/testing/storetest"
	"gloom/cmd/jobd/control"
	"gloom/cmd/jobd/store"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"
)

func TestStopWithoutDatabaseSpoolsResults(t *testing.T) {
	cfg := configFor(t, "a")
	cfg.SpoolDir = t.TempDir()
	cfg.ShutdownTimeout = time.Minute
	writeLauncher(t, &cfg, "while [ ! -e {dir}/go ]; do sleep 0.02; done; echo done $id")
	dir := filepath.Dir(strings.Fields(cfg.Launcher)[0])
	table := storetest.NewTable()
	f := startBridge(t, table, cfg)
	f.insert(store.Waiting, "a", 1)
	f.Poll(nil)
	f.await(store.Running, 1)
	table.SetError(storetest.ErrUnreachable)
	touch(t, dir, "go")
	eventually(t, "the result is spooled", func() bool {
		files, _ := filepath.Glob(filepath.Join(cfg.SpoolDir, "*.json"))
		return len(files) == 1
	})
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := f.Shutdown(ctx); err == nil {
		t.Fatal("Shutdown returned no error, although a result is unwritten")
	}
	if f.Err() == nil {
		t.Fatal("Err returns nil after a Shutdown with an unwritten result")
	}
	table.SetError(nil)
	g := startBridge(t, table, cfg)
	g.await(store.Done, 1)
	if r := g.readRecord(1); *r.Result != "ok" || *r.Stdout != "done 1\n" {
		t.Fatalf("%+v", r)
	}
}

// vanishingStore is a store whose database goes away once the lease has begun.
type vanishingStore struct {
	*storetest.Memory
	table *storetest.Table
}

func (f vanishingStore) Register(ctx context.Context) error {
	err := f.Memory.Register(ctx)
	f.table.SetError(storetest.ErrUnreachable)
	return err
}

// TestSpooledResultIsWrittenLater: a result in the spool is written when the database is back,
// however late. Until then the reaper does not settle the result's row. The same holds while the
// file cannot be read.
func TestSpooledResultIsWrittenLater(t *testing.T) {
	for _, orphans := range []string{"fail", requeueOrphans} {
		t.Run(orphans, func(t *testing.T) { testSpooledResult(t, orphans, false) })
		t.Run(orphans+" unreadable", func(t *testing.T) { testSpooledResult(t, orphans, true) })
	}
}

func testSpooledResult(t *testing.T, orphans string, unreadable bool) {
	cfg := configFor(t, "a")
	cfg.SpoolDir, cfg.Orphans = filepath.Join(t.TempDir(), "[spool]"), orphans
	writeLauncher(t, &cfg, "echo again $id")
	table := storetest.NewTable()
	deadStore := table.Open(cfg.Name, cfg.Lease, store.Process{})
	if err := deadStore.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	f := &fixture{t: t, table: table}
	f.insert(store.Waiting, "a", 1, 2)
	if _, err := deadStore.Accept(t.Context(), []store.AcceptRequest{{Target: "a", Rows: 2}}, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := deadStore.Write(t.Context(), store.Batch{StartRows: []int64{1, 2}}); err != nil {
		t.Fatal(err)
	}
	b := &Bridge{cfg: cfg}
	sp, err := newSpool(cfg.SpoolDir, b.spoolTable())
	if err == nil {
		err = sp.saveResult(deadStore.Token(), store.Result{ID: 1, OK: true, Stdout: "once"})
	}
	if err != nil {
		t.Fatal(err)
	}
	file := sp.filePath(deadStore.Token(), 1)
	unfinished, otherFile := sp.filePath(deadStore.Token(), 2)+".new", filepath.Join(cfg.SpoolDir, "jobd-another-1-2.json.new")
	for _, path := range []string{unfinished, otherFile} {
		if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	swapFile := func() { // in place of the file there is a directory, which can be opened but not read
		if err := unix.Renameat2(unix.AT_FDCWD, file, unix.AT_FDCWD, file+".kept", unix.RENAME_EXCHANGE); err != nil {
			t.Fatal(err)
		}
	}
	if unreadable {
		if err := os.Mkdir(file+".kept", 0o700); err != nil {
			t.Fatal(err)
		}
		swapFile()
	}
	table.Forget(deadStore.Token()) // so that it is considered dead at the first check
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if b, err = open(ctx, cfg, zerolog.Nop(), nil, vanishingStore{table.Open(cfg.Name, cfg.Lease, store.Process{}), table}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	b.reaper.mu.Lock() // the reaper runs before the writer
	table.SetError(nil)
	b.reaper.mu.Unlock()
	f.await(store.Done, 2)
	if unreadable {
		if got := f.rowStatus(1); got != store.Running {
			t.Errorf("the row is %s before its result has been read", got)
		}
		swapFile()
	}
	f.await(store.Done, 1)
	if r, _ := table.Get(1); *r.Result != "ok" || *r.Stdout != "once" {
		t.Errorf("orphans = %s: %+v", orphans, r)
	}
	if _, err := os.Stat(unfinished); !os.IsNotExist(err) {
		t.Error("a file that was never finished is left:", err)
	}
	if _, err := os.Stat(otherFile); err != nil {
		t.Error("a file of another daemon was removed:", err)
	}
	b.Close()
}

// TestUnknownSpoolPreventsStart: a daemon that cannot read its spool's list of results does not
// start, because it would settle rows as if they had no results.
func TestUnknownSpoolPreventsStart(t *testing.T) {
	cfg := configFor(t, "a")
	writeLauncher(t, &cfg, "true")
	f := startBridge(t, storetest.NewTable(), cfg)
	sp := &spool{dir: filepath.Join(t.TempDir(), "gone")}
	if err := f.loadSpool(sp); err == nil || !strings.Contains(err.Error(), "spool_dir") {
		t.Error(err)
	}
}

func TestGracefulStopLetsRowsEnd(t *testing.T) {
	cfg := configFor(t, "a=2", "b")
	writeLauncher(t, &cfg, "while [ ! -e {dir}/go ]; do sleep 0.02; done; echo done $id")
	dir := filepath.Dir(strings.Fields(cfg.Launcher)[0])
	f := startBridge(t, storetest.NewTable(), cfg)
	f.insert(store.Waiting, "a", 1, 2, 3, 4)
	f.insert(store.Manual, "b", 5, 6)
	f.fillTarget("a")
	f.Poll(nil)
	type answer struct {
		got   map[int64]control.JobResult
		texts map[int64]string
		err   error
	}
	answers := make(chan answer, 1)
	go func() {
		got, texts, err := f.RunManual(context.Background(), []int64{5, 6})
		answers <- answer{got, texts, err}
	}()
	f.await(store.Running, 1, 2, 5)
	f.await(store.Accepted, 3, 4, 6)
	stopped := make(chan error, 1)
	go func() { stopped <- f.Shutdown(t.Context()) }()
	f.await(store.Waiting, 3, 4)
	f.await(store.Manual, 6)
	if f.rowStatus(1) != store.Running {
		t.Fatal("running jobs were not given their time")
	}
	if _, _, err := runManual(t, f, 6); err == nil {
		t.Fatal("a stopping daemon takes jobs")
	}
	touch(t, dir, "go")
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	if f.rowStatus(1) != store.Done || f.rowStatus(2) != store.Done || f.rowStatus(3) != store.Waiting {
		t.Fatal(f.rowStatus(1), f.rowStatus(2), f.rowStatus(3))
	}
	if a := <-answers; a.err != nil || a.got[5].Result != "ok" || !strings.Contains(a.texts[6], "stopping") {
		t.Fatalf("%+v", a)
	}
	if n := f.table.ClaimCount(); n != 0 {
		t.Fatal(n)
	}
	<-f.Done()
	if f.Err() != nil {
		t.Fatal(f.Err())
	}
}

func TestStopSignalsAfterTimeout(t *testing.T) {
	cfg := configFor(t, "a=2")
	cfg.ShutdownTimeout = 50 * time.Millisecond
	dir := writeLauncher(t, &cfg, `[ $id = 2 ] && trap '' TERM; touch {dir}/ready.$id; while :; do sleep 0.05; done`)
	f := startBridge(t, storetest.NewTable(), cfg)
	f.insert(store.Waiting, "a", 1, 2)
	f.Poll(nil)
	eventually(t, "both processes run", func() bool {
		ready, _ := filepath.Glob(filepath.Join(dir, "ready.*"))
		return len(ready) == 2
	})
	if err := f.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := f.readRecord(1); r.Status != store.Done || *r.Signal != "SIGTERM" || *r.Result != "fail" {
		t.Fatalf("%+v", r)
	}
	if r := f.readRecord(2); r.Status != store.Done || *r.Result != "fail" || *r.Signal != "SIGKILL" {
		t.Fatalf("%+v", r)
	}
}

// TestTimedOutStopStartsNothing: when processes are told to end, a row that is written as running
// but has no process yet goes back.
func TestTimedOutStopStartsNothing(t *testing.T) {
	cfg := configFor(t, "a=1")
	cfg.ShutdownTimeout = 10 * time.Millisecond
	writeLauncher(t, &cfg, "exec sleep 1000")
	answers := make(chan struct{})
	failpoint.Hook = func(point string) {
		if point == "slot: running" {
			<-answers
		}
	}
	defer func() { failpoint.Hook = nil }()
	f := startBridge(t, storetest.NewTable(), cfg)
	f.insert(store.Waiting, "a", 1)
	f.Poll(nil)
	f.await(store.Running, 1)
	stopped := make(chan error, 1)
	go func() { stopped <- f.Shutdown(t.Context()) }()
	eventually(t, "processes are told to end", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.lastSignal != 0
	})
	close(answers)
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	if r := f.readRecord(1); r.Status != store.Waiting || r.TimeStarted != 0 {
		t.Fatalf("%+v", r)
	}
}

// TestAbruptStops: daemons of one process replace one another; rows are settled when the lease has
// expired, not before.
func TestAbruptStops(t *testing.T) {
	for _, orphans := range []string{"fail", requeueOrphans} {
		t.Run(orphans, func(t *testing.T) {
			cfg := configFor(t, "a=1")
			cfg.Orphans = orphans
			cfg.Lease = 300 * time.Millisecond
			writeLauncher(t, &cfg, "echo x >> {dir}/runs.$id; while [ ! -e {dir}/go ]; do sleep 0.02; done; echo done $id")
			dir := filepath.Dir(strings.Fields(cfg.Launcher)[0])
			table := storetest.NewTable()
			f := startBridge(t, table, cfg)
			f.insert(store.Waiting, "a", 1, 2)
			f.fillTarget("a")
			f.Poll(nil)
			f.await(store.Running, 1)
			f.await(store.Accepted, 2)
			eventually(t, "the process has begun", func() bool { runs, _ := os.ReadFile(filepath.Join(dir, "runs.1")); return len(runs) > 0 })
			f.Close()
			if f.rowStatus(1) != store.Running || f.rowStatus(2) != store.Accepted {
				t.Fatalf("%s %s: an abrupt end writes nothing", f.rowStatus(1), f.rowStatus(2))
			}
			touch(t, dir, "go")
			g := startBridge(t, table, cfg)
			g.await(store.Done, 1, 2)
			runs, _ := os.ReadFile(filepath.Join(dir, "runs.1"))
			r := g.readRecord(1)
			if orphans == "fail" && (*r.Result != "fail" || !strings.Contains(*r.Stderr, "died") || r.Code != nil || len(runs) != 2) {
				t.Fatalf("%+v, runs %q", r, runs)
			}
			if orphans == "requeue" && (*r.Result != "ok" || len(runs) != 4) {
				t.Fatalf("%+v, runs %q", r, runs)
			}
			if r := g.readRecord(2); *r.Result != "ok" {
				t.Fatalf("%+v", r)
			}
		})
	}
}

// TestUnrenewableLeaseEndsProcesses: with requeue, processes end before the lease expires; otherwise
// they continue, and their results are written.
func TestUnrenewableLeaseEndsProcesses(t *testing.T) {
	for _, orphans := range []string{"fail", requeueOrphans} {
		t.Run(orphans, func(t *testing.T) {
			t.Parallel()
			cfg := configFor(t, "a=1")
			cfg.Orphans = orphans
			cfg.Lease = 15 * time.Second // a tenth of the lease allows for stalls of this machine
			writeLauncher(t, &cfg, "echo x >> {dir}/runs.$id; while [ ! -e {dir}/go ]; do sleep 0.02; done; echo done $id")
			dir := filepath.Dir(strings.Fields(cfg.Launcher)[0])
			f := startBridge(t, storetest.NewTable(), cfg)
			f.insert(store.Waiting, "a", 1)
			f.Poll(nil)
			f.await(store.Running, 1)
			var p interface{ Running() bool }
			eventually(t, "the process is there", func() bool {
				f.mu.Lock()
				defer f.mu.Unlock()
				if r := f.rowsInBroker[1]; r != nil && r.process != nil {
					p = r.process
				}
				return p != nil
			})
			eventually(t, "the process has begun", func() bool { _, err := os.Stat(filepath.Join(dir, "runs.1")); return err == nil })
			f.table.SetError(storetest.ErrUnreachable)
			deadline, _ := f.lease.expiry()
			if orphans == "requeue" {
				eventually(t, "the process is ended", func() bool { return !p.Running() })
				if delay := boot.Since() - deadline; delay > 0 {
					t.Fatalf("the process outlived the lease by %s", delay)
				}
			} else {
				eventually(t, "the lease is over", func() bool { return boot.Since() > deadline })
				if !p.Running() {
					t.Fatal("the process was ended")
				}
			}
			touch(t, dir, "go")
			f.table.SetError(nil)
			f.await(store.Done, 1)
			runs, _ := os.ReadFile(filepath.Join(dir, "runs.1"))
			if r := f.readRecord(1); *r.Result != "ok" || len(runs) != map[string]int{"fail": 2, "requeue": 4}[orphans] {
				t.Fatalf("%+v, runs %q", r, runs)
			}
		})
	}
}

// TestFencedDaemonContinuesWithNewToken: a daemon that was considered dead loses its rows, kills their
// processes and continues with a new token.
func TestFencedDaemonContinuesWithNewToken(t *testing.T) {
	cfg := configFor(t, "a=1")
	writeLauncher(t, &cfg, "[ $id = 3 ] || exec sleep 1000")
	table := storetest.NewTable()
	f := startBridge(t, table, cfg)
	f.insert(store.Waiting, "a", 1)
	f.Poll(nil)
	f.await(store.Running, 1)
	other := table.Open("other", time.Hour, store.Process{})
	other.Register(t.Context())
	owners, err := other.Owners(t.Context())
	if err != nil || len(owners) != 1 {
		t.Fatal(owners, err)
	}
	if sum, err := other.Settle(t.Context(), owners[0], store.OrphanPolicy{Reason: "taken for dead"}); err != nil || len(sum.FailedRows) != 1 {
		t.Fatal(sum, err)
	}
	eventually(t, "the process is ended", func() bool { return f.queueLength("a") == 0 })
	if r := f.readRecord(1); *r.Stderr != "taken for dead" {
		t.Fatalf("%+v", r)
	}
	f.insert(store.Waiting, "a", 3)
	f.Poll(nil)
	f.await(store.Done, 3)
}

// TestRevokedRunSaysWhy: if the daemon kills a process because the daemon has lost its lease, the
// row's result says why. That result may replace the result that another daemon has written for the
// row.
func TestRevokedRunSaysWhy(t *testing.T) {
	cfg := configFor(t, "a=1")
	writeLauncher(t, &cfg, "echo begun >&2; exec sleep 1000")
	f := startBridge(t, storetest.NewTable(), cfg)
	f.insert(store.Waiting, "a", 1)
	f.Poll(nil)
	eventually(t, "the process runs", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.rowsInBroker[1] != nil && f.rowsInBroker[1].process != nil
	})
	f.killAll(syscall.SIGKILL)
	f.await(store.Done, 1)
	if r := f.readRecord(1); *r.Result != "fail" || !strings.HasSuffix(*r.Stderr, revokedReason("d")) {
		t.Fatalf("stderr %q of %+v does not end with why the process was killed", *r.Stderr, r)
	}
}

func TestRowsOfDeadDaemonsAreRecovered(t *testing.T) {
	cfg := configFor(t, "a=1")
	cfg.Launcher = "true"
	table := storetest.NewTable()
	f := startBridge(t, table, cfg)
	f.Pause(nil)
	for i := int64(0); i < 2; i++ {
		deadStore := table.Open(fmt.Sprint("dead", i), time.Millisecond, store.Process{})
		deadStore.Register(t.Context())
		f.insert(store.Manual, "a", 1+i)
		if _, err := deadStore.AcceptManual(t.Context(), []int64{1 + i}, func(string) bool { return true }); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the lease is over", func() bool {
			owners, _ := f.store.Owners(t.Context())
			return slices.ContainsFunc(owners, func(o store.Owner) bool { return o.Token == deadStore.Token() && o.IsExpired() })
		})
	}
	n, err := f.Recover(t.Context())
	if err != nil || n > 2 || f.rowStatus(1) != store.Manual || f.rowStatus(2) != store.Manual {
		t.Fatal(n, err, f.rowStatus(1), f.rowStatus(2))
	}
}

// TestRowsGivenBackRunElsewhere: the other daemons of a target run the rows that a daemon gives
// back, without another poll.
func TestRowsGivenBackRunElsewhere(t *testing.T) {
	table, cfg := storetest.NewTable(), configFor(t, "a=1")
	dir := writeLauncher(t, &cfg, "while [ ! -e {dir}/go.$id ]; do sleep 0.02; done")
	cfg.ShutdownTimeout = 10 * time.Millisecond
	leaving := startBridge(t, table, cfg)
	cfg.Name = "other"
	startBridge(t, table, cfg)
	leaving.insert(store.Waiting, "a", 1, 2)
	leaving.fillTarget("a")
	leaving.Poll(nil)
	leaving.await(store.Running, 1)
	leaving.await(store.Accepted, 2)
	touch(t, dir, "go.2")
	if err := leaving.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	leaving.await(store.Done, 1, 2)
}
