package serverless

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gloom/bench/door"
	"gloom/bench/result"
)

// Report is the content of the file that --out names.
type Report struct {
	result.Environment
	Options Options `json:"options"`
	Rounds  []Round `json:"rounds"`
}

// Command returns the subcommand of gloom-bench.
func Command() *cobra.Command {
	o := DefaultOptions()
	cmd := &cobra.Command{
		Use:   "serverless",
		Short: "lines and jobs per second through the serverless queue",
		Long: `serverless starts a serverlessd on a throw-away directory for each measurement.

lone, add and batch add lines for --time: one client with a line at a time, as
many as --clients, and these with --lines in a request. Every answer means that
the lines are on the disk; no handler runs them; the store is filled at the same
time. The result of lone also says how long a single fdatasync takes on the same
disk. first is the time from the answer to the start of the job, for a type
without other jobs. http, node, python and sh measure how fast a handler that
does nothing runs --jobs waiting jobs (sh: a tenth of them, since each is a
process).

At the end all lines are counted: if one is lost or added twice, the exit status
is 1.`,
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.Shapes, "shape", o.Shapes, "what to measure, of "+strings.Join(shapes, ", "))
	f.StringVar(&o.Program, "serverlessd", o.Program, "the serverlessd to start (default: beside this program, in PATH, or built)")
	f.StringVar(&o.Store, "store", o.Store, "store, as in serverlessd's --store (default: SQLite in the daemon's directory)")
	f.IntVar(&o.Clients, "clients", o.Clients, "clients that add")
	f.IntVar(&o.Lines, "lines", o.Lines, "lines in a request of the shape batch")
	f.DurationVar(&o.Time, "time", o.Time, "duration of a measurement that adds lines")
	f.IntVar(&o.Jobs, "jobs", o.Jobs, "jobs that a handler runs")
	f.IntVar(&o.Rounds, "rounds", o.Rounds, "measurements of each")
	return door.Command(cmd, func(ctx context.Context, w io.Writer) (any, error) {
		rep := Report{Environment: result.CurrentEnvironment(), Options: o}
		err := Run(ctx, o, func(r Round) {
			rep.Rounds = append(rep.Rounds, r)
			fmt.Fprintf(w, "%-7s %9.0f jobs/s  %6.2f s  daemon %6.1f µs/job  own %5.1f µs/job  others %.2f CPUs",
				r.Shape, r.Rate(), r.Seconds, door.PerJob(r.CPU, r.Jobs), door.PerJob(r.OwnCPU, r.Jobs), r.OthersCPU)
			if r.P50 > 0 {
				fmt.Fprintf(w, "  p50 %v  p99 %v", r.P50.Round(10*time.Microsecond), r.P99.Round(10*time.Microsecond))
			}
			if r.Append > 0 {
				fmt.Fprintf(w, "  (fdatasync %v, of a file that does not grow %v)", r.Append.Round(10*time.Microsecond), r.Overwrite.Round(10*time.Microsecond))
			}
			fmt.Fprintln(w)
		})
		return rep, err
	})
}
