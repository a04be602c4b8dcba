package bridge

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"gloom/cmd/internal/durable"
	"gloom/cmd/internal/testing/storetest"
	"gloom/cmd/jobd/store"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"
)

// scriptedStore is a store whose writes succeed or fail as a test demands.
type scriptedStore struct {
	store.Store
	mu      sync.Mutex
	write   func(store.Batch) (store.WriteResult, error)
	batches []store.Batch
}

func (o *scriptedStore) Token() int64 { return 7 }

func (o *scriptedStore) Write(_ context.Context, b store.Batch) (store.WriteResult, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.batches = append(o.batches, b)
	return o.write(b)
}

func (o *scriptedStore) setWrite(f func(store.Batch) (store.WriteResult, error)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.write = f
}

func startWriter(t *testing.T, s store.Store, sp *spool) (*writer, context.CancelFunc) {
	w := newWriter(s, sp, newMetrics(), zerolog.Nop(), func(error) {})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { w.run(ctx); close(done) }()
	stop := func() { cancel(); <-done }
	t.Cleanup(stop)
	return w, stop
}

func writeAll(store.Batch) (store.WriteResult, error) { return store.WriteResult{}, nil }

// TestLargeChangesAreWrittenOneAtATime: only small changes are written beside a large change.
func TestLargeChangesAreWrittenOneAtATime(t *testing.T) {
	w := newWriter(&scriptedStore{write: writeAll}, nil, newMetrics(), zerolog.Nop(), func(error) {})
	for id := range int64(3) {
		result := store.Result{ID: id}
		if id < 2 {
			result.Stdout = strings.Repeat("x", minLarge)
		}
		w.enqueue(&change{kind: changeFinish, id: id, result: result})
	}
	now := time.Now()
	take := func(want ...int64) {
		t.Helper()
		var ids []int64
		batch, _ := w.nextBatch(now)
		for _, c := range batch {
			ids = append(ids, c.id)
		}
		if !slices.Equal(ids, want) {
			t.Fatalf("took %v, want %v", ids, want)
		}
	}
	take(0)
	take(2)
	w.recordCommit(1, false)
	take()
	w.recordCommit(1, true)
	take(1)
}

func TestWriterRetries(t *testing.T) {
	o := &scriptedStore{}
	tries := make(map[int64]int)
	o.write = func(b store.Batch) (store.WriteResult, error) {
		w := store.WriteResult{LostRows: map[int64]string{}, FailedRows: map[int64]error{}}
		for _, id := range b.StartRows {
			tries[id]++
			switch {
			case id == 1 && tries[id] < 3:
				w.BusyRows = append(w.BusyRows, id)
			case id == 2 && tries[id] < 2:
				w.FailedRows[id] = errors.New("trigger says no")
			case id == 3:
				w.LostRows[id] = "gone"
			}
		}
		return w, nil
	}
	w, _ := startWriter(t, o, nil)
	var answers []<-chan writeResult
	for id := int64(1); id <= 4; id++ {
		answers = append(answers, w.enqueue(&change{kind: changeStart, id: id}))
	}
	for i, ch := range answers {
		v := <-ch
		if v.isWritten() != (i != 2) || (i == 2 && v.lostReason != "gone") {
			t.Errorf("row %d: %+v", i+1, v)
		}
	}
	if n, bytes := w.backlog(); n != 0 || bytes != 0 {
		t.Errorf("%d changes, %d bytes are left", n, bytes)
	}
}

func TestWriterBatches(t *testing.T) {
	o := &scriptedStore{}
	gate := make(chan struct{})
	o.write = func(store.Batch) (store.WriteResult, error) { <-gate; return store.WriteResult{}, nil }
	w, _ := startWriter(t, o, nil)
	var answers []<-chan writeResult
	for id := int64(0); id < 2*maxTransactionRows; id++ {
		answers = append(answers, w.enqueue(&change{kind: changeFinish, id: id, result: store.Result{ID: id}}))
	}
	close(gate)
	for _, ch := range answers {
		<-ch
	}
	// The first changes are written at once, the other changes together.
	if len(o.batches) > 6 {
		t.Errorf("%d transactions", len(o.batches))
	}
	for _, b := range o.batches {
		if len(b.FinishRows) > maxTransactionRows {
			t.Errorf("%d rows at once", len(b.FinishRows))
		}
	}
}

