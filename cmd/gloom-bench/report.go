package main

import (
	"os"

	"github.com/spf13/cobra"

	"gloom/bench/report"
	"gloom/bench/result"
)

func reportCommand() *cobra.Command {
	var style string
	cmd := &cobra.Command{
		Use: "report FILE…", Short: "render result files as tables and plots", GroupID: "reading", Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			s, err := report.ParseStyle(style)
			if err != nil {
				return err
			}
			for _, path := range args {
				f, err := result.Read(path)
				if err != nil {
					return err
				}
				report.Write(os.Stdout, f, s)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&style, "format", "terminal", "terminal or markdown")
	return cmd
}

func compareCommand() *cobra.Command {
	return &cobra.Command{Use: "compare OLD NEW", Short: "say whether two result files differ", GroupID: "reading", Args: cobra.ExactArgs(2)}
}
