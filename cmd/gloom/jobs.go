package main

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-json"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gloom/broker/admin/api"
	"gloom/cmd/internal/cli"
)

// jobFilter selects jobs.
type jobFilter struct {
	state, id, group string
	older            time.Duration
	// The following select ended jobs only.
	outcome, since string
	submitter      uint64
}

func (q *jobFilter) flags(f *pflag.FlagSet, states ...string) {
	f.Var(cli.ChoiceFlag(&q.state, states...), "state", "only jobs in this state: "+strings.Join(states, ", "))
	f.Var(nonEmptyFlag(&q.id), "id", "only jobs whose id contains this")
	f.Var(nonEmptyFlag(&q.group), "group", "only jobs of this group")
	f.Var(ageFlag(&q.older), "older", "only jobs submitted at least this long ago: 90s, 2h")
}

func (q *jobFilter) toAPI(limit int) api.JobFilter {
	all := q.state == "" && q.id == "" && q.group == "" && q.older == 0
	return api.JobFilter{State: q.state, ID: q.id, Group: q.group, Older: q.older.Milliseconds(), All: all, Most: limit}
}

// describe returns the filter, without the state, in words for a question.
func (q *jobFilter) describe() string {
	return filterText("id", q.id, "group", q.group, "older", ageText(q.older))
}

// filterText returns the text for flags and their values. It leaves out flags without a value.
func filterText(pairs ...string) string {
	var set []string
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			set = append(set, "--"+pairs[i]+" "+cli.Clean(pairs[i+1]))
		}
	}
	if set == nil {
		return ""
	}
	return " (" + strings.Join(set, ", ") + ")"
}

// query returns the filter as a URL query.
func (q *jobFilter) query() string {
	v := url.Values{}
	for key, s := range map[string]string{"state": q.state, "id": q.id, "group": q.group, "outcome": q.outcome, "since": q.since} {
		if s != "" {
			v.Set(key, s)
		}
	}
	if q.older > 0 {
		v.Set("older", strconv.FormatInt(q.older.Milliseconds(), 10))
	}
	if q.submitter > 0 {
		v.Set("submitter", strconv.FormatUint(q.submitter, 10))
	}
	return v.Encode()
}

const jobsLong = `List the jobs of TYPE, or of all types, that wait or run. They are in no
order of time or priority. A job that matches throughout is listed exactly once.

With --ended, list what has ended instead, the latest end first, as far back as
the broker remembers (its --history). gloom job ID shows the life of one of
them; gloom dead ls lists failed jobs that are kept and can be run again.

--json prints one JSON object per line with everything that the broker reports.`

const jobsExample = `  gloom jobs mail --state running --older 10m
  gloom jobs --id 4711
  gloom jobs mail --ended --outcome failed --since 24h
  gloom jobs mail --group tenant-42 --all --json | jq -r .id`

func newJobs(t *tool) *cobra.Command {
	var q jobFilter
	var ended, failed bool
	l := &listCommand{tool: t}
	cmd := &cobra.Command{
		Use:               "jobs [TYPE]",
		Short:             "List jobs by state, group, age or part of an id",
		Long:              jobsLong,
		Example:           jobsExample,
		Args:              atMost("a type"),
		ValidArgsFunction: t.completeType,
		RunE: func(cmd *cobra.Command, args []string) error {
			path, unknownType := "jobs", func() string { return "" }
			if len(args) > 0 {
				path = "types/" + api.Segment(args[0]) + "/jobs"
				unknownType = func() string { return t.unknownTypeNote(cmd.Context(), args[0]) }
			}
			l.whyEmpty = unknownType
			if l.allColumns {
				l.limit = math.MaxInt
			}
			if failed && q.outcome == "" {
				q.outcome = "failed"
			}
			if ended || q.outcome != "" || q.since != "" {
				if q.state != "" && q.state != "ended" {
					return cli.Usagef("--state %s: jobs that have not ended have no outcome; leave out --ended, --outcome, --failed and --since", q.state)
				}
				q.state = "ended"
			}
			query, all := q.query(), len(args) == 0
			if q.state == "ended" {
				emptyText := "no such jobs are remembered"
				if all && query == "state=ended" {
					emptyText = "no ended jobs are remembered"
				}
				return printListing(cmd.Context(), l, path+"?"+query, emptyText, l.endedTable)
			}
			emptyText := "no such jobs"
			if all && query == "" {
				emptyText = "no jobs are waiting or running"
			}
			l.whyEmpty = func() string { return cmp.Or(unknownType(), "; --ended lists those that have ended") }
			return printListing(cmd.Context(), l, path+"?"+query, emptyText, l.jobTable)
		},
	}
	for _, state := range []string{"queued", "delayed", "running"} {
		cli.SetWordHint(cmd, "--"+state, "did you mean --state "+state+"?")
	}
	f := cmd.Flags()
	q.flags(f, "queued", "delayed", "running", "ended")
	f.BoolVar(&ended, "ended", false, "list jobs that have ended, the latest first")
	f.Var(cli.ChoiceFlag(&q.outcome, "answered", "failed", "cancelled", "expired", "discarded"), "outcome", "only ended jobs with this outcome: answered, failed, cancelled, expired, discarded")
	f.BoolVar(&failed, "failed", false, "the same as --ended --outcome failed")
	f.StringVar(&q.since, "since", "", "only jobs that ended within this time (90s, 24h), or after a time such as 2026-01-31T08:00:00Z")
	f.Uint64Var(&q.submitter, "submitter", 0, "only jobs of the connection with this number (gloom ls submitters --json)")
	l.flags(cmd, 100)
	f.BoolVarP(&l.allColumns, "all", "a", false, "list all")
	cmd.MarkFlagsMutuallyExclusive("limit", "all")
	return cmd
}

