package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"gloom/cmd/internal/cli"
	"gloom/cmd/jobd/eot"
)

type targetsArg struct {
	Targets []string `json:"targets,omitempty"`
}

func (a *app) workerCommands() []*cobra.Command {
	list := []*cobra.Command{
		{
			Use: "list-targets", Short: "List the targets, their queues, and which are paused", Args: noArgs,
			RunE: a.action(forWorker, func([]string) error { return a.listTargets() }),
		}, {
			Use: "poll TARGET...", Short: "Let the worker fetch waiting jobs of these targets",
			ValidArgsFunction: a.completeTargets,
			RunE:              a.action(forWorker, func(args []string) error { return a.forTargets("poll", args) }),
		}, {
			Use: "set-target-concurrency TARGET N", Short: "Let N jobs of the target run at once",
			ValidArgsFunction: a.completeTargets,
			RunE:              a.action(forWorker, func(args []string) error { return a.concurrency("set-target-concurrency", args) }),
		}, {
			Use: "add-target TARGET N", Short: "Serve another target, and run N of its jobs at once",
			RunE: a.action(forWorker, func(args []string) error { return a.concurrency("add-target", args) }),
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
			RunE: a.action(forWorker, func([]string) error { return a.recover() }),
		},
	}
	for _, c := range list {
		c.GroupID = groupWorker
	}
	return list
}

// The errors of the original jobctl, word for word.
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

func (a *app) concurrency(typ string, args []string) error {
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

func (a *app) recover() error {
	answer, err := a.request("recover", nil, true)
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(answer)
	}
	_, err = fmt.Fprintf(a.stdout, "%s\n", eot.Object(eot.Members(answer)).Get("recovered"))
	return err
}

// target is one target of a worker's status.
type target struct {
	name                        string
	concurrency, length, paused string
}

// targetsOf returns the targets of a worker's status, in its order.
func targetsOf(status json.RawMessage) (list []target) {
	for _, m := range eot.Members(eot.Object(eot.Members(status)).Get("targets")) {
		o := eot.Object(eot.Members(m.Value))
		t := target{m.Name, string(o.Get("concurrency")), string(o.Get("length")), "no"}
		if eot.Truthy(o.Get("paused")) {
			t.paused = "yes"
		}
		list = append(list, t)
	}
	return list
}

func (a *app) listTargets() error {
	status, err := a.request("status", nil, false)
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(eot.Object(eot.Members(status)).Get("targets"))
	}
	return a.print(targetTable(status))
}

func targetTable(status json.RawMessage) *grid {
	t := newGrid("target", "concurrency", "length", "paused")
	for _, target := range targetsOf(status) {
		t.add(target.name, target.concurrency, target.length, target.paused)
	}
	return t
}

// memoryTable returns the memory use in a status. A worker's status also has the number of jobs
// that clients wait for.
func memoryTable(status json.RawMessage) *grid {
	o := eot.Object(eot.Members(status))
	t := newGrid("what", "value")
	for _, m := range eot.Members(o.Get("memoryUsage")) {
		t.add(m.Name, string(m.Value))
	}
	if n := o.Get("jobPromisesCount"); n != nil {
		t.add("pendingJobPromises", string(n))
	}
	return t
}

// completeTargets completes targets of the daemon, if it answers.
func (a *app) completeTargets(_ *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	const noFileComp = cobra.ShellCompDirectiveNoFileComp
	if a.settle() != nil || a.prompt {
		return nil, noFileComp
	}
	a.timeout = completionTimeout
	status, err := a.request("status", map[string]bool{"poll_workers": false}, false)
	if err != nil {
		return nil, noFileComp
	}
	var names []string
	for _, t := range targetsOf(status) {
		names = append(names, t.name)
	}
	for _, w := range eot.Elements(eot.Object(eot.Members(status)).Get("workers")) {
		for _, t := range eot.Elements(eot.Object(eot.Members(w)).Get("targets")) {
			names = append(names, eot.String(t))
		}
	}
	used := make(map[string]bool)
	for _, name := range args {
		used[name] = true
	}
	var fit []string
	for _, name := range names {
		if !used[name] && strings.HasPrefix(name, prefix) {
			used[name] = true
			fit = append(fit, name)
		}
	}
	return fit, noFileComp
}
