package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/goccy/go-json"
	"github.com/spf13/cobra"

	"gloom/broker/admin/api"
	"gloom/cmd/internal/cli"
)

// shownRuns is how many of a job's runs people are shown, the last ones.
const shownRuns = 20

func newExplain(t *tool) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "explain ID",
		Short: "Tell why a job does not run",
		Long: `Tell where the job ID stands: its state and since when, its place in line, what
it waits for, its attempts and age, its submitter and its worker. Of a job that
has ended, tell its life, as far back as the broker's history reaches
(--history), and of a failed job that is kept, its body.`,
		Example: `  gloom explain weekly
  gloom explain weekly --json | jq -r .holds`,
		Args: exactly("an id"),
		RunE: func(cmd *cobra.Command, args []string) error { return t.explain(cmd.Context(), args[0], "", asJSON) },
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (t *tool) explain(ctx context.Context, id, query string, asJSON bool) error {
	err := printOne(ctx, t, "/v1/jobs/"+api.Segment(id)+query, asJSON, func(j *api.Job) string {
		state := j.State
		if state == "ended" {
			if state = "ended: " + j.Outcome; j.KeepMS > 0 {
				state += "; its outcome is kept"
			}
			if j.End != nil {
				return fmt.Sprintf("%s, of type %s, is %s\n%s", cli.Clean(j.ID), cli.Clean(j.Type), state, facts(life(j))+aboutBody(j)+t.letter(ctx, j))
			}
		}
		if j.Unwanted {
			state += ", but nobody waits for it"
		}
		_, found, err := t.findings(ctx, "")
		if err != nil {
			found = &api.Findings{} // the job is told all the same
		}
		return fmt.Sprintf("%s, of type %s, is %s\n%s", cli.Clean(j.ID), cli.Clean(j.Type), state, facts(aboutJob(j))+aboutBody(j)+told(about(found, j), ""))
	})
	if status(err) == http.StatusNotFound {
		raw, err := t.findDead(ctx, id, err)
		if err != nil {
			return err
		}
		return printAs(t, raw, asJSON, aboutDead)
	}
	return err
}

func aboutJob(j *api.Job) []fact {
	var f []fact
	add := func(name, format string, args ...any) { f = append(f, fact{name, fmt.Sprintf(format, args...)}) }
	if j.Ahead != nil {
		switch {
		case j.AheadExact != nil && !*j.AheadExact:
			if *j.Ahead > 0 {
				add("place in line", "behind at least %s", cli.Plural(*j.Ahead, "job"))
			} else {
				add("place in line", "open: groups take turns, or hold jobs back")
			}
		case *j.Ahead == 0:
			add("place in line", "first")
		default:
			add("place in line", "behind %s", cli.Plural(*j.Ahead, "job"))
		}
	}
	if len(j.Groups) > 0 {
		add("groups", "%s", cli.Clean(strings.Join(j.Groups, ", ")))
	}
	if j.HeldBy != nil {
		add("held back by", "the group %s, under the rule %s", cli.Clean(j.HeldBy.Group), cli.Clean(j.HeldBy.Rule))
	} else if j.Holds != "" {
		add("held up by", "%s", cli.Clean(j.Holds))
	}
	if j.Reason != "" {
		add("reason", "%s", cli.Clean(j.Reason))
	}
	if j.Worker != nil {
		add("worker", "%s", who(j.Worker))
	}
	switch {
	case j.Submitter != nil && j.Detached:
		add("submitter", "%s, who does not wait for it (detached)", who(j.Submitter))
	case j.Submitter != nil:
		add("submitter", "%s", who(j.Submitter))
	case j.Detached:
		add("submitter", "gone; the job is detached")
	default:
		add("submitter", "gone")
	}
	add("age", "%s, %s for %s", span(j.AgeSeconds), j.State, span(j.InSeconds))
	if d, e := j.DueSeconds, j.ExpiresSeconds; d != nil && (e == nil || *d < *e) {
		what := map[string]string{"delayed": "ready", "running": "timeout", "ended": "forgotten"}[j.State]
		add(cmp.Or(what, "expires"), "in %s", span(*d))
	}
	if j.ExpiresSeconds != nil {
		add("expires", "in %s", span(*j.ExpiresSeconds))
	}
	add("attempts", "%d of %d", j.Attempts, j.Retries+1)
	if n := len(j.Runs) - shownRuns; n > 0 {
		add("earlier runs", "%d, in --json", n)
	}
	for _, x := range j.Runs[max(0, len(j.Runs)-shownRuns):] {
		add(fmt.Sprintf("run %d", x.N), "%s", aboutRun(&x))
	}
	if j.Releases > 0 {
		add("given back", "%s", cli.Plural(j.Releases, "time"))
	}
	add("priority", "%d", j.Priority)
	if j.KeepMS > 0 {
		add("outcome", "kept for %s", span(float64(j.KeepMS)/1000))
	}
	add("body", "%s", bytesOf(int64(j.Bytes)))
	return f
}