func (l *listCommand) jobTable(items []api.Job, limit int) table.Writer {
	w := cli.NewTable(
		cli.Column{Name: "TYPE", AlignLeft: true, MaxWidth: 24}, cli.Column{Name: "ID", AlignLeft: true, MaxWidth: 40}, cli.Column{Name: "STATE", AlignLeft: true},
		cli.Column{Name: "SINCE"}, cli.Column{Name: "AGE"}, cli.Column{Name: "PRIORITY"}, cli.Column{Name: "RUNS"},
		cli.Column{Name: "NOTE", AlignLeft: true, MaxWidth: limit},
	)
	for i := range items {
		x := &items[i]
		note := x.Holds
		switch {
		case x.Unwanted:
			note = "nobody waits for it"
		case x.Worker != nil:
			note = "on " + peerAddress(x.Worker)
		case x.State == "ended": // without a history, only the outcome is kept
			note = x.Outcome
		}
		w.AppendRow(table.Row{cli.Clean(x.Type), cli.Clean(x.ID), x.State, formatSpan(x.InSeconds), formatSpan(x.AgeSeconds), x.Priority, x.Attempts, cli.Clean(note)})
	}
	return w
}

// endedTable returns a table of jobs that have ended.
func (l *listCommand) endedTable(items []api.Ended, limit int) table.Writer {
	w := cli.NewTable(
		cli.Column{Name: "ENDED", AlignLeft: true}, cli.Column{Name: "TYPE", AlignLeft: true, MaxWidth: 24}, cli.Column{Name: "ID", AlignLeft: true, MaxWidth: 40},
		cli.Column{Name: "OUTCOME", AlignLeft: true}, cli.Column{Name: "WAITED"}, cli.Column{Name: "RAN"}, cli.Column{Name: "RUNS"},
		cli.Column{Name: "REASON", AlignLeft: true, MaxWidth: limit},
	)
	for i := range items {
		x := &items[i]
		runTime := ""
		if x.StartedAt != nil {
			runTime = formatSpan(float64(x.RanMS) / 1000)
		}
		w.AppendRow(table.Row{formatTime(x.EndedAt), cli.Clean(x.Type), cli.Clean(x.ID), x.Outcome, formatSpan(float64(x.WaitedMS) / 1000), runTime, x.Attempts, cli.Clean(x.Reason)})
	}
	return w
}

func newJob(t *tool) *cobra.Command {
	var body bool
	cmd := &cobra.Command{
		Use:   "job ID",
		Short: "Show a job, body and headers included",
		Long: `Show everything that the broker knows of the job ID: what gloom explain shows,
its headers and its body or, if it has ended and its outcome is kept, the
answer. --body prints only the body, as it is.`,
		Example: `  gloom job weekly
  gloom job weekly --body | jq .`,
		Args: exactArgs("an id"), ValidArgsFunction: t.completeID,
		RunE: func(cmd *cobra.Command, args []string) error {
			if body {
				return t.jobBody(cmd.Context(), args[0])
			}
			return t.explain(cmd.Context(), args[0], "?body=true")
		},
	}
	t.jsonFlag(cmd, "print JSON")
	cmd.Flags().BoolVar(&body, "body", false, "print the body only, as JSON")
	return cmd
}

func (t *tool) jobBody(ctx context.Context, id string) error {
	var j api.Job
	err := t.conn.operator().call(ctx, "GET", "/v1/jobs/"+api.Segment(id)+"?body=true", nil, &j)
	ended := err == nil && j.State == "ended" && j.Body == nil
	switch {
	case httpStatus(err) == http.StatusNotFound || ended && j.Outcome == "failed":
		d, err := t.findDead(ctx, id, cmp.Or(err, noBodyError(id, &j)))
		switch {
		case err != nil:
			return err
		case d.value.Body != nil:
			return t.printJSON(d.value.Body)
		}
		j.Bytes = d.value.Bytes
	case err != nil:
		return err
	case ended && (j.Outcome != "answered" || j.KeepMS == 0):
		return noBodyError(id, &j)
	case j.Body != nil:
		return t.printJSON(j.Body)
	}
	return cli.Failf(cli.ExitFailed, "the body of %.200q, %s, is too long to be shown", id, formatBytes(int64(j.Bytes)))
}

