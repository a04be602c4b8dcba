// Command jobctl queries and controls jobd and jobd-master.
package main

import (
	"io"
	"os"

	"github.com/spf13/cobra"

	"gloom/cmd/internal/cli"
)

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// run runs the program and returns the exit code: 0, or 1 for any error.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	app := &app{stdin: stdin, stdout: stdout, stderr: stderr}
	cmd := app.command()
	cmd.SetArgs(args)
	cli.Prepare(cmd)
	err := cli.Run(cmd)
	app.close()
	return min(cli.Report(stderr, "jobctl", err), cli.ExitFailed)
}

const longHelp = `jobctl talks to jobd, or with --master to jobd-master.

~/.jobctl.conf can hold the options that are always the same:

    master = true
    host = 10.0.0.1
    port = 7081
    password = secret
    log_level = warn`

func (a *app) command() *cobra.Command {
	root := &cobra.Command{
		Use:   "jobctl [OPTIONS] COMMAND",
		Short: "Control jobd and jobd-master",
		Long:  longHelp,
		Args:  cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			var names []string
			for _, c := range cmd.Commands() {
				names = append(names, c.Name())
			}
			err := unsupported(args[0])
			if suggestions := cli.Suggest(args[0], names); suggestions != "" {
				return err.SetHint("did you mean %s?", suggestions)
			}
			return err
		},
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	a.bind(root.PersistentFlags())
	a.addCommands(root)
	root.SetHelpCommandGroupID(groupBoth)
	root.SetCompletionCommandGroupID(groupBoth)
	return root
}
