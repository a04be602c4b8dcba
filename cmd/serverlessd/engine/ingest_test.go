package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"gloom/cmd/serverlessd/job"
	"gloom/cmd/serverlessd/journal"
	"gloom/cmd/serverlessd/store"
)

// refusingStore is a store that refuses payloads of more than ten bytes until accepting is set.
type refusingStore struct {
	store.Store
	accepting *atomic.Bool
}

func (s refusingStore) Ingest(ctx context.Context, piece journal.Range, jobs []journal.Entry, host func() time.Time) (int64, error) {
	var refused []job.ID
	for _, e := range jobs {
		if len(e.Payload) > 10 && !s.accepting.Load() {
			refused = append(refused, e.ID)
		}
	}
	if refused != nil {
		return 0, &store.RefusedError{IDs: refused, Err: errors.New("too large")}
	}
	return s.Store.Ingest(ctx, piece, jobs, host)
}

// TestRefusedLines: a line that the store does not accept does not delay other lines; a copy of the
// line is kept and counted.
func TestRefusedLines(t *testing.T) {
	s := sqlite(t, filepath.Join(t.TempDir(), "jobs.db"))
	s.Store = refusingStore{s.Store, new(atomic.Bool)}
	dir := t.TempDir()
	e := startEngine(t, dir, s)
	defer e.Shutdown(context.Background())
	ids := add(t, e, "a-x", "1", "more than ten bytes", "3")
	after := add(t, e, "a-x", "4")
	waitUntil(t, "all has left the journal", func() error {
		if left := e.journal.Stats().Jobs; left > 0 {
			return fmt.Errorf("%d are left", left)
		}
		return nil
	})
	if _, err := s.Job(t.Context(), after[0]); err != nil {
		t.Error(err)
	}
	for i, id := range ids {
		if _, err := e.Job(t.Context(), id); errors.As(err, new(*journal.AsideError)) != (i == 1) || err != nil && i != 1 {
			t.Errorf("job %d: %v", i, err)
		}
	}
	badFiles, err := filepath.Glob(filepath.Join(dir, "journal", "*.bad"))
	if err != nil || len(badFiles) != 1 || e.journal.Stats().AsideFiles != 1 {
		t.Errorf("kept %v, %v, %+v", badFiles, err, e.journal.Stats())
	}
	waitUntil(t, "the counts are right", func() error {
		types, err := e.State(t.Context(), "a")
		if c := types["a-x"]; err == nil && (c.Added != 4 || c.SetAside != 1) {
			err = errors.New("not yet")
		}
		return err
	})
}

// flakyStore is a small store that goes away after it has refused a line, and accepts all payloads
// when it is back.
type flakyStore struct {
	refusingStore
	callCount atomic.Int32
}

func (s *flakyStore) Ingest(ctx context.Context, piece journal.Range, jobs []journal.Entry, host func() time.Time) (int64, error) {
	if n := s.callCount.Load(); n > 0 {
		s.callCount.Store(2)
		if n == 1 {
			s.accepting.Store(true)
			return 0, store.ErrAway
		}
	}
	before, err := s.refusingStore.Ingest(ctx, piece, jobs, host)
	var refused *store.RefusedError
	if errors.As(err, &refused) {
		s.callCount.Store(1)
	}
	return before, err
}

// TestSetAsideFile: a line that was set aside is in no store until it is put back. This holds even
// if the rest of its piece was not written and the store would now accept the line.
func TestSetAsideFile(t *testing.T) {
	s := sqlite(t, filepath.Join(t.TempDir(), "jobs.db"))
	flaky := &flakyStore{refusingStore: refusingStore{s.Store, new(atomic.Bool)}}
	s.Store = flaky
	e := startEngine(t, t.TempDir(), s)
	defer e.Shutdown(context.Background())
	ids := add(t, e, "a-x", "1", "more than ten bytes", "3")
	for _, id := range ids {
		waitUntil(t, "it has left the journal", func() error { return e.journal.AwaitStored(t.Context(), id) })
	}
	if flaky.callCount.Load() != 2 {
		t.Fatal("the store was not away")
	}
	types, err := e.State(t.Context(), "a")
	if c := types["a-x"]; err != nil || c.Added != 3 || c.Waiting != 2 || c.SetAside != 1 {
		t.Errorf("%+v, %v", c, err)
	}
	files, err := e.AsideFiles()
	if err != nil || len(files) != 1 {
		t.Fatalf("%+v, %v", files, err)
	}
	if n, err := e.PutBack(t.Context(), files[0].File); n != 1 || err != nil {
		t.Error(n, err)
	}
	if types, err = e.State(t.Context(), "a"); types["a-x"].Waiting != 3 || types["a-x"].Added != 3 {
		t.Errorf("%+v, %v", types, err)
	}
}

