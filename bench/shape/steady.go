package shape

import (
	"context"
	"errors"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"gloom/bench/load"
	"gloom/bench/peers"
	"gloom/bench/result"
)

// progressEvery is the interval of progress reports.
const progressEvery = 200 * time.Millisecond

// Steady measures a constant load: a window of jobs outstanding per submitter, or a fixed rate;
// with idle workers, many types, prefetch or churn, if the options say so.
func Steady(ctx context.Context, srv *peers.Server, opt Options) (*result.Round, error) {
	s, err := open(srv, &opt)
	if err != nil {
		return nil, wrap(srv, "load", err)
	}
	round, err := s.steady(ctx)
	return round, wrap(srv, "load", errors.Join(err, s.close()))
}

func (s *session) steady(ctx context.Context) (*result.Round, error) {
	if err := s.connect(ctx); err != nil {
		return nil, err
	}
	var err error
	if s.opt.Jobs > 0 {
		err = s.measureJobs(ctx)
	} else {
		err = s.measureTime(ctx)
	}
	if err != nil {
		return nil, err
	}
	return s.finish(ctx)
}

// measureJobs measures a number of jobs, from the first submit to the last answer.
func (s *session) measureJobs(ctx context.Context) error {
	a, err := s.meter()
	if err != nil {
		return err
	}
	from, err := s.gen.TakeSnapshot(true)
	if err != nil {
		return err
	}
	start, err := s.gen.Submit(s.opt.Jobs, s.opt.Window)
	if err != nil {
		return err
	}
	s.report("measure", -1, 0, nil)
	ctx, cancel := context.WithTimeout(ctx, s.opt.StepTimeout)
	defer cancel()
	end, err := s.gen.WaitAnswered(ctx)
	if err != nil && ctx.Err() == nil {
		return err // at the deadline, finish counts the lost jobs
	}
	b, merr := s.meter()
	if merr != nil {
		return merr
	}
	to, terr := s.gen.TakeSnapshot(false)
	if terr != nil {
		return terr
	}
	from.At = start
	if err == nil {
		to.At = end
	}
	s.recordFigures(from, to, a, b)
	s.round.Server, err = s.usage()
	if err != nil {
		return err
	}
	s.round.Latency, err = result.NewLatency(to.Latency)
	return err
}

// measureTime measures for a time, after a warm-up.
func (s *session) measureTime(ctx context.Context) error {
	if err := s.startLoad(); err != nil {
		return err
	}
	if err := s.runFor(ctx, "warm up", s.opt.Warmup, nil); err != nil {
		return err
	}
	a, err := s.meter()
	if err != nil {
		return err
	}
	from, err := s.gen.TakeSnapshot(true)
	if err != nil {
		return err
	}
	total := hdrhistogram.New(1, from.Latency.HighestTrackableValue(), 3)
	if err := s.runFor(ctx, "measure", s.opt.Duration, total); err != nil {
		return err
	}
	to, err := s.gen.TakeSnapshot(false)
	if err != nil {
		return err
	}
	b, err := s.meter()
	if err != nil {
		return err
	}
	total.Merge(to.Latency)
	s.recordFigures(from, to, a, b)
	if s.round.Server, err = s.usage(); err != nil {
		return err
	}
	s.round.Latency, err = result.NewLatency(total)
	return err
}

// startLoad starts the load.
func (s *session) startLoad() error {
	if s.opt.Churn != nil {
		if err := s.gen.Churn(*s.opt.Churn); err != nil {
			return err
		}
	}
	if s.opt.Rate == 0 {
		_, err := s.gen.Submit(load.Unlimited, s.opt.Window)
		return err
	}
	if _, err := load.NewPacer(s.opt.Arrivals, s.opt.Rate, s.opt.Seed); err != nil {
		return err
	}
	return s.gen.Pace(func(lane, lanes int) load.Pacer {
		p, _ := load.NewPacer(s.opt.Arrivals, s.opt.Rate/float64(lanes), s.opt.Seed+uint64(lane))
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
	last, err := s.addLatencies(total != nil, total)
	if err != nil {
		return err
	}
	smp := sampler{s: s, since: last, hist: hdrhistogram.New(1, last.Latency.HighestTrackableValue(), 3)}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-end.C:
			return smp.sample(start, true)
		case <-tick.C:
		}
		if s.opt.Progress == nil && s.opt.Interval == 0 {
			continue
		}
		now, err := s.addLatencies(total != nil, total)
		if err != nil {
			return err
		}
		rate := float64(now.Count.Answered-last.Count.Answered) / (float64(now.At-last.At) / 1e9)
		s.report(phase, min(1, time.Since(start).Seconds()/d.Seconds()), rate, quantiles(now.Latency))
		last = now
		if total != nil && s.opt.Interval > 0 {
			smp.hist.Merge(now.Latency)
			smp.now = now
			if err := smp.sample(start, false); err != nil {
				return err
			}
		}
	}
}

// addLatencies takes a snapshot and adds its latencies to total.
func (s *session) addLatencies(record bool, total *hdrhistogram.Histogram) (load.Snapshot, error) {
	snap, err := s.gen.TakeSnapshot(record)
	if err == nil && total != nil {
		total.Merge(snap.Latency)
	}
	return snap, err
}

func quantiles(h *hdrhistogram.Histogram) *result.Latency {
	if h.TotalCount() == 0 {
		return nil
	}
	return &result.Latency{P50: h.ValueAtQuantile(50), P99: h.ValueAtQuantile(99)}
}

// sampler takes the samples of a long round.
type sampler struct {
	s     *session
	since load.Snapshot
	now   load.Snapshot
	hist  *hdrhistogram.Histogram
}

func (p *sampler) sample(start time.Time, last bool) error {
	interval := p.s.opt.Interval
	if interval == 0 || p.now.At == 0 || !last && time.Duration(p.now.At-p.since.At) < interval {
		return nil
	}
	if last && time.Duration(p.now.At-p.since.At) < interval/2 {
		return nil
	}
	sample := result.Sample{At: time.Since(start).Seconds(), Jobs: p.now.Count.Answered - p.since.Count.Answered,
		P50: p.hist.ValueAtQuantile(50), P99: p.hist.ValueAtQuantile(99), Max: p.hist.Max()}
	u, err := p.s.usage()
	if err != nil {
		return err
	}
	if u != nil {
		sample.RSS, sample.Descriptors = u.RSS, u.Descriptors
	}
	p.s.round.Samples = append(p.s.round.Samples, sample)
	p.since = p.now
	p.hist.Reset()
	return nil
}
