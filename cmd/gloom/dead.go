package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"gloom/broker/admin/api"
	"gloom/cmd/internal/cli"
)

func newDead(t *tool) *cobra.Command {
	list := newDeadLs(t)
	cmd := &cobra.Command{
		Use:   "dead COMMAND",
		Short: "List, show, retry and discard jobs that failed",
		Long: `The broker keeps the latest failed jobs: at most --dead-letters of a type and
--dead-bytes in all, for --dead-age. These commands list and show them, submit
them again, and discard them. Without a command, they are listed.`,
		Example: `  gloom dead ls
  gloom dead show mail 8fk2-17
  gloom dead retry mail --all`,
		Args: cobra.NoArgs, RunE: list.RunE, // "gloom dead" lists, too
	}
	cmd.AddCommand(list, newDeadShow(t), newDeadRetry(t), newDeadDiscard(t))
	return cmd
}

func deadPath(typ, id string) string { return "/v1/dead/" + api.Segment(typ) + "/" + api.Segment(id) }

// maxDead is the maximum number of types, and the maximum number of failed jobs of each, that are
// read.
const maxDead = 100 * pageSize

// typesWithDead returns the names of the types of which failed jobs are kept.
func (o *operatorClient) typesWithDead(ctx context.Context) (names []string, err error) {
	_, err = eachItem(ctx, o, "/v1/types", maxDead, func(x api.Type) error {
		if x.Dead > 0 {
			names = append(names, x.Type)
		}
		return nil
	})
	return names, err
}

func newDeadLs(t *tool) *cobra.Command {
	l := &listCommand{tool: t}
	var reason string
	cmd := &cobra.Command{
		Use:               "ls [TYPE]",
		Aliases:           []string{"list"},
		Short:             "List jobs that failed, the latest first",
		Example:           `  gloom dead ls mail`,
		Args:              atMost("a type"),
		ValidArgsFunction: t.completeType,
		RunE: func(cmd *cobra.Command, args []string) error {
			return printItems(l, "no failed jobs are kept", l.deadTable, func(fn func(deadItem) error) (bool, error) {
				return l.eachDead(cmd.Context(), args, reason, fn)
			})
		},
	}
	l.flags(cmd, 1000)
	cmd.Flags().Var(nonEmptyFlag(&reason), "reason", "only those whose reason contains this")
	return cmd
}

type deadItem = listItem[api.DeadJob]

// eachDead calls fn for the latest failed jobs of the given types, or of all types if none is given.
func (l *listCommand) eachDead(ctx context.Context, types []string, reason string, fn func(deadItem) error) (more bool, err error) {
	o := l.conn.operator()
	if len(types) == 0 {
		if types, err = o.typesWithDead(ctx); err != nil {
			return false, err
		}
	}
	var st api.Status
	if err := o.call(ctx, http.MethodGet, "/v1/status", nil, &st); err != nil {
		return false, err
	}
	if st.DeadDropped > 0 {
		defer l.note("%s not kept for lack of room, since the broker started: at most %s of a type (--dead-letters), %s in all (--dead-bytes)",
			cli.Plural(int(st.DeadDropped), "failed job"), humanize.Comma(st.Limits["dead_letters"]), cli.FormatBytes(st.Limits["dead_bytes"]))
	}
	var letters []deadItem
	for _, typ := range types {
		items, left, err := listItems[deadItem](ctx, o, "/v1/dead/"+api.Segment(typ)+"?reason="+url.QueryEscape(reason), l.limit)
		if err != nil {
			return false, err
		}
		letters = append(letters, items...)
		slices.SortFunc(letters, func(a, b deadItem) int { return cmp.Compare(b.value.No, a.value.No) })
		more = more || left || len(letters) > l.limit
		letters = letters[:min(l.limit, len(letters))]
	}
	for _, d := range letters {
		if err := fn(d); err != nil {
			return false, err
		}
	}
	return more, nil
}

// deadTable returns a table of failed jobs.
func (l *listCommand) deadTable(items []api.DeadJob, limit int) table.Writer {
	w := cli.NewTable(cli.Column{Name: "TYPE", AlignLeft: true, MaxWidth: min(limit, 24)}, cli.Column{Name: "ID", AlignLeft: true},
		cli.Column{Name: "FAILED"}, cli.Column{Name: "RUNS"}, cli.Column{Name: "BYTES"},
		cli.Column{Name: "REASON", AlignLeft: true, MaxWidth: min(limit, 200)})
	for i := range items {
		d := &items[i]
		first, rest, _ := strings.Cut(d.Reason, "\n")
		if rest != "" {
			first += " …"
		}
		w.AppendRow(table.Row{cli.Clean(d.Type), cli.Clean(d.ID), formatSpan(d.FailedSeconds) + " ago", d.Attempts, formatBytes(int64(d.Bytes)), cli.Clean(first)})
	}
	return w
}

func newDeadShow(t *tool) *cobra.Command {
	var body bool
	cmd := &cobra.Command{
		Use:   "show TYPE ID",
		Short: "Show a job that failed, body included",
		Example: `  gloom dead show mail 8fk2-17
  gloom dead show mail 8fk2-17 --body | gloom submit mail - --json`,
		Args:              exactArgs("a type", "an id"),
		ValidArgsFunction: t.completeType,
		RunE: func(cmd *cobra.Command, args []string) error {
			return printOne(cmd.Context(), t, deadPath(args[0], args[1]), func(d *api.DeadJob) string {
				if body {
					return string(oneLine(d.Body)) + "\n"
				}
				return describeDead(d)
			})
		},
	}
	t.jsonFlag(cmd, "print JSON")
	cmd.Flags().BoolVar(&body, "body", false, "print the body only, as JSON")
	return cmd
}

