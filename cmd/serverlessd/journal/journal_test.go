package journal_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gloom/cmd/internal/durable"
	"gloom/cmd/serverlessd/job"
	. "gloom/cmd/serverlessd/journal"

	"github.com/rs/zerolog"
)

const (
	testTimeout = 45 * time.Second
	longTime    = time.Hour
)

func open(t *testing.T, files Files, change ...func(*Options)) *Journal {
	t.Helper()
	opt := Options{Files: files, IDs: job.NewIDSource(job.NewSysid(), time.Now), Log: zerolog.Nop()}
	for _, f := range change {
		f(&opt)
	}
	j, err := Open(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	return j
}

func batch(jobtype string, lines ...string) Batch {
	b := Batch{Jobtype: jobtype}
	for _, line := range lines {
		b.Lines = append(b.Lines, []byte(line))
	}
	return b
}

func add(t *testing.T, j *Journal, batches ...Batch) Receipt {
	t.Helper()
	r, err := j.Append(t.Context(), batches)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func reserve(t *testing.T, j *Journal, n int, timeout time.Duration) *Reservation {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	r, err := j.Reserve(ctx, "", n, timeout)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func text(entries []Entry) string {
	var b strings.Builder
	for _, e := range entries {
		fmt.Fprintf(&b, "%s:%s ", e.Jobtype, e.Payload)
	}
	return strings.TrimSpace(b.String())
}

// readRest reads all remaining lines and syncs them.
func readRest(t *testing.T, j *Journal) (entries []Entry) {
	t.Helper()
	for j.Stats().Jobs > 0 {
		r := reserve(t, j, 100, longTime)
		entries = append(entries, r.Read()...)
		if err := r.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	return entries
}

func equal(t *testing.T, label string, got, want any) {
	t.Helper()
	if got, want := fmt.Sprint(got), fmt.Sprint(want); got != want {
		t.Fatalf("%s: %.300s, want %.300s", label, got, want)
	}
}

func TestLinesAreReadInOrder(t *testing.T) {
	d := newDisk()
	j := open(t, d)
	due := time.Now().Add(time.Minute).UTC().Truncate(time.Millisecond)
	secondBatch := batch("a-x", "later")
	secondBatch.Due = due
	first := add(t, j, batch("a-x", "one", "two\x00\r|#:EndBatch"), batch("b-y.v2", "\xff\xfe"), secondBatch)
	add(t, j)
	second := add(t, j, batch("a-x", "three"))
	equal(t, "waiting", j.Waiting(), map[string]Count{"a-x": {Jobs: 4, Delayed: 1}, "b-y.v2": {Jobs: 1}})

	e, ok, _ := j.Find(first.First[0].Add(1))
	equal(t, "found", ok, true)
	equal(t, "its payload", string(e.Payload), "two\x00\r|#:EndBatch")
	if _, ok, _ := j.Find(second.First[0].Add(1)); ok {
		t.Fatal("found what was never added")
	}
	r := reserve(t, j, 100, longTime)
	equal(t, "lines", text(r.Read()), "a-x:one a-x:two\x00\r|#:EndBatch b-y.v2:\xff\xfe a-x:later a-x:three")
	equal(t, "dt", r.Read()[3].Due.Equal(due), true)
	equal(t, "no dt", r.Read()[0].Due.IsZero(), true)
	last := job.ID("")
	for i, e := range r.Read() {
		if e.ID <= last {
			t.Fatalf("id %d, %s, does not follow %s", i, e.ID, last)
		}
		last = e.ID
	}
	equal(t, "ids", []job.ID{r.Read()[0].ID, r.Read()[2].ID, r.Read()[4].ID}, []job.ID{first.First[0], first.First[1], second.First[0]})
	if age := time.Duration(j.Stats().Age); age < 0 || age > longTime {
		t.Fatalf("age %s", age)
	}
	if err := r.Sync(); err != nil {
		t.Fatal(err)
	}
	if _, ok, _ := j.Find(first.First[0]); ok {
		t.Fatal("found what is in a store")
	}
	if err := j.Stored(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	equal(t, "waiting", len(j.Waiting()), 0)
	equal(t, "bytes", j.Stats().Bytes, 0)
	equal(t, "age", time.Duration(j.Stats().Age), time.Duration(0))
}

func TestReservationReturnsToTheFront(t *testing.T) {
	j := open(t, newDisk())
	for _, line := range []string{"1", "2", "3", "4", "5", "6"} {
		add(t, j, batch("a-x", line))
	}
	first, second, third := reserve(t, j, 2, longTime), reserve(t, j, 1, longTime), reserve(t, j, 2, longTime)
	equal(t, "first", text(first.Read()), "a-x:1 a-x:2")
	third.Cancel()
	first.Cancel()
	secondReservation := reserve(t, j, 1, longTime)
	equal(t, "again", text(secondReservation.Read()), "a-x:1")
	if err := first.Sync(); !errors.Is(err, ErrExpired) {
		t.Fatalf("a cancelled reservation is synced: %v", err)
	}
	for _, r := range []*Reservation{secondReservation, second} {
		if err := r.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	equal(t, "rest", text(readRest(t, j)), "a-x:2 a-x:4 a-x:5 a-x:6")
}

func TestReservationExpires(t *testing.T) {
	j := open(t, newDisk())
	add(t, j, batch("a-x", "1"))
	add(t, j, batch("a-x", "2"))
	lateReservation := reserve(t, j, 1, time.Millisecond)
	equal(t, "late", text(lateReservation.Read()), "a-x:1")
	keptReservation := reserve(t, j, 1, longTime)
	secondReservation := reserve(t, j, 10, longTime) // waits until late expires, unless kept already has the record of late
	equal(t, "both", strings.Contains(text(keptReservation.Read())+text(secondReservation.Read()), "a-x:1"), true)
	if err := lateReservation.Sync(); !errors.Is(err, ErrExpired) {
		t.Fatalf("%v", err)
	}
}

func TestReserveWaitsForLines(t *testing.T) {
	j := open(t, newDisk())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := j.Reserve(ctx, "", 1, longTime); !errors.Is(err, context.Canceled) {
		t.Fatalf("%v", err)
	}
	got := make(chan *Reservation)
	go func() {
		r, _ := j.Reserve(context.Background(), "", 1, longTime)
		got <- r
	}()
	add(t, j, batch("a-x", "1"))
	r := <-got
	equal(t, "line", text(r.Read()), "a-x:1")
}

func TestSegmentsAreRemovedWhenStored(t *testing.T) {
	d := newDisk()
	j := open(t, d, func(o *Options) { o.SegmentSize = 5000 })
	for i := range 100 {
		add(t, j, batch("a-x", fmt.Sprint(i, strings.Repeat("x", 500))))
	}
	if n := len(j.Segments()); n < 10 {
		t.Fatalf("%d segments", n)
	}
	var held []*Reservation
	for j.Stats().Jobs > int64(10*len(held)) {
		held = append(held, reserve(t, j, 10, longTime))
		if len(held) == 10 {
			break
		}
	}
	for i := len(held) - 1; i >= 0; i-- {
		if err := held[i].Sync(); err != nil {
			t.Fatal(err)
		}
	}
	readRest(t, j)
	equal(t, "segments", len(j.Segments()), 1)
	names, _ := d.List()
	equal(t, "files", len(names), 1)
}

// TestIDsGoUpOverRestarts: ids grow over restarts, whatever the clock does.
func TestIDsGoUpOverRestarts(t *testing.T) {
	d := newDisk()
	now := time.Now()
	var last job.ID
	for range 5 {
		j := open(t, d, func(o *Options) {
			o.IDs = job.NewIDSource(job.NewSysid(), func() time.Time { return now })
		})
		id := add(t, j, batch("a-x", "1")).First[0]
		if id <= last {
			t.Fatalf("%s does not follow %s", id, last)
		}
		last = id
		readRest(t, j)
		j.Close()
		now = now.Add(-24 * time.Hour)
	}
}

func TestFullJournalRefusesLines(t *testing.T) {
	j := open(t, newDisk(), func(o *Options) { o.MaxBytes = 10_000 })
	line := strings.Repeat("x", 1000)
	var err error
	for range 20 {
		if _, err = j.Append(t.Context(), []Batch{batch("a-x", line)}); err != nil {
			break
		}
	}
	if !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), "10000") {
		t.Fatalf("%v", err)
	}
	readRest(t, j)
	add(t, j, batch("a-x", line))
}

// holdSync delays the next sync until block is closed, and closes blocked when the sync is waiting.
func (d *disk) holdSync() (block, blocked chan struct{}) {
	block, blocked = make(chan struct{}), make(chan struct{})
	var once sync.Once
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail = func(op, name string) error {
		if op == "sync" {
			once.Do(func() {
				d.mu.Unlock()
				close(blocked)
				<-block
				d.mu.Lock()
			})
		}
		return nil
	}
	return block, blocked
}

func TestLimitOfOne(t *testing.T) {
	d := newDisk()
	j := open(t, d, func(o *Options) { o.MaxBytes = 20_000 })
	add(t, j, batch("a-x", "first"))
	block, blocked := d.holdSync()
	var wg sync.WaitGroup
	wg.Go(func() { add(t, j, batch("a-x", "held up")) })
	<-blocked
	largeErr := make(chan error, 1)
	for i := range 10 {
		wg.Go(func() { add(t, j, batch("a-x", fmt.Sprint(i))) })
		await(t, func() bool { return j.Queued() == 1+i+i/5 })
		if i == 4 {
			go func() {
				_, err := j.Append(t.Context(), []Batch{batch("a-x", strings.Repeat("x", 20_000))})
				largeErr <- err
			}()
			await(t, func() bool { return j.Queued() == 6 })
		}
	}
	close(block)
	wg.Wait()
	if err := <-largeErr; !errors.Is(err, ErrFull) {
		t.Errorf("%v", err)
	}
	equal(t, "lines", len(readRest(t, j)), 12)
}

// TestAddsLeaveRoomForStore: adds leave a part of the disk free for the store.
func TestAddsLeaveRoomForStore(t *testing.T) {
	d := newDisk()
	j, err := Open(Options{Files: d, IDs: job.NewIDSource(job.NewSysid(), time.Now), Log: zerolog.Nop(), ReserveBytes: 1 << 37})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	_, err = j.Append(t.Context(), []Batch{batch("a-x", "line")})
	if !errors.Is(err, ErrNoSpace) || !strings.Contains(err.Error(), "--disk-reserve") {
		t.Errorf("%v", err)
	}
}

func TestFullDisk(t *testing.T) {
	d := newDisk()
	d.free = 20_000
	j := open(t, d)
	line := strings.Repeat("x", 1000)
	var keptLines int
	var err error
	for ; err == nil; keptLines++ {
		_, err = j.Append(t.Context(), []Batch{batch("a-x", line, line)})
	}
	keptLines--
	if !errors.Is(err, ErrFull) || !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("%v", err)
	}
	d.mu.Lock()
	d.free = 0
	d.mu.Unlock()
	add(t, j, batch("a-x", "small"))
	equal(t, "lines", len(readRest(t, j)), 2*keptLines+1)
	equal(t, "damaged", j.Stats().DamagedBytes, 0)
}

// TestFailedSync: after a sync has failed, the file is never synced again, and nothing that was
// refused is read, whatever the disk has kept.
func TestFailedSync(t *testing.T) {
	for _, power := range []bool{false, true} {
		for _, truncates := range []bool{false, true} {
			t.Run(fmt.Sprint(power, truncates), func(t *testing.T) {
				d := newDisk()
				j := open(t, d)
				add(t, j, batch("a-x", "1"))
				var failed string
				d.fail = func(op, name string) error {
					switch {
					case op == "sync" && failed == "":
						failed = name
						return syscall.EIO
					case op == "truncate" && !truncates:
						return syscall.EIO
					case (op == "sync" || op == "write") && name == failed:
						t.Errorf("%s of a file whose sync failed", op)
					}
					return nil
				}
				if _, err := j.Append(t.Context(), []Batch{batch("a-x", "refused")}); !errors.Is(err, ErrFailed) {
					t.Fatalf("%v", err)
				}
				add(t, j, batch("a-x", "2"))
				equal(t, "segments", len(j.Segments()), 2)
				for range 3 { // any part of the write may reach the disk
					j2 := open(t, d.restart(power, rand.New(rand.NewPCG(1, 2))))
					equal(t, "lines", text(readRest(t, j2)), "a-x:1 a-x:2")
				}
			})
		}
	}
}

// TestOneSyncForAll: one sync serves all waiting appends.
func TestOneSyncForAll(t *testing.T) {
	d := newDisk()
	j := open(t, d)
	add(t, j, batch("a-x", "first"))
	d.mu.Lock()
	before := d.syncs
	d.mu.Unlock()
	block, blocked := d.holdSync()
	var wg sync.WaitGroup
	wg.Go(func() { add(t, j, batch("a-x", "held up")) })
	<-blocked
	for i := range 50 {
		wg.Go(func() { add(t, j, batch("a-x", fmt.Sprint(i))) })
	}
	await(t, func() bool { return j.Queued() == 50 })
	close(block)
	wg.Wait()
	equal(t, "syncs", d.syncs-before, 2)
	equal(t, "lines", len(readRest(t, j)), 52)
}

func await(t *testing.T, cond func() bool) {
	t.Helper()
	deadline := time.Now().Add(testTimeout)
	for !cond() {
		if time.Now().After(deadline) {
			t.Fatal("waited in vain")
		}
		time.Sleep(time.Millisecond)
	}
}

func TestConcurrentAppends(t *testing.T) {
	files, err := Directory(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	j := open(t, files, func(o *Options) { o.SegmentSize = 20_000 })
	const clients, linesPerClient = 16, 30
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			for i := range linesPerClient {
				add(t, j, batch("a-x", fmt.Sprint(c, " ", i)), batch("b-y", "z"))
			}
		})
	}
	next := make(map[string]int)
	for n := 0; n < 2*clients*linesPerClient; {
		r := reserve(t, j, 50, longTime)
		for _, e := range r.Read() {
			n++
			var c, i int
			if _, err := fmt.Sscan(string(e.Payload), &c, &i); err == nil {
				if key := fmt.Sprint(c); next[key] != i {
					t.Errorf("client %d: line %d after %d", c, i, next[key]-1)
				} else {
					next[key]++
				}
			}
		}
		if err := r.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	wg.Wait()
}

// TestParentsAreDurable: the names of all directories above the journal are durable
// before anything is accepted.
func TestParentsAreDurable(t *testing.T) {
	root := t.TempDir()
	var synced []string
	defer durable.ObserveSyncs(func(dir string) { synced = append(synced, dir) })()
	files, err := Directory(filepath.Join(root, "new", "parents", "data"))
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	for _, dir := range []string{"", "new", "new/parents", "new/parents/data"} {
		if !slices.Contains(synced, filepath.Join(root, dir)) {
			t.Errorf("%q is not synced: %v", dir, synced)
		}
	}
}

func TestDirectoryIsLocked(t *testing.T) {
	dir := t.TempDir()
	files, err := Directory(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Directory(dir); !errors.Is(err, ErrLocked) {
		t.Fatalf("%v", err)
	}
	if err := files.Close(); err != nil {
		t.Fatal(err)
	}
	files, err = Directory(dir)
	if err != nil {
		t.Fatal(err)
	}
	j := open(t, files)
	add(t, j, batch("a-x", "1"))
	j.Close()
	if _, err := j.Append(t.Context(), []Batch{batch("a-x", "2")}); !errors.Is(err, ErrClosed) {
		t.Fatalf("%v", err)
	}
	names, _ := filepath.Glob(filepath.Join(dir, "journal", "*"))
	equal(t, "files", len(names), 1)
	text, _ := os.ReadFile(names[0])
	if !bytes.Contains(text, []byte(",jobtype=a-x,id=")) {
		t.Fatalf("%s", text)
	}
}

// TestLargeRequest: a large request is several records. Either all records are read or none.
func TestLargeRequest(t *testing.T) {
	d := newDisk()
	j := open(t, d)
	var lines []string
	for i := range 2500 {
		lines = append(lines, fmt.Sprint(i))
	}
	lines = append(lines, strings.Repeat("y", 1<<20), "end")
	first := add(t, j, batch("a-x", "before"))
	largeReceipt := add(t, j, batch("a-x", lines...))
	e, ok, _ := j.Find(largeReceipt.First[0].Add(2501))
	equal(t, "found", ok, true)
	equal(t, "last", string(e.Payload), "end")
	r := reserve(t, j, 100, longTime)
	equal(t, "one record", len(r.Read()), 1)
	equal(t, "its id", r.Read()[0].ID, first.First[0])
	if err := r.Sync(); err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{1, 200_000, 1_000_000, 1_055_000} {
		cutDisk := d.restart(false, nil)
		for _, i := range cutDisk.names {
			i.data = i.data[:len(i.data)-size]
		}
		j := open(t, cutDisk)
		equal(t, "lines of a request that was cut", text(readRest(t, j)), "a-x:before")
		if j.Stats().CutBytes == 0 {
			t.Fatal("nothing was cut")
		}
	}
	got := readRest(t, j)
	equal(t, "lines", len(got), 2502)
	for i, e := range got {
		if e.ID != largeReceipt.First[0].Add(i) || string(e.Payload) != lines[i] {
			t.Fatalf("line %d: %s %.20s", i, e.ID, e.Payload)
		}
	}
}

// cancelled returns a context that has ended, so that calls do not wait.
func cancelled(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// TestRemovedFile: somebody removes the file that the journal writes. Later appends are refused, or
// go to another file, which a restart finds.
func TestRemovedFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "journal")
	j := open(t, must(Directory(dir)))
	add(t, j, batch("a-x", "first"))
	for _, e := range must(os.ReadDir(path)) {
		if err := os.Remove(filepath.Join(path, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := j.Append(t.Context(), []Batch{batch("a-x", "refused")}); !errors.Is(err, ErrFailed) {
		t.Errorf("appending to a removed file: %v", err)
	}
	add(t, j, batch("a-x", "second"))
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := j.Append(t.Context(), []Batch{batch("a-x", "refused")}); !errors.Is(err, ErrFailed) {
			t.Errorf("appending without a directory: %v", err)
		}
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	add(t, j, batch("a-x", "third"))
	j.Close()
	found := 0
	for _, e := range must(os.ReadDir(path)) {
		found += bytes.Count(must(os.ReadFile(filepath.Join(path, e.Name()))), []byte("third"))
	}
	if found != 1 {
		t.Errorf("the directory has what was accepted last %d times", found)
	}
}

// TestMovedFile: somebody moves the file that the journal writes, and perhaps puts it or another
// file in its place. A restart finds what is accepted afterwards.
func TestMovedFile(t *testing.T) {
	for name, replace := range map[string]func(moved, path string) error{
		"moved":    func(string, string) error { return nil },
		"replaced": func(_, path string) error { return os.WriteFile(path, nil, 0o600) },
		"copied":   func(moved, path string) error { return os.WriteFile(path, must(os.ReadFile(moved)), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			j := open(t, must(Directory(dir)))
			add(t, j, batch("a-x", "first"))
			for _, e := range must(os.ReadDir(filepath.Join(dir, "journal"))) {
				path := filepath.Join(dir, "journal", e.Name())
				if err := errors.Join(os.Rename(path, filepath.Join(dir, e.Name())), replace(filepath.Join(dir, e.Name()), path)); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := j.Append(t.Context(), []Batch{batch("a-x", "refused")}); !errors.Is(err, ErrFailed) {
				t.Errorf("appending to a file with another name: %v", err)
			}
			add(t, j, batch("a-x", "second"))
			found := 0
			for _, e := range must(os.ReadDir(filepath.Join(dir, "journal"))) {
				found += bytes.Count(must(os.ReadFile(filepath.Join(dir, "journal", e.Name()))), []byte("second"))
			}
			if found != 1 {
				t.Errorf("the directory has what was accepted last %d times", found)
			}
		})
	}
}

// TestRemovedLock: somebody removes the file that locks the directory. Once another daemon uses the
// directory, no more lines are accepted, because the other daemon would not read them.
func TestRemovedLock(t *testing.T) {
	dir := t.TempDir()
	j := open(t, must(Directory(dir)))
	add(t, j, batch("a-x", "first"))
	if err := os.Remove(filepath.Join(dir, "lock")); err != nil {
		t.Fatal(err)
	}
	add(t, j, batch("a-x", "second"))
	other := open(t, must(Directory(dir)))
	equal(t, "lines", len(readRest(t, other)), 2)
	for range 2 {
		if _, err := j.Append(t.Context(), []Batch{batch("a-x", "refused")}); !errors.Is(err, ErrFailed) || !strings.Contains(err.Error(), "another daemon") {
			t.Errorf("appending beside another daemon: %v", err)
		}
	}
	add(t, other, batch("a-x", "third"))
	other.Close()
	equal(t, "lines of a restart", len(readRest(t, open(t, must(Directory(dir))))), 1)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
