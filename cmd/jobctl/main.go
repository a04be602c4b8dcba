// Command jobctl asks jobd and jobd-master things, and tells them others.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"gloom/cmd/internal/cli"
)

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// run is the program; it returns the exit code: 0, or 1 for every error.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	app := &app{stdin: stdin, stdout: stdout, stderr: stderr}
	cmd := app.command()
	cli.Prepare(cmd)
	cmd.SetArgs(args)
	err := cmd.Execute()
	app.close()
	if err == nil {
		return 0
	}
	fmt.Fprintf(stderr, "jobctl: %v\n", err)
	var hinted *hintError
	if errors.As(err, &hinted) {
		fmt.Fprintf(stderr, "jobctl: hint: %s\n", hinted.hint)
	}
	return 1
}

// hintError is an error with advice.
type hintError struct {
	error
	hint string
}

func (e *hintError) Unwrap() error { return e.error }

const long = `jobctl talks to jobd, or with --master to jobd-master.

Options that are always the same can stand in ~/.jobctl.conf:

    master = true
    host = 10.0.0.1
    port = 7081
    password = secret
    log_level = warn`

func (a *app) command() *cobra.Command {
	root := &cobra.Command{
		Use:           "jobctl [OPTIONS] COMMAND",
		Short:         "Control jobd and jobd-master",
		Long:          long,
		Version:       cli.Version(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			err := fmt.Errorf("unsupported command: '%s'", args[0])
			if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
				return &hintError{err, "did you mean " + strings.Join(near, " or ") + "?"}
			}
			return err
		},
	}
	root.SuggestionsMinimumDistance = 2
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	a.bind(root.PersistentFlags())
	root.AddGroup(
		&cobra.Group{ID: groupWorker, Title: "Commands for a worker:"},
		&cobra.Group{ID: groupMaster, Title: "Commands for the master (--master):"},
		&cobra.Group{ID: groupBoth, Title: "Commands for both:"},
	)
	root.SetHelpCommandGroupID(groupBoth)
	root.SetCompletionCommandGroupID(groupBoth)
	root.AddCommand(a.workerCommands()...)
	root.AddCommand(a.masterCommands()...)
	root.AddCommand(a.commonCommands()...)
	return root
}

const (
	groupWorker = "worker"
	groupMaster = "master"
	groupBoth   = "both"
)
