package load

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"gloom/bench/poll"
)

// connectBatch limits how many peers connect at a time. It is below every server's listen backlog.
const connectBatch = 128

// Unlimited is a budget that does not run out.
const Unlimited = int64(1) << 62

// Generator runs the peers of one run. Its methods must be called from one goroutine,
// except Outstanding and Faults.
type Generator struct {
	cfg       Config
	startedAt time.Time
	shards    []*shard
	loopErrs  chan error
	total     *hdrhistogram.Histogram
}

// New makes a generator with nothing connected. Close must be called.
func New(cfg Config) (*Generator, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	body, err := NewBody(cfg.BodySize)
	if err != nil {
		return nil, err
	}
	g := &Generator{cfg: cfg, startedAt: time.Now(), loopErrs: make(chan error, cfg.Loops), total: newHistogram()}
	for range cfg.Loops {
		loop, err := poll.New(g.startedAt)
		if err != nil {
			return nil, errors.Join(err, g.Close())
		}
		sh := &shard{cfg: &g.cfg, body: body, loop: loop, window: cfg.Window, latencies: newHistogram(), spareLatencies: newHistogram()}
		g.shards = append(g.shards, sh)
		go func() { g.loopErrs <- loop.Run(sh.step) }()
	}
	traits := cfg.Protocol.Traits
	for i := range cfg.Submitters {
		sh := g.shards[i%len(g.shards)]
		sh.submitters = append(sh.submitters, &Submitter{Index: cfg.FirstSubmitter + i, shard: sh, traits: traits, jobs: outstanding{submitter: uint32(cfg.FirstSubmitter + i)}})
	}
	for i := range cfg.Workers + cfg.IdleWorkers {
		sh := g.shards[i%len(g.shards)]
		w := &Worker{Index: i, shard: sh, Type: g.cfg.typeName(i % cfg.Types), Prefetch: cfg.Prefetch}
		if cfg.Versatile && cfg.Types > 1 {
			w.Type, w.ServesAll = g.cfg.baseName()+"-", true
		}
		if i >= cfg.Workers {
			w.Type, w.ServesAll, w.Prefetch = IdleType, false, 0
		}
		sh.workers = append(sh.workers, w)
	}
	return g, nil
}

