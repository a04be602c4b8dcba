package bridge

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"gloom/cmd/internal/boot"
	"gloom/cmd/internal/testing/storetest"
	"gloom/cmd/jobd/config"
	"gloom/cmd/jobd/control"
	"gloom/cmd/jobd/eot"
	"gloom/cmd/jobd/store"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
)

// fixture is a bridge over a table in memory, with real processes.
type fixture struct {
	*Bridge
	t     *testing.T
	table *storetest.Table
	reg   *prometheus.Registry
}

const testLease = 2 * time.Second

func configFor(t *testing.T, targets ...string) config.Worker {
	cfg := config.Worker{
		Name: "d", Lease: testLease, ShutdownTimeout: 10 * time.Second, Orphans: "fail", MaxOutputBuffer: 1 << 20,
		MySQL: config.MySQL{Database: "app", Table: "jobs", FetchLimit: 100},
	}
	for _, t := range targets {
		name, n := t, 1
		if before, after, ok := strings.Cut(t, "="); ok {
			name = before
			fmt.Sscan(after, &n)
		}
		cfg.Targets = append(cfg.Targets, config.Target{Name: name, Concurrency: n})
	}
	return cfg
}

// writeLauncher writes a launcher and sets it in a configuration. {dir} is the fixture's directory.
func writeLauncher(t *testing.T, cfg *config.Worker, text string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	path := filepath.Join(dir, "job")
	text = strings.ReplaceAll(text, "{dir}", dir)
	if err := os.WriteFile(path, []byte("#!/bin/sh\nid=$1\n"+text+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	cfg.Launcher = path + " {id}"
	return dir
}

// testWriter stops writing when its test is over.
type testWriter struct {
	mu     sync.Mutex
	t      *testing.T
	isOver bool
}

func (w *testWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.isOver {
		w.t.Log(strings.TrimSpace(string(p)))
	}
	return len(p), nil
}

func startBridge(t *testing.T, table *storetest.Table, cfg config.Worker) *fixture {
	t.Helper()
	f := &fixture{t: t, table: table, reg: prometheus.NewRegistry()}
	w := &testWriter{t: t}
	t.Cleanup(func() { w.mu.Lock(); w.isOver = true; w.mu.Unlock() })
	b, err := open(t.Context(), cfg, zerolog.New(w).Level(zerolog.WarnLevel), f.reg, table.Open(cfg.Name, cfg.Lease, store.Process{}))
	if err != nil {
		t.Fatal(err)
	}
	f.Bridge = b
	t.Cleanup(func() { b.Close() })
	return f
}

// touch creates a file for which jobs wait.
func touch(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// fillTarget makes the daemon accept more rows of a target than the target has places, as the
// daemon does when rows end as fast as they are read.
func (f *fixture) fillTarget(target string) {
	f.withMachine(func() { f.machine.SetEndsPerFetch(target, 1) })
}

func (f *fixture) insert(status, target string, ids ...int64) {
	for _, id := range ids {
		f.table.Put(storetest.Record{Row: store.Row{ID: id, Target: target, Fields: fmt.Appendf(nil, `{"id":%d}`, id)}, Status: status})
	}
}

func (f *fixture) rowStatus(id int64) string {
	r, _ := f.table.Get(id)
	return r.Status
}

func eventually(t *testing.T, name string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(45 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in 45 s: %s", name)
		}
	}
}

// await waits until rows have a status.
func (f *fixture) await(status string, ids ...int64) {
	f.t.Helper()
	for _, id := range ids {
		eventually(f.t, fmt.Sprintf("row %d is %s", id, status), func() bool { return f.rowStatus(id) == status })
	}
}

func (f *fixture) queueLength(target string) int {
	for _, t := range f.Status().Targets {
		if t.Name == target {
			return t.Length
		}
	}
	return -1
}

func (f *fixture) readRecord(id int64) storetest.Record {
	r, _ := f.table.Get(id)
	return r
}

func runManual(t *testing.T, f *fixture, ids ...int64) (map[int64]control.JobResult, map[int64]string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 45*time.Second)
	defer cancel()
	return f.RunManual(ctx, ids)
}

// TestAnswerHoldsBoundedOutput: one request may run any number of jobs, but what their outputs take in
// its answer is bounded. The rows have all of them.
func TestAnswerHoldsBoundedOutput(t *testing.T) {
	t.Run("letters", func(t *testing.T) { testAnswerHoldsBoundedOutput(t, "x", 15<<20, 4) })
	t.Run("controls", func(t *testing.T) { testAnswerHoldsBoundedOutput(t, `\1`, 5<<20, 2) })
}

func testAnswerHoldsBoundedOutput(t *testing.T, char string, size, wantWhole int) {
	cfg := configFor(t, "a")
	cfg.MaxOutputBuffer = size
	writeLauncher(t, &cfg, fmt.Sprintf("head -c %d /dev/zero | tr '\\0' '%s'; head -c 10000 /dev/zero | tr '\\0' y >&2", size, char))
	f := startBridge(t, storetest.NewTable(), cfg)
	ids := []int64{1, 2, 3, 4, 5, 6}
	f.insert(store.Manual, "a", ids...)
	outcomes, texts, err := runManual(t, f, ids...)
	if err != nil || len(outcomes) != len(ids) {
		t.Fatal(texts, err)
	}
	sum, whole := 0, 0
	for id, o := range outcomes {
		sent := len(eot.AppendString(nil, o.Stdout))
		sum += sent + len(o.Stderr)
		if len(o.Stdout) == size && len(o.Stderr) == 10000 {
			whole++
		} else if !strings.HasSuffix(o.Stdout, answerCutMark) || sent < minCutOutput-6 || len(o.Stderr) < minCutOutput-6 {
			t.Errorf("job %d: %d and %d bytes", id, len(o.Stdout), len(o.Stderr))
		}
		if r := f.readRecord(id); len(*r.Stdout) != size || len(*r.Stderr) != 10000 {
			t.Errorf("row %d has %d and %d bytes", id, len(*r.Stdout), len(*r.Stderr))
		}
	}
	if whole != wantWhole || sum < maxAnswerOutput-6 || sum > maxAnswerOutput+len(ids)*2*minCutOutput {
		t.Errorf("%d jobs are whole, %d bytes in all", whole, sum)
	}
}

const printAndExit = `echo "out $id"; echo "err" >&2; exit $((id % 3))`

func TestPollTakesRowsOfItsTargets(t *testing.T) {
	cfg := configFor(t, "a=3", "b=2")
	writeLauncher(t, &cfg, printAndExit)
	f := startBridge(t, storetest.NewTable(), cfg)
	f.insert(store.Waiting, "a", 1, 2, 3, 4, 5)
	f.insert(store.Waiting, "b", 6)
	f.insert(store.Waiting, "c", 7)
	f.Poll([]string{"a", "nobody"})
	f.await(store.Done, 1, 2, 3, 4, 5)
	if f.rowStatus(6) != store.Waiting {
		t.Fatal("a target that was not polled was fetched")
	}
	f.Poll(nil)
	f.await(store.Done, 6)
	if f.rowStatus(7) != store.Waiting {
		t.Fatal("a row of nobody's target was touched")
	}
	r := f.readRecord(1)
	if *r.Result != "fail" || *r.Code != 1 || r.Signal != nil || *r.Stdout != "out 1\n" || *r.Stderr != "err\n" || r.TimeStarted == 0 || r.TimeFinished < r.TimeStarted {
		t.Fatalf("%+v", r)
	}
	if r := f.readRecord(3); *r.Result != "ok" || *r.Code != 0 {
		t.Fatalf("%+v", r)
	}
	if n := f.table.ClaimCount(); n != 0 {
		t.Fatalf("%d claims are left", n)
	}
}

// TestOutputIsCutToItsColumn: without a limit, output is cut only if it exceeds its column, and
// stderr names the output that was cut.
func TestOutputIsCutToItsColumn(t *testing.T) {
	for limit, want := range map[int]int{-1: 3 << 20, 1 << 20: 1 << 20, 0: 0} {
		cfg := configFor(t, "a")
		cfg.MaxOutputBuffer = limit
		writeLauncher(t, &cfg, "head -c 3145728 /dev/zero | tr '\\0' x; echo why >&2")
		f := startBridge(t, storetest.NewTable(), cfg)
		f.insert(store.Waiting, "a", 1)
		f.Poll(nil)
		f.await(store.Done, 1)
		r := f.readRecord(1)
		marked := strings.HasPrefix(*r.Stderr, "[stdout is cut")
		if len(*r.Stdout) != want || marked != (limit >= 0) || limit != 0 && !strings.HasSuffix(*r.Stderr, "why\n") {
			t.Errorf("limit %d: %d bytes, stderr %q", limit, len(*r.Stdout), *r.Stderr)
		}
	}
}

func TestRowsWaitingAtStartRun(t *testing.T) {
	cfg := configFor(t, "a")
	writeLauncher(t, &cfg, printAndExit)
	table := storetest.NewTable()
	table.Put(storetest.Record{Row: store.Row{ID: 1, Target: "a"}, Status: store.Waiting})
	f := startBridge(t, table, cfg)
	f.await(store.Done, 1)
}

func TestLaunchFailureEndsRow(t *testing.T) {
	cfg := configFor(t, "a")
	cfg.Launcher = "/no/such/command {id}"
	f := startBridge(t, storetest.NewTable(), cfg)
	f.insert(store.Waiting, "a", 1)
	f.insert(store.Manual, "a", 2)
	f.Poll(nil)
	f.await(store.Done, 1)
	if r := f.readRecord(1); *r.Result != "fail" || r.Code != nil || r.Signal != nil || !strings.Contains(*r.Stderr, "/no/such/command") {
		t.Fatalf("%+v", r)
	}
	got, texts, err := runManual(t, f, 2)
	if err != nil || len(texts) > 0 || got[2].Result != "fail" || got[2].Code != nil || !strings.Contains(got[2].Stderr, "/no/such/command") {
		t.Fatalf("%+v %v %v", got, texts, err)
	}
}

func TestConcurrencyOfTargetIsKept(t *testing.T) {
	cfg := configFor(t, "a=3")
	dir := writeLauncher(t, &cfg, `mkdir {dir}/in.$id; ls -d {dir}/in.* | wc -l; sleep 0.05; rmdir {dir}/in.$id`)
	_ = dir
	f := startBridge(t, storetest.NewTable(), cfg)
	var ids []int64
	for id := int64(1); id <= 30; id++ {
		ids = append(ids, id)
	}
	f.insert(store.Waiting, "a", ids...)
	f.Poll(nil)
	f.await(store.Done, ids...)
	maxRunning := 0
	for _, id := range ids {
		var n int
		fmt.Sscan(*f.readRecord(id).Stdout, &n)
		maxRunning = max(maxRunning, n)
	}
	if maxRunning != 3 {
		t.Fatalf("%d ran at once, want 3", maxRunning)
	}
}

func TestPausedTargetStartsNoRow(t *testing.T) {
	cfg := configFor(t, "a=2", "b")
	writeLauncher(t, &cfg, printAndExit)
	f := startBridge(t, storetest.NewTable(), cfg)
	f.Pause([]string{"a"})
	f.insert(store.Waiting, "a", 1)
	f.insert(store.Waiting, "b", 2)
	f.insert(store.Manual, "a", 3)
	f.Poll(nil)
	f.await(store.Done, 2)
	type answer struct {
		got map[int64]control.JobResult
		err error
	}
	answers := make(chan answer, 1)
	go func() {
		got, _, err := f.RunManual(context.Background(), []int64{3})
		answers <- answer{got, err}
	}()
	// The row is accepted in the table before it is in the daemon's queue.
	eventually(t, "row 3 waits in a's queue", func() bool { return f.queueLength("a") == 1 })
	if s := f.Status(); f.rowStatus(3) != store.Accepted || !s.Targets[0].Paused || s.Waiting != 1 {
		t.Fatalf("%+v", s)
	}
	if f.rowStatus(1) != store.Waiting {
		t.Fatalf("row 1 is %s during the pause", f.rowStatus(1))
	}
	f.Continue(nil)
	f.await(store.Done, 1, 3)
	if a := <-answers; a.err != nil || a.got[3].Result != "ok" {
		t.Fatalf("%+v", a)
	}
}

func TestTargetsCanChange(t *testing.T) {
	cfg := configFor(t, "a")
	writeLauncher(t, &cfg, "while [ ! -e {dir}/go ]; do sleep 0.02; done")
	dir := filepath.Dir(strings.Fields(cfg.Launcher)[0])
	f := startBridge(t, storetest.NewTable(), cfg)
	changes := make(chan []string, 10)
	f.OnTargets(func() { changes <- f.Targets() })
	for _, c := range []struct {
		err  error
		want string
	}{
		{f.AddTarget("a", 1), "target 'a' already added"},
		{f.AddTarget("x", 0), "Invalid concurrency value."},
		{f.SetConcurrency("x", 1), "target 'x' not found"},
		{f.SetConcurrency("a", 0), "Invalid concurrency value."},
		{f.RemoveTarget("x"), "target 'x' not found"},
	} {
		if c.err == nil || c.err.Error() != c.want {
			t.Errorf("%v, want %s", c.err, c.want)
		}
	}
	f.insert(store.Waiting, "a", 1, 2, 3)
	f.insert(store.Waiting, "b", 4)
	f.Poll(nil)
	f.await(store.Running, 1)
	if err := f.RemoveTarget("a"); err != control.ErrTargetBusy {
		t.Fatal(err)
	}
	if err := f.SetConcurrency("a", 3); err != nil {
		t.Fatal(err)
	}
	f.await(store.Running, 2, 3)
	if err := f.AddTarget("b", 1); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(<-changes); got != "[a b]" {
		t.Fatal(got)
	}
	f.Poll([]string{"b"})
	f.await(store.Running, 4)
	touch(t, dir, "go")
	f.await(store.Done, 1, 2, 3, 4)
	eventually(t, "target a can be removed", func() bool { return f.RemoveTarget("a") == nil })
	if got := fmt.Sprint(<-changes); got != "[b]" {
		t.Fatal(got)
	}
	if err := f.SetConcurrency("b", 2); err != nil || len(changes) != 0 {
		t.Fatal("a new size is no change of the targets", err)
	}
	// A large number that means "no limit" must not make a million slots.
	if err := f.SetConcurrency("b", 1<<18); err != nil || f.Status().Targets[0].Concurrency != maxConcurrency {
		t.Fatal(f.Status(), err)
	}
}

func TestManualRowsRun(t *testing.T) {
	cfg := configFor(t, "a=2")
	writeLauncher(t, &cfg, printAndExit)
	f := startBridge(t, storetest.NewTable(), cfg)
	f.insert(store.Manual, "a", 3, 4)
	f.insert(store.Done, "a", 5)
	f.insert(store.Manual, "nobody", 6)
	got, texts, err := runManual(t, f, 3, 4, 3, 5, 6, 999)
	if err != nil {
		t.Fatal(err)
	}
	want := map[int64]string{5: "status = done != manual", 6: "target 'nobody' not found (job id=6)", 999: "job 999 not found"}
	if !maps.Equal(texts, want) {
		t.Errorf("%v", texts)
	}
	if o := got[3]; len(got) != 2 || o.Result != "ok" || *o.Code != 0 || o.Signal != nil || o.Stdout != "out 3\n" || o.Stderr != "err\n" {
		t.Errorf("%+v", got)
	}
	if o := got[4]; o.Result != "fail" || *o.Code != 1 {
		t.Errorf("%+v", o)
	}
	if f.Status().Waiting != 0 {
		t.Error("nobody waits any more")
	}
}

func TestTwoClientsMaySendSignals(t *testing.T) {
	cfg := configFor(t, "a")
	writeLauncher(t, &cfg, "exec sleep 1000")
	f := startBridge(t, storetest.NewTable(), cfg)
	f.insert(store.Manual, "a", 1, 2)
	type answer struct {
		got map[int64]control.JobResult
		err error
	}
	answers := make(chan answer, 1)
	go func() {
		got, _, err := f.RunManual(context.Background(), []int64{1})
		answers <- answer{got, err}
	}()
	f.await(store.Running, 1)
	if _, _, err := runManual(t, f, 2, 1); err == nil || err.Error() != "another client is already waiting for job 1" {
		t.Fatal(err)
	}
	if f.rowStatus(2) != store.Manual {
		t.Fatal("a refused call started something")
	}
	eventually(t, "the process takes signals", func() bool {
		return f.SendSignal(t.Context(), map[int64]syscall.Signal{1: 0})[1]
	})
	sent := f.SendSignal(t.Context(), map[int64]syscall.Signal{1: syscall.SIGTERM, 2: syscall.SIGTERM, 999: 9})
	if !maps.Equal(sent, map[int64]bool{1: true, 2: false, 999: false}) {
		t.Fatal(sent)
	}
	a := <-answers
	if a.err != nil || a.got[1].Code != nil || *a.got[1].Signal != "SIGTERM" || a.got[1].Result != "fail" {
		t.Fatalf("%+v", a)
	}
	if r := f.readRecord(1); *r.Signal != "SIGTERM" || r.Code != nil || *r.Result != "fail" {
		t.Fatalf("%+v", r)
	}
	// A client that disconnects neither ends its job nor blocks other clients.
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		f.RunManual(ctx, []int64{2})
		answers <- answer{}
	}()
	f.await(store.Running, 2)
	cancel()
	<-answers
	if n := f.Status().Waiting; n != 0 {
		t.Fatal(n)
	}
	f.SendSignal(t.Context(), map[int64]syscall.Signal{2: syscall.SIGKILL})
	eventually(t, "row 2 is killed", func() bool {
		f.SendSignal(t.Context(), map[int64]syscall.Signal{2: syscall.SIGKILL})
		return f.rowStatus(2) == store.Done
	})
}