// TestReadPointsDropped: a store drops the read points of segments that the journal has removed.
func TestReadPointsDropped(t *testing.T) {
	dir, path := t.TempDir(), filepath.Join(t.TempDir(), "jobs.db")
	segments := func() []string {
		found, err := filepath.Glob(filepath.Join(dir, "journal", "*.journal"))
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	e := startEngine(t, dir, sqlite(t, path))
	awaitJob := func(id job.ID) {
		waitUntil(t, "it is ingested", func() error {
			_, err := e.backends[0].store.Job(t.Context(), id)
			return err
		})
	}
	awaitJob(add(t, e, "a-x", "1")[0])
	first := segments()
	e.Shutdown(context.Background())
	e = startEngine(t, dir, sqlite(t, path))
	defer func() { e.Shutdown(context.Background()) }()
	awaitJob(add(t, e, "a-x", "2")[0])
	point := func(file string) (place int64) {
		place, err := e.backends[0].store.Ingest(t.Context(), journal.Range{Segment: filepath.Base(file)}, nil, time.Now)
		if err != nil {
			t.Fatal(err)
		}
		return place
	}
	waitUntil(t, "the point of the first is dropped", func() error {
		if now := segments(); len(first) != 1 || len(now) != 1 || now[0] == first[0] {
			return fmt.Errorf("segments %v, then %v", first, now)
		}
		if p := point(first[0]); p != 0 {
			return fmt.Errorf("it is %d", p)
		}
		return nil
	})
	if point(segments()[0]) == 0 {
		t.Error("that of the other is gone too")
	}
}

// TestPutBack: jobs that no store accepted are listed and counted. When a store accepts them, it
// gets them once, even if the daemon was killed before it could remove the file.
func TestPutBack(t *testing.T) {
	path, dir := filepath.Join(t.TempDir(), "jobs.db"), t.TempDir()
	isGrown := new(atomic.Bool)
	s := sqlite(t, path)
	s.Store = refusingStore{s.Store, isGrown}
	e := startEngine(t, dir, s)
	ids := add(t, e, "a-x", "more than ten bytes", "small", "as many as the first")
	for _, id := range ids {
		waitUntil(t, "it is set aside", func() error { return e.journal.AwaitStored(t.Context(), id) })
	}
	balances := func(aside int64) {
		t.Helper()
		types, err := e.State(t.Context(), "a")
		c := types["a-x"]
		if err != nil || c.SetAside != aside || c.Added != 3 || c.Added != c.Waiting+c.Deferred+c.Running+c.OK+c.Failed+c.Abandoned+c.Expired+c.Deleted+c.SetAside {
			t.Errorf("%+v, %v", c, err)
		}
	}
	balances(2)
	isAside := func(reason string) {
		t.Helper()
		var aside *journal.AsideError
		if _, err := e.Job(t.Context(), ids[2]); !errors.As(err, &aside) || aside.Jobtype != "a-x" || !strings.Contains(err.Error(), string(ids[0])+".bad, because "+reason) {
			t.Errorf("%v", err)
		}
		for name, err := range map[string]error{"delete": e.Delete(t.Context(), ids[0]), "retry": e.Retry(t.Context(), ids[0])} {
			if !errors.As(err, &aside) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	isAside("the store did not accept it (")
	e.Shutdown(context.Background())

	s = sqlite(t, path)
	s.Store = refusingStore{s.Store, isGrown}
	e = startEngine(t, dir, s)
	waitUntil(t, "the store is available", e.Health)
	balances(2)
	isAside("the store did not accept it;")
	files, err := e.AsideFiles()
	if err != nil || len(files) != 1 || len(files[0].Jobs) != 2 || files[0].Jobs[0].ID != ids[0] || files[0].Jobs[1].ID != ids[2] {
		t.Fatalf("%+v, %v", files, err)
	}
	file := files[0].File
	var refused *store.RefusedError
	if _, err := e.PutBack(t.Context(), file); !errors.As(err, &refused) {
		t.Errorf("%v", err)
	}
	balances(2)
	isGrown.Store(true)
	content, err := os.ReadFile(filepath.Join(dir, "journal", file))
	if err != nil {
		t.Fatal(err)
	}
	if n, err := e.PutBack(t.Context(), file); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	balances(0)
	for _, id := range ids {
		if rec, err := e.Job(t.Context(), id); err != nil || rec.State != job.Waiting {
			t.Errorf("%s: %+v, %v", id, rec, err)
		}
	}
	if _, err := e.PutBack(t.Context(), file); !errors.Is(err, journal.ErrNoAsideFile) {
		t.Errorf("%v", err)
	}
	e.Shutdown(context.Background())

	// The file is still there if the daemon was killed before it could remove it.
	if err := os.WriteFile(filepath.Join(dir, "journal", file), content, 0o600); err != nil {
		t.Fatal(err)
	}
	e = startEngine(t, dir, sqlite(t, path))
	defer e.Shutdown(context.Background())
	waitUntil(t, "the store is available", e.Health)
	if _, err := e.PutBack(t.Context(), file); err != nil {
		t.Error(err)
	}
	balances(0)
	if _, err := e.PutBack(t.Context(), "../lock"); !errors.Is(err, journal.ErrNoAsideFile) {
		t.Errorf("%v", err)
	}
}

// TestPutBackOfChangedFile: a file is put back that had only a part of its jobs when it was read, or
// that is deleted meanwhile. No job is lost, and none is said to be set aside.
func TestPutBackOfChangedFile(t *testing.T) {
	for name, change := range map[string]func(path string, content []byte) error{
		"grown":   func(path string, content []byte) error { return os.WriteFile(path, content, 0o600) },
		"deleted": func(path string, _ []byte) error { return os.Remove(path) },
		"damaged": func(path string, _ []byte) error { return os.Remove(path) },
	} {
		t.Run(name, func(t *testing.T) {
			dir, isGrown := t.TempDir(), new(atomic.Bool)
			s := sqlite(t, filepath.Join(t.TempDir(), "jobs.db"))
			s.Store = refusingStore{s.Store, isGrown}
			e := startEngine(t, dir, s)
			defer e.Shutdown(context.Background())
			ids := add(t, e, "a-x", "more than ten bytes", "as many as the first")
			for _, id := range ids {
				waitUntil(t, "it is set aside", func() error { return e.journal.AwaitStored(t.Context(), id) })
			}
			isGrown.Store(true)
			file := string(ids[0]) + ".bad"
			path := filepath.Join(dir, "journal", file)
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			known := ids
			switch name {
			case "grown":
				err = os.Truncate(path, int64(bytes.LastIndex(content, []byte("#:Batch"))))
			case "damaged":
				known = ids[:1]
				err = os.WriteFile(path, bytes.Replace(content, []byte("as many"), []byte("as \x00any"), 1), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			transit := e.backends[0].transit
			if err := transit.Acquire(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
			done := make(chan error)
			go func() {
				_, err := e.PutBack(t.Context(), file)
				done <- err
			}()
			waitUntil(t, "PutBack has begun", func() error {
				if e.putBackMu.TryLock() {
					e.putBackMu.Unlock()
					return errors.New("not yet")
				}
				return nil
			})
			time.Sleep(50 * time.Millisecond) // it reads the file now
			if err := change(path, content); err != nil {
				t.Fatal(err)
			}
			transit.Release(1)
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			for _, id := range known {
				if rec, err := e.Job(t.Context(), id); err != nil || rec.State != job.Waiting {
					t.Errorf("%s: %+v, %v", id, rec, err)
				}
			}
			if aside, n := e.journal.SetAsideJobs(), e.journal.Stats().AsideFiles; len(aside) > 0 || n > 0 {
				t.Errorf("%v are said to be set aside, in %d files", aside, n)
			}
		})
	}
}

// TestPutBackOfDamagedFile: of a file that is partly damaged, the other jobs are put back, and the
// damaged part is kept in a file of its own.
func TestPutBackOfDamagedFile(t *testing.T) {
	dir, isGrown := t.TempDir(), new(atomic.Bool)
	s := sqlite(t, filepath.Join(t.TempDir(), "jobs.db"))
	s.Store = refusingStore{s.Store, isGrown}
	e := startEngine(t, dir, s)
	defer e.Shutdown(context.Background())
	ids := add(t, e, "a-x", "more than ten bytes", "a second long line", "a third long line")
	for _, id := range ids {
		waitUntil(t, "it is set aside", func() error { return e.journal.AwaitStored(t.Context(), id) })
	}
	isGrown.Store(true)
	path := filepath.Join(dir, "journal", string(ids[0])+".bad")
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, bytes.Replace(content, []byte("second"), []byte("sec\x00nd"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	if n, err := e.PutBack(t.Context(), filepath.Base(path)); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	for _, id := range []job.ID{ids[0], ids[2]} {
		if rec, err := e.Job(t.Context(), id); err != nil || rec.State != job.Waiting {
			t.Errorf("%s: %+v, %v", id, rec, err)
		}
	}
	if aside := e.journal.SetAsideJobs(); len(aside) > 0 { // as after a restart, since nobody knows whose the damaged part is
		t.Errorf("%v are said to be set aside", aside)
	}
	files, err := e.AsideFiles()
	if err != nil || len(files) != 1 || len(files[0].Jobs) != 0 || e.journal.Stats().AsideFiles != 1 {
		t.Fatalf("%+v, %v", files, err)
	}
	if kept, err := os.ReadFile(filepath.Join(dir, "journal", files[0].File)); err != nil || !bytes.Contains(kept, []byte("a sec\x00nd long line")) {
		t.Errorf("%q, %v", kept, err)
	}
}
