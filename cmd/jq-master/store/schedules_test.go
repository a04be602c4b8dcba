package store

import (
	"maps"
	"slices"
	"testing"

	"gloom/cmd/jq-master/job"
)

// loadSchedules returns the schedules in a store.
func loadSchedules(t *testing.T, s Store) map[string]string {
	t.Helper()
	texts := map[string]string{}
	err := s.Load(t.Context(), LoadHandlers{
		Seq: func(uint64) {}, Key: func(int64, int) {}, Worker: func(*job.Worker) {}, Job: func(*job.Job, int64, int64) {},
		Constraint: func(*job.Constraint) error { return nil },
		Schedule:   func(name string, text []byte) error { texts[name] = string(text); return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	return texts
}

// TestScheduleIsStoredWithDueJobs: a schedule is stored together with its due jobs, and Load
// returns it.
func TestScheduleIsStoredWithDueJobs(t *testing.T) {
	onBothStores(t, func(t *testing.T, s Store) {
		put := func(name, text string, jobs ...*job.Job) {
			t.Helper()
			mustCall(t, func(f func(error)) { s.PutSchedule(name, []byte(text), jobs, f) })
		}
		first, second, third := newJob(1), newJob(2), newJob(3)
		put("a", `{"n":1}`)
		put("b", `{"n":2}`, first, second)
		put("b", `{"n":3}`)
		put("a", `{"n":4}`, third)
		put("gone", `{}`)
		mustCall(t, func(f func(error)) { s.PutSchedule("gone", nil, nil, f) })
		if got, want := loadSchedules(t, s), map[string]string{"a": `{"n":4}`, "b": `{"n":3}`}; !maps.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		checkJobs(t, s, first, second, third)
		w := load(t, s)
		if !slices.Equal(w.Live, []job.ID{first.ID, second.ID, third.ID}) || w.Seq < 3 {
			t.Errorf("%v, seq %d", w.Live, w.Seq)
		}
		add(t, s, newJob(w.Seq+1))
	})
}

// TestScheduleRepeated: a write of a schedule whose answer was lost is sent again, and changes
// nothing, although its jobs have changed since.
func TestScheduleRepeated(t *testing.T) {
	r := open(t, shared)
	acquire(t, r)
	j := newJob(1)
	text := []byte(`{"n":1}`)
	put := func(f func(error)) { r.PutSchedule("a", text, []*job.Job{j}, f) }
	mustCall(t, put)
	run := moveTo(t, r, j, started(j), 0, 0)
	mustCall(t, put)
	checkJobs(t, r, run)
	moveTo(t, r, run, ended(run, job.Done), 1, 0)
	mustCall(t, func(f func(error)) { r.Forget([]job.ID{j.ID}, f) })
	mustCall(t, put)
	checkJobs(t, r)
}