func TestRowsAreFetchedInPages(t *testing.T) {
	cfg := configFor(t, "a=4")
	cfg.MySQL.FetchLimit = 3
	dir := writeLauncher(t, &cfg, "while [ ! -e {dir}/go ]; do sleep 0.02; done")
	f := startBridge(t, storetest.NewTable(), cfg)
	f.insert(store.Waiting, "a", 1, 2, 3, 4, 5, 6, 7)
	f.Poll(nil)
	f.await(store.Running, 1, 2, 3, 4) // in two pages
	if f.queueLength("a") != 4 || f.rowStatus(5) != store.Waiting {
		t.Fatalf("length %d, row 5 %s", f.queueLength("a"), f.rowStatus(5))
	}
	touch(t, dir, "go")
	f.await(store.Done, 1, 2, 3, 4, 5, 6, 7)
}

// TestWorkersShareTarget: no worker runs more than half of the rows. When a worker vanishes, the
// other workers run the rows that it had not accepted.
func TestWorkersShareTarget(t *testing.T) {
	for _, vanishes := range []bool{false, true} {
		t.Run(fmt.Sprint("vanishes ", vanishes), func(t *testing.T) {
			t.Parallel()
			const rows, places, perWorker = 60, 3, 300 * time.Millisecond
			table := storetest.NewTable()
			var fixtures []*fixture
			var dirs []string
			for i := range 3 {
				cfg := configFor(t, fmt.Sprint("a=", places))
				cfg.Name = fmt.Sprint("w", i)
				dirs = append(dirs, writeLauncher(t, &cfg, "echo $id >> {dir}/runs; sleep "+fmt.Sprint(perWorker.Seconds())))
				fixtures = append(fixtures, startBridge(t, table, cfg))
			}
			var ids []int64
			for id := int64(1); id <= rows; id++ {
				fixtures[0].insert(store.Waiting, "a", id)
				ids = append(ids, id)
			}
			for _, f := range fixtures {
				f.Poll(nil)
			}
			if vanishes {
				fixtures[0].await(store.Running, 1)
				fixtures[0].Close()
				fixtures, dirs = fixtures[1:], dirs[1:]
			}
			fixtures[0].await(store.Done, ids...)
			for i, dir := range dirs {
				text, err := os.ReadFile(filepath.Join(dir, "runs"))
				if n := strings.Count(string(text), "\n"); err != nil || !vanishes && n > rows/2 {
					t.Errorf("worker %d did %d rows of %d: %v", i, n, rows, err)
				}
			}
		})
	}
}

