package shape

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"gloom/bench/brokers"
	"gloom/bench/load"
	"gloom/bench/proc"
	"gloom/bench/result"
)

// spareFiles is the number of files that a process opens besides the peers' sockets.
const spareFiles = 256

// session is a server with a generator's peers connected to it.
type session struct {
	options   *Options
	server    *brokers.Server
	generator *load.Generator
	round     result.Round
}

// runSession opens a session, puts the server under a load, waits for the outstanding jobs and
// closes the session. name is the name of the load in errors.
func runSession(ctx context.Context, srv *brokers.Server, opt *Options, name string, fn func(s *session) error) (round *result.Round, err error) {
	s, err := openSession(srv, opt)
	if err == nil {
		if err = fn(s); err == nil {
			round, err = s.finish(ctx)
		}
		err = errors.Join(err, s.close())
	}
	return round, wrapError(srv, name, err)
}

// openSession makes a session without connections.
func openSession(srv *brokers.Server, opt *Options) (*session, error) {
	if err := opt.Validate(); err != nil {
		return nil, err
	}
	if opt.Prefetch > 0 && !srv.Protocol.Prefetch {
		return nil, ErrNoPrefetch
	}
	if err := proc.RaiseFileLimit(FilesNeeded(opt)); err != nil {
		return nil, err
	}
	gen, err := load.New(opt.config(srv))
	if err != nil {
		return nil, err
	}
	s := &session{options: opt, server: srv, generator: gen}
	if opt.OneCPU {
		if err := s.pin(proc.Pin); err != nil {
			return nil, errors.Join(err, s.close())
		}
	}
	return s, nil
}

// FilesNeeded returns how many open files the generator or the server needs for a round. The limit
// must be raised before a server is started, because the server inherits it.
func FilesNeeded(opt *Options) uint64 {
	return uint64(2*opt.Submitters + opt.Workers + opt.IdleWorkers + spareFiles)
}

// These are the reasons why a server cannot be measured with a shape.
const (
	ErrNoQueue    = brokers.Unsupported("it has no queue: a job is dropped if no worker waits for it")
	ErrNoPrefetch = brokers.Unsupported("it gives a worker connection one job at a time")
)

func (s *session) pin(bind func(pid int) error) error {
	if s.server.PID == 0 {
		return errors.New("one processor for all: the server's process is unknown")
	}
	return errors.Join(bind(os.Getpid()), bind(s.server.PID))
}

func (s *session) close() error {
	err := s.generator.Close()
	if s.options.OneCPU {
		err = errors.Join(err, s.pin(proc.Unpin))
	}
	return err
}

// connect connects busy workers, then idle workers, then submitters.
func (s *session) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.options.StepTimeout)
	defer cancel()
	s.report("connect", -1, 0, nil)
	if err := s.generator.ConnectWorkers(ctx, 0, s.options.Workers); err != nil {
		return err
	}
	if s.options.IdleWorkers > 0 {
		if err := s.connectIdle(ctx); err != nil {
			return err
		}
	}
	return s.generator.ConnectSubmitters(ctx)
}

func (s *session) connectIdle(ctx context.Context) error {
	before, err := s.usage()
	if err != nil {
		return err
	}
	start := time.Now()
	if err := s.generator.ConnectWorkers(ctx, s.options.Workers, s.options.Workers+s.options.IdleWorkers); err != nil {
		return err
	}
	seconds := time.Since(start).Seconds()
	after, err := s.usage()
	s.round.Idle = &result.Idle{Workers: s.options.IdleWorkers, Seconds: seconds, RSSBefore: before.RSS, RSSAfter: after.RSS}
	return err
}

// usage returns the resources that the server uses, or zero if its process is not known.
func (s *session) usage() (proc.Usage, error) {
	if s.server.PID == 0 {
		return proc.Usage{}, nil
	}
	return proc.UsageOf(s.server.PID)
}

// checkpoint holds the generator's counts and the processor time of all processes, up to one
// moment.
type checkpoint struct {
	load.Snapshot
	server, generator, machine time.Duration
}

// takeCheckpoint returns the figures up to now. record says whether to record latencies from now on.
func (s *session) takeCheckpoint(record bool) (c checkpoint, err error) {
	c.machine = proc.MachineCPU()
	c.generator = proc.OwnCPU()
	if s.server.PID != 0 {
		if c.server, err = s.server.CPU(); err != nil {
			return c, err
		}
	}
	c.Snapshot, err = s.generator.TakeSnapshot(record)
	return c, err
}

// recordFigures records the figures of the time between two checkpoints, and what the server uses now.
func (s *session) recordFigures(from, to checkpoint) error {
	r := &s.round
	r.Seconds = float64(to.At-from.At) / 1e9
	r.Jobs = to.Totals.Answered - from.Totals.Answered
	r.BytesIn = to.Totals.BytesIn - from.Totals.BytesIn
	r.BytesOut = to.Totals.BytesOut - from.Totals.BytesOut
	r.ServerCPU = int64(to.server - from.server)
	r.GeneratorCPU = int64(to.generator - from.generator)
	otherCPU := (to.machine - from.machine) - (to.server - from.server) - (to.generator - from.generator)
	r.OthersCPU = max(0, otherCPU.Seconds()/r.Seconds)
	u, err := s.usage()
	if s.server.PID != 0 {
		r.Server = &u
	}
	return err
}

// addSample adds a sample that ends now, of a number of jobs and their latencies.
func (s *session) addSample(name string, start time.Time, jobs int64, h *hdrhistogram.Histogram) error {
	at := time.Since(start).Seconds()
	u, err := s.usage()
	s.round.Samples = append(s.round.Samples, result.Sample{
		Name: name, At: at, Jobs: jobs, P50: h.ValueAtQuantile(50), P99: h.ValueAtQuantile(99), Max: h.Max(), RSS: u.RSS, Descriptors: u.Descriptors,
	})
	return err
}

// finish waits for the outstanding jobs. Then it records failures, lost connections and faults.
func (s *session) finish(ctx context.Context) (*result.Round, error) {
	s.report("settle", -1, 0, nil)
	if err := s.generator.Settle(ctx, s.options.Grace); err != nil {
		return nil, err
	}
	last, err := s.generator.TakeSnapshot(false)
	if err != nil {
		return nil, err
	}
	r, c := &s.round, last.Totals
	r.Failed, r.Forgotten, r.Deferred = c.Failed, c.Forgotten, c.Deferred
	r.WorkerHangups, r.SubmitterHangups = c.WorkerHangups, c.SubmitterHangups
	r.Redelivered = max(0, c.HandedOut-c.Submitted)
	faults := s.generator.Faults()
	if faults.Total() > 0 {
		r.Faults, r.FaultSamples = faults.ByName(), faults.Samples
	}
	return r, nil
}

// report reports the state of a phase; latencies may be nil.
func (s *session) report(phase string, done, rate float64, latencies *hdrhistogram.Histogram) {
	if s.options.Progress == nil {
		return
	}
	p := Progress{Phase: phase, Done: done, Rate: rate}
	if latencies != nil {
		p.P50, p.P99 = time.Duration(latencies.ValueAtQuantile(50)), time.Duration(latencies.ValueAtQuantile(99))
	}
	s.options.Progress(p)
}

func wrapError(srv *brokers.Server, phase string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s on %s: %w", phase, srv.Title, err)
}
