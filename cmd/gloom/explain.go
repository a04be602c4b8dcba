package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"gloom/broker/admin/api"
	"gloom/cmd/internal/cli"
)

// maxShownRuns limits the runs of a job that are shown. The last runs are shown.
const maxShownRuns = 20

func newExplain(t *tool) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain ID",
		Short: "Explain why a job is not running",
		Long: `Show a job's state and since when, its place in line, what it waits for, its
runs and age, its submitter and its worker. For a job that has ended, show its
history, if the broker still remembers it (--history of gloomd); for a failed
job that is kept, also show its body.`,
		Example: `  gloom explain weekly
  gloom explain weekly --json | jq -r .holds`,
		Args: exactArgs("an id"), ValidArgsFunction: t.completeID,
		RunE: func(cmd *cobra.Command, args []string) error { return t.explain(cmd.Context(), args[0], "") },
	}
	t.jsonFlag(cmd, "print JSON")
	return cmd
}

func (t *tool) explain(ctx context.Context, id, query string) error {
	err := printOne(ctx, t, "/v1/jobs/"+api.Segment(id)+query, func(j *api.Job) string {
		state := "is " + j.State
		if j.State == "ended" {
			if state = "has ended: " + j.Outcome; j.KeepMS > 0 {
				state += "; its outcome is kept"
			}
			if j.End != nil {
				return fmt.Sprintf("%s, of type %s, %s\n%s", cli.QuoteName(j.ID), cli.QuoteName(j.Type), state, fieldTable(describeHistory(j))+describeBody(j)+t.deadLetterHint(ctx, j))
			}
		}
		if j.Unwanted {
			state += ", but nobody waits for it"
		}
		findings, _ := t.findings(ctx, "") // without an answer, show the job without them
		return fmt.Sprintf("%s, of type %s, %s\n%s", cli.QuoteName(j.ID), cli.QuoteName(j.Type), state, fieldTable(describeJob(j))+describeBody(j)+describeFindings(findingsAbout(&findings.value, j), ""))
	})
	if httpStatus(err) == http.StatusNotFound {
		d, err := t.findDead(ctx, id, err)
		if err != nil {
			return err
		}
		return printItem(t, &d, describeDead)
	}
	return err
}

func describeJob(j *api.Job) []field {
	var f []field
	add := func(name, format string, args ...any) { f = append(f, field{name, fmt.Sprintf(format, args...)}) }
	if j.Ahead != nil {
		switch {
		case j.AheadExact != nil && !*j.AheadExact:
			if *j.Ahead > 0 {
				add("place in line", "behind at least %s", cli.Plural(*j.Ahead, "job"))
			} else {
				add("place in line", "not known: groups take turns, or hold jobs back")
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
		add("worker", "%s", describePeer(j.Worker))
	}
	switch {
	case j.Submitter != nil && j.Detached:
		add("submitter", "%s, which does not wait for it (detached)", describePeer(j.Submitter))
	case j.Submitter != nil:
		add("submitter", "%s", describePeer(j.Submitter))
	case j.Detached:
		add("submitter", "gone; the job is detached")
	default:
		add("submitter", "gone")
	}
	add("age", "%s, %s for %s", formatSpan(j.AgeSeconds), j.State, formatSpan(j.InSeconds))
	if d, e := j.DueSeconds, j.ExpiresSeconds; d != nil && (e == nil || *d < *e) {
		dueWord := map[string]string{"delayed": "ready", "queued": "ready", "running": "timeout", "ended": "forgotten"}[j.State]
		add(cmp.Or(dueWord, "expires"), "in %s", formatSpan(*d))
	}
	if j.ExpiresSeconds != nil {
		add("expires", "in %s", formatSpan(*j.ExpiresSeconds))
	}
	if j.Retries < 0 { // the number of runs has no limit
		add("runs", "%d", j.Attempts)
	} else {
		add("runs", "%d of %d", j.Attempts, j.Retries+1)
	}
	if n := len(j.Runs) - maxShownRuns; n > 0 {
		add("earlier runs", "%d, in --json", n)
	}
	for _, x := range j.Runs[max(0, len(j.Runs)-maxShownRuns):] {
		add(fmt.Sprintf("run %d", x.N), "%s", describeRun(&x))
	}
	if j.Releases > 0 {
		add("given back", "%s", cli.Plural(j.Releases, "time"))
	}
	add("priority", "%d", j.Priority)
	if j.KeepMS > 0 {
		add("outcome", "kept for %s", formatSpan(float64(j.KeepMS)/1000))
	}
	add("body", "%s", formatBytes(int64(j.Bytes)))
	return f
}

// describePeer returns what to print about a peer: its address, its client's name, and whether it
// is still connected.
func describePeer(p *api.Peer) string {
	s := peerAddress(p)
	if p.Broker != "" {
		return "at " + s + ", to which it is lent"
	}
	if p.Client != "" {
		s += " (" + cli.Clean(p.Client) + ")"
	}
	switch {
	case p.Gone:
		return s + ", gone"
	case p.Number == 0: // at a door, which does not tell since when
		return s
	}
	return s + ", connected for " + formatSpan(p.Seconds)
}

// peerAddress returns the address of a peer; on a unix socket, its number.
func peerAddress(p *api.Peer) string {
	if p.Broker != "" {
		return "the broker " + cli.Clean(p.Broker)
	}
	if p.Address == "" || p.Address == "@" || p.Address == "unix" {
		return fmt.Sprintf("unix #%d", p.Number)
	}
	return p.Address
}

// findDead looks for the job among the failed ones.
func (t *tool) findDead(ctx context.Context, id string, notFound error) (d deadItem, err error) {
	o := t.conn.operator()
	var letters api.List[api.DeadJob]
	if err := o.call(ctx, http.MethodGet, "/v1/dead?id="+url.QueryEscape(id), nil, &letters); err != nil && httpStatus(err) != http.StatusNotFound {
		return d, err
	}
	if len(letters.Items) == 0 {
		f := (&cli.Fault{Code: cli.ExitFailed, Err: notFound}).SetHint("gloom jobs --ended lists what is remembered")
		if t.conn.doorAddr == "" {
			f.Hint += "; gloomd's --history sets how much that is"
		}
		return d, f
	}
	// If several dead letters have the id, show the oldest of the type listed first: a retry would
	// take this letter.
	err = o.call(ctx, http.MethodGet, deadPath(letters.Items[0].Type, id), nil, &d)
	return d, err
}
