// Command gloom-bench measures a Gloom broker, and others of its kind, under
// loads that it makes and checks itself. See bench/README.md.
package main

import (
	"context"
	"os"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"gloom/bench/clients"
	"gloom/bench/jobd"
	"gloom/bench/jq"
	"gloom/bench/serverless"
	"gloom/cmd/internal/cli"
	"gloom/cmd/jobd/bridge"
)

// errFaults ends the program with status 1: a server answered wrongly or not at all.
var errFaults = cli.Failf(cli.ExitFailed, "the server made errors: see the faults above")

func main() {
	bridge.Main() // runs the guard of jobd's mode launch, if this process was started as one
	ctx, stop := cli.UntilSignal(context.Background())
	if !cli.HasColours(os.Stdout) {
		text.DisableColors()
	}
	cmd := newRoot()
	cmd.SetContext(ctx)
	status := cli.Execute(cmd, os.Args[1:], os.Stderr)
	stop()
	os.Exit(status)
}

func newRoot() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "gloom-bench COMMAND",
		Short: "measure a Gloom broker and its peers",
		Long: `gloom-bench puts a broker under load and checks every answer: that it belongs
to its job, carries what was sent, came once and after its ack. A lost, doubled,
swapped, damaged or unacked job leads to exit status 1, an invalid command line
to 2.

Without --server it starts a gloomd of its own on free ports of the loopback
interface, a new one for every round.`,
	}
	cmd.SetVersionTemplate("gloom-bench {{.Version}}\n")
	cmd.AddGroup(
		&cobra.Group{ID: "shapes", Title: "Shapes of load:"},
		&cobra.Group{ID: "reading", Title: "Comparing and reading:"},
		&cobra.Group{ID: "parts", Title: "Doors and clients:"},
		&cobra.Group{ID: "other", Title: "Other:"},
	)
	cmd.SetHelpCommandGroupID("other")
	cmd.SetCompletionCommandGroupID("other")
	for _, s := range shapes() {
		cmd.AddCommand(s.command())
	}
	for _, c := range []*cobra.Command{jobd.Command(), jq.Command(), serverless.Command(), clients.Command()} {
		c.GroupID = "parts"
		cmd.AddCommand(c)
	}
	cmd.AddCommand(raceCommand(), fleetCommand(), sweepCommand(), reportCommand(), relayCommand())
	return cmd
}
