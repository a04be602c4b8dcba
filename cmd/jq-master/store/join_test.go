package store

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"gloom/cmd/jq-master/job"
)

// queuedBy returns the transitions that f put into the queue.
func queuedBy(r *Redis, f func(Store)) []*op {
	s := &Redis{keys: r.keys, term: &term{}, wake: make(chan struct{}, 1)}
	f(s)
	return s.queue
}

// TestTransitionsShareScriptCalls: transitions of the same kind share a call of a script, but do
// not overtake other transitions that may be of the same job.
func TestTransitionsShareScriptCalls(t *testing.T) {
	begin := func(s Store) {
		j := newJob(1)
		s.Move(j, started(j), 0, 0, func(error) {})
	}
	stored := func([]job.ID, bool, error) {}
	for _, c := range []struct {
		name string
		call func(Store)
		want string
	}{
		{"nothing", func(Store) {}, ""},
		{"mixed", func(s Store) {
			for range 2 {
				s.Enqueue([]*job.Job{newJob(1), newJob(2)}, nil, stored)
				begin(s)
				run := started(newJob(4))
				s.Move(run, ended(run, job.Done), 1, 0, func(error) {})
			}
		}, "2 enqueue, 4 move"},
		{"others between", func(s Store) {
			begin(s)
			s.Fetch([]job.ID{job.NewID()}, func(error) {})
			begin(s)
			s.Forget([]job.ID{job.NewID()}, func(error) {})
			begin(s)
		}, "1 move, 1 fetch, 1 move, 1 forget, 1 move"},
		{"a key", func(s Store) {
			s.Enqueue([]*job.Job{newJob(1)}, nil, stored)
			s.Enqueue([]*job.Job{newJob(1)}, &Key{}, stored)
			s.Enqueue([]*job.Job{newJob(1)}, nil, stored)
		}, "2 enqueue, 1 enqueue"},
		{"many", func(s Store) {
			for range 2 * maxJobsPerCall {
				begin(s)
			}
			s.Enqueue(slices.Repeat([]*job.Job{newJob(1)}, job.MaxBatch), nil, stored)
			s.Enqueue([]*job.Job{newJob(1)}, nil, stored)
		}, fmt.Sprintf("%d move, %[1]d move, 1 enqueue, 1 enqueue", maxJobsPerCall)},
	} {
		var got []string
		for _, run := range joinOps(queuedBy(&Redis{keys: keysOf("test")}, c.call)) {
			got = append(got, fmt.Sprint(len(run), " ", run[0].name))
		}
		if text := strings.Join(got, ", "); text != c.want {
			t.Errorf("%s: %s, want %s", c.name, text, c.want)
		}
	}
}

// TestJoinedTransitionsFailAlone: each of the transitions that share a call of a script succeeds,
// fails or is repeated on its own.
func TestJoinedTransitionsFailAlone(t *testing.T) {
	t.Parallel()
	r := open(t, shared)
	acquire(t, r)
	jobs := []*job.Job{newJob(1), newJob(2), newJob(3)}
	add(t, r, jobs...)
	badKey := r.keys.job(jobs[1].ID)
	shared.Do(t, "DEL", badKey)
	shared.Do(t, "SET", badKey, "x")
	batches := [][]*job.Job{{newJob(4)}, {newJob(5), newJob(6)}, {newJob(7)}}
	want := map[job.ID]*job.Job{}
	var runs []*job.Job
	for i, j := range jobs {
		runs = append(runs, started(j))
		if i != 1 {
			want[j.ID] = runs[i]
		}
	}
	round := func(batches [][]*job.Job) {
		answers := make(chan error, 6)
		ops := queuedBy(r, func(s Store) {
			for i, j := range runs {
				s.Enqueue(batches[i], nil, func(_ []job.ID, _ bool, err error) { answers <- err })
				s.Move(jobs[i], j, 0, 0, func(err error) {
					if i == 1 && err != nil && strings.Contains(err.Error(), "WRONGTYPE") {
						err = nil
					} else if i == 1 {
						err = fmt.Errorf("a string was moved: %v", err)
					}
					answers <- err
				})
			}
		})
		r.mu.Lock()
		r.queue = append(r.queue, ops...)
		r.mu.Unlock()
		r.wake <- struct{}{}
		for range cap(answers) {
			select {
			case err := <-answers:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(waitLimit):
				t.Fatal("no answer")
			}
		}
	}
	round(batches)
	repeatedJob := moveTo(t, r, batches[1][0], started(batches[1][0]), 0, 0) // a repeat of the batch must not undo this
	retriedBatches := [][]*job.Job{{newJob(8)}, batches[1], {newJob(9)}}
	round(retriedBatches)
	for _, batch := range append(batches, retriedBatches...) {
		for _, j := range batch {
			want[j.ID] = j
		}
	}
	want[repeatedJob.ID] = repeatedJob
	got := load(t, r)
	for id, j := range want {
		if g, ok := got.Jobs[id]; !ok || g.State != j.State || g.Seq != j.Seq || g.Attempt != j.Attempt {
			t.Errorf("job %d is %+v", j.Seq, g)
		}
	}
	if len(got.Jobs) != len(want) || got.Seq < 9 {
		t.Errorf("there are %d jobs, want %d; the last seq is %d", len(got.Jobs), len(want), got.Seq)
	}
}

