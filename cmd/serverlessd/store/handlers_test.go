package store_test

import (
	"fmt"
	"testing"

	"gloom/cmd/serverlessd/job"
	"gloom/cmd/serverlessd/journal"
	. "gloom/cmd/serverlessd/store"
)

func TestHandlersKeepVersions(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
		ctx := t.Context()
		_, err := s.Handler(ctx, "a-x", "")
		checkError(t, err, ErrUnknown)
		var last *job.Handler
		for i := range 12 {
			h := &job.Handler{ID: string(ids.Next(1)), Jobtype: "a-x", Source: job.Source{Lang: job.Shell, Body: fmt.Sprint("echo ", i)}}
			if err := s.PutHandler(ctx, h); err != nil {
				t.Fatal(err)
			}
			if last != nil && !h.Time.After(last.Time) {
				t.Fatalf("%s does not follow %s", h.Time, last.Time)
			}
			last = h
		}
		got, err := s.Handler(ctx, "a-x", "")
		checkEqual(t, "newest", []any{got.Body, got.ID, got.Time, err}, []any{"echo 11", last.ID, last.Time, nil})
		versions, err := s.Versions(ctx, "a-x")
		if err != nil || len(versions) != 10 || versions[0].ID != last.ID || versions[0].Lang != job.Shell || versions[0].Bytes == 0 || !versions[9].Time.Before(versions[8].Time) {
			t.Fatal(versions, err)
		}
		got, err = s.Handler(ctx, "a-x", versions[9].ID)
		checkEqual(t, "the oldest", []any{got.Body, err}, []any{"echo 2", nil})
		_, err = s.Handler(ctx, "a-y", versions[9].ID)
		checkError(t, err, ErrUnknown)
		handlers, version, err := s.Handlers(ctx, -1)
		checkEqual(t, "all", []any{handlers, err}, []any{map[string]string{"a-x": last.ID}, nil})
		handlers, newVersion, err := s.Handlers(ctx, version)
		checkEqual(t, "unchanged", []any{handlers == nil, newVersion, err}, []any{true, version, nil})
		n, err := s.DeleteHandler(ctx, "a-x")
		checkEqual(t, "deleted", []any{n, err}, []any{10, nil})
		handlers, changed, err := s.Handlers(ctx, version)
		checkEqual(t, "after", []any{handlers != nil, len(handlers), changed != version, err}, []any{true, 0, true, nil})
		n, err = s.DeleteHandler(ctx, "a-x")
		checkEqual(t, "nothing left", []any{n, err}, []any{0, nil})
	})
}

func TestManyTypes(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
		var jobs []journal.Entry
		for i := range 1234 {
			jobs = append(jobs, entry(fmt.Sprintf("a-%04d", i), "1"))
		}
		ingest(t, s, jobs...)
		due, _, err := s.Waiting(t.Context())
		checkEqual(t, "types", []any{len(due), err}, []any{1234, nil})
		checkEqual(t, "taken", len(take(t, s, testSysid, "a-0777", 9, testTTL)), 1)
		due, _, err = s.Waiting(t.Context())
		checkEqual(t, "types", []any{len(due), err}, []any{1233, nil})
	})
}
