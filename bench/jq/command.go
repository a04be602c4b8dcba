package jq

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"gloom/bench/door"
	"gloom/bench/result"
)

// Command returns the subcommand of gloom-bench.
func Command() *cobra.Command {
	o := DefaultOptions()
	cmd := &cobra.Command{
		Use:   "jq",
		Short: "jobs per second through the HTTP queue",
		Long: `jq measures jq-master, which it starts, with each store that --systems names:
memory, and redis, a Redis server of its own with an append-only file. Rounds of
the systems alternate. asynq and bullmq do the same jobs with the same Redis.

--load push (the default) enqueues one job at a time over as many connections as
there are pushers; workers report pushed jobs as done at once. --load batch
enqueues 1,000 jobs at a time. --load waiting makes a queue of --jobs jobs,
hands some out of it without and with constraints, and changes a constraint that
matches all of them to match half of them, while requests are made every
millisecond; with Redis the master is then killed, and another one reads the
queue.

Each job is checked: enqueued once, run once, done once.`,
	}
	f := cmd.Flags()
	f.StringVar(&o.Load, "load", o.Load, "push, batch or waiting")
	f.StringSliceVar(&o.Systems, "systems", o.Systems, "memory, redis, asynq, bullmq")
	f.IntVar(&o.Jobs, "jobs", o.Jobs, "jobs of a round")
	f.IntVar(&o.Pushers, "pushers", o.Pushers, "connections that enqueue")
	f.IntVar(&o.Workers, "workers", o.Workers, "workers")
	f.IntVar(&o.Slots, "slots", o.Slots, "jobs that a worker runs at once")
	f.IntVar(&o.Body, "body", o.Body, "bytes of padding in a job's argument")
	f.IntVar(&o.Constraints, "constraints", o.Constraints, "number of constraints with --load waiting; each one matches every job")
	f.IntVar(&o.Rounds, "rounds", o.Rounds, "measurements of each system")
	f.StringVar(&o.Master, "master", o.Master, "the `program` jq-master")
	f.StringVar(&o.Fsync, "appendfsync", o.Fsync, "appendfsync of Redis: always, everysec or no")
	f.StringVar(&o.NodeModules, "modules", o.NodeModules, "`folder` where npm install bullmq ioredis was run")
	f.DurationVar(&o.Timeout, "timeout", o.Timeout, "time limit of a round")
	return door.Command(cmd, func(ctx context.Context, w io.Writer) (any, error) {
		rep, err := Run(ctx, o, func(r Round) { r.print(w) })
		if rep == nil {
			return nil, err
		}
		rep.summary(w)
		return rep, err
	})
}

func (r Round) print(w io.Writer) {
	fmt.Fprintf(w, "%-6s %9.0f jobs/s  %6.2f s  master %5.1f µs/job  redis %5.1f µs/job  own %5.1f µs/job  others %.2f CPUs",
		r.System, r.Rate(), r.Seconds, door.PerJob(r.MasterCPU, r.Jobs), door.PerJob(r.RedisCPU, r.Jobs), door.PerJob(r.OwnCPU, r.Jobs), r.OthersCPU)
	if r.P99 > 0 {
		fmt.Fprintf(w, "  p50 %.1f ms  p99 %.1f ms", r.P50, r.P99)
	}
	if r.BytesPerJob > 0 {
		fmt.Fprintf(w, "  %.0f B/job  queued after %.1f s  %d constraints", r.BytesPerJob, r.FillSeconds, r.Constraints)
	}
	if r.ChangeMillis > 0 {
		fmt.Fprintf(w, "  change %.0f ms, slowest request meanwhile %.1f ms, without a change %.1f ms", r.ChangeMillis, r.StallMillis, r.StallBeforeMillis)
	}
	if r.RecoverySeconds > 0 {
		fmt.Fprintf(w, "  recovery %.1f s", r.RecoverySeconds)
	}
	fmt.Fprintln(w)
}

// summary prints median and spread of each system, in the order of their names.
func (rep *Report) summary(w io.Writer) {
	rates := map[string][]float64{}
	for _, r := range rep.Rounds {
		name := r.System
		if rep.Options.Load == Waiting {
			name = fmt.Sprintf("%s, %d constraints", r.System, r.Constraints)
		}
		rates[name] = append(rates[name], r.Rate())
	}
	var lines []string
	for name, metric := range rates {
		lines = append(lines, fmt.Sprintf("%s, %s: %s\n", rep.Options.Load, name, result.DescribeSpread(metric, "jobs/s")))
	}
	slices.Sort(lines)
	io.WriteString(w, strings.Join(lines, ""))
}