// TestSecondTransactionWaitsForHalf: while a large transaction is in progress, a second transaction
// begins only with half as many changes. It does not wait for the end of the first transaction.
func TestSecondTransactionWaitsForHalf(t *testing.T) {
	w := newWriter(&scriptedStore{write: writeAll}, nil, newMetrics(), zerolog.Nop(), func(error) {})
	id := int64(0)
	queue := func(n int) {
		for range n {
			id++
			w.enqueue(&change{kind: changeStart, id: id})
		}
	}
	now := time.Now()
	take := func(now time.Time, changes int, wait time.Duration) {
		t.Helper()
		if batch, d := w.nextBatch(now); len(batch) != changes || d != wait {
			t.Fatalf("%d changes, %v; want %d, %v", len(batch), d, changes, wait)
		}
	}
	queue(40)
	take(now, 40, -1)
	take(now, 0, -1)
	queue(19)
	take(now.Add(lingerTime/4), 0, lingerTime*3/4)
	queue(1)
	take(now.Add(lingerTime/4), 20, -1)
	queue(1)
	take(now.Add(lingerTime), 0, lingerTime/4)
	take(now.Add(lingerTime*5/4), 1, -1)
	w.recordCommit(40, false)
	w.recordCommit(20, false)
	queue(1)
	take(now.Add(lingerTime*5/4), 1, -1)
}

func TestChangesOfOneRowKeepOrder(t *testing.T) {
	o := &scriptedStore{write: writeAll}
	w := newWriter(o, nil, newMetrics(), zerolog.Nop(), func(error) {})
	w.enqueue(&change{kind: changeFinish, id: 1})
	w.enqueue(&change{kind: changeGiveBack, id: 1})
	w.enqueue(&change{kind: changeFinish, id: 2, token: 9})
	batch, _ := w.nextBatch(time.Now())
	if len(batch) != 1 || batch[0].kind != changeFinish {
		t.Fatalf("%+v", batch)
	}
}

// TestOutputMemoryLimit: the database is away while more results arrive than the memory may
// hold.
func TestOutputMemoryLimit(t *testing.T) {
	const size, n = 4 << 20, maxOutputMemory/(4<<20) + 6
	out := strings.Repeat("x", size)
	for _, dir := range []string{"", filepath.Join(t.TempDir(), "spool")} {
		o := &scriptedStore{}
		o.setWrite(func(store.Batch) (store.WriteResult, error) { return store.WriteResult{}, errAway })
		var sp *spool
		if dir != "" {
			var err error
			if sp, err = newSpool(dir, "t"); err != nil {
				t.Fatal(err)
			}
		}
		w, stop := startWriter(t, o, sp)
		answers := []<-chan writeResult{w.waitUntilAway(t)}
		for id := int64(1); id <= n; id++ {
			answers = append(answers, w.enqueue(&change{kind: changeFinish, id: id, result: store.Result{ID: id, Stdout: out}}))
			if _, bytes := w.backlog(); bytes > maxOutputMemory+size {
				t.Fatalf("%d bytes wait in memory", bytes)
			}
		}
		var wholeCount, cutCount int
		o.setWrite(func(b store.Batch) (store.WriteResult, error) {
			for _, f := range b.FinishRows {
				switch {
				case len(f.Stdout) == size:
					wholeCount++
				case len(f.Stdout) <= maxCutOutput && strings.HasSuffix(f.Stdout, "away]"):
					cutCount++
				}
			}
			return store.WriteResult{}, nil
		})
		for _, ch := range answers {
			if v := <-ch; !v.isWritten() {
				t.Fatalf("%+v", v)
			}
		}
		stop()
		o.mu.Lock()
		if wholeCount+cutCount != n || dir != "" && cutCount > 0 || dir == "" && cutCount == 0 {
			t.Errorf("spool %q: %d whole, %d cut", dir, wholeCount, cutCount)
		}
		o.mu.Unlock()
	}
}

// waitUntilAway queues a change without outputs, and waits until the writer knows that the database is away.
func (w *writer) waitUntilAway(t *testing.T) <-chan writeResult {
	ch := w.enqueue(&change{kind: changeStart, id: 1 << 40})
	eventually(t, "the database is known to be away", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.failingChanges) > 0
	})
	return ch
}

// TestOutputsAreWholeWhileDatabaseAnswers: however many large outputs come at once, they are
// written whole. Outputs that came before the database was known to be away are limited, too.
func TestOutputsAreWholeWhileDatabaseAnswers(t *testing.T) {
	const size, n = 16 << 20, maxOutputMemory/(16<<20) + 4
	out := strings.Repeat("x", size)
	gate := make(chan struct{})
	var wholeCount atomic.Int64
	w, _ := startWriter(t, concurrentStore{write: func(b store.Batch) (store.WriteResult, error) {
		<-gate
		for _, f := range b.FinishRows {
			if len(f.Stdout) == size {
				wholeCount.Add(1)
			}
		}
		return store.WriteResult{}, nil
	}}, nil)
	var answers []<-chan writeResult
	for id := int64(1); id <= n; id++ {
		answers = append(answers, w.enqueue(&change{kind: changeFinish, id: id, result: store.Result{ID: id, Stdout: out}}))
	}
	close(gate)
	for _, ch := range answers {
		<-ch
	}
	if wholeCount.Load() != n {
		t.Errorf("%d of %d whole", wholeCount.Load(), n)
	}

	outage := make(chan struct{})
	w, _ = startWriter(t, concurrentStore{write: func(store.Batch) (store.WriteResult, error) { <-outage; return store.WriteResult{}, errAway }}, nil)
	for id := int64(1); id <= n; id++ {
		w.enqueue(&change{kind: changeFinish, id: id, result: store.Result{ID: id, Stdout: out}})
	}
	close(outage)
	eventually(t, "the memory is limited", func() bool { _, bytes := w.backlog(); return bytes <= maxOutputMemory })
}

