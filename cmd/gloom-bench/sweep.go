package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"gloom/bench/brokers"
	"gloom/bench/race"
	"gloom/bench/shape"
)

func sweepCommand() *cobra.Command {
	var (
		out    output
		set    brokers.Settings
		param  string
		values []int
		names  []string
		rounds int
	)
	base := shape.Defaults()
	cmd := &cobra.Command{
		Use: "sweep --over NAME --values N,N,…", Short: "one parameter with several values: how the cost grows", GroupID: "reading", Args: cobra.NoArgs,
		Long: `sweep measures the throughput shape (or with --rate an open loop, or over
backlog the backlog shape) at several values of one parameter, rounds
interleaved. gloom-bench report --plots draws the result.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			kinds, err := kindsByName(names)
			if err != nil {
				return err
			}
			if rounds < 1 {
				return fmt.Errorf("rounds %d: must be at least 1", rounds)
			}
			plan, err := race.Sweep(kinds, param, values, base)
			if err != nil {
				return err
			}
			plan.Rounds, plan.Settings = rounds, set
			return runPlan(cmd.Context(), plan, &out, param)
		},
	}
	f := cmd.Flags()
	out.flags(f)
	gloomdFlags(f, &set)
	loadFlags(f, &base)
	f.IntVar(&base.Prefetch, "prefetch", 0, "jobs out per worker connection (0: the plain protocol)")
	f.StringVar(&param, "over", "", "the parameter: "+race.SweepParameterNames())
	f.IntSliceVar(&values, "values", nil, "its values")
	f.StringSliceVar(&names, "servers", []string{"gloomd", "relay"}, "kinds of server that take part")
	f.IntVar(&rounds, "rounds", 3, "rounds of each value and server")
	for _, name := range []string{"over", "values"} {
		_ = cmd.MarkFlagRequired(name) // cannot fail: both flags are defined above
	}
	return cmd
}