// TestMoveOnce: if the key of the ended jobs is of another type, a job cannot be added to them. The
// job then stays among the live jobs unchanged, and the next master finds it there.
func TestMoveOnce(t *testing.T) {
	t.Parallel()
	r := open(t, shared)
	acquire(t, r)
	j := newJob(1)
	add(t, r, j)
	j = moveTo(t, r, j, started(j), 0, 0)
	shared.Do(t, "SET", r.keys.ended, "x")
	if err := await(t, func(f func(error)) { r.Move(j, ended(j, job.Done), 1, 0, f) }); err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
		t.Errorf("it has ended: %v", err)
	}
	if ids, err := r.client.ZRange(t.Context(), r.keys.live, 0, -1).Result(); err != nil || !slices.Equal(ids, []string{j.ID.String()}) {
		t.Errorf("the live jobs are %v, %v", ids, err)
	}
	shared.Do(t, "DEL", r.keys.ended)
	if got := load(t, r).Jobs[j.ID]; got.State != job.Running || got.Rev != j.Rev {
		t.Errorf("the job is loaded as %+v", got)
	}
}

// TestForgetBatch: if the key of the results has another type, jobs cannot leave the results. They
// stay unchanged, and are forgotten later.
func TestForgetBatch(t *testing.T) {
	t.Parallel()
	r := open(t, shared)
	acquire(t, r)
	j := newJob(1)
	add(t, r, j)
	j = moveTo(t, r, j, started(j), 0, 0)
	j = moveTo(t, r, j, ended(j, job.Done), 1, 1)
	shared.Do(t, "RENAME", r.keys.results, r.keys.results+"-away")
	shared.Do(t, "SET", r.keys.results, "x")
	ids := []job.ID{j.ID}
	for _, call := range []func(func(error)){func(f func(error)) { r.Fetch(ids, f) }, func(f func(error)) { r.Forget(ids, f) }} {
		if err := await(t, call); err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
			t.Errorf("it has left the results: %v", err)
		}
	}
	if got := load(t, r).Jobs[j.ID]; string(got.Result) != string(j.Result) {
		t.Errorf("the job is loaded as %+v", got)
	}
	shared.Do(t, "RENAME", r.keys.results+"-away", r.keys.results)
	mustCall(t, func(f func(error)) { r.Forget(ids, f) })
	if n, err := r.client.Exists(t.Context(), r.keys.job(j.ID), r.keys.ended, r.keys.results).Result(); err != nil || n != 0 {
		t.Errorf("%d keys of it are left, %v", n, err)
	}
}

