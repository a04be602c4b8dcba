package shape

import (
	"context"
	"fmt"
	"time"

	"gloom/bench/brokers"
	"gloom/bench/load"
	"gloom/bench/result"
)

// Backlog fills the queue with Jobs jobs while no worker is connected, measures the server's
// memory, then connects the workers and drains the queue.
func Backlog(ctx context.Context, srv *brokers.Server, opt Options) (*result.Round, error) {
	switch {
	case !srv.Protocol.Queues:
		return nil, wrapError(srv, "backlog", ErrNoQueue)
	case opt.Jobs <= 0:
		return nil, fmt.Errorf("jobs %d: a backlog needs a number of jobs", opt.Jobs)
	case opt.Jobs > int64(opt.Submitters)*load.MaxOutstanding:
		return nil, fmt.Errorf("jobs %d: %d submitters can have at most %d outstanding", opt.Jobs, opt.Submitters,
			int64(opt.Submitters)*load.MaxOutstanding)
	}
	return runSession(ctx, srv, &opt, "backlog", func(s *session) error {
		limit, cancel := context.WithTimeout(ctx, opt.StepTimeout)
		defer cancel()
		if err := s.generator.ConnectSubmitters(limit); err != nil {
			return err
		}
		if err := s.fill(limit); err != nil {
			return err
		}
		return s.drain(ctx, limit)
	})
}

func (s *session) fill(ctx context.Context) error {
	b := &result.Backlog{}
	s.round.Backlog = b
	empty, err := s.usage()
	if err != nil {
		return err
	}
	before, err := s.takeCheckpoint(false)
	if err != nil {
		return err
	}
	s.report("fill", -1, 0, nil)
	start, err := s.generator.Submit(s.options.Jobs, load.MaxOutstanding)
	if err != nil {
		return err
	}
	end, err := s.generator.WaitAcked(ctx)
	if err != nil {
		return err
	}
	after, err := s.takeCheckpoint(false)
	if err != nil {
		return err
	}
	b.FillSeconds = float64(end-start) / 1e9
	b.FillCPU = int64(after.server - before.server)
	full, err := s.usage()
	b.RSSEmpty, b.RSSFull = empty.RSS, full.RSS
	return err
}

// drain connects the workers and waits until the jobs are answered, or until drainCtx ends. The
// first workers get jobs while the last ones join.
func (s *session) drain(ctx, drainCtx context.Context) error {
	from, err := s.takeCheckpoint(true)
	if err != nil {
		return err
	}
	s.report("drain", -1, 0, nil)
	if err := s.generator.ConnectWorkers(drainCtx, 0, s.options.Workers); err != nil {
		return err
	}
	stop := s.reportDrain(ctx)
	end, err := s.generator.WaitAnswered(drainCtx)
	stop()
	if err != nil && drainCtx.Err() == nil {
		return err // after the deadline, finish counts the lost jobs
	}
	to, merr := s.takeCheckpoint(false)
	if merr != nil {
		return merr
	}
	if err == nil {
		to.At = end
	}
	if err = s.recordFigures(from, to); err == nil && s.round.Server != nil {
		s.round.Backlog.RSSDrained = s.round.Server.RSS
	}
	return err
}

// reportDrain reports the progress of the drain until it is stopped.
func (s *session) reportDrain(ctx context.Context) (stop func()) {
	if s.options.Progress == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	start := time.Now()
	go func() {
		defer close(done)
		for sleep(ctx, progressEvery) == nil {
			jobsLeft := float64(s.generator.Outstanding())
			drainedJobs := float64(s.options.Jobs) - jobsLeft
			s.report("drain", drainedJobs/float64(s.options.Jobs), drainedJobs/time.Since(start).Seconds(), nil)
		}
	}()
	return func() { cancel(); <-done }
}
