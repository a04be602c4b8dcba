// Command gloom is what people type: it turns commands into workers, hands in
// jobs, and shows and steers a broker. It talks to gloomd like any client and
// knows nothing that the protocol and the HTTP interface do not say.
package main

import (
	"errors"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func main() { os.Exit(run(os.Args[1:])) }

// run executes a command line and returns the exit status.
func run(args []string) int {
	t := &tool{out: os.Stdout, err: os.Stderr}
	root := newRoot(t)
	root.SetArgs(args)
	err := root.Execute()
	var f *fault
	if err != nil && !t.started && !errors.As(err, &f) {
		err = usage("%w", err).advise("gloom --help and gloom COMMAND --help show what can be given")
	}
	return t.report(err)
}

const rootLong = `gloom turns any command into a worker, hands in jobs and prints their answers,
and shows and steers the broker, gloomd.

    gloom work TYPE -- COMMAND     serve jobs of a type with a command
    gloom submit TYPE BODY         hand a job in, print its answer
    gloom submit TYPE --lines -    hand in a job per line of standard input
    gloom top                      watch the types: queued, running, rates
    gloom explain ID               why does this job not run?

Addresses are host:port or unix:/path. Options of the connection can also be
set in the environment, under the names that --help shows; a flag wins.

` + exitHelp

const rootExample = `  gloomd &
  gloom work -j 4 shout -- tr a-z A-Z &
  gloom submit shout 'hello, world'`

func newRoot(t *tool) *cobra.Command {
	root := &cobra.Command{
		Use:           "gloom",
		Short:         "Work, submit and operate with the Gloom job broker",
		Long:          rootLong,
		Example:       rootExample,
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := settle(cmd.Flags()); err != nil {
				return err
			}
			t.started = true
			return nil
		},
	}
	root.SetVersionTemplate("gloom {{.Version}}\n")
	root.SetOut(t.out)
	root.SetErr(t.err)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usage("%v", err).advise("%s --help shows the options", cmd.CommandPath())
	})
	t.link.bind(root.PersistentFlags())
	fitTerminal(root)
	root.AddGroup(
		&cobra.Group{ID: groupJobs, Title: "Jobs:"},
		&cobra.Group{ID: groupLook, Title: "Looking:"},
		&cobra.Group{ID: groupSteer, Title: "Steering:"},
	)
	for _, c := range []struct {
		group string
		cmd   *cobra.Command
	}{
		{groupJobs, newWork(t)},
		{groupJobs, newSubmit(t)},
		{groupLook, newTop(t)},
		{groupLook, newLs(t)},
		{groupLook, newExplain(t)},
		{groupLook, newStatus(t)},
		{groupLook, newPing(t)},
		{groupSteer, newPause(t)},
		{groupSteer, newResume(t)},
		{groupSteer, newLimit(t)},
		{groupSteer, newCancel(t)},
		{groupSteer, newDead(t)},
		{groupSteer, newDrain(t)},
		{"", newVersion(t)},
		{"", newMan(t)},
	} {
		c.cmd.GroupID = c.group
		c.cmd.InheritedFlags().SortFlags = false
		root.AddCommand(c.cmd)
	}
	return root
}

// fitTerminal wraps the help of flags at 80 columns and keeps their order.
func fitTerminal(root *cobra.Command) {
	cobra.AddTemplateFunc("wrapped", func(f *pflag.FlagSet) string {
		f.SortFlags = false
		return strings.TrimRight(f.FlagUsagesWrapped(80), "\n")
	})
	usage := root.UsageTemplate()
	for _, which := range []string{"Local", "Inherited"} {
		usage = strings.ReplaceAll(usage, "{{."+which+"Flags.FlagUsages | trimTrailingWhitespaces}}", "{{wrapped ."+which+"Flags}}")
	}
	root.SetUsageTemplate(usage)
}

const (
	groupJobs  = "jobs"
	groupLook  = "look"
	groupSteer = "steer"
)