func TestRowsArePolledAtInterval(t *testing.T) {
	cfg := configFor(t, "a=1")
	cfg.PollInterval = 20 * time.Millisecond
	writeLauncher(t, &cfg, "true")
	f := startBridge(t, storetest.NewTable(), cfg)
	f.insert(store.Waiting, "a", 1)
	f.await(store.Done, 1)
	f.insert(store.Waiting, "a", 2)
	f.await(store.Done, 2)
}

func TestRowsSurviveDatabaseOutage(t *testing.T) {
	cfg := configFor(t, "a=2")
	cfg.SpoolDir = filepath.Join(t.TempDir(), "spool")
	writeLauncher(t, &cfg, "while [ ! -e {dir}/go ]; do sleep 0.02; done; echo done $id")
	dir := filepath.Dir(strings.Fields(cfg.Launcher)[0])
	f := startBridge(t, storetest.NewTable(), cfg)
	f.insert(store.Waiting, "a", 1, 2, 3)
	f.fillTarget("a")
	f.Poll(nil)
	f.await(store.Running, 1, 2)
	f.await(store.Accepted, 3)
	f.table.SetError(storetest.ErrUnreachable)
	f.insert(store.Waiting, "a", 4)
	f.insert(store.Manual, "a", 5)
	f.Poll(nil)
	if _, _, err := runManual(t, f, 5); err == nil || !strings.Contains(err.Error(), "database is away") {
		t.Fatal(err)
	}
	touch(t, dir, "go")
	eventually(t, "both results wait", func() bool { n, _ := f.writer.backlog(); return n == 2 })
	eventually(t, "both results are spooled", func() bool {
		files, _ := filepath.Glob(filepath.Join(cfg.SpoolDir, "*.json"))
		return len(files) == 2
	})
	if f.Health() == nil {
		t.Error("healthy without a database")
	}
	f.table.SetError(nil)
	f.await(store.Done, 1, 2, 3, 4)
	if r := f.readRecord(1); *r.Stdout != "done 1\n" {
		t.Fatalf("%+v", r)
	}
	if got, _, err := runManual(t, f, 5); err != nil || got[5].Result != "ok" {
		t.Fatal(got, err)
	}
	if err := f.Health(); err != nil {
		t.Error(err)
	}
	files, _ := filepath.Glob(filepath.Join(cfg.SpoolDir, "*"))
	if len(files) != 0 {
		t.Errorf("%v is left in the spool", files)
	}
}

