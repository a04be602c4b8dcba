package bridge

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"gloom/cmd/internal/testing/storetest"
	"gloom/cmd/jobd/store"
)

func TestStrayRowsAreDueAfterTime(t *testing.T) {
	var s strayRows
	now := time.Unix(1000, 0)
	for i, look := range []struct {
		after          time.Duration
		claimed, known []int64
		want           []int64
	}{
		{0, []int64{1, 2, 3}, []int64{1}, nil},
		{minStrayTime / 2, []int64{1, 2, 3}, []int64{1, 2}, nil}, // row 2 was being accepted, and is known now
		{minStrayTime / 2, []int64{1, 2, 3}, nil, []int64{3}},
		{minStrayTime / 2, []int64{1, 3}, nil, []int64{3}},
		{minStrayTime / 2, []int64{1, 2}, nil, []int64{1}},
		{minStrayTime, nil, nil, nil},
		{0, []int64{4}, nil, nil},
		{minStrayTime, []int64{4}, nil, nil}, // no check meanwhile
		{minStrayTime / 2, []int64{4}, nil, nil},
		{minStrayTime / 2, []int64{4}, nil, []int64{4}},
	} {
		now = now.Add(look.after)
		if got := s.check(look.claimed, now, func(id int64) bool { return slices.Contains(look.known, id) }); !slices.Equal(got, look.want) {
			t.Errorf("look %d: %v, want %v", i, got, look.want)
		}
	}
}

// TestClaimsOfLostCommitsAreSettled: the database has lost the ends of rows, so the daemon has claims on rows
// that it does not know.
func TestClaimsOfLostCommitsAreSettled(t *testing.T) {
	cfg := configFor(t, "a=2")
	writeLauncher(t, &cfg, printAndExit)
	f := startBridge(t, storetest.NewTable(), cfg)
	f.Pause(nil)
	f.insert(store.Waiting, "a", 1, 2)
	if _, err := f.store.Accept(t.Context(), []store.AcceptRequest{{Target: "a", Rows: 2}}, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := f.store.Write(t.Context(), store.Batch{StartRows: []int64{1}, StartedAt: 5}); err != nil {
		t.Fatal(err)
	}
	long := time.Now().Add(-minStrayTime)
	f.reaper.mu.Lock()
	f.reaper.strays = strayRows{lastCheck: time.Now().Add(-strayCheckInterval), firstSeen: map[int64]time.Time{1: long, 2: long}}
	err := f.settleStrays(t.Context())
	f.reaper.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	r, _ := f.table.Get(1)
	if got := fmt.Sprint(f.rowStatus(1), " ", *r.Stderr, " ", f.rowStatus(2)); got != "done the database has lost how the job ended: jobd 'd' does not run it waiting" {
		t.Error(got)
	}
	f.Continue(nil)
	f.await(store.Done, 2)
}

// TestRowToBeReturnedIsNoStray: a row that has left the queue and is still to be returned to the table is not
// settled, however long a lock on the table holds up the write. It would count as failed.
func TestRowToBeReturnedIsNoStray(t *testing.T) {
	cfg := configFor(t, "a=2")
	writeLauncher(t, &cfg, printAndExit)
	f := startBridge(t, storetest.NewTable(), cfg)
	f.Pause(nil)
	f.insert(store.Waiting, "a", 1)
	if _, err := f.store.Accept(t.Context(), []store.AcceptRequest{{Target: "a", Rows: 1}}, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := f.store.Write(t.Context(), store.Batch{StartRows: []int64{1}, StartedAt: 5}); err != nil {
		t.Fatal(err)
	}
	requeue := &change{kind: changeRequeue, id: 1, retryAt: time.Now().Add(time.Hour)}
	f.writer.enqueue(requeue)
	f.reaper.mu.Lock()
	f.reaper.strays = strayRows{lastCheck: time.Now().Add(-strayCheckInterval), firstSeen: map[int64]time.Time{1: time.Now().Add(-minStrayTime)}}
	err := f.settleStrays(t.Context())
	f.reaper.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	if got := f.rowStatus(1); got != store.Running {
		t.Error(got)
	}
	f.writer.mu.Lock()
	requeue.retryAt = time.Time{}
	f.writer.wakeLoop()
	f.writer.mu.Unlock()
	f.await(store.Waiting, 1)
}
