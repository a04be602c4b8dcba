package main

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-json"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"gloom/broker/admin/api"
	"gloom/cmd/internal/cli"
)

const lsLong = `List types (the default), workers or submitters.

The columns of types add up: every submitted job is delayed, queued or running,
or it was answered, failed, cancelled, expired or discarded with its submitter
or type. Columns that have only zeros are left out (not with --all), and what
does not fit on a terminal is cut off. --json prints one JSON object per line
with everything that the broker reports.`

const lsExample = `  gloom ls
  gloom ls workers
  gloom ls types --json | jq -r 'select(.queued > 1000) | .type'`

func newLs(t *tool) *cobra.Command {
	l := &listCommand{tool: t}
	cmd := &cobra.Command{
		Use:       "ls [types | workers | submitters]",
		Aliases:   []string{"list"},
		Short:     "List types, workers or submitters",
		Long:      lsLong,
		Example:   lsExample,
		ValidArgs: []string{"types", "workers", "submitters"},
		Args: func(cmd *cobra.Command, args []string) error {
			kind := strings.Join(args, " ")
			if kind == "" || slices.Contains(cmd.ValidArgs, kind) {
				return nil
			}
			err := cli.Usagef("ls: must be types, workers or submitters, got %q", kind)
			if suggestions := cli.Suggest(kind, cmd.ValidArgs); suggestions != "" {
				return err.SetHint("did you mean %s?", suggestions)
			}
			return err.SetHint("gloom jobs lists jobs, gloom groups lists groups")
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			switch strings.Join(args, "") {
			case "workers":
				return printListing(cmd.Context(), l, "workers", "no workers", l.workerTable)
			case "submitters":
				return printListing(cmd.Context(), l, "submitters", "no submitters", l.submitterTable)
			}
			return printListing(cmd.Context(), l, "types", "no jobs, no workers, no types yet", l.typeTable)
		},
	}
	l.flags(cmd, 1000)
	cmd.Flags().BoolVarP(&l.allColumns, "all", "a", false, "show all columns")
	return cmd
}

// listCommand holds what all listings share.
type listCommand struct {
	*tool
	allColumns bool
	limit      int
	whyEmpty   func() string // nil, or returns what the text for an empty list ends with
}

func (l *listCommand) flags(cmd *cobra.Command, limit int) {
	l.jsonFlag(cmd, "print JSON, one object per line")
	cmd.Flags().IntVar(&l.limit, "limit", limit, "most items to list")
}

// listItem is an item of a listing, as it was sent and decoded.
type listItem[T any] struct {
	value T
	raw   json.RawMessage
}

// UnmarshalJSON implements json.Unmarshaler.
func (x *listItem[T]) UnmarshalJSON(data []byte) error {
	x.raw = bytes.Clone(data)
	return json.Unmarshal(data, &x.value)
}

// printListing prints a listing of the broker.
func printListing[T any](ctx context.Context, l *listCommand, kind, emptyText string, makeTable func(items []T, limit int) table.Writer) error {
	return printItems(l, emptyText, makeTable, func(fn func(listItem[T]) error) (more bool, err error) {
		return eachItem(ctx, l.conn.operator(), "/v1/"+kind, l.limit, fn)
	})
}

// printItems prints the items that read finds: as JSON, or as a table with no column wider than
// a limit.
func printItems[T any](l *listCommand, emptyText string, makeTable func(items []T, limit int) table.Writer, read func(fn func(listItem[T]) error) (more bool, err error)) error {
	if l.limit < 1 {
		return cli.Usagef("--limit %d: must be at least 1", l.limit)
	}
	var items []T
	more, err := read(func(x listItem[T]) error {
		if l.json {
			return l.printJSON(x.raw)
		}
		items = append(items, x.value)
		return nil
	})
	switch {
	case err != nil || l.json:
	case len(items) == 0:
		if l.whyEmpty != nil {
			emptyText += l.whyEmpty()
		}
		l.note("%s", emptyText)
	default:
		err = outputError(cli.PrintTable(l.stdout, func(width int) table.Writer { return makeTable(items, width) }))
	}
	if more {
		l.note("there are more than %d; --limit lists more", l.limit)
	}
	return err
}

