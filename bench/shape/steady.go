package shape

import (
	"context"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"gloom/bench/brokers"
	"gloom/bench/load"
	"gloom/bench/result"
)

// progressEvery is the interval of progress reports.
const progressEvery = 200 * time.Millisecond

// Steady measures a constant load: a window of jobs outstanding per submitter, or a fixed rate;
// with idle workers, many types, prefetch or churn, if the options say so.
func Steady(ctx context.Context, srv *brokers.Server, opt Options) (*result.Round, error) {
	return runSession(ctx, srv, &opt, "load", func(s *session) error {
		if err := s.connect(ctx); err != nil {
			return err
		}
		if opt.Jobs > 0 {
			return s.measureJobs(ctx)
		}
		return s.measureTime(ctx)
	})
}

// measureJobs measures a number of jobs, from the first submit to the last answer.
func (s *session) measureJobs(ctx context.Context) error {
	from, err := s.takeCheckpoint(true)
	if err != nil {
		return err
	}
	if from.At, err = s.generator.Submit(s.options.Jobs, s.options.Window); err != nil {
		return err
	}
	s.report("measure", -1, 0, nil)
	ctx, cancel := context.WithTimeout(ctx, s.options.StepTimeout)
	defer cancel()
	end, err := s.generator.WaitAnswered(ctx)
	if err != nil && ctx.Err() == nil {
		return err // at the deadline, finish counts the lost jobs
	}
	to, merr := s.takeCheckpoint(false)
	if merr != nil {
		return merr
	}
	if err == nil {
		to.At = end
	}
	return s.recordLatency(from, to, to.Latency)
}

// measureTime measures for a time, after a warm-up.
func (s *session) measureTime(ctx context.Context) error {
	if err := s.startLoad(); err != nil {
		return err
	}
	if err := s.runFor(ctx, "warm up", s.options.Warmup, nil); err != nil {
		return err
	}
	from, err := s.takeCheckpoint(true)
	if err != nil {
		return err
	}
	total := hdrhistogram.New(1, from.Latency.HighestTrackableValue(), 3)
	if err := s.runFor(ctx, "measure", s.options.Duration, total); err != nil {
		return err
	}
	to, err := s.takeCheckpoint(false)
	if err != nil {
		return err
	}
	total.Merge(to.Latency)
	return s.recordLatency(from, to, total)
}

// recordLatency records the figures between two checkpoints, and the latencies of that time.
func (s *session) recordLatency(from, to checkpoint, h *hdrhistogram.Histogram) error {
	err := s.recordFigures(from, to)
	if err == nil {
		s.round.Latency, err = result.NewLatency(h)
	}
	return err
}

// startLoad starts the load.
func (s *session) startLoad() error {
	if s.options.Churn != nil {
		if err := s.generator.Churn(*s.options.Churn); err != nil {
			return err
		}
	}
	if s.options.Rate == 0 {
		_, err := s.generator.Submit(load.Unlimited, s.options.Window)
		return err
	}
	if _, err := load.NewPacer(s.options.Arrivals, s.options.Rate, s.options.Seed); err != nil {
		return err
	}
	return s.generator.Pace(func(shard, shards int) load.Pacer {
		p, _ := load.NewPacer(s.options.Arrivals, s.options.Rate/float64(shards), s.options.Seed+uint64(shard))
		return p
	})
}

// runFor lets the load run for a time. If total is given, it records latencies, takes the samples
// that the options ask for, and adds to total all latencies except those since the last report.
func (s *session) runFor(ctx context.Context, phase string, d time.Duration, total *hdrhistogram.Histogram) error {
	start := time.Now()
	end := time.NewTimer(d)
	defer end.Stop()
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	last, err := s.generator.TakeSnapshot(total != nil)
	if err != nil {
		return err
	}
	since, latencies := last, hdrhistogram.New(1, last.Latency.HighestTrackableValue(), 3)
	add := func(h *hdrhistogram.Histogram) {
		if total != nil {
			total.Merge(h)
		}
	}
	add(last.Latency)
	// sample takes a sample of the time since the last sample, if at least minSpan has passed.
	sample := func(minSpan time.Duration) error {
		if total == nil || minSpan == 0 || time.Duration(last.At-since.At) < minSpan {
			return nil
		}
		err := s.addSample("", start, last.Totals.Answered-since.Totals.Answered, latencies)
		since = last
		latencies.Reset()
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-end.C:
			return sample(s.options.Interval / 2)
		case <-tick.C:
		}
		if s.options.Progress == nil && s.options.Interval == 0 {
			continue
		}
		now, err := s.generator.TakeSnapshot(total != nil)
		if err != nil {
			return err
		}
		add(now.Latency)
		latencies.Merge(now.Latency)
		rate := float64(now.Totals.Answered-last.Totals.Answered) / (float64(now.At-last.At) / 1e9)
		s.report(phase, min(1, time.Since(start).Seconds()/d.Seconds()), rate, now.Latency)
		last = now
		if err := sample(s.options.Interval); err != nil {
			return err
		}
	}
}
