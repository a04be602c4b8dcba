package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"gloom/broker/admin/api"
	"gloom/cmd/internal/cli"
)

// describeRun describes a run that has ended.
func describeRun(x *api.Run) string {
	worker := fmt.Sprintf("connection %d, which is gone", x.Worker.Number)
	switch {
	case x.Worker.Broker != "":
		if worker = peerAddress(x.Worker); x.BrokerLost {
			worker += ", which was lost,"
		}
	case x.Worker.Address != "":
		if worker = peerAddress(x.Worker); x.Worker.Client != "" {
			worker = cli.Clean(x.Worker.Client) + " (" + worker + ")"
		}
	}
	s := fmt.Sprintf("%s  on %s, for %s: %s", formatTime(x.StartedAt), worker, formatSpan(float64(x.RanMS)/1000), strings.ReplaceAll(x.Outcome, "_", " "))
	if x.Error != "" {
		s += ": " + cli.Clean(x.Error)
	}
	return s
}

// formatTime formats a time that the broker reports, in local time and with the date.
func formatTime(rfc3339 string) string {
	at, err := time.Parse(time.RFC3339Nano, rfc3339)
	if err != nil {
		return rfc3339
	}
	return at.Local().Format("2006-01-02 15:04:05.000")
}

// describeHistory returns what happened to a job that has ended, in chronological order, and then its
// properties.
func describeHistory(j *api.Job) []field {
	var f []field
	add := func(name, format string, args ...any) { f = append(f, field{name, fmt.Sprintf(format, args...)}) }
	detail := ", detached"
	if j.KeepMS > 0 { // if the job is kept, only a submitter that is attached now is known
		detail = ""
	}
	if j.Submitter != nil {
		detail = " by " + peerAddress(j.Submitter)
		if j.Submitter.Client != "" {
			detail = " by " + cli.Clean(j.Submitter.Client) + " (" + peerAddress(j.Submitter) + ")"
		}
	}
	add("submitted", "%s%s", formatTime(j.SubmittedAt), detail)
	for i := range j.Runs {
		add(fmt.Sprintf("run %d", j.Runs[i].N), "%s", describeRun(&j.Runs[i]))
	}
	reason := ""
	if j.Reason != "" {
		reason = ": " + cli.Clean(j.Reason)
	}
	add("ended", "%s  %s%s", formatTime(j.EndedAt), j.Outcome, reason)
	if waitTime := formatSpan(float64(j.WaitedMS) / 1000); j.StartedAt == nil {
		add("waited", "%s, and did not run to its end", waitTime)
	} else {
		add("waited", "%s, then ran for %s", waitTime, formatSpan(float64(j.RanMS)/1000))
	}
	add("runs", "%d", j.Attempts)
	if len(j.Groups) > 0 {
		add("groups", "%s", cli.Clean(strings.Join(j.Groups, ", ")))
	}
	if j.KeepMS > 0 && j.DueSeconds != nil {
		add("forgotten", "in %s", formatSpan(*j.DueSeconds))
	}
	add("body", "%s", formatBytes(int64(j.Size)))
	if j.Outcome == "answered" {
		add("answer", "%s", formatBytes(int64(j.AnswerSize)))
	}
	return f
}

// deadLetterHint describes the kept body of a failed job; it returns "" if no body is kept.
func (t *tool) deadLetterHint(ctx context.Context, j *api.Job) string {
	if j.Outcome != "failed" {
		return ""
	}
	letter, err := t.findDead(ctx, j.ID, nil)
	if err != nil {
		return ""
	}
	d := &letter.value
	kept := "kept as a dead letter, with this body (" + commandLine("dead retry", d.Type, d.ID) + " submits it again)"
	if t.conn.doorAddr != "" { // doors have no dead letters, and not every one can retry
		kept = "kept, with this body"
	}
	return fmt.Sprintf("%s:\n%s\n", kept, cli.Clean(abridged(d.Body)))
}
