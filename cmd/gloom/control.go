package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"gloom/broker/admin/api"
	gloom "gloom/clients/go"
	"gloom/cmd/internal/cli"
)

// exactArgs accepts one argument for each name; errors use these names. It refuses an empty id,
// which may come from a shell variable that is not set.
func exactArgs(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		empty := slices.Index(args, "")
		switch {
		case len(args) == 0 && slices.Equal(names, []string{"an id"}):
			return cli.Usagef("%s needs an id", cmd.Name()).SetHint("%s; gloom jobs lists ids", cmd.UseLine())
		case len(args) < len(names):
			return cli.Usagef("%s needs %s", cmd.Name(), names[len(args)]).SetHint("%s", cmd.UseLine())
		case len(args) > len(names):
			return cli.Usagef("%s: unexpected argument %q", cmd.Name(), args[len(names)]).SetHint("%s", cmd.UseLine())
		case empty >= 0:
			return cli.Usagef("%s: argument %d, %s, is empty", cmd.Name(), empty+1, names[empty]).SetHint("%s", cmd.UseLine())
		}
		return nil
	}
}

// atLeast is like exactArgs, but the last argument may be repeated.
func atLeast(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		padded := slices.Repeat(names[len(names)-1:], max(0, len(args)-len(names)))
		return exactArgs(slices.Concat(names, padded)...)(cmd, args)
	}
}

// atMost is like exactArgs, but the last argument may be left out.
func atMost(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		return exactArgs(names[:min(len(names), max(len(args), len(names)-1))]...)(cmd, args)
	}
}

func newPause(t *tool) *cobra.Command {
	return newSetPaused(t, "pause", "Hand out no more jobs of a type",
		`Hand out no more jobs of TYPE, which need not exist yet. Running jobs continue,
and new ones are still accepted. The pause ends with gloom resume or when the
broker stops. serverlessd behind a --door is paused as a whole: leave TYPE out.`)
}

func newResume(t *tool) *cobra.Command {
	return newSetPaused(t, "resume", "Hand out jobs of a type again", "Hand out jobs of TYPE again after gloom pause.")
}

func newSetPaused(t *tool, verb, short, long string) *cobra.Command {
	return &cobra.Command{
		Use: verb + " TYPE", Short: short, Long: long, Example: "  gloom " + verb + " mail",
		Args: atMost("a type"), ValidArgsFunction: t.completeType, RunE: t.setPaused,
	}
}

// setPaused runs the commands pause and resume; the name of cmd says which.
func (t *tool) setPaused(cmd *cobra.Command, args []string) error {
	path, target := "/v1/"+cmd.Name(), "the daemon"
	if len(args) > 0 {
		path, target = "/v1/types/"+api.Segment(args[0])+"/"+cmd.Name(), cli.QuoteName(args[0])
	} else if t.conn.doorAddr == "" {
		return exactArgs("a type")(cmd, args)
	}
	var now api.Type
	if err := t.conn.operator().call(cmd.Context(), http.MethodPost, path, struct{}{}, &now); err != nil {
		return err
	}
	state := "is paused"
	if !now.Paused {
		state = "is resumed"
	}
	suffix := ""
	if t.conn.doorAddr == "" && isUnused(&now) {
		suffix = "; no job and no worker has named this type yet"
	}
	t.note("%s %s: %d queued, %d running%s", target, state, now.Queued, now.Running, suffix)
	return nil
}

// isUnused reports whether a type is new to the broker, perhaps because its name is misspelt.
func isUnused(typ *api.Type) bool {
	return typ.Ledger.Submitted == 0 && typ.Workers == 0 && typ.Dead == 0
}

func newCancel(t *tool) *cobra.Command {
	var running bool
	cmd := &cobra.Command{
		Use:   "cancel ID...",
		Short: "Cancel jobs",
		Long: `Cancel waiting jobs and tell their submitters. Running jobs are cancelled if
they were submitted with --detach, or if --running is given; their workers are
told to stop.`,
		Example: `  gloom cancel weekly
  gloom cancel stuck --running`,
		Args: atLeast("an id"), ValidArgsFunction: t.completeID,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := cli.UntilSignal(context.Background())
			defer stop()
			return t.cancel(ctx, args, running)
		},
	}
	cmd.Flags().BoolVar(&running, "running", false, "cancel them even if they run and somebody waits for them")
	return cmd
}

