package main

import (
	"context"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"gloom/cmd/internal/cli"
)

const attachLong = `Wait for kept jobs (gloom submit --keep) that a client with the same token
submitted, and print their answers as they end, as gloom submit --lines does;
with --ordered in the order of the ids. A client that waited for such a job gets
nothing more about it. An id that no kept job has is reported at once and counts
as failed.

--ids FILE (- is standard input) has an id on each line; blank ones are skipped.
Up to --window jobs are attached to at a time. After Ctrl-C the jobs continue,
and the outcomes that were not printed are kept.`

// attachWindow is the default of --window, the number of jobs that are attached to at a time.
const attachWindow = 10_000

func newAttach(t *tool) *cobra.Command {
	s := &submitCommand{tool: t, attach: true}
	s.job.Keep = 1 // the job continues without us
	var ids string
	cmd := &cobra.Command{
		Use:   "attach ID... | --ids FILE",
		Short: "Wait for kept jobs and print their answers",
		Long:  attachLong,
		Example: `  gloom attach weekly
  gloom attach --ids ids.txt --records >answers.jsonl`,
		RunE: func(cmd *cobra.Command, args []string) error {
			file := cmd.Flags().Changed("ids")
			switch {
			case file && len(args) > 0:
				return cli.Usagef("ids and --ids cannot be used together")
			case file && ids == "":
				return cli.Usagef("--ids needs a file, or - for standard input")
			case !file && len(args) == 0:
				return cli.Usagef("attach needs an id, or --ids").SetHint("gloom attach ID")
			case !file && slices.Contains(args, ""):
				return cli.Usagef("attach: argument %d, an id, is empty", slices.Index(args, "")+1)
			}
			if err := s.checkStream(cmd.Flags()); err != nil {
				return err
			}
			ctx, stop := cli.UntilSignal(context.Background())
			defer stop()
			if file {
				return s.streamFile(ctx, "ids", ids)
			}
			n := len(args)
			return s.stream(ctx, func() int { return n }, func(int) (id []byte, err error) {
				if len(args) == 0 {
					return nil, io.EOF
				}
				id, args = []byte(args[0]), args[1:]
				return id, nil
			})
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f := cmd.Flags()
	f.StringVar(&ids, "ids", "", "wait for the jobs with the ids in this file; - is standard input")
	f.BoolVar(&s.asJSON, "json", false, "print answers as JSON")
	f.BoolVar(&s.base64, "base64", false, "answers are bytes in base64, and are printed as bytes")
	s.streamFlags(f, attachWindow)
	f.BoolVar(&s.progress, "progress", false, "print the workers' progress on standard error")
	s.quietFlag(f)
	return cmd
}
