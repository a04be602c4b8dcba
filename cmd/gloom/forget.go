package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"gloom/broker/admin/api"
	"gloom/cmd/internal/cli"
)

const forgetLong = `Forget TYPE, a test or a misspelt name, so that no list and no finding shows it
any more. What it counted stays in the totals.

A type is in use, and is refused, while workers serve it by its name (a pattern
does not count), while jobs of it run, while it is paused, and while it has
limits or is fair. A type that holds something is refused as well: waiting jobs,
failed jobs that are kept (gloom dead), or kept outcomes. With --jobs these are
discarded first: gloom names them and asks, unless --yes is given. Submitters of
waiting jobs are told that they were cancelled.`

func newForget(t *tool) *cobra.Command {
	var jobs, yes bool
	cmd := &cobra.Command{
		Use:   "forget TYPE",
		Short: "Forget a type that nobody uses",
		Long:  forgetLong,
		Example: `  gloom forget mial
  gloom forget test --jobs --yes`,
		Args:              exactArgs("a type"),
		ValidArgsFunction: t.completeType,
		RunE: func(_ *cobra.Command, args []string) error {
			if yes && !jobs {
				return cli.Usagef("--yes needs --jobs")
			}
			return t.forget(args[0], jobs, yes)
		},
	}
	cmd.Flags().BoolVar(&jobs, "jobs", false, "discard first what it holds: waiting and failed jobs, kept outcomes")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "with --jobs: do not ask")
	return cmd
}

func (t *tool) forget(typ string, jobs, yes bool) error {
	ctx, stop := cli.UntilSignal(context.Background())
	defer stop()
	o := t.conn.operator()
	o.http.Timeout = 0 // how long it takes depends on the number of jobs
	path := "/v1/types/" + api.Segment(typ)
	var out api.Forgotten
	err := o.call(ctx, http.MethodDelete, path, nil, &out)
	var r *refusal
	if errors.As(err, &r) && r.Code == "not_empty" {
		reason, _, _ := strings.Cut(r.Reason, ";")
		if !jobs {
			return cli.Failf(cli.ExitFailed, "%s", reason).SetHint("--jobs discards what it holds first")
		}
		if !yes {
			if err := t.confirm(ctx, fmt.Sprintf("%s. Discard all of it, and forget the type at %s?", cli.Clean(reason), o.addr)); err != nil {
				return err
			}
		}
		o.bulk = true
		err = o.call(ctx, http.MethodDelete, path+"?jobs=true", nil, &out)
	}
	if errors.As(err, &r) && r.Code == "in_use" && strings.Contains(r.Reason, "it is paused") {
		return (&cli.Fault{Code: cli.ExitFailed, Err: err}).SetHint("%s", commandLine("resume", typ))
	}
	if err != nil {
		return err
	}
	t.note("forgot %s; discarded: %s, %s, %s", cli.QuoteName(typ), cli.Plural(out.Discarded, "waiting job"),
		cli.Plural(out.Dead, "failed job"), cli.Plural(out.Outcomes, "kept outcome"))
	return nil
}