// eachShard runs f on every shard's thread, one shard after the other.
func (g *Generator) eachShard(f func(sh *shard) error) error {
	for _, sh := range g.shards {
		var err error
		if !sh.loop.Do(func() { sh.now = sh.loop.Now(); err = f(sh) }) {
			return errors.Join(errors.New("an event loop of the generator has stopped"), <-g.loopErrs)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// await waits until cond holds on every shard. It returns the time at which the
// last shard saw it, in nanoseconds of the generator's clock.
func (g *Generator) await(ctx context.Context, name string, cond func(sh *shard) bool) (int64, error) {
	waiter := make(chan int64, len(g.shards))
	err := g.eachShard(func(sh *shard) error {
		sh.conditionMet, sh.waitCondition = waiter, func() bool { return cond(sh) }
		return nil
	})
	if err != nil {
		return 0, err
	}
	var last int64
	for range g.shards {
		select {
		case at := <-waiter:
			last = max(last, at)
		case <-ctx.Done():
			_ = g.eachShard(func(sh *shard) error { sh.waitCondition = nil; return nil })
			return 0, fmt.Errorf("waiting for %s: %w (faults so far: %s)", name, ctx.Err(), g.Faults())
		}
	}
	return last, nil
}

// ConnectWorkers connects the workers with numbers n, from <= n < to, and waits until the server
// counts all of them.
func (g *Generator) ConnectWorkers(ctx context.Context, from, to int) error {
	return connect(ctx, g, "workers", from, to, func(sh *shard) []*Worker { return sh.workers })
}

// ConnectSubmitters connects all submitters and waits until they may submit.
func (g *Generator) ConnectSubmitters(ctx context.Context) error {
	first := g.cfg.FirstSubmitter
	return connect(ctx, g, "submitters", first, first+g.cfg.Submitters, func(sh *shard) []*Submitter { return sh.submitters })
}

// connect connects the clients with numbers n, from <= n < to, a batch at a time, and waits for
// each batch.
func connect[C interface {
	dial() error
	state() (index int, ready bool)
}](ctx context.Context, g *Generator, name string, from, to int, connsOf func(*shard) []C) error {
	for ; from < to; from += connectBatch {
		end := min(from+connectBatch, to)
		err := g.eachShard(func(sh *shard) error {
			for _, c := range connsOf(sh) {
				if i, _ := c.state(); i >= from && i < end {
					if err := c.dial(); err != nil {
						return err
					}
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		_, err = g.await(ctx, fmt.Sprintf("%s %d to %d to be ready", name, from, end-1), func(sh *shard) bool {
			return !slices.ContainsFunc(connsOf(sh), func(c C) bool {
				i, ready := c.state()
				return i >= from && i < end && !ready
			})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Submit lets the submitters together submit that many jobs, with at most window
// outstanding each. It returns at once, with the time at which it began.
func (g *Generator) Submit(jobs int64, window int) (start int64, err error) {
	n := int64(g.cfg.Submitters)
	first := true
	err = g.eachShard(func(sh *shard) error {
		if first {
			start, first = sh.now, false
		}
		sh.window = window
		for _, s := range sh.submitters {
			s.budget = jobs / n
			if int64(s.Index-g.cfg.FirstSubmitter) < jobs%n {
				s.budget++
			}
			s.fillWindow()
		}
		return nil
	})
	return start, err
}

// Pace starts an open loop: pacer i serves shard i.
func (g *Generator) Pace(pacer func(shard, shards int) Pacer) error {
	i := -1
	return g.eachShard(func(sh *shard) error {
		i++
		sh.schedule = newSchedule(pacer(i, len(g.shards)), sh.now)
		return nil
	})
}

// Pause stops submitting; outstanding jobs continue.
func (g *Generator) Pause() error {
	return g.eachShard(func(sh *shard) error {
		sh.schedule = nil
		if sh.churn != nil {
			sh.churn.stop()
		}
		for _, s := range sh.submitters {
			s.budget = 0
		}
		return nil
	})
}

// WaitAcked waits until the budget is used up and every submit is acked.
func (g *Generator) WaitAcked(ctx context.Context) (at int64, err error) {
	return g.await(ctx, "acks", func(sh *shard) bool {
		for _, s := range sh.submitters {
			if s.budget > 0 || s.unackedJobs > 0 || (s.side != nil && s.side.Pending() > 0) {
				return false
			}
		}
		return true
	})
}

// WaitAnswered waits until the budget is used up and every job is answered, and
// acked on both sides.
func (g *Generator) WaitAnswered(ctx context.Context) (at int64, err error) {
	return g.await(ctx, "answers", (*shard).settled)
}

func (sh *shard) settled() bool {
	for _, s := range sh.submitters {
		if s.budget > 0 || s.jobs.count > 0 || s.unackedJobs > 0 {
			return false
		}
	}
	for _, w := range sh.workers {
		if w.unackedAnswers > 0 {
			return false
		}
	}
	return true
}

// Snapshot holds a generator's counts up to one moment.
type Snapshot struct {
	At     int64 // nanoseconds of the generator's clock
	Totals Totals
	// Latency holds the latencies since the last snapshot, in nanoseconds.
	Latency *hdrhistogram.Histogram
}

// TakeSnapshot reads the counters and takes the latencies recorded since the last call. record
// says whether to record from now on. The histogram is valid until the next TakeSnapshot.
func (g *Generator) TakeSnapshot(record bool) (Snapshot, error) {
	var snap Snapshot
	g.total.Reset()
	err := g.eachShard(func(sh *shard) error {
		sh.latencies, sh.spareLatencies = sh.spareLatencies, sh.latencies
		sh.latencies.Reset()
		sh.recording = record
		snap.At = sh.now
		snap.Totals.add(sh.totals)
		snap.Totals.BytesIn += sh.loop.BytesIn
		snap.Totals.BytesOut += sh.loop.BytesOut
		return nil
	})
	for _, sh := range g.shards {
		g.total.Merge(sh.spareLatencies)
	}
	snap.Latency = g.total
	return snap, err
}

// Outstanding returns the number of jobs submitted and not ended.
func (g *Generator) Outstanding() (n int) {
	_ = g.eachShard(func(sh *shard) error {
		for _, s := range sh.submitters {
			n += s.jobs.count
		}
		return nil
	})
	return n
}

// Settle waits up to grace for outstanding jobs, then counts the missing answers as lost and the
// missing acks as unacked.
func (g *Generator) Settle(ctx context.Context, grace time.Duration) error {
	if err := g.Pause(); err != nil {
		return err
	}
	wait, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	if _, err := g.await(wait, "answers", (*shard).settled); err == nil || ctx.Err() != nil {
		return ctx.Err()
	}
	return g.eachShard(func(sh *shard) error {
		for _, s := range sh.submitters {
			sh.countMissing(s)
		}
		for _, w := range sh.workers {
			if w.unackedAnswers > 0 {
				sh.faults.Counts[Unacked] += int64(w.unackedAnswers) - 1
				sh.faults.add(Unacked, "worker %d: %d answers", w.Index, w.unackedAnswers)
			}
		}
		return nil
	})
}

func (sh *shard) countMissing(s *Submitter) {
	if s.jobs.count > 0 {
		sh.faults.Counts[Lost] += int64(s.jobs.count) - 1
		sh.faults.add(Lost, "submitter %d: %d jobs", s.Index, s.jobs.count)
	}
	if s.unackedJobs > 0 {
		sh.faults.Counts[Unacked] += int64(s.unackedJobs) - 1
		sh.faults.add(Unacked, "submitter %d: %d submits", s.Index, s.unackedJobs)
	}
}

// Faults returns the faults so far.
func (g *Generator) Faults() *Faults {
	var f Faults
	_ = g.eachShard(func(sh *shard) error { f.Merge(&sh.faults); return nil })
	return &f
}

// Close ends all connections and loops.
func (g *Generator) Close() error {
	var errs []error
	for _, sh := range g.shards {
		sh.loop.Stop()
		errs = append(errs, <-g.loopErrs)
	}
	g.shards = nil
	return errors.Join(errs...)
}
