package engine

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gloom/cmd/serverlessd/job"
	"gloom/cmd/serverlessd/store"

	"github.com/prometheus/client_golang/prometheus"
)

// scrape returns those metrics of an engine whose names contain a text.
func scrape(e *Engine, part string) (found []prometheus.Metric) {
	metrics := make(chan prometheus.Metric, 1000)
	collector{e}.Collect(metrics)
	close(metrics)
	for m := range metrics {
		if strings.Contains(m.Desc().String(), part) {
			found = append(found, m)
		}
	}
	return found
}

// TestScrapesCauseFewCounts: scrapes do not wait for a count of the jobs, cause few counts, and
// delay no other calls.
func TestScrapesCauseFewCounts(t *testing.T) {
	s := sqlite(t, filepath.Join(t.TempDir(), "jobs.db"))
	s.counting = newGate()
	e := startEngine(t, t.TempDir(), s)
	defer e.Shutdown(context.Background())
	waitUntil(t, "the store is available", e.Health)
	const scrapes = 50
	start := time.Now()
	for range scrapes {
		scrape(e, "")
	}
	if elapsed := time.Since(start); elapsed > scrapes*scrapeWait+5*time.Second {
		t.Errorf("%d scrapes took %s", scrapes, elapsed)
	}
	id := add(t, e, "a-x", "1")[0]
	waitUntil(t, "it is ingested while jobs are counted", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		return e.journal.AwaitStored(ctx, id)
	})
	if n := len(s.counting.reached); n != 1 {
		t.Errorf("%d counts for %d scrapes", n, scrapes)
	}
	close(s.counting.open)
	waitUntil(t, "there are figures", func() error {
		if n := len(scrape(e, `"gloom_sq_jobs"`)); n != 10 {
			return errors.New("no jobs")
		}
		return nil
	})
}

// turnStore notes whether calls that a request makes for counts may wait for other requests.
type turnStore struct {
	store.Store
	waits chan bool
}

func (s turnStore) Counts(ctx context.Context, client string) (map[string]store.Counts, error) {
	s.waits <- !store.IsOwnCall(ctx)
	return s.Store.Counts(ctx, client)
}

// TestStateDelaysNoIngestion: while the jobs are counted for a request, none are ingested. So the
// count does not wait for the calls of many other requests.
func TestStateDelaysNoIngestion(t *testing.T) {
	g := sqlite(t, filepath.Join(t.TempDir(), "jobs.db"))
	s := turnStore{g.Store, make(chan bool, 100)}
	g.Store = s
	e := startEngine(t, t.TempDir(), g)
	defer e.Shutdown(context.Background())
	waitUntil(t, "the jobs are counted", func() error {
		_, err := e.State(t.Context(), "")
		return err
	})
	if <-s.waits {
		t.Error("the count may wait for other requests")
	}
}

// TestPauseAfterCount: a table that was locked once does not leave operators without figures for a
// hundred times as long.
func TestPauseAfterCount(t *testing.T) {
	const fast, locked = 10 * time.Millisecond, 30 * time.Second
	var c countCache
	for i, step := range []struct {
		duration time.Duration
		err      error
		want     time.Duration
	}{
		{locked, nil, countShare * locked / 10}, // nobody knows how long a count should take
		{locked, store.ErrAway, locked},
		{locked, store.ErrAway, 2 * locked},
		{locked, store.ErrAway, 4 * locked},
		{fast, nil, countShare * fast},
		{locked, store.ErrAway, locked},
		{locked, nil, countShare * fast},
		{fast, nil, countShare * fast},
		{locked, nil, countShare * fast},
		{locked, nil, countShare * locked}, // there are that many jobs
	} {
		if got := c.pause(step.duration, step.err); got != step.want {
			t.Errorf("step %d: a pause of %s after a count of %s (%v), want %s", i, got, step.duration, step.err, step.want)
		}
	}
}

// TestSnapshotsComeFromMemory: snapshots come from memory, and only one of a hundred makes the
// stores count the jobs. The counters show the daemon's work.
func TestSnapshotsComeFromMemory(t *testing.T) {
	s := sqlite(t, filepath.Join(t.TempDir(), "jobs.db"))
	s.counting = newGate()
	e := startEngine(t, t.TempDir(), s)
	defer e.Shutdown(context.Background())
	waitUntil(t, "the store is available", e.Health)
	if l := e.Snapshot(); l.Types != nil || len(l.Stores) != 1 || l.Stores[0].Error != "" || l.Stores[0].Sysid == "" || !l.HandsOut {
		t.Errorf("%+v", l)
	}
	close(s.counting.open)
	waitUntil(t, "the jobs are counted", func() error {
		if e.Snapshot().Types == nil {
			return errors.New("not counted")
		}
		return nil
	})
	e.countCache.mu.Lock()
	e.countCache.nextCount = time.Now().Add(time.Hour) // no further count begins, as if the last one had been slow
	e.countCache.mu.Unlock()
	before := len(s.counting.reached)
	for range 100 {
		e.Snapshot()
	}
	if n := len(s.counting.reached) - before; n != 0 {
		t.Errorf("%d counts for a hundred looks", n)
	}
	if err := e.PutHandler(t.Context(), &job.Handler{Jobtype: "a-x", Source: job.Source{Lang: job.Shell, Body: "exit 65"}}); err != nil {
		t.Fatal(err)
	}
	awaitState(t, e, add(t, e, "a-x", "1")[0], job.Failed)
	waitUntil(t, "the end is counted", func() error {
		l := e.Snapshot()
		sum := func(counts []uint64) (n uint64) {
			for _, c := range counts {
				n += c
			}
			return n
		}
		if l.Added != 1 || l.Ended[job.CodeFailed] != 1 || sum(l.Times.Waits) != 1 || sum(l.Times.Runs) != 1 || len(l.Times.Runs) != len(l.Times.Bounds)+1 {
			return fmt.Errorf("%+v", l)
		}
		return nil
	})
	if h := e.Handlers(); len(h) != 1 || h["a-x"].Lang != job.Shell {
		t.Errorf("%v", h)
	}
}