// aboutRun tells of a run that has ended.
func aboutRun(x *api.Run) string {
	on := fmt.Sprintf("connection %d, which is gone", x.Worker.Number)
	switch {
	case x.Worker.Broker != "":
		if on = where(x.Worker); x.BrokerLost {
			on += ", which was lost,"
		}
	case x.Worker.Address != "":
		if on = where(x.Worker); x.Worker.Client != "" {
			on = cli.Clean(x.Worker.Client) + " (" + on + ")"
		}
	}
	s := fmt.Sprintf("%s  on %s, for %s: %s", clock(x.StartedAt), on, span(float64(x.RanMS)/1000), strings.ReplaceAll(x.Outcome, "_", " "))
	if x.Error != "" {
		s += ": " + cli.Clean(x.Error)
	}
	return s
}

// clock is a time of the broker's in local time, with the date.
func clock(rfc3339 string) string {
	at, err := time.Parse(time.RFC3339Nano, rfc3339)
	if err != nil {
		return rfc3339
	}
	return at.Local().Format("2006-01-02 15:04:05.000")
}

// life is what happened to a job that has ended, in the order of time, and then what it was.
func life(j *api.Job) []fact {
	var f []fact
	add := func(name, format string, args ...any) { f = append(f, fact{name, fmt.Sprintf(format, args...)}) }
	by := ", detached"
	if j.KeepMS > 0 { // only a submitter that is attached now is told
		by = ""
	}
	if j.Submitter != nil {
		by = " by " + where(j.Submitter)
		if j.Submitter.Client != "" {
			by = " by " + cli.Clean(j.Submitter.Client) + " (" + where(j.Submitter) + ")"
		}
	}
	add("submitted", "%s %s", clock(j.SubmittedAt), by)
	for i := range j.Runs {
		add(fmt.Sprintf("run %d", j.Runs[i].N), "%s", aboutRun(&j.Runs[i]))
	}
	reason := ""
	if j.Reason != "" {
		reason = ": " + cli.Clean(j.Reason)
	}
	add("ended", "%s  %s%s", clock(j.EndedAt), j.Outcome, reason)
	if waited := span(float64(j.WaitedMS) / 1000); j.StartedAt == nil {
		add("waited", "%s, and did not run to its end", waited)
	} else {
		add("waited", "%s, then ran for %s", waited, span(float64(j.RanMS)/1000))
	}
	add("attempts", "%d", j.Attempts)
	if len(j.Groups) > 0 {
		add("groups", "%s", cli.Clean(strings.Join(j.Groups, ", ")))
	}
	if j.KeepMS > 0 && j.DueSeconds != nil {
		add("forgotten", "in %s", span(*j.DueSeconds))
	}
	add("body", "%s", bytesOf(int64(j.Size)))
	if j.Outcome == "answered" {
		add("answer", "%s", bytesOf(int64(j.AnswerSize)))
	}
	return f
}

// letter is the body that is kept of a job that has failed, "" if there is none.
func (t *tool) letter(ctx context.Context, j *api.Job) string {
	if j.Outcome != "failed" {
		return ""
	}
	raw, err := t.findDead(ctx, j.ID, nil)
	if err != nil {
		return ""
	}
	var d api.DeadJob
	if decode(raw, &d) != nil {
		return ""
	}
	return fmt.Sprintf("kept as a dead letter, with this body (gloom dead retry %s %s submits it again):\n%s\n", cli.Clean(d.Type), cli.Clean(d.ID), cli.Clean(abridged(d.Body)))
}

// who is a peer in words.
func who(p *api.Peer) string {
	s := where(p)
	if p.Broker != "" {
		return "at " + s + ", to which it is lent"
	}
	if p.Client != "" {
		s += " (" + cli.Clean(p.Client) + ")"
	}
	if p.Gone {
		return s + ", gone"
	}
	return s + ", connected for " + span(p.Seconds)
}

// where a peer is; those on a unix socket have no address.
func where(p *api.Peer) string {
	if p.Broker != "" {
		return "the broker " + cli.Clean(p.Broker)
	}
	if p.Address == "" || p.Address == "@" || p.Address == "unix" {
		return fmt.Sprintf("unix #%d", p.Number)
	}
	return p.Address
}

// findDead looks for the job among the failed ones.
func (t *tool) findDead(ctx context.Context, id string, notFound error) (raw json.RawMessage, err error) {
	o := t.link.operator()
	var found api.List[api.DeadJob]
	if err := o.do(ctx, http.MethodGet, "/v1/dead?id="+url.QueryEscape(id), nil, &found); err != nil && status(err) != http.StatusNotFound {
		return nil, err
	}
	if len(found.Items) == 0 {
		return nil, (&cli.Fault{Code: cli.ExitFailed, Err: notFound}).Advise("gloom jobs --ended lists what is remembered; --history of gloomd says how much that may be")
	}
	// As a retry would have it, the oldest of a type.
	err = o.do(ctx, http.MethodGet, deadPath(found.Items[0].Type, id), nil, &raw)
	return raw, err
}
