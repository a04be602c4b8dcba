package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/goccy/go-json"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"gloom/broker/admin/api"
	"gloom/cmd/internal/cli"
)

func newDead(t *tool) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dead",
		Short: "List, show and retry jobs that failed",
		Long: `The broker keeps the latest jobs that failed, a number per type and for a time
(its --dead-letters, --dead-bytes and --dead-age). Here they are listed and
shown, and handed in again.`,
		Example: `  gloom dead ls
  gloom dead show mail 8fk2-17
  gloom dead retry mail --all`,
		RunE: func(_ *cobra.Command, args []string) error {
			f := cli.Usagef("dead needs a command")
			if len(args) > 0 {
				f = cli.Usagef("dead: unknown command %q", args[0])
			}
			return f.Advise("gloom dead ls, gloom dead show or gloom dead retry")
		},
		Args: cobra.ArbitraryArgs,
	}
	cmd.AddCommand(newDeadLs(t), newDeadShow(t), newDeadRetry(t))
	return cmd
}

func deadPath(typ, id string) string { return "/v1/dead/" + segment(typ) + "/" + segment(id) }

// mostDead is how many types, and of each how many failed jobs, are looked at.
const mostDead = 100 * pageSize

// typesWithDead are the types of which failed jobs are kept.
func (o *operator) typesWithDead(ctx context.Context) (names []string, err error) {
	_, err = list(ctx, o, "/v1/types", mostDead, func(x api.Type) error {
		if x.Dead > 0 {
			names = append(names, x.Type)
		}
		return nil
	})
	return names, err
}

