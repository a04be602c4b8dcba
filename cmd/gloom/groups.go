package main

import (
	"net/http"
	"net/url"
	"strconv"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"gloom/broker/admin/api"
	"gloom/cmd/internal/cli"
)

func newGroups(t *tool) *cobra.Command {
	l := &listCommand{tool: t}
	var typ string
	cmd := &cobra.Command{
		Use:   "groups",
		Short: "List rules, and the busiest groups",
		Long: `List the rules for groups of jobs (gloom limit --group sets them) and the
groups that have jobs, the busiest first: how many jobs wait, how many of those
are held back by a rule of any of their groups, and how many run. With --type
only jobs of that type count.`,
		Example: `  gloom groups
  gloom groups --type mail
  gloom groups --json | jq '.groups[] | select(.held > 0)'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if l.limit < 1 {
				return cli.Usagef("--limit %d: must be at least 1", l.limit)
			}
			q := url.Values{"limit": {strconv.Itoa(l.limit)}}
			if typ != "" {
				q.Set("type", typ)
			}
			var g listItem[api.Groups]
			switch err := t.conn.operator().call(cmd.Context(), http.MethodGet, "/v1/groups?"+q.Encode(), nil, &g); {
			case err != nil:
				return err
			case l.json:
				return t.printJSON(g.raw)
			case typ != "" && len(g.value.Groups) == 0:
				t.note("no jobs of %s in groups", cli.QuoteName(typ))
				return nil
			}
			return t.listGroups(&g.value)
		},
	}
	l.flags(cmd, 100)
	cmd.Flags().Var(nonEmptyFlag(&typ), "type", "only jobs of this type")
	_ = cmd.RegisterFlagCompletionFunc("type", t.completeType)
	return cmd
}

// listGroups prints the rules, and below them the groups.
func (t *tool) listGroups(g *api.Groups) error {
	if len(g.Rules) == 0 && len(g.Groups) == 0 {
		t.note("no rules, and no jobs in groups")
		return nil
	}
	rules := func(limit int) table.Writer {
		w := cli.NewTable(cli.Column{Name: "RULE", AlignLeft: true, MaxWidth: limit}, cli.Column{Name: "LIMITS", AlignLeft: true})
		for i := range g.Rules {
			w.AppendRow(table.Row{cli.Clean(g.Rules[i].Pattern), limitText(g.Rules[i].RuleLimits)})
		}
		return w
	}
	groups := func(limit int) table.Writer {
		w := cli.NewTable(cli.Column{Name: "GROUP", AlignLeft: true, MaxWidth: limit}, cli.Column{Name: "WAITING"},
			cli.Column{Name: "HELD"}, cli.Column{Name: "RUNNING"})
		for _, x := range g.Groups {
			w.AppendRow(table.Row{cli.Clean(x.Group), x.Waiting, x.Held, x.Running})
		}
		return w
	}
	if len(g.Rules) > 0 {
		if err := cli.PrintTable(t.stdout, rules); err != nil {
			return outputError(err)
		}
	}
	if len(g.Groups) == 0 {
		return nil
	}
	return outputError(cli.PrintTable(t.stdout, groups))
}
