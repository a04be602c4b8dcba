package engine

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// scrape are the metrics of an engine that have these letters in their name.
func scrape(e *Engine, part string) (found []prometheus.Metric) {
	all := make(chan prometheus.Metric, 1000)
	collector{e}.Collect(all)
	close(all)
	for m := range all {
		if strings.Contains(m.Desc().String(), part) {
			found = append(found, m)
		}
	}
	return found
}

// TestScrapes: scrapes wait for no count of the jobs, cause few counts, and delay
// nobody.
func TestScrapes(t *testing.T) {
	s := sqlite(t, filepath.Join(t.TempDir(), "jobs.db"))
	s.counting = newGate()
	e := running(t, t.TempDir(), s)
	defer e.Shutdown(context.Background())
	until(t, "the store is there", e.Health)
	const scrapes = 50
	began := time.Now()
	for range scrapes {
		scrape(e, "")
	}
	if took := time.Since(began); took > scrapes*scrapeWait+5*time.Second {
		t.Errorf("%d scrapes took %s", scrapes, took)
	}
	id := add(t, e, "a-x", "1")[0]
	until(t, "it is ingested while jobs are counted", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		return e.journal.Left(ctx, id)
	})
	if n := len(s.counting.reached); n != 1 {
		t.Errorf("%d counts for %d scrapes", n, scrapes)
	}
	close(s.counting.open)
	until(t, "there are figures", func() error {
		if n := len(scrape(e, `"gloom_sq_jobs"`)); n != 10 {
			return errors.New("no jobs")
		}
		return nil
	})
}