// TestSpoolLimitsMemoryBeforeAnError: a write that hangs for a lock or a dead network fails only
// after its time limit. Until then the spool limits outputs, and loses no output.
func TestSpoolLimitsMemoryBeforeAnError(t *testing.T) {
	const size, n = 16 << 20, maxOutputMemory/(16<<20) + 4
	sp, err := newSpool(filepath.Join(t.TempDir(), "spool"), "t")
	if err != nil {
		t.Fatal(err)
	}
	out := strings.Repeat("x", size)
	gate := make(chan struct{})
	var wholeCount atomic.Int64
	w, _ := startWriter(t, concurrentStore{write: func(b store.Batch) (store.WriteResult, error) {
		<-gate
		for _, f := range b.FinishRows {
			if len(f.Stdout) == size {
				wholeCount.Add(1)
			}
		}
		return store.WriteResult{}, nil
	}}, sp)
	var answers []<-chan writeResult
	for id := int64(1); id <= n; id++ {
		answers = append(answers, w.enqueue(&change{kind: changeFinish, id: id, result: store.Result{ID: id, Stdout: out}}))
		if _, bytes := w.backlog(); bytes > maxOutputMemory {
			t.Errorf("%d bytes wait in memory", bytes)
		}
	}
	close(gate)
	for _, ch := range answers {
		<-ch
	}
	if wholeCount.Load() != n {
		t.Errorf("%d of %d whole", wholeCount.Load(), n)
	}
}

// concurrentStore is a store whose writes may run at the same time.
type concurrentStore struct {
	store.Store
	write func(store.Batch) (store.WriteResult, error)
}

func (c concurrentStore) Token() int64 { return 7 }

func (c concurrentStore) Write(_ context.Context, b store.Batch) (store.WriteResult, error) {
	return c.write(b)
}

// TestFullSpoolStillRecordsEnd: if the daemon stops without a database and the spool has no room
// for an output, the spool still records how the job ended.
func TestFullSpoolStillRecordsEnd(t *testing.T) {
	sp, err := newSpool(t.TempDir(), "t")
	if err != nil {
		t.Fatal(err)
	}
	// A limit on file sizes has the same effect as a full disk; it applies to the
	// process.
	signal.Ignore(unix.SIGXFSZ)
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	full := before
	full.Cur = 1 << 20 // other files of this process, such as logs of go test, are smaller
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &full); err != nil {
		t.Fatal(err)
	}
	defer signal.Reset(unix.SIGXFSZ)
	defer unix.Setrlimit(unix.RLIMIT_FSIZE, &before)
	o := &scriptedStore{write: func(store.Batch) (store.WriteResult, error) { return store.WriteResult{}, errAway }}
	w := newWriter(o, sp, newMetrics(), zerolog.Nop(), func(error) {})
	var answers []<-chan writeResult
	for id, out := range []string{strings.Repeat("x", 4<<20), "small"} {
		answers = append(answers, w.enqueue(&change{kind: changeFinish, id: int64(id), result: store.Result{ID: int64(id), OK: true, Stdout: out}}))
	}
	w.close()
	for id, answer := range answers {
		<-answer
		f, err := sp.loadResult(o.Token(), int64(id))
		if err != nil || !f.OK {
			t.Fatalf("row %d: %v %+v", id, err, f)
		}
		if id == 0 && (!strings.HasPrefix(f.Stderr, "[stdout is cut") || !strings.HasSuffix(f.Stdout, "away]")) {
			t.Errorf("%q does not say that %q is cut", f.Stderr, f.Stdout)
		}
	}
}

var errAway = errors.New("away")

