package main

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"gloom/bench/brokers"
	"gloom/bench/proc"
	"gloom/bench/shape"
	"gloom/cmd/internal/cli"
)

// target is the server under load, from the flags.
type target struct {
	server   string
	pid      int
	settings brokers.Settings
}

func (t *target) flags(f *pflag.FlagSet) {
	f.StringVar(&t.server, "server", "gloomd", "kind of server to start, or SUBMIT_ADDR,WORKER_ADDR of a running gloomd")
	f.IntVar(&t.pid, "pid", 0, "process id of a running server, for its CPU and memory (default: the process that listens on its port)")
	gloomdFlags(f, &t.settings)
}

func gloomdFlags(f *pflag.FlagSet, s *brokers.Settings) {
	f.StringVar(&s.Gloomd, "gloomd", "", "the gloomd to start (default: beside this program, in PATH, or built)")
	f.StringArrayVar(&s.Flags, "gloomd-flag", nil, "a further flag for gloomd, as --gloomd-flag=--loops=2; may be repeated")
}

// start starts the server, or finds the running one.
func (t *target) start(ctx context.Context, o *shape.Options) (*brokers.Server, error) {
	submit, work, running := strings.Cut(t.server, ",")
	if !running {
		k, err := brokers.KindByName(t.server)
		if err != nil {
			return nil, err
		}
		set := t.settings
		set.BodySize, set.Unix = o.BodySize, o.Unix
		return k.Start(ctx, set)
	}
	s := &brokers.Server{Kind: "gloomd", Title: "gloomd at " + submit, Protocol: brokers.Gloom, SubmitAddr: submit, WorkerAddr: work,
		PID: t.pid}
	if _, port, err := net.SplitHostPort(submit); err == nil && s.PID == 0 && !strings.HasPrefix(submit, "unix:") {
		n, err := strconv.Atoi(port)
		if err != nil {
			return nil, fmt.Errorf("server %q: port %q is not a number", t.server, port)
		}
		s.PID, _ = proc.ListenerPID(n) // unknown for a server on another machine or of another user
	}
	return s, nil
}

// loadFlags defines the flags of every shape.
func loadFlags(f *pflag.FlagSet, o *shape.Options) {
	f.IntVar(&o.Submitters, "submitters", o.Submitters, "connections that submit")
	f.IntVar(&o.Window, "window", o.Window, "jobs outstanding per submitter")
	f.IntVar(&o.Workers, "workers", o.Workers, "number of workers, each with a connection")
	f.IntVar(&o.IdleWorkers, "idle-workers", o.IdleWorkers, "further workers, for a type that gets no jobs")
	f.IntVar(&o.Types, "types", o.Types, "job types, spread evenly over jobs and workers")
	f.BoolVar(&o.Versatile, "versatile", o.Versatile, "each worker serves all types, by a pattern")
	f.IntVar(&o.Groups, "groups", o.Groups, "number of groups; each job belongs to one of them, spread evenly (0: none)")
	f.IntVar(&o.Priorities, "priorities", o.Priorities, "distinct priorities, spread evenly over jobs")
	f.IntVar(&o.BodySize, "body", o.BodySize, "body size in bytes")
	f.DurationVar(&o.WorkTime, "work-time", o.WorkTime, "how long a worker keeps a job")
	f.Float64Var(&o.Rate, "rate", o.Rate, "open loop: jobs per second, however fast the server is (0: closed loop)")
	f.StringVar(&o.Arrivals, "arrivals", o.Arrivals, "arrivals in an open loop: constant or poisson")
	f.DurationVar(&o.Duration, "duration", o.Duration, "duration of a measurement")
	f.DurationVar(&o.Warmup, "warmup", o.Warmup, "time before a measurement, not counted")
	f.Int64Var(&o.Jobs, "jobs", o.Jobs, "measure this number of jobs instead of a duration")
	f.DurationVar(&o.Grace, "grace", o.Grace, "wait for late answers before they count as lost")
	f.DurationVar(&o.StepTimeout, "within", o.StepTimeout, "limit for connecting, filling and draining")
	f.BoolVar(&o.OneCPU, "one-cpu", o.OneCPU, "bind server and generator to one processor")
	f.BoolVar(&o.Unix, "unix", o.Unix, "use unix sockets, with a server that is started here")
	f.IntVar(&o.Loops, "generator-loops", o.Loops, "threads of the generator, at most one per submitter")
	f.Uint64Var(&o.Seed, "seed", o.Seed, "seed of everything random")
	cli.SetHeadings(f, map[string]string{
		"submitters": "Load",
		"duration":   "Measurement",
		"one-cpu":    "Server and generator",
	})
}

// output says where results are written, and how they are shown.
type output struct {
	file  string
	style string
	quiet bool
}

func (o *output) flags(f *pflag.FlagSet) {
	f.StringVarP(&o.file, "out", "o", "", "write raw results as JSON to this file")
	f.StringVar(&o.style, "format", "terminal", "terminal, markdown, or benchmark (for benchstat)")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "no progress line")
}