func (l *listCommand) typeTable(items []api.Type, limit int) table.Writer {
	var sum api.Ledger
	hasNotes := false
	for i := range items {
		g := &items[i].Ledger
		sum.Delayed += g.Delayed
		sum.Cancelled += g.Cancelled
		sum.Expired += g.Expired
		sum.Discarded += g.Discarded
		hasNotes = hasNotes || rulesOf(&items[i]) != ""
	}
	w := cli.NewTable(
		cli.Column{Name: "TYPE", AlignLeft: true, MaxWidth: limit}, cli.Column{Name: "WORKERS"}, cli.Column{Name: "SUBMITTED"},
		cli.Column{Name: "DELAYED", IsHidden: sum.Delayed == 0 && !l.allColumns}, cli.Column{Name: "QUEUED"}, cli.Column{Name: "RUNNING"},
		cli.Column{Name: "ANSWERED"}, cli.Column{Name: "FAILED"},
		cli.Column{Name: "CANCELLED", IsHidden: sum.Cancelled == 0 && !l.allColumns},
		cli.Column{Name: "EXPIRED", IsHidden: sum.Expired == 0 && !l.allColumns},
		cli.Column{Name: "DISCARDED", IsHidden: sum.Discarded == 0 && !l.allColumns},
		cli.Column{Name: "NOTE", AlignLeft: true, IsHidden: !hasNotes},
	)
	for i := range items {
		x := &items[i]
		g := &x.Ledger
		w.AppendRow(table.Row{cli.Clean(x.Type), x.Workers, g.Submitted, g.Delayed, g.Queued, g.Running,
			g.Answered, g.Failed, g.Cancelled, g.Expired, g.Discarded, rulesOf(x)})
	}
	return w
}

// rulesOf describes the rules that are set for a type: paused, fair, limits.
func rulesOf(x *api.Type) string {
	var s []string
	if x.Paused {
		s = append(s, "paused")
	}
	if x.Fair {
		s = append(s, "fair")
	}
	if l := limitText(ruleLimits(x.Limits)); l != "" {
		s = append(s, l)
	}
	return strings.Join(s, ", ")
}

func (l *listCommand) workerTable(items []api.Worker, limit int) table.Writer {
	w := cli.NewTable(
		cli.Column{Name: "ADDRESS", AlignLeft: true}, cli.Column{Name: "TYPE", AlignLeft: true, MaxWidth: 24}, cli.Column{Name: "STATE", AlignLeft: true},
		cli.Column{Name: "SINCE"}, cli.Column{Name: "CLIENT", AlignLeft: true, MaxWidth: limit},
	)
	for i := range items {
		x := &items[i]
		state, since := "at work", ""
		serves := cli.Clean(x.Type)
		if serves == "" && x.Types > 0 {
			serves = "(" + cli.Plural(x.Types, "type") + ")"
		}
		switch {
		case serves == "":
			state = "not joined"
		case x.Out == 0 && x.Left:
			state = "left"
		case x.Out == 0:
			if state = "idle"; x.Silent {
				state = "silent"
			}
			if x.IdleSeconds > 0 {
				since = formatSpan(x.IdleSeconds)
			}
		case x.Overdue > 0:
			state = fmt.Sprintf("%d overdue", x.Overdue)
		case x.Prefetch > 1:
			state = fmt.Sprintf("%d of %d", x.Out, x.Prefetch)
		}
		w.AppendRow(table.Row{peerAddress(&x.Peer), serves, state, since, cli.Clean(x.Client)})
	}
	return w
}

func (l *listCommand) submitterTable(items []api.Submitter, limit int) table.Writer {
	unread := slices.ContainsFunc(items, func(x api.Submitter) bool { return x.UnreadBytes > 0 })
	w := cli.NewTable(
		cli.Column{Name: "ADDRESS", AlignLeft: true}, cli.Column{Name: "JOBS"}, cli.Column{Name: "BYTES"}, cli.Column{Name: "TYPES"},
		cli.Column{Name: "UNREAD", IsHidden: !unread && !l.allColumns}, cli.Column{Name: "CONNECTED"}, cli.Column{Name: "CLIENT", AlignLeft: true, MaxWidth: limit},
	)
	for i := range items {
		x := &items[i]
		w.AppendRow(table.Row{peerAddress(&x.Peer), x.Jobs, formatBytes(x.Bytes), x.Types, formatBytes(int64(x.UnreadBytes)), formatSpan(x.Seconds), cli.Clean(x.Client)})
	}
	return w
}