// TestResultsOfAnOutageAreSpooledAtOnce: a result that comes while the database is away is in the spool before
// its first transaction is tried. The transaction before it may hang for long, and the daemon may be killed
// meanwhile.
func TestResultsOfAnOutageAreSpooledAtOnce(t *testing.T) {
	sp, err := newSpool(t.TempDir(), "t")
	if err != nil {
		t.Fatal(err)
	}
	hanging, gate := make(chan struct{}, 99), make(chan struct{})
	var attempts atomic.Int64
	w, _ := startWriter(t, concurrentStore{write: func(store.Batch) (store.WriteResult, error) {
		if attempts.Add(1) > 1 {
			hanging <- struct{}{}
			<-gate
		}
		return store.WriteResult{}, errAway
	}}, sp)
	t.Cleanup(func() { close(gate) }) // before the writer is stopped
	for id := int64(1); id <= 3; id++ {
		w.enqueue(&change{kind: changeFinish, id: id, result: store.Result{ID: id, OK: true, Stdout: "out"}})
		if id < 3 {
			<-hanging // both transactions hang now, one after the other
		}
	}
	for id := int64(1); id <= 3; id++ {
		if f, err := sp.loadResult(7, id); err != nil || f.Stdout != "out" {
			t.Errorf("row %d: %v %+v", id, err, f)
		}
	}
}

// TestResultsOfAHangAreSpooled: while a write neither succeeds nor fails, its results and those that wait
// behind it are soon in the spool. They leave it when they are written.
func TestResultsOfAHangAreSpooled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 4
		sp, err := newSpool(t.TempDir(), "t")
		if err != nil {
			t.Fatal(err)
		}
		gate := make(chan struct{})
		w, _ := startWriter(t, concurrentStore{write: func(store.Batch) (store.WriteResult, error) { <-gate; return store.WriteResult{}, nil }}, sp)
		var answers []<-chan writeResult
		for id := int64(1); id <= n; id++ {
			answers = append(answers, w.enqueue(&change{kind: changeFinish, id: id, result: store.Result{ID: id, OK: true, Stdout: "out"}}))
			synctest.Wait() // both transactions hang, and the others wait
		}
		w.enqueue(&change{kind: changeStart, id: n + 1})
		time.Sleep(spoolDelay / 2)
		for id := int64(1); id <= n; id++ {
			if _, err := sp.loadResult(7, id); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("row %d is spooled although it may be written in a moment: %v", id, err)
			}
		}
		time.Sleep(spoolDelay)
		synctest.Wait()
		for id := int64(1); id <= n; id++ {
			if f, err := sp.loadResult(7, id); err != nil || f.Stdout != "out" {
				t.Errorf("row %d: %v %+v", id, err, f)
			}
		}
		close(gate)
		for _, ch := range answers {
			<-ch
		}
		if files, err := os.ReadDir(sp.dir); err != nil || len(files) > 0 {
			t.Errorf("%v is left in the spool: %v", files, err)
		}
	})
}