// TestResultIsWrittenBeforeClientGetsIt: if the row may run again, no client gets the result before it is
// written.
func TestResultIsWrittenBeforeClientGetsIt(t *testing.T) {
	for _, c := range []struct{ orphans, want string }{
		{"fail", "map[1:{ok}] map[]"},
		{"requeue", "map[] map[1:job 1 has ended (ok), but that cannot be written yet: it may be run again]"},
	} {
		t.Run(c.orphans, func(t *testing.T) {
			t.Parallel()
			cfg := configFor(t, "a")
			cfg.Orphans, cfg.Lease = c.orphans, time.Minute
			writeLauncher(t, &cfg, "while [ ! -e {dir}/go ]; do sleep 0.02; done")
			dir := filepath.Dir(strings.Fields(cfg.Launcher)[0])
			f := startBridge(t, storetest.NewTable(), cfg)
			f.insert(store.Manual, "a", 1)
			notified := make(chan string, 1)
			go func() {
				got, texts, err := f.RunManual(t.Context(), []int64{1})
				results := make(map[int64]any)
				for id, o := range got {
					results[id] = struct{ string }{o.Result}
				}
				notified <- strings.TrimSuffix(fmt.Sprint(results, texts, err), " <nil>")
			}()
			f.await(store.Running, 1)
			f.table.SetError(storetest.ErrUnreachable)
			touch(t, dir, "go")
			if got := <-notified; got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			f.table.SetError(nil)
			f.await(store.Done, 1)
		})
	}
}

