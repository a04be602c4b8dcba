package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gloom/cmd/internal/cli"
	"gloom/cmd/jobd/eot"
)

const completionTimeout = 2 * time.Second

type targetsArg struct {
	Targets []string `json:"targets,omitempty"`
}

// addCommands adds all commands, in groups.
func (a *app) addCommands(root *cobra.Command) {
	for _, group := range []struct {
		title    string
		commands []*cobra.Command
	}{
		{"Commands for a worker:", []*cobra.Command{
			{
				Use: "list-targets", Short: "List the targets, their queues, and which are paused", Args: noArgs,
				RunE: a.action(forWorker, a.showStatus("targets", false, func(s json.RawMessage) error { return a.print(targetTable(s)) })),
			}, {
				Use: "poll TARGET...", Short: "Let the worker fetch waiting jobs of these targets",
				ValidArgsFunction: a.completeTargets,
				RunE:              a.action(forWorker, func(args []string) error { return a.forTargets("poll", args) }),
			}, {
				Use: "set-target-concurrency TARGET N", Short: "Let N jobs of the target run at once",
				ValidArgsFunction: a.completeTargets,
				RunE:              a.action(forWorker, func(args []string) error { return a.sendConcurrency("set-target-concurrency", args) }),
			}, {
				Use: "add-target TARGET N", Short: "Serve another target, and run N of its jobs at once",
				RunE: a.action(forWorker, func(args []string) error { return a.sendConcurrency("add-target", args) }),
			}, {
				Use: "remove-target TARGET", Short: "Stop serving a target, whose queue must be empty",
				ValidArgsFunction: a.completeTargets,
				RunE: a.action(forWorker, func(args []string) error {
					if len(args) != 1 {
						return errArguments()
					}
					return a.send("remove-target", map[string]string{"target": args[0]})
				}),
			}, {
				Use: "recover", Short: "Settle the jobs of dead daemons", Args: noArgs,
				RunE: a.action(forWorker, func([]string) error { return a.recoverRows() }),
			},
		}},
		{"Commands for the master (--master):", []*cobra.Command{
			{
				Use: "list-workers", Short: "List the registered workers and their targets", Args: noArgs,
				RunE: a.action(forMaster, a.showStatus("workers", true, func(s json.RawMessage) error { return a.print(workerTable(s)) })),
			}, {
				Use: "poke TARGET...", Short: "Let all workers of these targets fetch waiting jobs",
				ValidArgsFunction: a.completeTargets,
				RunE:              a.action(forMaster, func(args []string) error { return a.forTargets("poke", args) }),
			},
		}},
		{groupBoth, []*cobra.Command{
			a.verbCommand("pause", "Stop starting jobs of these targets"),
			a.verbCommand("continue", "Start jobs of these targets again"),
			{
				Use: "memory-usage", Short: "Show the memory use of the daemon, in bytes", Args: noArgs,
				RunE: a.action(forBoth, a.showStatus("memoryUsage", false, func(s json.RawMessage) error { return a.print(memoryTable(s, nil)) })),
			}, {
				Use: "status", Short: "Show targets or workers, and memory use", Args: noArgs,
				RunE: a.action(forBoth, a.showStatus("", true, a.printStatus)),
			},
			a.runManualCommand(), a.sendSignalCommand(),
		}},
	} {
		root.AddGroup(&cobra.Group{ID: group.title, Title: group.title})
		for _, c := range group.commands {
			c.GroupID = group.title
			root.AddCommand(c)
		}
	}
}

const groupBoth = "Commands for both:"

// verbCommand returns the command pause or continue.
func (a *app) verbCommand(verb, short string) *cobra.Command {
	var allTargets bool
	c := &cobra.Command{Use: verb + " TARGET... | --all", Short: short, ValidArgsFunction: a.completeTargets}
	c.Flags().BoolVar(&allTargets, "all", false, "all targets")
	c.RunE = a.action(forBoth, func(args []string) error {
		switch {
		case allTargets && len(args) > 0:
			return cli.Failf(cli.ExitFailed, "--all and targets cannot be used together")
		case allTargets:
			return a.send(verb, targetsArg{})
		case len(args) == 0:
			return errNoTargets().SetHint("use --all for all targets")
		}
		return a.forTargets(verb, args)
	})
	return c
}

// These errors have the texts of the original jobctl, word for word.
//
//lint:file-ignore ST1005 scripts know them
func errArguments() *cli.Fault { return cli.Failf(cli.ExitFailed, "Invalid number of arguments.") }

func errNoTargets() *cli.Fault { return cli.Failf(cli.ExitFailed, "No targets specified.") }

func noArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return errArguments()
	}
	return nil
}

// forTargets sends a request for the targets that the user has named.
func (a *app) forTargets(typ string, targets []string) error {
	switch {
	case len(targets) == 0:
		return errNoTargets()
	case slices.Contains(targets, ""):
		return errNoTargets().SetHint("a target's name must not be empty")
	}
	return a.send(typ, targetsArg{targets})
}

func (a *app) sendConcurrency(typ string, args []string) error {
	if len(args) != 2 {
		return errArguments()
	}
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return cli.Failf(cli.ExitFailed, "'concurrency' must be a number.").SetHint("it is '%s'", args[1])
	}
	return a.send(typ, struct {
		Target      string `json:"target"`
		Concurrency int    `json:"concurrency"`
	}{args[0], n})
}

func (a *app) recoverRows() error {
	answer, err := a.request("recover", nil, true)
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(answer)
	}
	_, err = fmt.Fprintf(a.stdout, "%s\n", member(answer, "recovered"))
	return err
}

// completeTargets completes the names of the daemon's targets, if the daemon answers.
func (a *app) completeTargets(_ *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	const noFileComp = cobra.ShellCompDirectiveNoFileComp
	if a.settle() != nil || a.prompt {
		return nil, noFileComp
	}
	a.timeout = completionTimeout
	status, err := a.request("status", pollRequest{false}, false)
	if err != nil {
		return nil, noFileComp
	}
	var names []string
	for _, m := range eot.Members(member(status, "targets")) {
		names = append(names, m.Name)
	}
	for _, w := range eot.Elements(member(status, "workers")) {
		for _, t := range eot.Elements(member(w, "targets")) {
			names = append(names, eot.String(t))
		}
	}
	var matches []string
	for _, name := range names {
		if strings.HasPrefix(name, prefix) && !slices.Contains(args, name) && !slices.Contains(matches, name) {
			matches = append(matches, name)
		}
	}
	return matches, noFileComp
}