func TestSpooledOutputIsUncut(t *testing.T) {
	dir := t.TempDir()
	a, err := newSpool(dir, "a")
	if err != nil {
		t.Fatal(err)
	}
	b, err := newSpool(dir, "b")
	if err != nil {
		t.Fatal(err)
	}
	want := store.Result{ID: 5, Code: -1, Signal: "SIGTERM", Stdout: "é\x00\n\u2028", Stderr: "<&>", At: 9}
	for _, f := range []store.Result{want, {ID: 6, OK: true}} {
		if err := a.saveResult(3, f); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := a.loadResult(3, 5); err != nil || got != want {
		t.Fatalf("%+v %v", got, err)
	}
	ids := func(s *spool) (list []int64) {
		if err := s.eachResult(func(e spoolEntry, _ int64) { list = append(list, e.Token, e.Final.ID) }, func(string, error) { list = append(list, -1) }); err != nil {
			t.Fatal(err)
		}
		return list
	}
	if got := ids(a); !slices.Equal(got, []int64{3, 5, 3, 6}) {
		t.Fatal(got)
	}
	if got := ids(b); got != nil {
		t.Fatal("another table's results", got)
	}
	a.removeResult(3, 5)
	if got := ids(a); !slices.Equal(got, []int64{3, 6}) {
		t.Fatal(got)
	}
	if err := os.Rename(a.filePath(3, 6), a.filePath(4, 6)); err != nil {
		t.Fatal(err)
	}
	if got := ids(a); !slices.Equal(got, []int64{-1}) {
		t.Fatal("a result of another name", got)
	}
}

// TestPipeInSpoolBlocksNoStart: a pipe that has the name of a result is passed over, and the other results are
// read.
func TestPipeInSpoolBlocksNoStart(t *testing.T) {
	sp, err := newSpool(t.TempDir(), "t")
	if err == nil {
		err = errors.Join(unix.Mkfifo(sp.filePath(1, 1), 0o600), sp.saveResult(1, store.Result{ID: 2}))
	}
	if err != nil {
		t.Fatal(err)
	}
	var ids []int64
	var failures []string
	done := make(chan error, 1)
	go func() {
		done <- sp.eachResult(func(e spoolEntry, _ int64) { ids = append(ids, e.Final.ID) }, func(file string, err error) { failures = append(failures, file+": "+err.Error()) })
	}()
	select {
	case err = <-done:
	case <-time.After(2 * time.Second):
		if f, err := os.OpenFile(sp.filePath(1, 1), os.O_WRONLY|unix.O_NONBLOCK, 0); err == nil { // the reader goes on
			f.Close()
		}
		<-done
		t.Fatal("the pipe was opened, which blocks")
	}
	if want := sp.filePath(1, 1) + ": not a regular file"; err != nil || !slices.Equal(ids, []int64{2}) || !slices.Equal(failures, []string{want}) {
		t.Errorf("%v %v %q", err, ids, failures)
	}
}

// TestSpoolSyncsDirectories: changes of files and directories, including new parents of the
// directory, survive a power failure. The results that a transaction removes are synced together.
func TestSpoolSyncsDirectories(t *testing.T) {
	var synced []string
	defer durable.ObserveSyncs(func(dir string) { synced = append(synced, dir) })()
	top := t.TempDir()
	dir := filepath.Join(top, "var", "spool")
	sp, err := newSpool(dir, "t")
	if err != nil {
		t.Fatal(err)
	}
	const results = 3
	w := newWriter(&scriptedStore{write: writeAll}, sp, newMetrics(), zerolog.Nop(), func(error) {})
	for id := int64(1); id <= results; id++ {
		if err := sp.saveResult(7, store.Result{ID: id}); err != nil {
			t.Fatal(err)
		}
		w.enqueue(&change{kind: changeFinish, id: id, token: 7, spoolToken: 7, outputsDropped: true})
	}
	if batch, _ := w.nextBatch(time.Now()); len(batch) != results || w.transact(t.Context(), batch) != nil {
		t.Fatal("the results are not written")
	}
	for _, want := range []string{top, filepath.Join(top, "var")} {
		if !slices.Contains(synced, want) {
			t.Errorf("%s is not among the synced: %q", want, synced)
		}
	}
	if n := len(synced) - slices.Index(synced, dir); n != results+1 || synced[len(synced)-1] != dir {
		t.Errorf("synced %q, want %s last, when each result comes and when all go", synced, dir)
	}
}

// TestFileStaysUnreadable: if a file of the spool cannot be read for a minute, its row ends
// without it, and the file stays for an operator.
func TestFileStaysUnreadable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sp, err := newSpool(t.TempDir(), "t")
		if err == nil {
			err = os.Mkdir(sp.filePath(1, 7), 0o700)
		}
		if err != nil {
			t.Fatal(err)
		}
		o := &scriptedStore{write: writeAll}
		var log bytes.Buffer
		w := newWriter(o, sp, newMetrics(), zerolog.New(&log), func(error) {})
		start := time.Now()
		done := w.enqueue(&change{kind: changeFinish, id: 7, result: store.Result{ID: 7, Code: -1}, token: 1, spoolToken: 1, outputsDropped: true})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { w.run(ctx); close(ended) }()
		if v := <-done; !v.isWritten() {
			t.Errorf("%+v", v)
		}
		if duration := time.Since(start); duration < 30*time.Second || duration > 2*time.Minute {
			t.Errorf("it took %v", duration)
		}
		cancel()
		<-ended
		if f := o.batches[0].FinishRows[0]; f.OK || !strings.Contains(f.Stderr, "lost from the spool") {
			t.Errorf("%+v", f)
		}
		if _, err := os.Stat(sp.filePath(1, 7)); err != nil {
			t.Error(err)
		}
		if n := strings.Count(log.String(), "cannot be read; trying again"); n < 1 || n > 6 {
			t.Errorf("the log tells %d of %d failures", n, maxReadTries)
		}
	})
}