// describeDead returns what to print about a failed job.
func describeDead(d *api.DeadJob) string {
	var lines []string
	for l := range strings.Lines(d.Reason) {
		lines = append(lines, cli.Clean(strings.TrimRight(l, "\n")))
	}
	return fmt.Sprintf("%s, of type %s, failed %s ago\n", cli.QuoteName(d.ID), cli.QuoteName(d.Type), formatSpan(d.FailedSeconds)) +
		fieldTable([]field{
			{"reason", strings.Join(lines, "\n            ")},
			{"runs", fmt.Sprint(d.Attempts)},
			{"priority", fmt.Sprint(d.Priority)},
			{"body", formatBytes(int64(d.Bytes))},
		}) + cli.Clean(abridged(d.Body)) + "\n"
}

func newDeadRetry(t *tool) *cobra.Command {
	return newDeadAction(t, "retry", "Submit failed jobs again",
		`Submit failed jobs again, detached: with the same id, body and priority, and
nobody waits for the answer. --all selects all jobs of the type that match.`,
		`  gloom dead retry mail 8fk2-17 8fk2-18
  gloom dead retry mail --all --reason timeout`, "submitted again")
}

func newDeadDiscard(t *tool) *cobra.Command {
	return newDeadAction(t, "discard", "Forget failed jobs",
		`Forget failed jobs. They cannot be submitted again. --all selects all jobs of
the type that match; gloom then names their number and asks, unless --yes is
given.`,
		`  gloom dead discard mail 8fk2-17
  gloom dead discard mail --all --reason 'no such user' --yes`, "forgotten")
}

func newDeadAction(t *tool, verb, short, long, example, done string) *cobra.Command {
	a := &deadAction{tool: t, verb: verb, done: done}
	cmd := &cobra.Command{
		Use: verb + " TYPE ID... | " + verb + " TYPE --all", Short: short, Long: long, Example: example,
		Args: func(cmd *cobra.Command, args []string) error {
			if a.all {
				return exactArgs("a type")(cmd, args)
			}
			if a.filter.Reason != "" || a.older > 0 {
				return cli.Usagef("--reason and --older need --all")
			}
			return atLeast("a type", "an id or --all")(cmd, args)
		},
		ValidArgsFunction: t.completeType,
		RunE: func(cmd *cobra.Command, args []string) error {
			a.filter.Older = a.older.Milliseconds()
			if a.all {
				return a.changeMatching(args[0])
			}
			return a.changeIDs(cmd.Context(), args[0], args[1:])
		},
	}
	f := cmd.Flags()
	f.BoolVar(&a.all, "all", false, "all failed jobs of the type that are kept")
	f.Var(nonEmptyFlag(&a.filter.Reason), "reason", "with --all: only those whose reason contains this")
	f.Var(ageFlag(&a.older), "older", "with --all: only those that failed at least this long ago")
	if a.yes = verb != "discard"; !a.yes {
		f.BoolVarP(&a.yes, "yes", "y", false, "do not ask")
	}
	return cmd
}

// deadAction is a command that retries or discards failed jobs.
type deadAction struct {
	*tool
	verb, done string
	filter     api.DeadFilter
	older      time.Duration
	all, yes   bool
}

func (a *deadAction) changeMatching(typ string) error {
	filter := func(limit int) any {
		f := a.filter
		f.All, f.Most = f.Reason == "" && f.Older == 0, limit
		return f
	}
	out, err := a.tool.changeMany(&bulkChange{
		path: "/v1/dead/" + api.Segment(typ) + "/" + a.verb, filter: filter, noun: "failed job", typ: typ, verb: a.verb, yes: a.yes,
		filterText: filterText("reason", a.filter.Reason, "older", ageText(a.older)),
	})
	if err != nil || out == nil {
		return err
	}
	a.note("%s: %s", a.done, cli.Plural(out.Done, "job"))
	if out.Refused > 0 {
		return cli.Failf(cli.ExitFailed, "%s refused, the first because %s", cli.Plural(out.Refused, "job"), out.Reason)
	}
	return nil
}

func (a *deadAction) changeIDs(ctx context.Context, typ string, ids []string) error {
	o := a.conn.operator()
	done := 0
	err := a.forEach(ids, func(id string) (err error) {
		if a.verb == "discard" {
			err = o.call(ctx, http.MethodDelete, deadPath(typ, id), nil, nil)
		} else {
			err = o.call(ctx, http.MethodPost, deadPath(typ, id)+"/retry", struct{}{}, nil)
		}
		if err == nil {
			done++
		}
		return err
	})
	if done > 0 || err == nil {
		a.note("%s: %s", a.done, cli.Plural(done, "job"))
	}
	return err
}

// forEach calls fn for each id. It reports an id that is refused and continues, and returns the
// first error.
func (t *tool) forEach(ids []string, fn func(id string) error) error {
	var first error
	for _, id := range ids {
		err := classify(fn(id))
		var f *cli.Fault
		if len(ids) > 1 && errors.As(err, &f) {
			if f.Code != cli.ExitFailed {
				return err
			}
			err = cli.SilentExit(cli.Report(t.stderr, "gloom", err))
		}
		first = cmp.Or(first, err)
	}
	return first
}