// slowStartStore is a store that needs a while to register the daemon, and then takes no renewals.
type slowStartStore struct {
	*storetest.Memory
	registeredAt *time.Duration
}

func (s slowStartStore) Register(ctx context.Context) error {
	*s.registeredAt = boot.Since()
	time.Sleep(50 * time.Millisecond)
	return s.Memory.Register(ctx)
}

func (s slowStartStore) Renew(context.Context) error { return storetest.ErrUnreachable }

// TestFirstLeaseBeginsWithItsStatement: the first lease counts from the moment when the statement
// that registers the daemon is sent. The database may count from there.
func TestFirstLeaseBeginsWithItsStatement(t *testing.T) {
	cfg := configFor(t, "a")
	s := slowStartStore{storetest.NewTable().Open(cfg.Name, cfg.Lease, store.Process{}), new(time.Duration)}
	b, err := open(t.Context(), cfg, zerolog.Nop(), nil, s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	if expiresAt, _ := b.lease.expiry(); expiresAt > *s.registeredAt+cfg.Lease {
		t.Errorf("the lease ends %v too late", expiresAt-*s.registeredAt-cfg.Lease)
	}
}

// unreadableStore is a store whose waiting rows cannot be read; all other calls work.
type unreadableStore struct {
	*storetest.Memory
	isUnreadable *atomic.Bool
}

func (s unreadableStore) Accept(ctx context.Context, requests []store.AcceptRequest, limit int) (store.Page, error) {
	if s.isUnreadable.Load() {
		return store.Page{}, errors.New("Error 1176: Key 'status_target_idx' doesn't exist in table 'jobs'")
	}
	return s.Memory.Accept(ctx, requests, limit)
}

// TestDaemonThatCannotFetchIsUnhealthy: a daemon whose fetches fail is unhealthy, even if all other
// statements succeed. A daemon that needs no rows at present is healthy.
func TestDaemonThatCannotFetchIsUnhealthy(t *testing.T) {
	cfg := configFor(t, "a")
	table := storetest.NewTable()
	s := unreadableStore{table.Open(cfg.Name, cfg.Lease, store.Process{}), new(atomic.Bool)}
	b, err := open(t.Context(), cfg, zerolog.Nop(), nil, s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	expectUnhealthy := func() bool {
		err := b.Health()
		return err != nil && strings.Contains(err.Error(), "status_target_idx")
	}
	expectHealthy := func() bool { return b.Health() == nil }
	s.isUnreadable.Store(true)
	b.Poll(nil)
	eventually(t, "it says why", expectUnhealthy)
	if err := b.renewLease(t.Context()); err != nil || !expectUnhealthy() {
		t.Errorf("well because of its lease (%v)", err)
	}
	s.isUnreadable.Store(false)
	eventually(t, "it is well", expectHealthy)
	s.isUnreadable.Store(true)
	b.Poll(nil)
	eventually(t, "it says why", expectUnhealthy)
	b.Pause(nil)
	eventually(t, "it wants no rows", expectHealthy)
}

func TestMetricsCountRows(t *testing.T) {
	cfg := configFor(t, "a=2")
	cfg.Launcher = "true"
	f := startBridge(t, storetest.NewTable(), cfg)
	f.insert(store.Waiting, "a", 1, 2, 3)
	f.Poll(nil)
	f.await(store.Done, 1, 2, 3)
	want := map[string]float64{
		`jobd_rows_accepted_total{by="poll",target="a"}`: 3, `jobd_rows_ended_total{outcome="ok",target="a"}`: 3,
		`jobd_target_concurrency{target="a"}`: 2, `jobd_target_running{target="a"}`: 0, `jobd_database_up{}`: 1, `jobd_broker_up{}`: 1,
		`jobd_writes_pending{}`: 0,
	}
	eventually(t, "all is counted", func() bool {
		got := gatherMetrics(t, f.reg)
		for name, v := range want {
			if got[name] != v {
				return false
			}
		}
		return true
	})
}

func gatherMetrics(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := make(map[string]float64)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			name := family.GetName() + "{" + strings.Join(labels, ",") + "}"
			values[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return values
}

// lateManualStore is a store that answers AcceptManual only when the test tells it to.
type lateManualStore struct {
	*storetest.Memory
	isLate *atomic.Bool
	before func()
}

func (l lateManualStore) AcceptManual(ctx context.Context, ids []int64, serves func(string) bool) ([]store.ManualResult, error) {
	if l.isLate.Load() {
		l.before()
	}
	return l.Memory.AcceptManual(ctx, ids, serves)
}

// TestEndOfEarlierRunIsNoAnswer: row 1, started by an earlier client, ends while a second client
// asks to run rows 1 and 2. The second client gets its answer only when row 2 has ended.
func TestEndOfEarlierRunIsNoAnswer(t *testing.T) {
	cfg := configFor(t, "a=2")
	dir := writeLauncher(t, &cfg, "while [ ! -e {dir}/go$id ]; do sleep 0.02; done")
	table := storetest.NewTable()
	f := &fixture{t: t, table: table}
	s := lateManualStore{table.Open(cfg.Name, cfg.Lease, store.Process{}), new(atomic.Bool), func() {
		touch(t, dir, "go1")
		eventually(t, "row 1 has left the daemon", func() bool { return f.queueLength("a") == 0 })
	}}
	b, err := open(t.Context(), cfg, zerolog.Nop(), nil, s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	f.Bridge = b
	f.insert(store.Manual, "a", 1, 2)
	ctx, leave := context.WithCancel(t.Context())
	leaveDone := make(chan struct{})
	go func() { f.RunManual(ctx, []int64{1}); close(leaveDone) }()
	f.await(store.Running, 1)
	leave()
	<-leaveDone
	s.isLate.Store(true)
	answer := make(chan string, 1)
	go func() {
		got, texts, err := runManual(t, f, 1, 2)
		answer <- fmt.Sprint(len(got), got[2].Result, texts, err)
	}()
	f.await(store.Running, 2)
	touch(t, dir, "go2")
	if got, want := <-answer, "1okmap[1:status = done != manual] <nil>"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestTargetWithoutTypeIsRefused: a target whose jobs no broker would take is refused, so that none of its rows
// is accepted and then waits for ever.
func TestTargetWithoutTypeIsRefused(t *testing.T) {
	for name, change := range map[string]func(*config.Worker){
		"type must be UTF-8":                 func(c *config.Worker) { c.Name = "caf\xe9" },
		"type must be a string of 1 to 1024": func(c *config.Worker) { c.MySQL.Database = strings.Repeat("d", 1024) },
	} {
		cfg := configFor(t, "a=1")
		writeLauncher(t, &cfg, printAndExit)
		change(&cfg)
		b, err := open(t.Context(), cfg, zerolog.Nop(), nil, storetest.NewTable().Open(cfg.Name, cfg.Lease, store.Process{}))
		if err == nil {
			b.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "target 'a' cannot have jobs: "+name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	cfg := configFor(t, "a=1")
	writeLauncher(t, &cfg, printAndExit)
	f := startBridge(t, storetest.NewTable(), cfg)
	if err := f.AddTarget(strings.Repeat("t", 1024), 1); err == nil {
		t.Error("a target with a long name is added")
	}
}
