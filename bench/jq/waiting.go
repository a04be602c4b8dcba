package jq

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"gloom/bench/door"
	"gloom/bench/proc"
)

// handedOutJobs is the number of waiting jobs that a round hands out.
const handedOutJobs = 100_000

// memoryPause is the pause before the memory is measured. In this pause even a master with a
// million jobs can return the memory that it no longer needs.
const memoryPause = 11 * time.Second

// measureWaiting fills a queue and measures the memory of a job in it. Then it hands jobs out
// without and with constraints, and changes a constraint that matches all jobs into one
// that matches every other job. With Redis, it kills the master and measures how long
// the next one takes to start.
func (s *servers) measureWaiting(ctx context.Context, system string, o Options) ([]Round, error) {
	before, err := proc.UsageOf(s.master.PID())
	if err != nil {
		return nil, err
	}
	start := time.Now()
	if err := s.measureBatches(ctx, o.Jobs, o); err != nil {
		return nil, err
	}
	if err := s.setConstraint(0, 0, "ge"); err != nil { // the reply waits until the broker has all jobs
		return nil, err
	}
	fillSeconds := time.Since(start).Seconds()
	if _, err := door.NewClient(s.master.Addr, 0).Do(constraintHead("DELETE", 0), nil, http.StatusNoContent); err != nil {
		return nil, err
	}
	time.Sleep(min(memoryPause, time.Duration(o.Jobs)*memoryPause/1_000_000))
	after, err := proc.UsageOf(s.master.PID())
	if err != nil {
		return nil, err
	}
	var rounds []Round
	for _, constraints := range []int{0, o.Constraints} {
		var puts errgroup.Group
		for i := range constraints { // concurrently, so that the master matches the waiting jobs only once
			puts.Go(func() error { return s.setConstraint(i, 0, "ge") })
		}
		if err := puts.Wait(); err != nil {
			return rounds, err
		}
		r := Round{System: system, Jobs: min(handedOutJobs, o.Jobs/4), Constraints: constraints,
			BytesPerJob: float64(after.RSS-before.RSS) / float64(o.Jobs), FillSeconds: fillSeconds}
		if err := s.measure(&r, func() error { return s.handOut(ctx, o, &r) }); err != nil {
			return rounds, err
		}
		rounds = append(rounds, r)
	}
	last := &rounds[len(rounds)-1]
	if last.StallBeforeMillis, err = s.slowestRequest(func() error { time.Sleep(2 * time.Second); return nil }); err != nil {
		return rounds, err
	}
	last.StallMillis, err = s.slowestRequest(func() error {
		start := time.Now()
		err := s.setConstraint(0, batchSize/2, "lt")
		last.ChangeMillis = float64(time.Since(start).Microseconds()) / 1000
		return err
	})
	if err != nil || s.redis == nil {
		return rounds, err
	}
	s.master.Kill()
	start = time.Now()
	err = s.master.Launch()
	last.RecoverySeconds = time.Since(start).Seconds()
	return rounds, err
}

// setConstraint sets a constraint for jobs by their number in the batch. It holds no job back.
func (s *servers) setConstraint(i, number int, op string) error {
	text := fmt.Sprintf(`{"match":{"field":"/argument/n","op":"%s","value":%d},"rate":1000000,"burst":1000000}`, op, number)
	_, err := door.NewClient(s.master.Addr, 0).Do(constraintHead("PUT", i), []byte(text), http.StatusCreated, http.StatusOK)
	return err
}

func constraintHead(method string, i int) door.Head {
	return door.Head{Method: method, Path: fmt.Sprintf("/v1/constraints/bench-%d", i), Header: jsonType}
}

// handOut has workers run r.Jobs of the waiting jobs, and then dismisses the workers.
func (s *servers) handOut(ctx context.Context, o Options, r *Round) error {
	b := newLedger(ctx, r.Jobs)
	defer b.fail(nil)
	b.skipJobChecks = true
	start := time.Now()
	w, err := startWorkers(s.master.Addr, o, b)
	if err != nil {
		return err
	}
	s.workers = append(s.workers, w) // kept, because a pushed job may still be on its way to these workers
	if err := b.wait(); err != nil {
		return err
	}
	r.Seconds = time.Since(start).Seconds()
	return w.unregister()
}

// slowestRequest returns the duration, in milliseconds, of the slowest of the requests that are made every
// millisecond while do runs.
func (s *servers) slowestRequest(fn func() error) (float64, error) {
	client, head := door.NewClient(s.master.Addr, 0), door.Head{Method: "POST", Path: "/job", Header: msgpack}
	text := jobBody(Options{})
	binary.BigEndian.PutUint32(text[len(text)-4:], 1)
	var stop atomic.Bool
	longest, done := time.Duration(0), make(chan error, 1)
	go func() {
		for next := time.Now(); !stop.Load(); next = next.Add(time.Millisecond) {
			time.Sleep(time.Until(next))
			if _, err := client.Do(head, text, http.StatusCreated); err != nil {
				done <- err
				return
			}
			// It is measured from when the request should have left.
			if longest = max(longest, time.Since(next)); time.Since(next) > time.Millisecond {
				next = time.Now()
			}
		}
		done <- nil
	}()
	err := fn()
	stop.Store(true)
	if e := <-done; err == nil {
		err = e
	}
	return float64(longest.Microseconds()) / 1000, err
}
