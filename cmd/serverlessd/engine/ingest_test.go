package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"gloom/cmd/serverlessd/job"
	"gloom/cmd/serverlessd/journal"
	"gloom/cmd/serverlessd/store"

	"github.com/rs/zerolog"
)

// small is a store that takes no payloads of more than ten bytes.
type small struct{ store.Store }

func (s small) Ingest(ctx context.Context, piece journal.Range, jobs []journal.Entry, host func() time.Time) (int64, error) {
	var refused []job.ID
	for _, e := range jobs {
		if len(e.Payload) > 10 {
			refused = append(refused, e.ID)
		}
	}
	if refused != nil {
		return 0, &store.RefusedError{IDs: refused, Err: errors.New("too large")}
	}
	return s.Store.Ingest(ctx, piece, jobs, host)
}

// TestRefusedLines: a line that the store does not take holds up no other; a copy
// of it is kept and counted.
func TestRefusedLines(t *testing.T) {
	s := sqlite(t, filepath.Join(t.TempDir(), "jobs.db"))
	s.Store = small{s.Store}
	dir := t.TempDir()
	e := running(t, dir, s)
	defer e.Shutdown(context.Background())
	ids := add(t, e, "a-x", "1", "more than ten bytes", "3")
	after := add(t, e, "a-x", "4")
	until(t, "all has left the journal", func() error {
		if left := e.journal.Stats().Jobs; left > 0 {
			return fmt.Errorf("%d are left", left)
		}
		return nil
	})
	if _, err := s.Job(t.Context(), after[0]); err != nil {
		t.Error(err)
	}
	for i, want := range []error{nil, store.ErrUnknown, nil} {
		if _, err := e.Job(t.Context(), ids[i]); !errors.Is(err, want) {
			t.Errorf("job %d: %v, want %v", i, err, want)
		}
	}
	kept, err := filepath.Glob(filepath.Join(dir, "journal", "*.bad"))
	if err != nil || len(kept) != 1 || e.journal.Stats().Bad != 1 {
		t.Errorf("kept %v, %v, %+v", kept, err, e.journal.Stats())
	}
	until(t, "the counts are right", func() error {
		types, err := e.State(t.Context(), "a")
		if c := types["a-x"]; err == nil && c.Added != 3 {
			err = errors.New("not yet")
		}
		return err
	})
}

// TestPointsOfGoneSegments: a store keeps no read points of segments that a journal
// has removed.
func TestPointsOfGoneSegments(t *testing.T) {
	dir, path := t.TempDir(), filepath.Join(t.TempDir(), "jobs.db")
	segments := func() []string {
		found, err := filepath.Glob(filepath.Join(dir, "journal", "*.journal"))
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	e := running(t, dir, sqlite(t, path))
	ingested := func(id job.ID) {
		until(t, "it is ingested", func() error {
			_, err := e.backends[0].store.Job(t.Context(), id)
			return err
		})
	}
	ingested(add(t, e, "a-x", "1")[0])
	first := segments()
	e.Shutdown(context.Background())
	e = running(t, dir, sqlite(t, path))
	defer func() { e.Shutdown(context.Background()) }()
	ingested(add(t, e, "a-x", "2")[0])
	point := func(file string) (place int64) {
		place, err := e.backends[0].store.Ingest(t.Context(), journal.Range{Segment: filepath.Base(file)}, nil, time.Now)
		if err != nil {
			t.Fatal(err)
		}
		return place
	}
	until(t, "the point of the first is dropped", func() error {
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

// TestPutBack: what was set aside is brought to a store that takes it.
func TestPutBack(t *testing.T) {
	path, dir, again := filepath.Join(t.TempDir(), "jobs.db"), t.TempDir(), t.TempDir()
	s := sqlite(t, path)
	s.Store = small{s.Store}
	e := running(t, dir, s)
	id := add(t, e, "a-x", "more than ten bytes")[0]
	until(t, "it is set aside", func() error { return e.journal.Left(t.Context(), id) })
	e.Shutdown(context.Background())
	if err := os.MkdirAll(filepath.Join(again, "journal"), 0o700); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join("journal", id.String())
	if err := os.Rename(filepath.Join(dir, name+".bad"), filepath.Join(again, name+".journal")); err != nil {
		t.Fatal(err)
	}
	if n, damaged, err := Rescue(t.Context(), again, []string{"sqlite:" + path}, zerolog.Nop()); n != 1 || damaged != 0 || err != nil {
		t.Fatal(n, damaged, err)
	}
	back := sqlite(t, path)
	defer back.Close()
	if rec, err := back.Job(t.Context(), id); err != nil || rec.State != job.Waiting {
		t.Errorf("%+v, %v", rec, err)
	}
}
