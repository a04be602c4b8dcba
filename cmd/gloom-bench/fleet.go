package main

import (
	"time"

	"github.com/spf13/cobra"

	"gloom/bench/brokers"
	"gloom/bench/race"
)

func fleetCommand() *cobra.Command {
	var (
		out      output
		set      brokers.Settings
		rounds   int
		duration time.Duration
	)
	cmd := &cobra.Command{
		Use: "fleet", Short: "one broker beside fleets of two and three", GroupID: "reading", Args: cobra.NoArgs,
		Long: `fleet starts one gloomd, a nats-server (make deps installs it), and fleets of
two and three with one between them, in turn. In a fleet submitters are at one
broker and workers at the others, so that every job is lent. Server CPU is that
of all brokers together, without NATS. NATS alone shows the cost of the two hops
that a lent job takes through it.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			gloomd, err := brokers.KindByName("gloomd")
			if err != nil {
				return err
			}
			nats, err := brokers.KindByName("nats")
			if err != nil {
				return err
			}
			plan := race.FleetPlan([]*brokers.Kind{gloomd, nats, brokers.Fleet(2), brokers.Fleet(3)}, rounds, duration)
			plan.Settings = set
			return runPlan(cmd.Context(), plan, &out, "")
		},
	}
	f := cmd.Flags()
	out.flags(f)
	gloomdFlags(f, &set)
	f.IntVar(&rounds, "rounds", 3, "rounds of each")
	f.DurationVar(&duration, "duration", 3*time.Second, "duration of each measurement")
	return cmd
}