func newDeadLs(t *tool) *cobra.Command {
	var asJSON bool
	var limit int
	cmd := &cobra.Command{
		Use:               "ls [TYPE]",
		Short:             "List jobs that failed, the latest first",
		Example:           `  gloom dead ls mail`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: t.completeType,
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 1 {
				return cli.Usagef("--limit %d: must be at least 1", limit)
			}
			return t.listDead(cmd.Context(), args, limit, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, one object per line")
	cmd.Flags().IntVar(&limit, "limit", 1000, "list no more than so many")
	return cmd
}

func (t *tool) listDead(ctx context.Context, types []string, limit int, asJSON bool) error {
	o := t.link.operator()
	var err error
	if len(types) == 0 {
		if types, err = o.typesWithDead(ctx); err != nil {
			return err
		}
	}
	type letter struct {
		api.DeadJob
		raw json.RawMessage
	}
	var kept []letter
	left := false
	for _, typ := range types {
		more, err := list(ctx, o, "/v1/dead/"+segment(typ), limit, func(raw json.RawMessage) error {
			kept = append(kept, letter{raw: raw})
			return decode(raw, &kept[len(kept)-1].DeadJob)
		})
		if err != nil {
			return err
		}
		slices.SortStableFunc(kept, func(a, b letter) int { return cmp.Compare(a.FailedSeconds, b.FailedSeconds) })
		left = left || more || len(kept) > limit
		kept = kept[:min(limit, len(kept))]
	}
	switch {
	case len(kept) == 0:
		if !asJSON {
			t.note("no failed jobs are kept")
		}
		return nil
	case asJSON:
		for _, d := range kept {
			if err := t.printJSON(d.raw); err != nil {
				return err
			}
		}
	default:
		err = outputError(cli.PrintTable(t.out, func(most int) table.Writer {
			w := cli.Table(cli.Column{Name: "TYPE", Left: true, Max: min(most, 24)}, cli.Column{Name: "ID", Left: true},
				cli.Column{Name: "FAILED"}, cli.Column{Name: "RUNS"}, cli.Column{Name: "BYTES"},
				cli.Column{Name: "REASON", Left: true, Max: min(most, 200)})
			for _, d := range kept {
				first, rest, _ := strings.Cut(d.Reason, "\n")
				if rest != "" {
					first += " …"
				}
				w.AppendRow(table.Row{cli.Clean(d.Type), cli.Clean(d.ID), span(d.FailedSeconds) + " ago", d.Attempts,
					bytesOf(int64(d.Bytes)), cli.Clean(first)})
			}
			return w
		}))
	}
	if left {
		t.note("there are more than %d; --limit asks for more", limit)
	}
	return err
}

func newDeadShow(t *tool) *cobra.Command {
	var asJSON, body bool
	cmd := &cobra.Command{
		Use:   "show TYPE ID",
		Short: "Show a job that failed, body included",
		Example: `  gloom dead show mail 8fk2-17
  gloom dead show mail 8fk2-17 --body | gloom submit mail - --json`,
		Args:              exactly("a type", "an id"),
		ValidArgsFunction: t.completeType,
		RunE: func(cmd *cobra.Command, args []string) error {
			return printOne(cmd.Context(), t, deadPath(args[0], args[1]), asJSON, func(d *api.DeadJob) string {
				if body {
					return string(oneLine(d.Body)) + "\n"
				}
				return aboutDead(d)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&body, "body", false, "print the body only, as JSON")
	return cmd
}

// shownBody is how much of a body is shown among other facts, in bytes.
const shownBody = 2000

// aboutDead is a failed job in words.
func aboutDead(d *api.DeadJob) string {
	body := string(oneLine(d.Body))
	if len(body) > shownBody {
		body = strings.ToValidUTF8(body[:shownBody], "") + " …"
	}
	var lines []string
	for l := range strings.Lines(d.Reason) {
		lines = append(lines, cli.Clean(strings.TrimRight(l, "\n")))
	}
	return fmt.Sprintf("%s, of type %s, failed %s ago\n", cli.Clean(d.ID), cli.Clean(d.Type), span(d.FailedSeconds)) +
		facts([]fact{
			{"reason", strings.Join(lines, "\n            ")},
			{"runs", fmt.Sprint(d.Attempts)},
			{"priority", fmt.Sprint(d.Priority)},
			{"body", bytesOf(int64(d.Bytes))},
		}) + cli.Clean(body) + "\n"
}

func newDeadRetry(t *tool) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "retry TYPE ID... | retry TYPE --all",
		Short: "Hand failed jobs in again",
		Long: `Hand failed jobs in again, detached: with the same id, body and priority, and
without anyone who waits for the answer.`,
		Example: `  gloom dead retry mail 8fk2-17 8fk2-18
  gloom dead retry mail --all`,
		Args: func(cmd *cobra.Command, args []string) error {
			if all {
				return exactly("a type")(cmd, args)
			}
			return atLeast("a type", "an id or --all")(cmd, args)
		},
		ValidArgsFunction: t.completeType,
		RunE: func(cmd *cobra.Command, args []string) error {
			return t.retryDead(cmd.Context(), args[0], args[1:], all)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "all that are kept of the type")
	return cmd
}

func (t *tool) retryDead(ctx context.Context, typ string, ids []string, all bool) error {
	o := t.link.operator()
	if all {
		_, err := list(ctx, o, "/v1/dead/"+segment(typ), mostDead, func(d api.DeadJob) error {
			ids = append(ids, d.ID)
			return nil
		})
		if err != nil {
			return err
		}
	}
	again := 0
	err := t.forEach(ids, func(id string) error {
		err := o.do(ctx, http.MethodPost, deadPath(typ, id)+"/retry", struct{}{}, nil)
		if err == nil {
			again++
		}
		return err
	})
	if again > 0 || err == nil {
		t.note("handed in again: %s", cli.Plural(again, "job"))
	}
	return err
}

// forEach does something about several ids. It goes on after those that are
// refused, telling each, and returns the first error.
func (t *tool) forEach(ids []string, do func(id string) error) error {
	var first error
	for _, id := range ids {
		err := classify(do(id))
		var f *cli.Fault
		if len(ids) > 1 && errors.As(err, &f) {
			if f.Code != cli.ExitFailed {
				return err
			}
			err = cli.Quiet(cli.Report(t.err, "gloom", err))
		}
		first = cmp.Or(first, err)
	}
	return first
}
