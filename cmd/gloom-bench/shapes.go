package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"gloom/bench/brokers"
	"gloom/bench/load"
	"gloom/bench/proc"
	"gloom/bench/race"
	"gloom/bench/report"
	"gloom/bench/result"
	"gloom/bench/shape"
)

// shapeCommand is a command that puts one server under one shape of load.
type shapeCommand struct {
	name, short, long string
	rounds            int
	options           shape.Options
	run               func(ctx context.Context, s *brokers.Server, o shape.Options) (*result.Round, error)
	check             func(o *shape.Options) error
}

func shapes() []*shapeCommand {
	closedLoop := shape.Defaults()

	latency := shape.Defaults()
	latency.Rate, latency.Duration = 10_000, 10*time.Second

	backlog := shape.Defaults()
	backlog.Jobs = 200_000

	churn := shape.Defaults()
	churn.Duration, churn.WorkTime = 10*time.Second, time.Millisecond
	churn.Churn = &load.Churn{Workers: 50, Submitters: 5, Steady: 2, MaxAway: 50 * time.Millisecond}

	soak := churn
	soak.Duration, soak.Interval, soak.Submitters, soak.Workers, soak.Window = 10*time.Minute, 10*time.Second, 20, 200, 16
	soak.Churn = &load.Churn{Workers: 20, Submitters: 2, Steady: 10, MaxAway: time.Second}

	fanout := shape.Defaults()
	fanout.Types, fanout.Workers, fanout.IdleWorkers, fanout.Rate = 100, 100, 10_000, 5_000

	prefetch := shape.Defaults()
	prefetch.Prefetch, prefetch.Window, prefetch.Workers = 64, 256, 4

	stall := shape.Defaults()
	stall.Submitters, stall.Workers, stall.Rate, stall.Jobs, stall.Duration = 1, 1, 1000, 1_000_000, 2*time.Second

	return []*shapeCommand{
		{name: "throughput", short: "as many jobs as possible, with a window outstanding per submitter", rounds: 3, options: closedLoop, run: shape.Steady},
		{name: "latency", short: "a fixed rate, timed from when each job should have left", rounds: 3, options: latency, run: shape.Steady,
			long: `Jobs leave at a fixed rate, regardless of the server. A job's latency counts
from the moment it should have left: a server that stalls cannot hide the jobs
that would have come meanwhile.`,
			check: requireRate},
		{name: "backlog", short: "fill the queue, measure its memory, drain it", rounds: 3, options: backlog, run: shape.Backlog},
		{name: "churn", short: "workers and submitters that connect, leave and die", rounds: 1, options: churn, run: shape.Steady},
		{name: "soak", short: "churn for a long time, with samples of memory and descriptors", rounds: 1, options: soak, run: shape.Steady},
		{name: "fanout", short: "many types and many idle workers", rounds: 3, options: fanout, run: shape.Steady},
		{name: "stall", short: "the latency of a fixed rate while peers try to block the broker", rounds: 1, options: stall,
			run: shape.Stall, check: requireRate,
			long: `A probe of a type of its own submits at a fixed rate while, one after the other,
a submitter queues --jobs jobs of another type and vanishes, metrics and jobs
are asked for over HTTP, and a frame of 16 MiB trickles in. The worst latency of
the probe's jobs is how long the broker stalled.`},
		{name: "prefetch", short: "several jobs out per worker connection", rounds: 3, options: prefetch, run: shape.Steady},
	}
}

func requireRate(o *shape.Options) error {
	if o.Rate <= 0 {
		return fmt.Errorf("rate %v: latency needs a rate above 0", o.Rate)
	}
	return nil
}

func (s *shapeCommand) command() *cobra.Command {
	var to target
	var out output
	o := s.options
	rounds := s.rounds
	cmd := &cobra.Command{
		Use: s.name, Short: s.short, Long: s.long, GroupID: "shapes", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if rounds < 1 {
				return fmt.Errorf("rounds %d: must be at least 1", rounds)
			}
			if s.check != nil {
				if err := s.check(&o); err != nil {
					return err
				}
			}
			return s.measure(cmd.Context(), &to, &out, o, rounds)
		},
	}
	f := cmd.Flags()
	to.flags(f)
	out.flags(f)
	loadFlags(f, &o)
	f.IntVar(&rounds, "rounds", rounds, "measurements, each on a newly started server")
	if s.options.Rate == 0 && s.options.Jobs == 0 || s.options.Churn != nil {
		f.DurationVar(&o.Interval, "interval", o.Interval, "interval of samples in the results (0: none)")
	}
	if s.options.Prefetch > 0 {
		f.IntVar(&o.Prefetch, "prefetch", o.Prefetch, "jobs out per worker connection")
	}
	if c := o.Churn; c != nil {
		churn := *c
		o.Churn = &churn
		f.Float64Var(&o.Churn.Workers, "worker-ends", c.Workers, "workers that go or die per second")
		f.Float64Var(&o.Churn.Submitters, "submitter-ends", c.Submitters, "submitters that go or die per second")
		f.IntVar(&o.Churn.Steady, "steady-submitters", c.Steady, "submitters that stay")
		f.DurationVar(&o.Churn.MaxAway, "away", c.MaxAway, "longest absence of a peer that left")
	}
	return cmd
}

func (s *shapeCommand) measure(ctx context.Context, to *target, out *output, o shape.Options, rounds int) error {
	style, err := report.ParseStyle(out.style)
	if err != nil {
		return err
	}
	if err := proc.RaiseFileLimit(shape.FilesNeeded(&o)); err != nil {
		return err
	}
	file := newFile()
	run := &result.Run{Shape: s.name, Params: o.Params()}
	file.Runs = []*result.Run{run}
	progress := newProgressLine(out.quiet)
	for i := range rounds {
		o.Progress = progress.round(fmt.Sprintf("round %d of %d", i+1, rounds))
		srv, err := to.start(ctx, &o)
		if err != nil {
			progress.done()
			return err
		}
		run.Server = result.Server{Kind: srv.Kind, Title: srv.Title, Version: srv.Version, Command: srv.Command, Build: srv.Build}
		r, err := s.run(ctx, srv, o)
		if err = errors.Join(err, srv.Stop()); err != nil {
			progress.done()
			return err
		}
		run.Rounds = append(run.Rounds, r)
	}
	progress.done()
	return out.saveAndShow(file, style)
}

// saveAndShow saves and shows a file, and returns an error if the file contains faults.
func (o *output) saveAndShow(file *result.File, style report.Style) error {
	if o.file != "" {
		if err := file.Write(o.file); err != nil {
			return err
		}
	}
	report.Write(os.Stdout, file, style)
	if n := race.Faults(file.Runs); n > 0 {
		return errFaults
	}
	return nil
}

func newFile() *result.File {
	return &result.File{Format: result.Format, Started: time.Now().UTC().Truncate(time.Second), Command: append([]string{filepath.Base(os.Args[0])}, os.Args[1:]...),
		Host: result.CurrentHost(), Build: result.CurrentBuild()}
}
