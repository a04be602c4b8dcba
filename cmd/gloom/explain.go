package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/goccy/go-json"
	"github.com/spf13/cobra"
)

// findIn bounds the types whose failed jobs are searched for an id.
const findIn = 50

func newExplain(t *tool) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "explain ID",
		Short: "Tell why a job does not run",
		Long: `Tell where the job ID stands: its state and since when, its place in line and
what holds it up, attempts, age, and who is at both ends. Jobs that have ended
are not known any more, but for failed ones that the broker keeps.`,
		Example: `  gloom explain weekly
  gloom explain weekly --json | jq -r .holds`,
		Args: exactly("an id"),
		RunE: func(cmd *cobra.Command, args []string) error { return t.explain(cmd.Context(), args[0], asJSON) },

		DisableFlagsInUseLine: true,
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (t *tool) explain(ctx context.Context, id string, asJSON bool) error {
	a, err := t.link.api()
	if err != nil {
		return err
	}
	var raw json.RawMessage
	err = a.do(ctx, http.MethodGet, "/v1/jobs/"+segment(id), nil, &raw)
	if status(err) == http.StatusNotFound {
		return t.explainDead(ctx, a, id, asJSON, err)
	}
	if err != nil {
		return err
	}
	if asJSON {
		return t.printJSON(raw)
	}
	var j jobInfo
	if err := json.Unmarshal(raw, &j); err != nil {
		return err
	}
	fmt.Fprintf(t.out, "%s, of type %s, is %s\n", clean(j.ID), clean(j.Type), j.condition())
	_, err = t.out.WriteString(facts(j.facts()))
	return outputError(err)
}

// condition is the state in words.
func (j *jobInfo) condition() string {
	if j.Unwanted {
		return j.State + ", but nobody waits for it"
	}
	return j.State
}

// fact is a line of an explanation.
type fact struct{ name, value string }

func (j *jobInfo) facts() []fact {
	var f []fact
	add := func(name, format string, args ...any) { f = append(f, fact{name, fmt.Sprintf(format, args...)}) }
	if j.Ahead != nil {
		switch {
		case *j.Ahead == 0:
			add("place in line", "first")
		case j.AheadExact != nil && !*j.AheadExact:
			add("place in line", "behind at least %s", plural(*j.Ahead, "job"))
		default:
			add("place in line", "behind %s", plural(*j.Ahead, "job"))
		}
	}
	if j.Holds != "" {
		add("held up by", "%s", j.Holds)
	}
	if j.Worker != nil {
		add("worker", "%s", j.Worker.who())
	}
	switch {
	case j.Submitter != nil && j.Detached:
		add("submitter", "%s, who does not wait for it (detached)", j.Submitter.who())
	case j.Submitter != nil:
		add("submitter", "%s", j.Submitter.who())
	case j.Detached:
		add("submitter", "gone; the job is detached")
	default:
		add("submitter", "gone")
	}
	add("age", "%s, %s for %s", span(j.Age), j.State, span(j.In))
	if j.Due != nil {
		switch j.State {
		case "delayed":
			add("ready or expired", "in %s", span(*j.Due))
		case "running":
			add("timeout", "in %s", span(*j.Due))
		default:
			add("expires", "in %s", span(*j.Due))
		}
	}
	add("attempts", "%d of %d", j.Attempts, j.Retries+1)
	add("priority", "%d", j.Priority)
	add("body", "%s", bytesOf(j.Bytes))
	return f
}

// facts sets names and values in two columns.
func facts(f []fact) string {
	width := 0
	for _, x := range f {
		width = max(width, len(x.name))
	}
	var b strings.Builder
	for _, x := range f {
		fmt.Fprintf(&b, "  %-*s  %s\n", width, x.name, x.value)
	}
	return b.String()
}

// who is a peer in words.
func (p *peer) who() string {
	s := p.at()
	if p.Client != "" {
		s += " (" + clean(p.Client) + ")"
	}
	return s + ", connected for " + span(p.Seconds)
}

// explainDead looks for the job among the failed ones.
func (t *tool) explainDead(ctx context.Context, a *api, id string, asJSON bool, notFound error) error {
	types, _, err := listOf[typeInfo](ctx, a, "/v1/types", 10*pageSize)
	if err != nil {
		return err
	}
	n := 0
	for _, k := range types {
		if k.Dead == 0 {
			continue
		}
		if n++; n > findIn {
			break
		}
		var raw json.RawMessage
		err := a.do(ctx, http.MethodGet, deadPath(k.Type, id), nil, &raw)
		switch {
		case status(err) == http.StatusNotFound:
			continue
		case err != nil:
			return err
		case asJSON:
			return t.printJSON(raw)
		}
		return t.showDead(raw)
	}
	return (&fault{code: exitFailed, err: notFound}).advise("it may have ended: answered, cancelled, expired, or failed and kept no more")
}
