package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"gloom/cmd/internal/daemon"
	"gloom/cmd/serverlessd/engine"
)

// ingestCommand brings the jobs in the journal of a lost daemon to stores, where other daemons run
// them.
func ingestCommand() *cobra.Command {
	var stores []string
	cmd := &cobra.Command{
		Use: "ingest DIR", Short: "Bring the jobs in the journal of a lost daemon to a store", Args: cobra.ExactArgs(1),
		Long: `Brings the jobs that a daemon accepted, but had not yet given to its store, into
that store, where other daemons find them. DIR is what that daemon's --dir was;
no daemon may be using it. Doing it twice does no harm.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(stores) == 0 {
				stores = []string{engine.DefaultStore(args[0])}
			}
			if _, err := os.Stat(args[0]); err != nil {
				return err
			}
			log, err := daemon.OpenLog(daemon.LogConfig{LevelConsole: "info"}, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			jobs, damaged, err := engine.Rescue(cmd.Context(), args[0], stores, log.Logger)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%d jobs ingested, %d bytes of damage set aside\n", jobs, damaged)
			return nil
		},
	}
	cmd.Flags().StringArrayVar(&stores, "store", nil, "the --store of that daemon; by default the one in DIR")
	return cmd
}
