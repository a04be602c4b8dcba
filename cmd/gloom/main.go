// Command gloom is the command line of Gloom: it turns commands into workers, submits jobs, and
// shows and controls a broker. It talks to gloomd like any other client, and only over the protocol
// and the HTTP interface.
package main

import (
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"gloom/cmd/internal/cli"
	"gloom/cmd/internal/launch"
)

func main() {
	launch.Main() // runs the guard, if gloom work has started this process as one
	os.Exit(cli.Execute(newRoot(), os.Args[1:], os.Stderr))
}

// tool holds what all commands share: the standard streams, and the options of the connection.
type tool struct {
	stdout, stderr *os.File
	conn           connection
	json           bool // print JSON
}

// jsonFlag defines the flag --json of a command.
func (t *tool) jsonFlag(cmd *cobra.Command, usage string) {
	cmd.Flags().BoolVar(&t.json, "json", false, usage)
}

// note prints a message for the user on stderr.
func (t *tool) note(format string, args ...any) {
	fmt.Fprintf(t.stderr, "gloom: "+format+"\n", args...)
}

const rootLong = `gloom turns any command into a worker, submits jobs and prints their answers,
and shows and controls the broker, gloomd.

    gloom work TYPE -- COMMAND     serve jobs of a type with a command
    gloom submit TYPE BODY         submit a job, print its answer
    gloom submit TYPE --lines -    submit a job for each line of standard input
    gloom attach ID...             wait for kept jobs, print their answers
    gloom top                      watch the types: queued, running, rates
    gloom status                   is the broker healthy, and how busy?
    gloom findings                 what is holding jobs up, and how is it fixed?
    gloom explain ID               why is this job not running?

gloom help flags explains how to name the broker: with flags, in the environment
or in a file.

` + exitHelp

const rootExample = `  gloomd &
  gloom work -j 4 shout -- tr a-z A-Z &
  gloom submit shout 'hello, world'`

// otherGroup is the group of the commands that are not about brokers.
const otherGroup = "Other:"

func newRoot() *cobra.Command {
	t := &tool{stdout: os.Stdout, stderr: os.Stderr}
	root := &cobra.Command{
		Use: "gloom COMMAND", Short: "Submit jobs, serve them with commands, and control the Gloom broker",
		Long: rootLong, Example: rootExample,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("door") && slices.Contains([]string{"work", "submit", "attach", "ping"}, cmd.Name()) {
				return cli.Usagef("--door: gloom %s works only with a broker", cmd.Name())
			}
			return t.conn.resolve(cmd.Flags())
		},
	}
	cli.SetTopics(root, cli.Topic{Name: "flags", Short: "Flags that all commands take", Text: connectionHelp})
	const ended = "gloom jobs --ended lists jobs that have ended, gloom job ID shows the life of one"
	for word, hint := range map[string]string{
		"start": "gloomd starts a broker", "stop": "gloom drain stops the broker gracefully",
		"log": ended, "logs": ended, "history": ended + "; gloom top --since 3h shows the rates",
		"peers": "gloom ls workers and gloom ls submitters list the peers of a broker, gloom fleet the other brokers",
	} {
		cli.SetWordHint(root, word, hint)
	}
	root.SetVersionTemplate("gloom {{.Version}}\n")
	t.conn.bind(root.PersistentFlags())
	_ = root.RegisterFlagCompletionFunc("context", completeContext) // it fails only for an unknown flag
	for _, group := range []struct {
		title string
		cmds  []*cobra.Command
	}{
		{"Jobs:", []*cobra.Command{newWork(t), newSubmit(t), newAttach(t)}},
		{"Inspect:", []*cobra.Command{newTop(t), newLs(t), newJobs(t), newJob(t), newGroups(t), newExplain(t), newFleet(t), newFindings(t), newStatus(t), newPing(t)}},
		{"Control:", []*cobra.Command{newPause(t), newResume(t), newLimit(t), newChange(t), newCancel(t), newPurge(t), newDead(t), newForget(t), newDrain(t)}},
		{otherGroup, []*cobra.Command{newVersion(t)}},
	} {
		root.AddGroup(&cobra.Group{ID: group.title, Title: group.title})
		for _, c := range group.cmds {
			c.GroupID = group.title
			root.AddCommand(c)
		}
	}
	root.SetHelpCommandGroupID(otherGroup)
	root.SetCompletionCommandGroupID(otherGroup)
	finishCommands(root)
	return root
}

// finishCommands sets the properties that c and all commands below it share.
func finishCommands(c *cobra.Command) {
	c.DisableFlagsInUseLine = true
	if c.ValidArgsFunction == nil && c.ValidArgs == nil {
		c.ValidArgsFunction = cobra.NoFileCompletions
	}
	if run := c.RunE; run != nil {
		c.RunE = func(cmd *cobra.Command, args []string) error { return classify(run(cmd, args)) }
	}
	for _, sub := range c.Commands() {
		finishCommands(sub)
	}
}
