package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/goccy/go-json"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"
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
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage("dead: unknown command %q", args[0]).advise("gloom dead ls, gloom dead show or gloom dead retry")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return usage("dead needs a command").advise("gloom dead ls, gloom dead show or gloom dead retry")
		},
	}
	for _, c := range []*cobra.Command{newDeadLs(t), newDeadShow(t), newDeadRetry(t)} {
		c.InheritedFlags().SortFlags = false
		cmd.AddCommand(c)
	}
	return cmd
}

func deadPath(typ, id string) string { return "/v1/dead/" + segment(typ) + "/" + segment(id) }

func newDeadLs(t *tool) *cobra.Command {
	l := &deadLs{tool: t}
	cmd := &cobra.Command{
		Use:               "ls [TYPE]",
		Short:             "List jobs that failed, the latest first",
		Example:           `  gloom dead ls mail`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: t.completeType,
		RunE:              func(cmd *cobra.Command, args []string) error { return l.run(cmd.Context(), args) },

		DisableFlagsInUseLine: true,
	}
	cmd.Flags().BoolVar(&l.json, "json", false, "print JSON, one object per line")
	cmd.Flags().IntVar(&l.limit, "limit", 1000, "list no more than so many of each type")
	return cmd
}

type deadLs struct {
	*tool
	json  bool
	limit int
}

func (l *deadLs) run(ctx context.Context, types []string) error {
	if l.limit < 1 {
		return usage("--limit %d: must be at least 1", l.limit)
	}
	a, err := l.link.api()
	if err != nil {
		return err
	}
	if len(types) == 0 {
		all, _, err := listOf[typeInfo](ctx, a, "/v1/types", 100*pageSize)
		if err != nil {
			return err
		}
		for _, k := range all {
			if k.Dead > 0 {
				types = append(types, k.Type)
			}
		}
	}
	var kept []deadJob
	for _, typ := range types {
		path := "/v1/dead/" + segment(typ)
		if l.json {
			_, err = a.list(ctx, path, l.limit, l.printJSON)
		} else {
			var items []deadJob
			items, _, err = listOf[deadJob](ctx, a, path, l.limit)
			kept = append(kept, items...)
		}
		if err != nil {
			return err
		}
	}
	switch {
	case l.json:
		return nil
	case len(kept) == 0:
		l.note("no failed jobs are kept")
		return nil
	}
	return l.render(func(most int) table.Writer {
		w := grid([]column{
			{name: "TYPE", left: true, max: min(most, 24)}, {name: "ID", left: true}, {name: "FAILED"}, {name: "RUNS"},
			{name: "BYTES"}, {name: "REASON", left: true, max: min(most, 200)},
		})
		for _, d := range kept {
			w.AppendRow(table.Row{clean(d.Type), clean(d.ID), span(d.Age) + " ago", d.Attempts, bytesOf(d.Bytes), firstLine(d.Reason)})
		}
		return w
	})
}

// firstLine is a reason's first line, for a table.
func firstLine(s string) string {
	first, rest, _ := strings.Cut(s, "\n")
	if rest != "" {
		first += " …"
	}
	return clean(first)
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
			a, err := t.link.api()
			if err != nil {
				return err
			}
			var raw json.RawMessage
			if err := a.do(cmd.Context(), http.MethodGet, deadPath(args[0], args[1]), nil, &raw); err != nil {
				return err
			}
			switch {
			case asJSON:
				return t.printJSON(raw)
			case body:
				var d deadJob
				if err := json.Unmarshal(raw, &d); err != nil {
					return err
				}
				return t.printJSON(d.Body)
			}
			return t.showDead(raw)
		},
		DisableFlagsInUseLine: true,
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&body, "body", false, "print the body only, as JSON")
	return cmd
}

// shownBody is how much of a body is shown among other facts, in bytes.
const shownBody = 2000

func (t *tool) showDead(raw json.RawMessage) error {
	var d deadJob
	if err := json.Unmarshal(raw, &d); err != nil {
		return err
	}
	fmt.Fprintf(t.out, "%s, of type %s, failed %s ago\n", clean(d.ID), clean(d.Type), span(d.Age))
	body := string(oneLine(d.Body))
	if len(body) > shownBody {
		body = strings.ToValidUTF8(body[:shownBody], "") + " …"
	}
	var lines []string
	for l := range strings.Lines(d.Reason) {
		lines = append(lines, clean(strings.TrimRight(l, "\n")))
	}
	_, err := t.out.WriteString(facts([]fact{
		{"reason", strings.Join(lines, "\n            ")},
		{"runs", fmt.Sprint(d.Attempts)},
		{"priority", fmt.Sprint(d.Priority)},
		{"body", bytesOf(d.Bytes)},
	}) + clean(body) + "\n")
	return outputError(err)
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
		DisableFlagsInUseLine: true,
	}
	cmd.Flags().BoolVar(&all, "all", false, "all that are kept of the type")
	return cmd
}

func (t *tool) retryDead(ctx context.Context, typ string, ids []string, all bool) error {
	a, err := t.link.api()
	if err != nil {
		return err
	}
	if all {
		kept, _, err := listOf[deadJob](ctx, a, "/v1/dead/"+segment(typ), 1000*pageSize)
		if err != nil {
			return err
		}
		for _, d := range kept {
			ids = append(ids, d.ID)
		}
	}
	again, first := 0, error(nil)
	for _, id := range ids {
		err := a.do(ctx, http.MethodPost, deadPath(typ, id)+"/retry", struct{}{}, nil)
		if status(err) == 0 && err != nil {
			return err
		}
		if err == nil {
			again++
			continue
		}
		if len(ids) > 1 {
			t.note("%s: %s", clean(id), plain(err))
			err = quiet{t.classify(err).code}
		}
		if first == nil {
			first = err
		}
	}
	if again > 0 || first == nil {
		t.note("handed in again: %s", plural(again, "job"))
	}
	return first
}
