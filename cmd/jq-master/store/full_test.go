package store

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"gloom/bench/throwaway/redistest"
	"gloom/cmd/jq-master/job"
)

// TestFullRedisKeepsRunning: at maxmemory no job is accepted, but everything else continues: the
// store is not away, jobs run and end, ended jobs are forgotten, and the lease can be renewed and
// taken.
func TestFullRedisKeepsRunning(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	r := open(t, server)
	r.Watch(func(awayErr error) { t.Errorf("the store is away: %v", awayErr) })
	acquire(t, r)
	j, waiting := newJob(1), newJob(2)
	add(t, r, j, waiting)
	server.Do(t, "CONFIG", "SET", "maxmemory", "1")
	for _, key := range []*Key{nil, {Name: "k", TTL: time.Hour}} {
		if e := await(t, enqueueing(r, key, newJob(3))); !errors.Is(e.err, ErrFull) {
			t.Fatalf("enqueueing: %v", e.err)
		}
	}
	if e := await(t, enqueueing(r, &Key{Name: "k", TTL: time.Hour})); e.err != nil || e.replayed {
		t.Fatalf("the look-up of a key: %v", e)
	}
	c := &job.Constraint{ID: "c", Match: []byte{0x80}}
	if err := await(t, func(f func(error)) { r.PutConstraint(c.ID, c, f) }); !errors.Is(err, ErrFull) {
		t.Fatalf("a constraint: %v", err)
	}
	mustCall(t, func(f func(error)) { r.PutConstraint(c.ID, nil, f) })
	w := &job.Worker{ID: job.NewID(), Name: "w"}
	mustCall(t, func(f func(error)) { r.PutWorker(w.ID, w, f) })
	j = moveTo(t, r, j, started(j), 0, 0)
	j = moveTo(t, r, j, ended(j, job.Retrying), 0, 0)
	j = moveTo(t, r, j, started(j), 0, 0)
	j = moveTo(t, r, j, ended(j, job.Done), 70, 40)
	checkJobs(t, r, j, waiting)
	if err := r.Resign(t.Context()); err != nil {
		t.Fatal(err)
	}
	next := reopen(t, server.URL(), r.opt.Namespace)
	acquire(t, next)
	mustCall(t, func(f func(error)) { next.Fetch([]job.ID{j.ID}, f) })
	mustCall(t, func(f func(error)) { next.Forget([]job.ID{j.ID}, f) })
	mustCall(t, func(f func(error)) { next.PutWorker(w.ID, nil, f) })
	checkJobs(t, next, waiting)
	server.Do(t, "CONFIG", "SET", "maxmemory", "0")
	add(t, next, newJob(4))
}

// TestTooLongForRedis: a value that Redis does not take because of its proto-max-bulk-len is
// refused. After the refusal Redis does not count as away, and all other values are stored, even
// those of the same round trip. Redis closes the connection while the value is on its way, so its
// answer may not arrive.
func TestTooLongForRedis(t *testing.T) {
	t.Parallel()
	for _, size := range []int{2 << 20, 32 << 20} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			t.Parallel()
			server := redistest.New(t)
			r := open(t, server)
			r.Watch(func(awayErr error) { t.Errorf("the store is away: %v", awayErr) })
			acquire(t, r)
			jobs := []*job.Job{newJob(1), newJob(2), newJob(3)}
			add(t, r, jobs...)
			for i, j := range jobs {
				jobs[i] = moveTo(t, r, j, started(j), 0, 0)
			}
			server.Do(t, "CONFIG", "SET", "proto-max-bulk-len", "1mb")
			long := newJob(4)
			long.Argument = make([]byte, size)
			errs := make(chan error, 5)
			r.mu.Lock() // so that all are in the same round
			queued := queuedBy(r, func(s Store) {
				for i, j := range jobs {
					j = ended(j, job.Done)
					if i == 1 {
						j.Result = make([]byte, size)
					}
					s.Move(jobs[i], j, 1, 0, func(err error) { errs <- checkTooLong(i == 1, err) })
				}
				s.Enqueue([]*job.Job{long}, nil, func(_ []job.ID, _ bool, err error) { errs <- checkTooLong(true, err) })
				s.Enqueue([]*job.Job{newJob(5)}, nil, func(_ []job.ID, _ bool, err error) { errs <- checkTooLong(false, err) })
			})
			r.queue = append(r.queue, queued...)
			r.mu.Unlock()
			r.wake <- struct{}{}
			for range cap(errs) {
				select {
				case err := <-errs:
					if err != nil {
						t.Error(err)
					}
				case <-time.After(waitLimit):
					t.Fatal("no answer")
				}
			}
			if got := load(t, r); got.Jobs[jobs[1].ID].State != job.Running || len(got.Live) != 2 || len(got.Ended) != 2 {
				t.Errorf("live %v, ended %v", got.Live, got.Ended)
			}
		})
	}
}

func checkTooLong(long bool, err error) error {
	switch {
	case !long:
		return err
	case !errors.Is(err, ErrTooLong):
		return fmt.Errorf("a value that is too long: %w", err)
	}
	return nil
}
