package store

import (
	"errors"
	"testing"
	"time"

	"gloom/bench/throwaway/redistest"
	"gloom/cmd/jq-master/job"
)

// TestFull: at maxmemory no job is accepted, but everything else continues: the store is not away,
// jobs run and end, ended jobs are forgotten, and the lease can be renewed and taken.
func TestFull(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	r := open(t, server)
	r.Watch(func(away error) { t.Errorf("the store is away: %v", away) })
	acquire(t, r)
	j, waiting := newJob(1), newJob(2)
	add(t, r, j, waiting)
	server.Do(t, "CONFIG", "SET", "maxmemory", "1")
	for _, key := range []*Key{nil, {Name: "k", TTL: time.Hour}} {
		if e := await(t, enqueueing(r, key, newJob(3))); !errors.Is(e.err, ErrFull) {
			t.Fatalf("enqueueing: %v", e.err)
		}
	}
	c := &job.Constraint{ID: "c", Match: []byte{0x80}}
	if err := await(t, func(f func(error)) { r.PutConstraint(c, f) }); !errors.Is(err, ErrFull) {
		t.Fatalf("a constraint: %v", err)
	}
	mustCall(t, func(f func(error)) { r.DropConstraint(c.ID, f) })
	w := &job.Worker{ID: job.NewID(), Name: "w"}
	mustCall(t, func(f func(error)) { r.PutWorker(w, f) })
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
	mustCall(t, func(f func(error)) { next.DropWorker(w.ID, f) })
	checkJobs(t, next, waiting)
	server.Do(t, "CONFIG", "SET", "maxmemory", "0")
	add(t, next, newJob(4))
}

// TestTooLongForRedis: what Redis does not take because of its proto-max-bulk-len fails, and does not
// keep anything else from being stored.
func TestTooLongForRedis(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	r := open(t, server)
	acquire(t, r)
	j, other := newJob(1), newJob(2)
	add(t, r, j, other)
	server.Do(t, "CONFIG", "SET", "proto-max-bulk-len", "1mb")
	j = moveTo(t, r, j, started(j), 0, 0)
	long := ended(j, job.Done)
	long.Result = make([]byte, 2<<20)
	if err := await(t, func(f func(error)) { r.Move(j, long, 1, 0, f) }); err == nil || errors.Is(err, ErrAway) {
		t.Fatalf("a result of 2 MiB: %v", err)
	}
	moveTo(t, r, other, started(other), 0, 0)
}