// TestRowWaitsForUnreadableOutput: the row waits for its output while the reason for the failed
// read may be temporary. Outputs that are read back from the spool count towards a transaction's
// size.
func TestRowWaitsForUnreadableOutput(t *testing.T) {
	const size, n = 4 << 20, maxOutputMemory/(4<<20) + 3
	dir := t.TempDir()
	sp, err := newSpool(dir, "t")
	if err != nil {
		t.Fatal(err)
	}
	o := &scriptedStore{write: writeAll}
	w := newWriter(o, sp, newMetrics(), zerolog.Nop(), func(error) {})
	w.failingChanges[&change{}] = true // the database is away
	var answers []<-chan writeResult
	for id := int64(1); id <= n; id++ {
		answers = append(answers, w.enqueue(&change{kind: changeFinish, id: id, result: store.Result{ID: id, Stdout: strings.Repeat("x", size)}}))
	}
	clear(w.failingChanges)
	var files []string
	for _, c := range w.pendingChanges {
		if c.outputsDropped {
			files = append(files, sp.filePath(c.spoolToken, c.id))
		}
	}
	if len(files) < 2 {
		t.Fatalf("%d outputs are only in the spool", len(files))
	}
	// In place of the file there is a directory, which can be opened but not read. The name
	// exists at any time.
	swapFile := func(f string) error {
		return unix.Renameat2(unix.AT_FDCWD, f, unix.AT_FDCWD, f+".kept", unix.RENAME_EXCHANGE)
	}
	for _, f := range files {
		if err := errors.Join(os.Mkdir(f+".kept", 0o700), swapFile(f)); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { w.run(ctx); close(ended) }()
	for range n - len(files) { // meanwhile the others are written
		i, _, _ := reflect.Select(receiveCases(answers))
		answers = slices.Delete(answers, i, i+1)
	}
	for _, f := range files {
		if err := errors.Join(swapFile(f), os.Remove(f+".kept")); err != nil {
			t.Fatal(err)
		}
	}
	for _, ch := range answers {
		<-ch
	}
	cancel()
	<-ended
	for _, b := range o.batches {
		heldCount := 0
		for _, f := range b.FinishRows {
			heldCount += len(f.Stdout)
			if len(f.Stdout) != size {
				t.Errorf("row %d was written with %d bytes of output", f.ID, len(f.Stdout))
			}
		}
		if heldCount > maxTransactionBytes+size {
			t.Errorf("%d bytes in a transaction", heldCount)
		}
	}
}

func receiveCases(answers []<-chan writeResult) (cases []reflect.SelectCase) {
	for _, ch := range answers {
		cases = append(cases, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(ch)})
	}
	return cases
}

// TestOnlyWriterHoldsOutputs: while a result waits for the database, its outputs are in memory only as far
// as the writer keeps them.
func TestOnlyWriterHoldsOutputs(t *testing.T) {
	f := startBridge(t, storetest.NewTable(), configFor(t, "a"))
	f.table.SetError(storetest.ErrUnreachable)
	f.writer.waitUntilAway(t)
	f.writer.enqueue(&change{kind: changeFinish, id: 900, result: store.Result{ID: 900, Stdout: strings.Repeat("x", maxOutputMemory)}})
	var freedCount atomic.Int64
	for id := range int64(2) {
		out := make([]byte, 1<<20)
		runtime.AddCleanup(&out[0], func(int) { freedCount.Add(1) }, 0)
		r := &row{Row: store.Row{ID: id, Target: "a"}}
		go f.finish(r, store.Result{ID: id, Stdout: unsafe.String(&out[0], len(out))})
	}
	eventually(t, "the whole outputs are freed", func() bool { runtime.GC(); return freedCount.Load() == 2 })
	f.table.SetError(nil)
}

// refusingStore is a store that refuses the ends of some rows, and the starts of others, and takes all other
// changes.
type refusingStore struct {
	*storetest.Memory
	refuses *atomic.Bool
	ids     []int64
	starts  []int64
}

func (s refusingStore) Write(ctx context.Context, b store.Batch) (store.WriteResult, error) {
	var refused []int64
	if s.refuses.Load() {
		b.FinishRows = slices.DeleteFunc(slices.Clone(b.FinishRows), func(f store.Result) bool {
			isRefused := slices.Contains(s.ids, f.ID)
			if isRefused {
				refused = append(refused, f.ID)
			}
			return isRefused
		})
		b.StartRows = slices.DeleteFunc(slices.Clone(b.StartRows), func(id int64) bool {
			isRefused := slices.Contains(s.starts, id)
			if isRefused {
				refused = append(refused, id)
			}
			return isRefused
		})
		if slices.ContainsFunc(b.RequeueRows, func(id int64) bool { return slices.Contains(s.starts, id) }) {
			b.ReturnRows, b.RequeueRows = b.RequeueRows, nil // the table is as before the refused start
		}
	}
	w, err := s.Memory.Write(ctx, b)
	for _, id := range refused {
		w.FailedRows[id] = errors.New("trigger says no")
	}
	return w, err
}

