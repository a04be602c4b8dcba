package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"gloom/cmd/internal/cli"
	"gloom/cmd/jobd/eot"
)

const completionTimeout = 2 * time.Second

func (a *app) masterCommands() []*cobra.Command {
	list := []*cobra.Command{
		{
			Use: "list-workers", Short: "List the registered workers and their targets", Args: noArgs,
			RunE: a.action(forMaster, func([]string) error { return a.listWorkers() }),
		}, {
			Use: "poke TARGET...", Short: "Let all workers of these targets fetch waiting jobs",
			ValidArgsFunction: a.completeTargets,
			RunE:              a.action(forMaster, func(args []string) error { return a.forTargets("poke", args) }),
		},
	}
	for _, c := range list {
		c.GroupID = groupMaster
	}
	return list
}

func (a *app) commonCommands() []*cobra.Command {
	list := []*cobra.Command{
		a.verbCommand("pause", "Stop starting jobs of these targets"),
		a.verbCommand("continue", "Start jobs of these targets again"),
		{
			Use: "memory-usage", Short: "Show the memory use of the daemon, in bytes", Args: noArgs,
			RunE: a.action(forBoth, func([]string) error { return a.memoryUsage() }),
		}, {
			Use: "status", Short: "Show targets or workers, and memory use", Args: noArgs,
			RunE: a.action(forBoth, func([]string) error { return a.status() }),
		},
		a.runManualCommand(), a.sendSignalCommand(),
	}
	for _, c := range list {
		c.GroupID = groupBoth
	}
	return list
}

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

type pollWorkers struct {
	PollWorkers bool `json:"poll_workers"`
}

func (a *app) listWorkers() error {
	status, err := a.request("status", pollWorkers{true}, false)
	if err != nil {
		return err
	}
	if a.json {
		return errors.Join(a.printJSON(eot.Object(eot.Members(status)).Get("workers")), unresponsive(status))
	}
	return errors.Join(a.printWorkers(status), unresponsive(status))
}

// unresponsive returns an error for the workers that did not report their status.
func unresponsive(status json.RawMessage) error {
	var unresponsive []error
	for _, raw := range eot.Elements(eot.Object(eot.Members(status)).Get("workers")) {
		if w := eot.Object(eot.Members(raw)); w.Get("workerStatus") == nil {
			unresponsive = append(unresponsive, fmt.Errorf("worker '%s' (%s): %s", eot.String(w.Get("name")), eot.String(w.Get("remoteAddr")), eot.String(w.Get("workerStatusError"))))
		}
	}
	return errors.Join(unresponsive...)
}

func (a *app) printWorkers(status json.RawMessage) error {
	t := newGrid("worker", "targets", "concurrency", "length", "paused")
	for _, raw := range eot.Elements(eot.Object(eot.Members(status)).Get("workers")) {
		w := eot.Object(eot.Members(raw))
		name, addr := eot.String(w.Get("name")), eot.String(w.Get("remoteAddr"))
		targets := targetsOf(w.Get("workerStatus"))
		if w.Get("workerStatus") == nil {
			for _, e := range eot.Elements(w.Get("targets")) {
				targets = append(targets, target{eot.String(e), "-", "-", "-"})
			}
		}
		var cells [4][]string
		for _, t := range targets {
			for i, text := range []string{t.name, t.concurrency, t.length, t.paused} {
				cells[i] = append(cells[i], text)
			}
		}
		t.addLines([]string{name, "(" + addr + ")"}, cells[0], cells[1], cells[2], cells[3])
	}
	return a.print(t)
}

func (a *app) memoryUsage() error {
	status, err := a.request("status", nil, false)
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(eot.Object(eot.Members(status)).Get("memoryUsage"))
	}
	return a.print(memoryTable(status))
}

func (a *app) status() error {
	var data any
	if a.settings.Master {
		data = pollWorkers{true}
	}
	status, err := a.request("status", data, false)
	if err != nil {
		return err
	}
	if a.json {
		return errors.Join(a.printJSON(status), unresponsive(status))
	}
	if a.settings.Master {
		err = a.printWorkers(status)
	} else {
		err = a.print(targetTable(status))
	}
	fmt.Fprintln(a.stdout)
	return errors.Join(err, a.print(memoryTable(status)), unresponsive(status))
}
