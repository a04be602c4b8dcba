// Package clients measures the clients of all languages against one broker.
package clients

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"gloom/bench/brokers"
	gloom "gloom/clients/go"
	"gloom/clients/live/agent"
)

// options holds the options of a measurement.
type options struct {
	clients          string // path of the clients directory in a checkout
	rounds           int
	singleJobs, jobs int // per round: one at a time, and with a window
	window           int
	languages        []string
	workerSockets    int
	settings         brokers.Settings
}

// Command returns the subcommand of gloom-bench.
func Command() *cobra.Command {
	o := options{clients: "clients", rounds: 3, singleJobs: 2000, jobs: 20000, window: 256, workerSockets: 8}
	cmd := &cobra.Command{
		Use: "clients", Short: "the clients of all languages against one broker", Args: cobra.NoArgs,
		Long: `clients starts one gloomd and a worker of the Go client that answers at once,
and has the submitter of each language's client submit jobs: one after the
other, for the time of a round trip, and with a window outstanding, for jobs per
second. A round has each language once, in turn. It runs in a checkout, and
needs go, python3, node and php.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.clients, "clients", o.clients, "path of the clients directory in a checkout")
	f.StringSliceVar(&o.languages, "language", nil, "go, python, node or php; all if not given")
	f.IntVar(&o.rounds, "rounds", o.rounds, "rounds")
	f.IntVar(&o.singleJobs, "round-trips", o.singleJobs, "jobs of a round, one after the other")
	f.IntVar(&o.jobs, "jobs", o.jobs, "jobs of a round with a window outstanding")
	f.IntVar(&o.window, "window", o.window, "jobs outstanding")
	f.StringVar(&o.settings.Gloomd, "gloomd", "", "the gloomd to start (default: beside this program, in PATH, or built)")
	return cmd
}

func (o *options) run(ctx context.Context, w io.Writer) (err error) {
	if o.rounds < 1 || o.singleJobs < 1 || o.jobs < 1 || o.window < 2 {
		return errors.New("rounds, round-trips and jobs must be at least 1, and the window at least 2")
	}
	scratch, err := os.MkdirTemp("", "gloom-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	languages, err := agent.Languages(o.clients, scratch)
	if err != nil {
		return fmt.Errorf("%w; --clients must be the path of the clients directory in a checkout", err)
	}
	if len(o.languages) > 0 {
		languages = slices.DeleteFunc(languages, func(l agent.Language) bool { return !slices.Contains(o.languages, l.Name) })
		if len(languages) != len(o.languages) {
			return fmt.Errorf("--language %s: must be go, python, node or php", strings.Join(o.languages, ","))
		}
	}
	kind, err := brokers.KindByName("gloomd")
	if err != nil {
		return err
	}
	srv, err := kind.Start(ctx, o.settings)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, srv.Stop()) }()
	worker := &gloom.Worker{
		Type: "echo", Concurrency: o.workerSockets, Options: []gloom.Option{gloom.Addrs(srv.WorkerAddr), gloom.TrustBodies()},
		Handler: func(_ context.Context, job *gloom.Job) (any, error) { return job.Body, nil },
	}
	if err := worker.Start(ctx); err != nil {
		return err
	}
	defer worker.Stop(context.WithoutCancel(ctx))
	trips, rates := map[string][]float64{}, map[string][]float64{}
	for range o.rounds {
		for _, l := range languages {
			trip, rate, err := o.measure(ctx, l, srv.SubmitAddr)
			if err != nil {
				return fmt.Errorf("%s: %w", l.Name, err)
			}
			trips[l.Name] = append(trips[l.Name], trip)
			rates[l.Name] = append(rates[l.Name], rate)
		}
	}
	t := table.NewWriter()
	t.SetOutputMirror(w)
	t.AppendHeader(table.Row{"client", "round trip, µs", "from … to", fmt.Sprintf("jobs/s, %d outstanding", o.window), "from … to"})
	for _, l := range languages {
		a, b := trips[l.Name], rates[l.Name]
		t.AppendRow(table.Row{l.Name, formatMedian(a), formatRange(a), formatMedian(b), formatRange(b)})
	}
	t.Render()
	return nil
}

// measure returns the microseconds of a round trip, and jobs per second.
func (o *options) measure(ctx context.Context, l agent.Language, addr string) (trip, rate float64, err error) {
	a, err := l.Start("submitter", agent.Options{Addrs: []string{addr}, Backoff: [2]int{100, 1000}, Window: o.window}, os.Stderr)
	if err != nil {
		return 0, 0, err
	}
	defer a.Wait(10 * time.Second)
	warmup, err := runBench(ctx, a, agent.Command{Count: max(1, o.singleJobs/10), Window: 1})
	if err != nil || warmup < 0 {
		return 0, 0, err
	}
	single, err := runBench(ctx, a, agent.Command{Count: o.singleJobs, Window: 1})
	if err != nil {
		return 0, 0, err
	}
	windowed, err := runBench(ctx, a, agent.Command{Count: o.jobs, Window: o.window})
	return single / float64(o.singleJobs) * 1e6, float64(o.jobs) / windowed, err
}

// runBench makes a program execute the command bench, and returns how many seconds that took.
func runBench(ctx context.Context, a *agent.Agent, c agent.Command) (float64, error) {
	c.Do, c.Tag, c.Type = "bench", "bench", "echo"
	if err := a.Tell(c); err != nil {
		return 0, err
	}
	select {
	case e, ok := <-a.Events:
		switch {
		case !ok:
			return 0, errors.New("its program ended")
		case e.Error != nil:
			return 0, fmt.Errorf("%s %s: %s", e.Error.Kind, e.Error.Code, e.Error.Reason)
		}
		return e.Seconds, nil
	case <-ctx.Done():
		a.Kill()
		return 0, context.Cause(ctx)
	}
}

func formatMedian(v []float64) string {
	v = slices.SortedFunc(slices.Values(v), cmp.Compare)
	return fmt.Sprintf("%.0f", v[len(v)/2])
}

func formatRange(v []float64) string {
	return fmt.Sprintf("%.0f … %.0f", slices.Min(v), slices.Max(v))
}