// TestEnqueueWithoutSet: if the key of the live jobs has another type, new jobs are not written,
// and the schedule that made them does not advance.
func TestEnqueueWithoutSet(t *testing.T) {
	t.Parallel()
	r := open(t, shared)
	acquire(t, r)
	shared.Do(t, "SET", r.keys.live, "x")
	enqueuedJob, dueJob := newJob(1), newJob(2)
	if e := await(t, enqueueing(r, nil, enqueuedJob)); e.err == nil || !strings.Contains(e.err.Error(), "WRONGTYPE") {
		t.Errorf("it is enqueued: %v", e.err)
	}
	put := func(f func(error)) { r.PutSchedule("s", []byte(`{}`), []*job.Job{dueJob}, f) }
	if err := await(t, put); err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
		t.Errorf("the schedule is stored: %v", err)
	}
	if n, err := r.client.Exists(t.Context(), r.keys.job(enqueuedJob.ID), r.keys.job(dueJob.ID)).Result(); err != nil || n != 0 {
		t.Errorf("%d jobs are written, %v", n, err)
	}
	shared.Do(t, "DEL", r.keys.live)
	mustCall(t, put)
	if got := load(t, r).Jobs[dueJob.ID]; got.Seq != dueJob.Seq {
		t.Errorf("the schedule's job is loaded as %+v", got)
	}
}

// TestEnqueueWithoutKeySet: a job with an idempotency key that cannot be added to the set of
// these keys is not written.
func TestEnqueueWithoutKeySet(t *testing.T) {
	t.Parallel()
	r := open(t, shared)
	acquire(t, r)
	shared.Do(t, "SET", r.keys.idems, "x")
	j, key := newJob(1), &Key{Name: "k", TTL: time.Hour}
	if e := await(t, enqueueing(r, key, j)); e.err == nil || !strings.Contains(e.err.Error(), "WRONGTYPE") {
		t.Errorf("it is enqueued: %v", e.err)
	}
	checkJobs(t, r)
	if e := await(t, enqueueing(r, key, j)); e.err != nil || e.replayed {
		t.Errorf("with the set: %+v", e)
	}
	checkJobs(t, r, j)
}

// TestForeignJobs: if a job's key has another type, scripts still do their work on other jobs, and
// a script begins only steps that it can complete.
func TestForeignJobs(t *testing.T) {
	t.Parallel()
	r := open(t, shared)
	acquire(t, r)
	make := func(seq uint64) (jobs []*job.Job) {
		for n := range uint64(3) {
			jobs = append(jobs, newJob(seq+n))
		}
		return jobs
	}
	makeForeign := func(j *job.Job) {
		shared.Do(t, "DEL", r.keys.job(j.ID))
		shared.Do(t, "SET", r.keys.job(j.ID), "x")
	}
	jobs := make(1)
	add(t, r, jobs...)
	for i, j := range jobs {
		jobs[i] = moveTo(t, r, j, started(j), 0, 0)
		jobs[i] = moveTo(t, r, jobs[i], ended(jobs[i], job.Done), 70, 40)
	}
	makeForeign(jobs[1])
	mustCall(t, func(f func(error)) { r.Fetch([]job.ID{jobs[0].ID, jobs[1].ID, jobs[2].ID}, f) })
	got := load(t, r)
	if got.Jobs[jobs[0].ID].Result != nil || got.Jobs[jobs[2].ID].Result != nil || got.Drop[jobs[2].ID] != 0 {
		t.Errorf("results are left: %+v", got.Jobs)
	}
	if n, err := r.client.ZCard(t.Context(), r.keys.results).Result(); err != nil || n != 0 {
		t.Errorf("%d results are listed, %v", n, err)
	}

	jobs = make(4)
	ops := queuedBy(r, func(s Store) { s.Enqueue(jobs, nil, func([]job.ID, bool, error) {}) })
	add(t, r, jobs...)
	makeForeign(jobs[1])
	undoErr := await(t, func(f func(error)) {
		undoOp := *ops[0].undo
		undoOp.done = ignoreAnswer(f)
		r.add(&undoOp)
	})
	if got = load(t, r); undoErr != nil || len(got.Live) != 0 {
		t.Errorf("after an undo: %v, %v", undoErr, got.Live)
	}

	jobs = make(7)
	makeForeign(jobs[1])
	if e := await(t, enqueueing(r, nil, jobs...)); e.err == nil || !strings.Contains(e.err.Error(), "WRONGTYPE") {
		t.Errorf("enqueueing: %v", e.err)
	}
	if got = load(t, r); len(got.Live) != 0 {
		t.Errorf("after an enqueueing that failed: %v", got.Live)
	}
	if n, err := r.client.Exists(t.Context(), r.keys.job(jobs[0].ID)).Result(); err != nil || n != 0 {
		t.Errorf("a job of it is there, %v", err)
	}
}
