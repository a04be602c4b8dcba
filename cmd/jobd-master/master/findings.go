package master

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"gloom/broker/admin/finding"
)

// recentCounts counts how many of a target's rows were accepted and ended in the last few seconds.
type recentCounts struct {
	window             time.Duration
	accepted, ok, fail uint64
}

// maxWait is the age at which the oldest waiting row of a target with free slots becomes a finding.
const maxWait = 15 * time.Second

// pausedAdvice is the advice for a paused target.
const pausedAdvice = "Running rows continue; no other row begins until it is resumed."

// findFindings returns the findings, the most severe first.
func findFindings(snapshot *Snapshot, recent func(target string) recentCounts) finding.Conditions {
	findings := finding.Conditions{}
	if len(snapshot.Workers) == 0 {
		findings.Add("severe", "master", "master", "no_worker", "no worker is registered", "Start a jobd whose master_host and master_port name this master.")
	}
	for _, w := range snapshot.Workers {
		name := cmp.Or(w.Name, w.Address)
		if w.Refused != "" {
			findings.Add("warning", "worker", name, "refused", w.Refused, "Look at the triggers and CHECKs of its table. The results wait, and are written once the database takes them.")
		}
		switch {
		case w.Trouble != "":
			findings.Add("severe", "worker", name, "trouble", w.Trouble, "It runs no rows until this is fixed; results of ended rows wait to be written.")
		case w.Silent:
			findings.Add("warning", "worker", name, "silent", "does not answer", "Its host is busy, frozen or gone. Its connection is closed when it stops answering pings.")
		case w.CountError != "":
			findings.Add("warning", "worker", name, "uncounted", "does not count the rows of its table: "+w.CountError, "It is not known how many rows wait there.")
		case w.ReportsNoRows:
			findings.Add("info", "worker", name, "old", "does not report its rows", "It is another implementation or an earlier version: its rows are neither listed nor counted.")
		}
	}
	for i := range snapshot.Targets {
		t := &snapshot.Targets[i]
		if severity, cause, text, advice := t.worstFinding(snapshot.At, recent(t.Target.Target)); severity != "" {
			findings.Add(severity, "target", t.Target.Target, cause, text, advice)
		}
		if t.Manual > 0 {
			findings.Add("info", "target", t.Target.Target, "manual", fmt.Sprintf("%s to be run by hand", countRows(t.Manual, t.More)), "They start when the program that inserted them, or an operator, runs them.")
		}
	}
	return findings
}

// worstFinding returns the most severe finding about a target; severity is "" if there is none.
func (t *Target) worstFinding(now time.Time, n recentCounts) (severity, cause, text, advice string) {
	waits := countRows(t.Waiting, t.More)
	backlog, ended := t.Waiting+t.Queued, n.ok+n.fail
	switch {
	case t.Workers == 0 && t.Waiting > 0:
		return "severe", "no_worker", waits + ", and no worker serves it", "Start a jobd that has it in [targets], or add it to one: jobctl add-target."
	case t.Workers == 0 && t.Poked:
		return "severe", "no_worker", "was poked, and no worker serves it", "Start a jobd that has it in [targets], or add it to one: jobctl add-target. The poke is remembered."
	case t.Workers == 0 && t.LeftAt != nil:
		return "warning", "away", fmt.Sprintf("its last worker left %s ago", now.Sub(*t.LeftAt).Round(time.Second)), "No worker runs its rows. If that is intended, this finding ends after an hour."
	case t.Paused && backlog > 0:
		return "warning", "paused", "is paused, and " + countRows(backlog, t.More), pausedAdvice
	case t.PausedBy > 0 && t.Paused:
		return "info", "paused", "is paused", pausedAdvice
	case t.PausedBy > 0:
		return "info", "paused", fmt.Sprintf("is paused at %d of %d workers", t.PausedBy, t.Workers), pausedAdvice
	case n.fail > 1 && 2*n.fail > ended:
		return "warning", "failing", fmt.Sprintf("%d of %d rows that ended in the last %s have failed", n.fail, ended, n.window.Round(time.Second)), "Look at the rows that failed last: their output says why."
	case t.Waiting > 0 && n.accepted == 0 && t.Running+t.Queued < t.Concurrency && t.Oldest != nil && now.Sub(*t.Oldest) > maxWait && n.window > Period:
		return "warning", "unpoked", waits + " though slots are free", "No client has poked this target, or another transaction holds its rows. Poke the target, or set poll_interval so that workers poll by themselves."
	case t.Concurrency > 0 && t.Running >= t.Concurrency && backlog > 0:
		advice = "A larger concurrency or more workers would help."
		if ended > 0 && !t.More {
			advice = fmt.Sprintf("At this rate they will be done in %s.", (time.Duration(backlog) * n.window / time.Duration(ended)).Round(time.Second))
		}
		reason := "its only slot is taken"
		if t.Concurrency > 1 {
			reason = fmt.Sprintf("all %d slots are taken", t.Concurrency)
		}
		return "info", "all_busy", reason + ", and " + countRows(backlog, t.More), advice
	}
	return "", "", "", ""
}

// countRows says how many rows are waiting; with more, at least that many.
func countRows(n int, more bool) string {
	switch {
	case more:
		return "at least " + strconv.Itoa(n) + " rows are waiting"
	case n == 1:
		return "1 row is waiting"
	}
	return strconv.Itoa(n) + " rows are waiting"
}
