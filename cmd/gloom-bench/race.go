package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gloom/bench/brokers"
	"gloom/bench/race"
	"gloom/bench/report"
	"gloom/bench/result"
)

func raceCommand() *cobra.Command {
	var (
		out      output
		set      brokers.Settings
		short    bool
		rounds   int
		duration time.Duration
		backlog  int64
		names    []string
	)
	cmd := &cobra.Command{
		Use: "race", Short: "gloomd, the relay and its peers in one run, rounds interleaved", GroupID: "reading", Args: cobra.NoArgs,
		Long: `race starts each server from the system's packages (make deps installs them), on
private ports of the loopback interface, and runs the same shapes on all of them
in turn. One table compares the results.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			kinds, err := kindsByName(names)
			if err != nil {
				return err
			}
			plan := race.FullPlan(kinds)
			if short {
				plan = race.ShortPlan(kinds)
			}
			if rounds > 0 {
				plan.Rounds = rounds
			}
			for _, e := range plan.Events {
				switch o := &e.Options; {
				case o.Jobs > 0 && backlog > 0:
					o.Jobs = backlog
				case o.Jobs == 0 && duration > 0:
					o.Duration, o.Warmup = duration, duration/5
				}
			}
			plan.Settings = set
			return runPlan(cmd.Context(), plan, &out, "")
		},
	}
	f := cmd.Flags()
	out.flags(f)
	gloomdFlags(f, &set)
	f.BoolVar(&short, "small", false, "short rounds and a small backlog, about two minutes in all")
	f.IntVar(&rounds, "rounds", 0, "rounds of each server (default: 5 small, 9 in full)")
	f.DurationVar(&duration, "duration", 0, "duration of each timed measurement (default: 800ms small, 5s in full)")
	f.Int64Var(&backlog, "backlog", 0, "jobs queued in the backlog event (default: 50,000 small, 200,000 in full)")
	f.StringSliceVar(&names, "servers", nil, "kinds of server that take part (default: all)")
	return cmd
}

// runPlan runs a race or sweep, saves it and shows it.
func runPlan(ctx context.Context, plan *race.Plan, out *output, sweep string) error {
	style, err := report.ParseStyle(out.style)
	if err != nil {
		return err
	}
	showProgress(plan, newProgressLine(out.quiet))
	file := newFile()
	file.Sweep = sweep
	if file.Runs, err = plan.Run(ctx); err != nil {
		return err
	}
	return out.saveAndShow(file, style)
}

func kindsByName(names []string) ([]*brokers.Kind, error) {
	if names == nil {
		return brokers.Kinds(), nil
	}
	var kinds []*brokers.Kind
	for _, name := range names {
		k, err := brokers.KindByName(strings.TrimSpace(name))
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(kinds, func(x *brokers.Kind) bool { return x.Name == k.Name }) {
			return nil, fmt.Errorf("servers: %s is named twice", k.Name)
		}
		kinds = append(kinds, k)
	}
	return kinds, nil
}

// showProgress reports on the race: a live line on a terminal, and a line for each server or
// event that failed.
func showProgress(p *race.Plan, l *progressLine) {
	steps := p.Rounds * len(p.Kinds) * len(p.Events)
	done := 0
	p.OnStart = func(round int, k *brokers.Kind, e *race.Event) {
		if l.bar == nil {
			return
		}
		l.bar.Describe(fmt.Sprintf("round %d of %d: %s, %s", round+1, p.Rounds, k.Title, e.Name))
		_ = l.bar.Set(min(done*barSteps/steps, barSteps-1))
	}
	p.OnEnd = func(round int, k *brokers.Kind, e *race.Event, r *result.Round, err error) {
		done++
		if done == steps {
			l.done()
		}
		if err != nil && !race.LacksFeature(err) {
			fmt.Fprintf(os.Stderr, "%s, %s: %v\n", k.Title, e.Name, err)
		}
		if r != nil && len(r.Faults) > 0 {
			fmt.Fprintf(os.Stderr, "%s, %s, round %d: faults %v\n", k.Title, e.Name, round+1, r.Faults)
		}
	}
}
