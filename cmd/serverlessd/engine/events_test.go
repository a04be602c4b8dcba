package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gloom/cmd/serverlessd/job"
	"gloom/cmd/serverlessd/journal"
	"gloom/cmd/serverlessd/store"
)

// TestEventsOfSweeps: jobs that a sweep ends, and their follow-on jobs, are logged like jobs that a
// run ends.
func TestEventsOfSweeps(t *testing.T) {
	s, dir := sqlite(t, filepath.Join(t.TempDir(), "jobs.db")), t.TempDir()
	ids := job.NewIDSource("0d0d0d", time.Now)
	var entries []journal.Entry
	for i, jobtype := range []string{"a-lost", "a-nobody", "a-old"} {
		entries = append(entries, journal.Entry{ID: ids.Next(1), Jobtype: jobtype, Payload: []byte("1"), End: int64(i + 1)})
	}
	if _, err := s.Ingest(t.Context(), journal.Range{Segment: "s", To: 3}, entries, time.Now); err != nil {
		t.Fatal(err)
	}
	if taken, err := s.Take(t.Context(), store.TakeRequest{Sysid: "0d0d0d", Jobtype: "a-lost", N: 1, TTL: -time.Second}); err != nil || len(taken) != 1 {
		t.Fatal(taken, err)
	}
	for _, jobtype := range []string{"a-lost", "a-old"} {
		h := &job.Handler{ID: string(ids.Next(1)), Jobtype: jobtype, Source: job.Source{Lang: job.Gloom, Body: "nobody", Options: job.Options{NextFailed: "next"}}}
		if err := s.PutHandler(t.Context(), h); err != nil {
			t.Fatal(err)
		}
	}
	e := startEngineAs(t, dir, func(c *Config) { c.Stopped, c.RetryFor, c.KeepUnrun, c.KeepDone = true, 0, time.Second, time.Hour }, s)
	defer e.Shutdown(context.Background())
	want := map[string]bool{
		"ended a-lost 1 lock_expired": true, "ended a-nobody 0 no_handler": true, "ended a-old 0 expired": true, "added a-next 0 ": true,
	}
	waitUntil(t, "all is told", func() error {
		text, err := os.ReadFile(filepath.Join(dir, "events.log"))
		if err != nil {
			return err
		}
		got := make(map[string]int)
		for line := range strings.Lines(string(text)) {
			var event struct {
				Event, Type, Code string
				Try               int
			}
			if err := json.Unmarshal([]byte(line), &event); err != nil {
				return fmt.Errorf("%q: %w", line, err)
			}
			got[fmt.Sprintf("%s %s %d %s", event.Event, event.Type, event.Try, event.Code)]++
		}
		for line := range want {
			if got[line] != 1 {
				return fmt.Errorf("%q is not there once: %v", line, got)
			}
		}
		return nil
	})
}
