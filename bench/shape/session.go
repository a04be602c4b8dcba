package shape

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"gloom/bench/load"
	"gloom/bench/peers"
	"gloom/bench/proc"
	"gloom/bench/result"
)

// spareFiles is how many files a process opens besides the peers' sockets.
const spareFiles = 256

// session is a server with a generator's peers connected to it.
type session struct {
	opt   *Options
	srv   *peers.Server
	gen   *load.Generator
	round result.Round
}

// open makes a session without connections.
func open(srv *peers.Server, opt *Options) (*session, error) {
	if err := opt.Validate(); err != nil {
		return nil, err
	}
	if opt.Prefetch > 0 && !srv.Protocol.Traits().Prefetch {
		return nil, ErrNoPrefetch
	}
	if err := proc.RaiseFileLimit(FilesNeeded(opt)); err != nil {
		return nil, err
	}
	gen, err := load.New(opt.config(srv))
	if err != nil {
		return nil, err
	}
	s := &session{opt: opt, srv: srv, gen: gen}
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
	return uint64(2*opt.Submitters + opt.Workers + opt.Idle + spareFiles)
}

// Reasons why a server cannot be measured with a shape.
var (
	ErrNoQueue    = errors.New("it has no queue: a job is dropped if no worker waits for it")
	ErrNoPrefetch = errors.New("it gives a worker connection one job at a time")
)

func (s *session) pin(bind func(pid int) error) error {
	if s.srv.PID == 0 {
		return errors.New("one processor for all: the server's process is unknown")
	}
	return errors.Join(bind(os.Getpid()), bind(s.srv.PID))
}

func (s *session) close() error {
	err := s.gen.Close()
	if s.opt.OneCPU {
		err = errors.Join(err, s.pin(proc.Unpin))
	}
	return err
}

// connect connects busy workers, then idle ones, then submitters.
func (s *session) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.opt.StepTimeout)
	defer cancel()
	s.report("connect", -1, 0, nil)
	if err := s.gen.ConnectWorkers(ctx, 0, s.opt.Workers); err != nil {
		return err
	}
	if s.opt.Idle > 0 {
		if err := s.idle(ctx); err != nil {
			return err
		}
	}
	return s.gen.ConnectSubmitters(ctx)
}

func (s *session) idle(ctx context.Context) error {
	before, err := s.usage()
	if err != nil {
		return err
	}
	start := time.Now()
	if err := s.gen.ConnectWorkers(ctx, s.opt.Workers, s.opt.Workers+s.opt.Idle); err != nil {
		return err
	}
	s.round.Idle = &result.Idle{Workers: s.opt.Idle, Seconds: time.Since(start).Seconds()}
	after, err := s.usage()
	if err != nil {
		return err
	}
	if before != nil && after != nil {
		s.round.Idle.RSSBefore, s.round.Idle.RSSAfter = before.RSS, after.RSS
	}
	return nil
}

// usage returns the server's usage, or nil if its process is unknown.
func (s *session) usage() (*proc.Usage, error) {
	if s.srv.PID == 0 {
		return nil, nil
	}
	u, err := proc.UsageOf(s.srv.PID)
	return &u, err
}

// meter holds the processor time of all processes at one moment.
type meter struct {
	server, generator, machine time.Duration
}

func (s *session) meter() (m meter, err error) {
	m.machine = proc.MachineCPU()
	m.generator = proc.OwnCPU()
	if s.srv.PID != 0 {
		m.server, err = s.srv.CPU()
	}
	return m, err
}

// recordFigures records the figures of the time between two moments.
func (s *session) recordFigures(from, to load.Snapshot, a, b meter) {
	r := &s.round
	r.Seconds = float64(to.At-from.At) / 1e9
	r.Jobs = to.Count.Answered - from.Count.Answered
	r.BytesIn = to.Count.BytesIn - from.Count.BytesIn
	r.BytesOut = to.Count.BytesOut - from.Count.BytesOut
	r.ServerCPU = int64(b.server - a.server)
	r.GeneratorCPU = int64(b.generator - a.generator)
	otherCPU := (b.machine - a.machine) - (b.server - a.server) - (b.generator - a.generator)
	r.OthersCPU = max(0, otherCPU.Seconds()/r.Seconds)
}

// finish waits for the outstanding jobs. Then it records failures, lost connections and faults.
func (s *session) finish(ctx context.Context) (*result.Round, error) {
	s.report("settle", -1, 0, nil)
	if err := s.gen.Settle(ctx, s.opt.Grace); err != nil {
		return nil, err
	}
	last, err := s.gen.TakeSnapshot(false)
	if err != nil {
		return nil, err
	}
	r, c := &s.round, last.Count
	r.Failed, r.Forgotten, r.Deferred = c.Failed, c.Forgotten, c.Deferred
	r.WorkerHangups, r.SubmitterHangups = c.WorkerHangups, c.SubmitterHangups
	r.Redelivered = max(0, c.Handed-c.Submitted)
	faults := s.gen.Faults()
	if faults.Total() > 0 {
		r.Faults, r.FaultSamples = faults.ByName(), faults.Samples
	}
	return r, nil
}

func (s *session) report(phase string, done, rate float64, lat *result.Latency) {
	if s.opt.Progress == nil {
		return
	}
	p := Progress{Phase: phase, Done: done, Rate: rate}
	if lat != nil {
		p.P50, p.P99 = time.Duration(lat.P50), time.Duration(lat.P99)
	}
	s.opt.Progress(p)
}

func wrap(srv *peers.Server, phase string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s on %s: %w", phase, srv.Title, err)
}
