package main

import (
	"context"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"gloom/broker/admin/api"
	gloom "gloom/clients/go"
	"gloom/cmd/internal/cli"
)

func newChange(t *tool) *cobra.Command {
	var priority int64
	var groups []string
	var noGroups bool
	var delay time.Duration
	cmd := &cobra.Command{
		Use:   "change ID [--priority N] [--group NAME]... [--delay D]",
		Short: "Change a waiting job",
		Long: `Change the priority, the groups or the delay of a waiting job. Nothing else
changes, not even its age. --group replaces all its groups, --no-groups removes
them. --delay counts from now; 0s makes the job ready. A submitter's token
reaches detached jobs, an operator's token reaches all.`,
		Example: `  gloom change weekly --priority 9 --delay 0s
  gloom change 8fk2-17 --group tenant-42 --group api.example.com`,
		Args: exactArgs("an id"), ValidArgsFunction: t.completeID,
		RunE: func(cmd *cobra.Command, args []string) error {
			var c gloom.Change
			f := cmd.Flags()
			if err := checkDurations(f, "delay"); err != nil {
				return err
			}
			if f.Changed("priority") {
				c.Priority = &priority
			}
			if f.Changed("group") || noGroups {
				c.Groups = append([]string{}, groups...)
			}
			if f.Changed("delay") {
				c.Delay = &delay
			}
			switch {
			case noGroups && len(groups) > 0:
				return cli.Usagef("--group and --no-groups cannot be used together")
			case c.Priority == nil && c.Groups == nil && c.Delay == nil:
				return cli.Usagef("nothing to change: --priority, --group, --no-groups or --delay is needed")
			}
			return t.change(cmd.Context(), args[0], c)
		},
	}
	f := cmd.Flags()
	f.Int64Var(&priority, "priority", 0, "larger numbers run first")
	f.StringArrayVar(&groups, "group", nil, "a group of the job, in place of its present groups; may be given several times")
	f.BoolVar(&noGroups, "no-groups", false, "take the job out of all groups")
	f.DurationVar(&delay, "delay", 0, "do not run the job before this time has passed")
	return cmd
}

// change sends the request as an operator first, as cancel does.
func (t *tool) change(ctx context.Context, id string, c gloom.Change) error {
	req := api.Change{Priority: c.Priority}
	if c.Groups != nil {
		req.Groups = &c.Groups
	}
	if c.Delay != nil {
		ms := c.Delay.Milliseconds()
		req.DelayMS = &ms
	}
	err := t.conn.operator().call(ctx, http.MethodPatch, "/v1/jobs/"+api.Segment(id), req, nil)
	if code := httpStatus(err); err != nil && code != http.StatusNotFound && code != http.StatusBadRequest && t.conn.doorAddr == "" {
		err = t.retryAsSubmitter(ctx, "change", id, err, func(jobs *gloom.Submitter) error { return jobs.Change(ctx, id, c) })
	}
	switch {
	case httpStatus(err) == http.StatusConflict && t.conn.doorAddr == "":
		return cli.Failf(cli.ExitFailed, "%.200q is running: only waiting jobs can be changed", id)
	case err == nil:
		t.note("changed %s", cli.QuoteName(id))
	}
	return err
}
