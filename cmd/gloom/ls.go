package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/goccy/go-json"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"
)

const lsLong = `List types (if nothing else is asked for), workers or submitters.

Of types, the columns add up: every job submitted is delayed, queued, running,
or has been answered, failed, cancelled, expired or discarded with its
submitter. Columns with nothing but zeros are left out, unless with --all.
--json prints a JSON object per line, with all that the broker tells.`

const lsExample = `  gloom ls
  gloom ls workers
  gloom ls types --json | jq -r 'select(.queued > 1000) | .type'`

func newLs(t *tool) *cobra.Command {
	l := &ls{tool: t}
	cmd := &cobra.Command{
		Use:       "ls [types | workers | submitters]",
		Short:     "List types, workers or submitters",
		Long:      lsLong,
		Example:   lsExample,
		Args:      oneOf("types", "workers", "submitters"),
		ValidArgs: []string{"types", "workers", "submitters"},
		RunE: func(cmd *cobra.Command, args []string) error {
			return l.run(cmd.Context(), strings.Join(args, ""))
		},
		DisableFlagsInUseLine: true,
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.BoolVar(&l.json, "json", false, "print JSON, one object per line")
	f.BoolVarP(&l.all, "all", "a", false, "show all columns")
	f.IntVar(&l.limit, "limit", 1000, "list no more than so many")
	return cmd
}

// oneOf takes at most one argument, out of a few.
func oneOf(words ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		for _, w := range words {
			if len(args) == 1 && args[0] == w {
				return nil
			}
		}
		return usage("%s: must be %s, got %q", cmd.Name(), strings.Join(words, " or "), strings.Join(args, " "))
	}
}

type ls struct {
	*tool
	json  bool
	all   bool
	limit int
}

func (l *ls) run(ctx context.Context, what string) error {
	if l.limit < 1 {
		return usage("--limit %d: must be at least 1", l.limit)
	}
	a, err := l.link.api()
	if err != nil {
		return err
	}
	if what == "" {
		what = "types"
	}
	var more bool
	switch {
	case l.json:
		more, err = a.list(ctx, "/v1/"+what, l.limit, l.printJSON)
	case what == "types":
		var items []typeInfo
		if items, more, err = listOf[typeInfo](ctx, a, "/v1/types", l.limit); err == nil {
			err = l.print(func(most int) table.Writer { return l.types(items, most) }, len(items), "no jobs, no workers, no types yet")
		}
	case what == "workers":
		var items []workerInfo
		if items, more, err = listOf[workerInfo](ctx, a, "/v1/workers", l.limit); err == nil {
			err = l.print(func(most int) table.Writer { return l.workers(items, most) }, len(items), "no workers")
		}
	default:
		var items []submitterInfo
		if items, more, err = listOf[submitterInfo](ctx, a, "/v1/submitters", l.limit); err == nil {
			err = l.print(func(most int) table.Writer { return l.submitters(items, most) }, len(items), "no submitters")
		}
	}
	if more {
		l.note("there are more than %d; --limit asks for more", l.limit)
	}
	return err
}

func (t *tool) printJSON(raw json.RawMessage) error {
	_, err := fmt.Fprintf(t.out, "%s\n", oneLine(raw))
	return outputError(err)
}

// print prints a table whose widest column is at most so wide that it fits a
// terminal.
func (l *ls) print(make func(most int) table.Writer, n int, none string) error {
	if n == 0 {
		l.note("%s", none)
		return nil
	}
	return l.render(make)
}

func (l *ls) types(items []typeInfo, most int) table.Writer {
	var sum ledger
	notes := false
	for _, t := range items {
		sum.Delayed += t.Ledger.Delayed
		sum.Cancelled += t.Ledger.Cancelled
		sum.Expired += t.Ledger.Expired
		sum.Discarded += t.Ledger.Discarded
		notes = notes || t.note() != ""
	}
	w := grid([]column{
		{name: "TYPE", left: true, max: most}, {name: "WORKERS"}, {name: "SUBMITTED"},
		{name: "DELAYED", hide: sum.Delayed == 0 && !l.all}, {name: "QUEUED"}, {name: "RUNNING"},
		{name: "ANSWERED"}, {name: "FAILED"},
		{name: "CANCELLED", hide: sum.Cancelled == 0 && !l.all},
		{name: "EXPIRED", hide: sum.Expired == 0 && !l.all},
		{name: "DISCARDED", hide: sum.Discarded == 0 && !l.all},
		{name: "NOTE", left: true, hide: !notes},
	})
	for _, t := range items {
		g := t.Ledger
		w.AppendRow(table.Row{clean(t.Type), t.Workers, g.Submitted, g.Delayed, g.Queued, g.Running,
			g.Answered, g.Failed, g.Cancelled, g.Expired, g.Discarded, t.note()})
	}
	return w
}

// note is what is set on a type.
func (t *typeInfo) note() string {
	var s []string
	if t.Paused {
		s = append(s, "paused")
	}
	if l := t.Limits.String(); l != "" {
		s = append(s, l)
	}
	return strings.Join(s, ", ")
}

// String is empty where there are no limits.
func (l limits) String() string {
	var s []string
	if l.Concurrency > 0 {
		s = append(s, fmt.Sprintf("%d at a time", l.Concurrency))
	}
	if l.Rate > 0 {
		s = append(s, fmt.Sprintf("%g/s", l.Rate))
	}
	if s == nil {
		return ""
	}
	return "at most " + strings.Join(s, ", ")
}

func (l *ls) workers(items []workerInfo, most int) table.Writer {
	w := grid([]column{
		{name: "ADDRESS", left: true}, {name: "TYPE", left: true, max: 24}, {name: "STATE", left: true},
		{name: "SINCE"}, {name: "CLIENT", left: true, max: most},
	})
	for _, x := range items {
		state, since := "at work", ""
		switch {
		case x.Type == "":
			state = "not joined"
		case x.Out == 0 && x.Left:
			state = "left"
		case x.Out == 0:
			state, since = "idle", span(x.Idle)
		case x.Overdue > 0:
			state = fmt.Sprintf("%d overdue", x.Overdue)
		case x.Prefetch > 1:
			state = fmt.Sprintf("%d of %d", x.Out, x.Prefetch)
		}
		w.AppendRow(table.Row{x.at(), clean(x.Type), state, since, clean(x.Client)})
	}
	return w
}

func (l *ls) submitters(items []submitterInfo, most int) table.Writer {
	w := grid([]column{
		{name: "ADDRESS", left: true}, {name: "JOBS"}, {name: "BYTES"}, {name: "TYPES"},
		{name: "CONNECTED"}, {name: "CLIENT", left: true, max: most},
	})
	for _, x := range items {
		w.AppendRow(table.Row{x.at(), x.Jobs, bytesOf(x.Bytes), x.Types, span(x.Seconds), clean(x.Client)})
	}
	return w
}

// at is where a peer is; those on a unix socket have no address.
func (p *peer) at() string {
	if p.Address == "" || p.Address == "@" {
		return fmt.Sprintf("unix #%d", p.Number)
	}
	return p.Address
}
