package main

import (
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"gloom/broker/admin/api"
	"gloom/cmd/internal/cli"
)

func newFleet(t *tool) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fleet",
		Short: "Show the brokers that lend each other jobs",
		Long: `Show the fleet as this broker sees it: whether it reaches NATS, the other
brokers with the round trip times of their heartbeats, the jobs lent to them
and borrowed from them, and the types that their idle workers serve.`,
		Example: `  gloom fleet
  gloom fleet --json | jq '.brokers[] | select(.state != "up")'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return printOne(cmd.Context(), t, "/v1/fleet", t.describeFleet)
		},
	}
	t.jsonFlag(cmd, "print JSON")
	return cmd
}

func (t *tool) describeFleet(f *api.Fleet) string {
	if !f.Member {
		return fmt.Sprintf("gloomd at %s is not in a fleet (gloomd --fleet)\n", t.conn.httpAddr)
	}
	var b strings.Builder
	state := "one of " + cli.Plural(len(f.Brokers)+1, "broker")
	switch {
	case f.Alone:
		state = "alone: another broker has this name; give one of them another --fleet-name"
	case !f.NATS.Connected:
		state = "alone: NATS is away"
	}
	fmt.Fprintf(&b, "%s is %s\n", cli.Clean(f.Name), state)
	nats := "away for " + formatSpan(f.NATS.SinceSeconds)
	if f.NATS.Reason != "" {
		nats += ": " + cli.Clean(f.NATS.Reason)
	}
	if f.NATS.Connected {
		nats = fmt.Sprintf("%s, connected for %s", cli.Clean(f.NATS.URL), formatSpan(f.NATS.SinceSeconds))
	}
	b.WriteString(fieldTable([]field{
		{"NATS", nats},
		{"lent", fmt.Sprintf("%s now, %d in all, %d of them came back without a run, %d lost with their broker", cli.Plural(f.Lent, "job"), f.Lends, f.Returned, f.Lost)},
		{"borrowed", fmt.Sprintf("%s now, %d in all", cli.Plural(f.Borrowed, "job"), f.Borrows)},
	}))
	if len(f.Brokers) == 0 {
		return b.String()
	}
	w := cli.NewTable(cli.Column{Name: "BROKER", AlignLeft: true, MaxWidth: 40}, cli.Column{Name: "EPOCH", AlignLeft: true}, cli.Column{Name: "STATE", AlignLeft: true},
		cli.Column{Name: "ROUND TRIP"}, cli.Column{Name: "LENT"}, cli.Column{Name: "BORROWED"}, cli.Column{Name: "WANTS", AlignLeft: true, MaxWidth: 40})
	for i := range f.Brokers {
		p := &f.Brokers[i]
		trip := "-"
		if p.RoundTripMS != nil {
			trip = fmt.Sprintf("%.3g ms", *p.RoundTripMS)
		}
		var parts []string
		for _, v := range p.Wants {
			parts = append(parts, fmt.Sprintf("%s (%d)", cli.Clean(strings.Join(v.Types, " ")), v.Places))
		}
		state := p.State
		if p.Version > 0 {
			state += fmt.Sprintf(" (version %d)", p.Version)
		}
		w.AppendRow(table.Row{cli.Clean(p.Name), p.Epoch, state, trip, p.Lent, p.Borrowed, strings.Join(parts, ", ")})
	}
	b.WriteString(w.Render())
	b.WriteByte('\n')
	return b.String()
}