// TestRefusedEndsFreeTheirPlaces: rows whose ends the database refuses do not stop their target. Their
// results are written once the database takes them. A row that somebody makes waiting again meanwhile runs only
// after that.
func TestRefusedEndsFreeTheirPlaces(t *testing.T) {
	t.Parallel()
	table, cfg := storetest.NewTable(), configFor(t, "a")
	cfg.Targets[0].Concurrency = 2
	cfg.Lease = time.Minute
	writeLauncher(t, &cfg, "echo $id")
	s := refusingStore{table.Open(cfg.Name, cfg.Lease, store.Process{}), new(atomic.Bool), []int64{1, 2}, nil}
	s.refuses.Store(true)
	f := &fixture{t: t, table: table}
	f.insert(store.Waiting, "a", 1, 2, 3, 4)
	reg := prometheus.NewRegistry()
	b, err := open(t.Context(), cfg, zerolog.Nop(), reg, s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	f.Bridge = b
	f.await(store.Done, 3, 4)
	if f.rowStatus(1) != store.Running || f.rowStatus(2) != store.Running {
		t.Errorf("the refused rows are %s and %s", f.rowStatus(1), f.rowStatus(2))
	}
	eventually(t, "no place is taken", func() bool { return b.Status().Targets[0].Length == 0 })
	if got, want := b.Overview().Refused, "the database refuses changes of 2 rows, among them row 1: trigger says no"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if n := gatherMetrics(t, reg)["jobd_writes_refused{}"]; n != 2 {
		t.Errorf("jobd_writes_refused is %v", n)
	}
	table.SetStatus(1, store.Waiting)
	b.Poll(nil)
	f.await(store.Accepted, 1)
	time.Sleep(50 * time.Millisecond)
	if got := f.rowStatus(1); got != store.Accepted {
		t.Errorf("a row is %s before its earlier run is settled", got)
	}
	s.refuses.Store(false)
	b.writer.retryRefused()
	f.await(store.Done, 1, 2)
	eventually(t, "nothing is refused", func() bool { return b.Overview().Refused == "" })
	if changes, bytes := b.writer.backlog(); changes != 0 || bytes != 0 || b.writer.asideCount != 0 {
		t.Errorf("%d changes and %d bytes are left, %d are set aside", changes, bytes, b.writer.asideCount)
	}
}

// TestRefusedStartsFreeTheirPlaces: a row whose start the database refuses does not stop its target, and a
// client that runs it by hand is told.
func TestRefusedStartsFreeTheirPlaces(t *testing.T) {
	t.Parallel()
	table, cfg := storetest.NewTable(), configFor(t, "a")
	cfg.Lease = time.Minute
	writeLauncher(t, &cfg, "echo $id")
	s := refusingStore{table.Open(cfg.Name, cfg.Lease, store.Process{}), new(atomic.Bool), nil, []int64{1, 2}}
	s.refuses.Store(true)
	f := &fixture{t: t, table: table}
	f.insert(store.Manual, "a", 1)
	b, err := open(t.Context(), cfg, zerolog.Nop(), nil, s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	f.Bridge = b
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	_, errs, err := f.RunManual(ctx, []int64{1})
	if err != nil || errs[1] != "job 1 was not run: trigger says no" {
		t.Errorf("%v, %v", errs, err)
	}
	f.await(store.Manual, 1)
	f.insert(store.Waiting, "a", 2, 3)
	b.Poll(nil)
	f.await(store.Done, 3)
	s.refuses.Store(false)
	b.writer.retryRefused()
	f.await(store.Done, 2)
}

// requeueStore is a store that refuses starts and requeues.
type requeueStore struct {
	*storetest.Memory
	refusesStarts, refusesRequeues *atomic.Bool
	requeues                       *atomic.Int32 // refused
}

func (s requeueStore) Write(ctx context.Context, b store.Batch) (store.WriteResult, error) {
	var refused []int64
	if s.refusesStarts.Load() {
		refused, b.StartRows = b.StartRows, nil
	}
	if s.refusesRequeues.Load() {
		s.requeues.Add(int32(len(b.RequeueRows)))
		refused, b.RequeueRows = append(refused, b.RequeueRows...), nil
	}
	w, err := s.Memory.Write(ctx, b)
	for _, id := range refused {
		w.FailedRows[id] = errors.New("trigger says no")
	}
	return w, err
}

// TestRefusedStartIsRequeuedBeforeNextRun: a row whose start was refused is made waiting again by a person
// before this daemon could do so. It runs once, and only after the daemon's change.
func TestRefusedStartIsRequeuedBeforeNextRun(t *testing.T) {
	t.Parallel()
	table, cfg := storetest.NewTable(), configFor(t, "a")
	cfg.Lease = time.Minute
	dir := writeLauncher(t, &cfg, "echo $id >>{dir}/runs; sleep 0.3")
	s := requeueStore{table.Open(cfg.Name, cfg.Lease, store.Process{}), new(atomic.Bool), new(atomic.Bool), new(atomic.Int32)}
	s.refusesStarts.Store(true)
	s.refusesRequeues.Store(true)
	f := &fixture{t: t, table: table}
	f.insert(store.Waiting, "a", 1)
	b, err := open(t.Context(), cfg, zerolog.Nop(), nil, s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	f.Bridge = b
	eventually(t, "the start is given up", func() bool { return s.requeues.Load() > 0 })
	eventually(t, "no place is taken", func() bool { return b.Status().Targets[0].Length == 0 })
	s.refusesStarts.Store(false)
	table.SetStatus(1, store.Waiting)
	b.Poll(nil)
	eventually(t, "the row is accepted again", func() bool { return f.rowStatus(1) != store.Waiting })
	time.Sleep(100 * time.Millisecond)
	if got := f.rowStatus(1); got != store.Accepted {
		t.Errorf("the row is %s before its earlier start is undone", got)
	}
	s.refusesRequeues.Store(false)
	b.writer.retryRefused()
	f.await(store.Done, 1)
	if runs, err := os.ReadFile(filepath.Join(dir, "runs")); string(runs) != "1\n" {
		t.Errorf("runs: %q, %v", runs, err)
	}
}

// TestStopLeavesRefusedEndsInSpool: neither a stop nor a start waits long for rows whose ends the database
// refuses. Their results are written once the database takes them.
func TestStopLeavesRefusedEndsInSpool(t *testing.T) {
	t.Parallel()
	table, cfg := storetest.NewTable(), configFor(t, "a")
	cfg.SpoolDir, cfg.Lease = t.TempDir(), time.Minute
	writeLauncher(t, &cfg, "echo $id")
	refuses := new(atomic.Bool)
	refuses.Store(true)
	start := func() *fixture {
		b, err := open(t.Context(), cfg, zerolog.Nop(), nil, refusingStore{table.Open(cfg.Name, cfg.Lease, store.Process{}), refuses, []int64{1, 2}, nil})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { b.Close() })
		return &fixture{t: t, table: table, Bridge: b}
	}
	(&fixture{t: t, table: table}).insert(store.Waiting, "a", 1, 2, 3)
	f := start()
	f.await(store.Done, 3)
	eventually(t, "no place is taken", func() bool { return f.Status().Targets[0].Length == 0 })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := f.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	startTime := time.Now()
	f = start()
	if d := time.Since(startTime); d > 20*time.Second {
		t.Errorf("the start took %v", d)
	}
	if f.rowStatus(1) != store.Running || f.rowStatus(2) != store.Running {
		t.Errorf("the refused rows are %s and %s", f.rowStatus(1), f.rowStatus(2))
	}
	refuses.Store(false)
	f.writer.retryRefused()
	f.await(store.Done, 1, 2)
	if r := f.readRecord(2); *r.Result != "ok" || *r.Stdout != "2\n" {
		t.Errorf("%s, %q", *r.Result, *r.Stdout)
	}
	eventually(t, "the spool is empty", func() bool { files, _ := os.ReadDir(cfg.SpoolDir); return len(files) == 0 })
}

// retryRefused tries all changes again now.
func (w *writer) retryRefused() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.pendingChanges {
		c.retryAt = time.Time{}
	}
	w.wakeLoop()
}

// TestFewRefusedEndsAreSetAside: places are freed only while few rows are refused.
func TestFewRefusedEndsAreSetAside(t *testing.T) {
	w := newWriter(&scriptedStore{}, nil, newMetrics(), zerolog.Nop(), func(error) {})
	var changes []*change
	for id := range int64(maxSetAside + 2) {
		c := &change{kind: changeFinish, id: id}
		w.enqueue(c)
		for range minRefusals {
			if c.isSetAside {
				t.Fatalf("row %d is set aside after %d refusals", id, c.failures)
			}
			w.recordRefusal(c, errors.New("no"))
		}
		if c.isSetAside != (id < maxSetAside) {
			t.Fatalf("row %d is set aside: %v", id, c.isSetAside)
		}
		changes = append(changes, c)
	}
	w.finishChange(changes[0], writeResult{})
	last := changes[len(changes)-1]
	if w.recordRefusal(last, errors.New("no")); !last.isSetAside {
		t.Error("a row that has waited for room is not set aside")
	}
	if rows, id, err := w.refusal(); rows != maxSetAside+1 || id != 1 || err == nil {
		t.Errorf("%d rows are refused, among them %d: %v", rows, id, err)
	}
}

// TestFewRefusedStartsAreGivenUp: if the database refuses so many changes that rows whose starts are given up do
// not wait again, either, starts keep their places, so that this daemon does not accept ever more rows.
func TestFewRefusedStartsAreGivenUp(t *testing.T) {
	w := newWriter(&scriptedStore{write: func(b store.Batch) (store.WriteResult, error) {
		return store.WriteResult{FailedRows: map[int64]error{b.StartRows[0]: errors.New("no")}}, nil
	}}, nil, newMetrics(), zerolog.Nop(), func(error) {})
	var requeues []*change
	for id := range int64(maxSetAside) {
		c := &change{kind: changeRequeue, id: id}
		w.enqueue(c)
		for range minRefusals {
			w.recordRefusal(c, errors.New("no"))
		}
		requeues = append(requeues, c)
	}
	start := &change{kind: changeStart, id: maxSetAside}
	w.enqueue(start)
	for range minRefusals {
		w.transact(t.Context(), []*change{start})
	}
	if len(start.done) > 0 {
		t.Fatal("a start is given up although many changes are refused")
	}
	w.finishChange(requeues[0], writeResult{})
	if w.transact(t.Context(), []*change{start}); len(start.done) == 0 {
		t.Error("the start is not given up")
	}
}