// cancel sends the request as an operator first and, if that is not possible, as a submitter: submitters
// may cancel detached jobs, even running ones, and need no operator's token.
func (t *tool) cancel(ctx context.Context, ids []string, running bool) error {
	o := t.conn.operator()
	query := ""
	if running {
		query = "?running=true"
	}
	return t.forEach(ids, func(id string) error {
		err := o.call(ctx, http.MethodDelete, "/v1/jobs/"+api.Segment(id)+query, nil, nil)
		if err != nil && httpStatus(err) != http.StatusNotFound && t.conn.doorAddr == "" {
			err = t.retryAsSubmitter(ctx, "cancel", id, err, func(jobs *gloom.Submitter) error { return jobs.Cancel(ctx, id) })
		}
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil:
			t.note("cancelled %s", cli.QuoteName(id))
		case httpStatus(err) == http.StatusConflict && t.conn.doorAddr == "":
			return cli.Failf(cli.ExitFailed, "%.200q is running, and only its submitter can cancel it", id).
				SetHint("gloom explain ID shows who that is; --running cancels it anyway")
		}
		return err
	})
}

// retryAsSubmitter repeats over a submitter's connection what was refused at the address for operators. If
// that fails as well, it returns the first refusal, or an error that says that the token reaches no such
// job.
func (t *tool) retryAsSubmitter(ctx context.Context, command, id string, refused error, fn func(*gloom.Submitter) error) error {
	err := t.withSubmitter(ctx, command, fn)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, gloom.ErrUnknownID) && httpStatus(refused) == http.StatusForbidden:
		return cli.Failf(cli.ExitFailed, "no job %.200q that this token may %s", id, command).
			SetHint("a token with the scope admin reaches every job")
	}
	return refused
}

// withSubmitter connects as a submitter and calls fn.
func (t *tool) withSubmitter(ctx context.Context, command string, fn func(*gloom.Submitter) error) error {
	opts, err := t.conn.options(t.conn.submitAddrs, clientName(command))
	if err != nil {
		return err
	}
	jobs, err := gloom.Dial(ctx, opts...)
	if err != nil {
		return err
	}
	defer jobs.Close()
	return fn(jobs)
}

func newDrain(t *tool) *cobra.Command {
	var wait bool
	cmd := &cobra.Command{
		Use:   "drain",
		Short: "Stop the broker gracefully",
		Long: `Stop the broker as SIGTERM does: it takes no more jobs, waits up to its
--drain-timeout for those that it has, and exits. Jobs that are left then
fail.`,
		Example: `  gloom drain --wait && systemctl restart gloomd`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := cli.UntilSignal(context.Background())
			defer stop()
			return t.drain(ctx, wait)
		},
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until the broker has stopped, and print what is left until then")
	return cmd
}

// drainPause is the time between two requests to a broker that drains.
const drainPause = 200 * time.Millisecond

// unservedTypes names the types whose jobs wait although no worker serves them; "" if there are none.
func (o *operatorClient) unservedTypes(ctx context.Context) string {
	const maxNames = 3
	var names []string
	_, _ = eachItem(ctx, o, "/v1/types", pageSize, func(x api.Type) error { // after an error, there is less to say
		if x.Unserved() {
			names = append(names, cli.QuoteName(x.Type))
		}
		return nil
	})
	if n := len(names) - maxNames; n > 0 {
		names = append(names[:maxNames], cli.Plural(n, "other type"))
	}
	return strings.Join(names, ", ")
}

func (t *tool) drain(ctx context.Context, wait bool) error {
	o := t.conn.operator()
	if err := o.call(ctx, http.MethodPost, "/v1/drain", struct{}{}, nil); err != nil {
		return err
	}
	t.note("the broker at %s is draining", o.addr)
	if unserved := o.unservedTypes(ctx); unserved != "" {
		t.note("no worker serves %s: the broker waits for these jobs, too, up to its --drain-timeout (gloom purge TYPE cancels them)", unserved)
	}
	if !wait {
		return nil
	}
	last := ""
	for {
		var s api.Status
		err := o.call(ctx, http.MethodGet, "/v1/status", nil, &s)
		var f *cli.Fault
		switch {
		case errors.As(err, &f) && f.Code == exitUnreachable:
			t.note("the broker has stopped")
			return nil
		case err != nil:
			return err
		case !s.Draining: // a supervisor has restarted the broker
			t.note("the broker has stopped, and another one is running at its address")
			return nil
		}
		summary := fmt.Sprintf("%s running, %s waiting", humanize.Comma(int64(s.Ledger.Running)),
			humanize.Comma(int64(s.Ledger.Queued+s.Ledger.Delayed)))
		if summary != last {
			t.note("%s", summary)
			last = summary
		}
		select {
		case <-time.After(drainPause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
