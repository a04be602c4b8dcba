package store_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"gloom/bench/throwaway/mariadbtest"
	"gloom/cmd/serverlessd/job"
	"gloom/cmd/serverlessd/journal"
	. "gloom/cmd/serverlessd/store"
)

func TestIngestionIsExactlyOnce(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
		var jobs []journal.Entry
		for i := range 10 {
			e := entry("a-x", fmt.Sprint(i))
			e.End = int64(10 * (i + 1))
			jobs = append(jobs, e)
		}
		put := func(from, to int) {
			t.Helper()
			piece := journal.Range{Segment: "seg", From: int64(10 * from), To: int64(10 * to)}
			if _, err := s.Ingest(t.Context(), piece, jobs[from:to], time.Now); err != nil {
				t.Fatal(err)
			}
		}
		put(0, 3)
		put(0, 3)
		put(0, 5)
		put(2, 4)
		put(4, 10)
		checkEqual(t, "counts", counts(t, s, "a-x"), Counts{Added: 10, Waiting: 10})
		checkEqual(t, "payloads", payloads(take(t, s, testSysid, "a-x", 100, testTTL)), "0 1 2 3 4 5 6 7 8 9")
		point, err := s.Ingest(t.Context(), journal.Range{Segment: "seg", From: 90, To: 100}, jobs[9:], time.Now)
		checkEqual(t, "point", []any{point, err}, []any{100, nil})
		// A copy of the journal with another name: jobs that are already in the store are not added
		// again.
		if _, err := s.Ingest(t.Context(), journal.Range{Segment: "copy", To: 100}, append(jobs, entry("a-x", "new")), time.Now); err != nil {
			t.Fatal(err)
		}
		checkEqual(t, "counts", counts(t, s, "a-x").Added, 10+1)
	})
}

func TestDelayedJobBecomesDue(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
		soonEntry, laterEntry, pastEntry, oldEntry := entry("a-x", "soon"), entry("a-x", "later"), entry("a-x", "past"), entry("a-x", "old")
		soonEntry.Due, laterEntry.Due = time.Now().Add(30*time.Minute), time.Now().Add(20*time.Hour)
		pastEntry.Due, pastEntry.Accepted = time.Now().Add(-time.Hour), time.Now().Add(-2*time.Hour)
		oldEntry.Accepted = time.Now().AddDate(-2, 0, 0)
		ingest(t, s, soonEntry, laterEntry, pastEntry, oldEntry)
		due, next, err := s.Waiting(t.Context())
		if err != nil || len(due) != 1 || due[0].Age < 23*time.Hour || due[0].Age > 25*time.Hour {
			t.Fatalf("%v, %v", due, err)
		}
		if next < 20*time.Minute || next > 40*time.Minute {
			t.Fatalf("next in %s", next)
		}
		checkEqual(t, "counts", counts(t, s, "a-x"), Counts{Added: 4, Waiting: 2, Deferred: 2})
		checkEqual(t, "due", payloads(take(t, s, testSysid, "a-x", 9, testTTL)), "old past")
		checkEqual(t, "state", get(t, s, soonEntry.ID).State, job.Deferred)
		if due, _, err := s.Waiting(t.Context()); err != nil || len(due) != 0 {
			t.Fatalf("%v, %v", due, err)
		}
	})
}

// TestHostClocks: the due time of a job, by the store's clock, does not depend on the host's clock.
func TestHostClocks(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
		for _, deviation := range []time.Duration{-240 * time.Hour, 240 * time.Hour} {
			host := time.Now().Add(deviation)
			e := entry("a-x", "1")
			e.Accepted, e.Due = host, host.Add(time.Hour)
			segments++
			if _, err := s.Ingest(t.Context(), journal.Range{Segment: fmt.Sprint("s", segments), To: 1}, []journal.Entry{e}, func() time.Time { return host }); err != nil {
				t.Fatal(err)
			}
			if wait := time.Until(get(t, s, e.ID).Due); wait < 50*time.Minute || wait > 70*time.Minute {
				t.Errorf("a host %s off: due in %s", deviation, wait)
			}
		}
	})
}

// TestHostAhead: if the host's clock was ahead when a job was accepted, and was corrected
// before the job is ingested, a delay is still as long as requested, and a due date is unchanged.
func TestHostAhead(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
		date := entry("a-x", "1")
		date.Accepted = time.Now().Add(240 * time.Hour)
		date.Due = date.Accepted.Add(time.Hour)
		delay := date
		delay.ID, delay.Delay = ids.Next(1), time.Hour
		ingest(t, s, date, delay)
		for id, want := range map[job.ID]time.Duration{date.ID: 241 * time.Hour, delay.ID: time.Hour} {
			if wait := time.Until(get(t, s, id).Due); (wait - want).Abs() > time.Minute {
				t.Errorf("due in %s, want %s", wait, want)
			}
		}
	})
}

// TestForgottenSegments: the read points of segments that were removed are dropped, and others are
// kept.
func TestForgottenSegments(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
		piece := []journal.Entry{entry("a-x", "1")}
		for _, segment := range []string{"gone", "there"} {
			if _, err := s.Ingest(t.Context(), journal.Range{Segment: segment, To: 1}, piece, time.Now); err != nil {
				t.Fatal(err)
			}
		}
		w := laxSweep
		w.Segments = []string{"gone", "unknown"}
		sweep(t, s, w)
		for segment, want := range map[string]int64{"gone": 0, "there": 1} {
			point, err := s.Ingest(t.Context(), journal.Range{Segment: segment, To: 1}, nil, time.Now)
			checkEqual(t, segment, []any{point, err}, []any{want, nil})
		}
	})
}

// TestIngestRefused: if a database cannot accept some jobs of a piece, the error names them and
// nothing is written. Without these jobs, the piece is written.
func TestIngestRefused(t *testing.T) {
	server := mariadbtest.New(t, "--max-allowed-packet=1M")
	s, err := Open(address(t, server))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	largeText := strings.Repeat("'", 3<<20)
	piece := []journal.Entry{entry("a-x", "1"), entry("a-x", largeText), entry("a-x", strings.Repeat("x", 5000)), entry("b-x", "3"), entry("a-x", largeText)}
	for i := range piece {
		piece[i].End = int64(i) + 1
	}
	lines := journal.Range{Segment: "s", To: 5}
	_, err = s.Ingest(t.Context(), lines, piece, time.Now)
	var refused *RefusedError
	if !errors.As(err, &refused) || !slices.Equal(refused.IDs, []job.ID{piece[1].ID, piece[4].ID}) {
		t.Fatalf("%v: %+v", err, refused)
	}
	checkEqual(t, "written", counts(t, s, "a-x"), Counts{})
	if before, err := s.Ingest(t.Context(), lines, []journal.Entry{piece[0], piece[2], piece[3]}, time.Now); err != nil || before != 0 {
		t.Fatal(before, err)
	}
	checkEqual(t, "written", counts(t, s, "a-x"), Counts{Added: 2, Waiting: 2})
	checkEqual(t, "payloads", payloads(take(t, s, testSysid, "a-x", 5, testTTL)), "1 "+strings.Repeat("x", 5000))
}