// noBodyError says that neither the body nor the answer of an ended job is kept.
func noBodyError(id string, j *api.Job) error {
	if j.Outcome == "answered" {
		return cli.Failf(cli.ExitFailed, "%.200q was answered, and the answer is not kept (submit with keep_ms to keep it)", id)
	}
	return cli.Failf(cli.ExitFailed, "%.200q ended without an answer: %s: %s", id, j.Outcome, cli.Clean(j.Reason))
}

// describeBody describes the body and the answer of a job; it returns "" if they were not requested.
func describeBody(j *api.Job) string {
	out := ""
	if j.Headers != nil {
		out += "headers: " + cli.Clean(abridged(j.Headers)) + "\n"
	}
	if j.Body != nil {
		out += cli.Clean(abridged(j.Body)) + "\n"
	}
	return out
}

// maxShownBody limits the bytes of a body that are shown among other facts.
const maxShownBody = 2000

// abridged returns a value on one line, truncated to maxShownBody.
func abridged(raw json.RawMessage) string {
	s := string(oneLine(raw))
	if len(s) > maxShownBody {
		s = strings.ToValidUTF8(s[:maxShownBody], "") + " …"
	}
	return s
}

const purgeLong = `Cancel all waiting jobs of TYPE that match, and tell their submitters. With
--state running, cancel running ones, and tell their workers to stop. gloom
first names the number of jobs and asks, unless --yes is given, and then reports
how many were cancelled and how many still match.`

const purgeExample = `  gloom purge mail
  gloom purge mail --group tenant-42 --older 1h --yes`

func newPurge(t *tool) *cobra.Command {
	var q jobFilter
	var yes bool
	cmd := &cobra.Command{
		Use:               "purge TYPE",
		Short:             "Cancel all jobs of a type, or those that match",
		Long:              purgeLong,
		Example:           purgeExample,
		Args:              exactArgs("a type"),
		ValidArgsFunction: t.completeType,
		RunE: func(cmd *cobra.Command, args []string) error {
			noun := "waiting job"
			if q.state != "" {
				noun = q.state + " job"
			}
			out, err := t.changeMany(&bulkChange{
				path: "/v1/types/" + api.Segment(args[0]) + "/jobs/cancel", filter: func(limit int) any { return q.toAPI(limit) },
				noun: noun, typ: args[0], filterText: q.describe(), verb: "cancel", yes: yes,
			})
			if err == nil && out != nil {
				t.note("cancelled %s; %d left that match", cli.Plural(out.Done, "job"), out.After)
			}
			return err
		},
	}
	q.flags(cmd.Flags(), "queued", "delayed", "running")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

// unknownTypeNote returns an addition to a text which says that a type has no jobs. The addition is
// empty if the broker knows the type; otherwise the type's name may be misspelt.
func (t *tool) unknownTypeNote(ctx context.Context, typ string) string {
	var x api.Type
	if t.conn.doorAddr != "" || httpStatus(t.conn.operator().call(ctx, http.MethodGet, "/v1/types/"+api.Segment(typ), nil, &x)) != http.StatusNotFound {
		return ""
	}
	return fmt.Sprintf(": no job and no worker has named the type %s lately", cli.QuoteName(typ))
}

// bulkChange is a change to all jobs that match a filter.
type bulkChange struct {
	path            string
	filter          func(limit int) any // returns the request's filter; limit 0 means all jobs that match
	noun, verb      string              // for messages, such as "waiting job" and "cancel"
	typ, filterText string              // the type, and the filter in words
	yes             bool
}

// changeMany counts the jobs, asks, and makes the change. It returns nil if there is nothing to do.
func (t *tool) changeMany(c *bulkChange) (*api.Many, error) {
	ctx, stop := cli.UntilSignal(context.Background())
	defer stop()
	o := t.conn.operator()
	o.http.Timeout = 0 // how long it takes depends on the number of jobs
	var out api.Many
	if err := o.call(ctx, "POST", c.path+"?count=true", c.filter(0), &out); err != nil {
		return nil, err
	}
	if out.Before == 0 {
		t.note("no jobs match%s", t.unknownTypeNote(ctx, c.typ))
		return nil, nil
	}
	limit := 0
	if !c.yes {
		// Change no more jobs than the user has agreed to.
		limit = out.Before
		if err := t.confirm(ctx, fmt.Sprintf("%s %s of %s%s at %s?", c.verb, cli.Plural(out.Before, c.noun), cli.QuoteName(c.typ), c.filterText, o.addr)); err != nil {
			return nil, err
		}
	}
	o.bulk = true
	if err := o.call(ctx, "POST", c.path, c.filter(limit), &out); err != nil {
		return nil, err
	}
	return &out, nil
}
