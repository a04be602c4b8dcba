package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"gloom/bench/report"
	"gloom/bench/result"
)

func reportCommand() *cobra.Command {
	var style, plots string
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
				if plots == "" {
					continue
				}
				plotFiles, err := report.Plot(f, plots)
				if err != nil {
					return fmt.Errorf("plots of %s: %w", path, err)
				}
				for _, p := range plotFiles {
					fmt.Fprintln(os.Stderr, "wrote", p)
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&style, "format", "terminal", "terminal, markdown, or benchmark (for benchstat)")
	cmd.Flags().StringVar(&plots, "plots", "", "write SVG plots into this directory")
	return cmd
}
