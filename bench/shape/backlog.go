package shape

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gloom/bench/load"
	"gloom/bench/peers"
	"gloom/bench/result"
)

// Backlog fills the queue with Jobs jobs while no worker is connected, measures the server's
// memory, then connects the workers and drains the queue.
func Backlog(ctx context.Context, srv *peers.Server, opt Options) (*result.Round, error) {
	switch {
	case !srv.Protocol.Traits().Queues:
		return nil, wrap(srv, "backlog", ErrNoQueue)
	case opt.Jobs <= 0:
		return nil, fmt.Errorf("jobs %d: a backlog needs a number of jobs", opt.Jobs)
	case opt.Jobs > int64(opt.Submitters)*load.MaxOutstanding:
		return nil, fmt.Errorf("jobs %d: %d submitters can have at most %d outstanding", opt.Jobs, opt.Submitters,
			int64(opt.Submitters)*load.MaxOutstanding)
	}
	s, err := open(srv, &opt)
	if err != nil {
		return nil, wrap(srv, "backlog", err)
	}
	round, err := s.backlog(ctx)
	return round, wrap(srv, "backlog", errors.Join(err, s.close()))
}

func (s *session) backlog(ctx context.Context) (*result.Round, error) {
	limit, cancel := context.WithTimeout(ctx, s.opt.StepTimeout)
	defer cancel()
	if err := s.gen.ConnectSubmitters(limit); err != nil {
		return nil, err
	}
	if err := s.fill(limit); err != nil {
		return nil, err
	}
	if err := s.drain(limit, ctx); err != nil {
		return nil, err
	}
	return s.finish(ctx)
}

func (s *session) fill(ctx context.Context) error {
	b := &result.Backlog{}
	s.round.Backlog = b
	empty, err := s.usage()
	if err != nil {
		return err
	}
	before, err := s.meter()
	if err != nil {
		return err
	}
	s.report("fill", -1, 0, nil)
	start, err := s.gen.Submit(s.opt.Jobs, load.MaxOutstanding)
	if err != nil {
		return err
	}
	end, err := s.gen.WaitAcked(ctx)
	if err != nil {
		return err
	}
	after, err := s.meter()
	if err != nil {
		return err
	}
	b.FillSeconds = float64(end-start) / 1e9
	b.FillCPU = int64(after.server - before.server)
	full, err := s.usage()
	if err != nil {
		return err
	}
	if empty != nil && full != nil {
		b.RSSEmpty, b.RSSFull = empty.RSS, full.RSS
	}
	return nil
}

// drain connects the workers; the first ones get jobs while the last ones join.
func (s *session) drain(limit, ctx context.Context) error {
	a, err := s.meter()
	if err != nil {
		return err
	}
	from, err := s.gen.TakeSnapshot(true)
	if err != nil {
		return err
	}
	s.report("drain", -1, 0, nil)
	if err := s.gen.ConnectWorkers(limit, 0, s.opt.Workers); err != nil {
		return err
	}
	stop := s.watch(ctx)
	end, err := s.gen.WaitAnswered(limit)
	stop()
	if err != nil && limit.Err() == nil {
		return err // after the deadline, finish counts the lost jobs
	}
	to, terr := s.gen.TakeSnapshot(false)
	if terr != nil {
		return terr
	}
	b, merr := s.meter()
	if merr != nil {
		return merr
	}
	if err == nil {
		to.At = end
	}
	s.recordFigures(from, to, a, b)
	if s.round.Server, err = s.usage(); err != nil {
		return err
	}
	if s.round.Server != nil {
		s.round.Backlog.RSSDrained = s.round.Server.RSS
	}
	return nil
}

// watch reports the progress of the drain until it is stopped.
func (s *session) watch(ctx context.Context) (stop func()) {
	if s.opt.Progress == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	start := time.Now()
	go func() {
		defer close(done)
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(progressEvery):
			}
			left := float64(s.gen.Outstanding())
			drained := float64(s.opt.Jobs) - left
			s.report("drain", drained/float64(s.opt.Jobs), drained/time.Since(start).Seconds(), nil)
		}
	}()
	return func() { cancel(); <-done }
}
