package findings

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"gloom/broker"
	"gloom/broker/admin/api"
	"gloom/broker/admin/finding"
	"gloom/broker/rate"
)

const (
	// nearLimit is the fraction of a limit above which its use is reported.
	nearLimit = 0.9
	// minDrainTime is how long a queue must take to drain to be a finding.
	minDrainTime = 10 * time.Second
	// minLag is the lag from which an event loop counts as late.
	minLag = 250 * time.Millisecond
	// minWaitRatio is how many times the usual wait a job must wait to be a finding.
	minWaitRatio = 10
	// A client that has read nothing for finding.Grace is reported if at least minUnread bytes wait
	// for it.
	minUnread = 64 << 10
	// minFailures is the number of failures that make a finding. minReleases is the number of released
	// jobs that make a finding.
	minFailures, minReleases = 3, 10
)

// finder collects the findings of one snapshot.
type finder struct {
	*Broker
	lastCounters *lastCounters
	conditions   finding.Conditions
}

// message returns the text and the advice of a finding.
type message = func() (finding, advice string)

func fixedMessage(finding, advice string) message {
	return func() (string, string) { return finding, advice }
}

func (f *finder) add(severity, kind, subject, cause string, weight float64, msg message) *finding.Condition {
	condition := &finding.Condition{Finding: api.Finding{Severity: severity, Kind: kind, Subject: subject, Cause: cause}, Weight: weight, Text: msg}
	f.conditions = append(f.conditions, condition)
	return condition
}

// typeCommand returns a command of gloom about a type, for an advice.
func typeCommand(words string, t *Type, flags ...string) string {
	return finding.Command(words, t.Figures.Type, flags...)
}

func formatSpan(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return d.String()
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Hour:
		return d.Round(time.Second).String()
	case d < 48*time.Hour:
		return fmt.Sprintf("%.1f hours", d.Hours())
	}
	return fmt.Sprintf("%.0f days", d.Hours()/24)
}

func (f *finder) checkBroker() {
	counters, isFirst := f.lastCounters, !f.lastCounters.started
	counters.started = true
	find := func(severity, cause string, msg message) {
		f.add(severity, "broker", "broker", cause, 0, msg).Immediate = true
	}
	if f.Imbalance != 0 {
		find(api.Severe, "imbalance", fixedMessage(fmt.Sprintf("the ledger of jobs is off by %d: a bug in the broker", f.Imbalance),
			"please report it, with the version"))
	}
	if f.Draining {
		find(api.Warning, "draining", fixedMessage("the broker is draining: it takes no new jobs, and stops when all have ended",
			"clients continue with the broker that replaces it: start that one"))
	}
	if f.Lag >= minLag {
		counters.lag, counters.lateAt = f.Lag, f.Now
	}
	if f.Now.Sub(counters.lateAt) <= recentTime {
		find(api.Warning, "late", fixedMessage(fmt.Sprintf("an event loop was %s late for its next task", formatSpan(counters.lag)),
			"the processor or the memory of this machine is used up: see what else runs on it, or give it more"))
	}
	if g := &counters.refused; g.update(f.Refused, f.Now, isFirst) {
		find(api.Severe, "refused", fixedMessage(finding.Plural(g.increase, "request")+" refused lately: a limit was reached, or a frame was begun and not completed",
			"the error says which: raise the limit, add workers, or see why the client stopped sending"))
	}
	if g := &counters.refusedConns; g.update(f.RefusedConns, f.Now, isFirst) {
		find(api.Severe, "turned_away", fixedMessage(finding.Plural(g.increase, "connection")+" turned away lately, because as many are open as are allowed",
			"raise --max-conns and the limit on open files (TLS connections may also take up to an eighth of --max-memory), or see who opens so many"))
	}
	if g := &counters.acceptErrors; g.update(f.AcceptErrors, f.Now, isFirst) {
		find(api.Severe, "unaccepted", fixedMessage(finding.Plural(g.increase, "connection")+" recently failed to be accepted or served",
			"the log says why; often it is the limit on open files"))
	}
	if g := &counters.unauthorized; g.update(f.Unauthorized, f.Now, isFirst) {
		find(api.Warning, "unauthorized", fixedMessage(finding.Plural(g.increase, "request")+" lately had no token or an unknown one",
			"the log names the addresses: correct the token there, or add it to the token file"))
	}
	if f.Certificate != "" {
		severity := api.Warning
		if f.CertificateInvalid {
			severity = api.Severe
		}
		find(severity, "certificate", fixedMessage(f.Certificate, "replace the files of --tls-cert and --tls-key, and send SIGHUP"))
	}
	if fleet := f.Fleet; fleet != nil {
		f.checkFleet(fleet)
	}
	for _, limit := range f.Limits {
		f.checkLimit("broker", "broker", limit)
	}
}

func (f *finder) checkFleet(fleet *Fleet) {
	find := func(subject, cause, severity string, msg message) {
		f.add(severity, "broker", subject, cause, 0, msg).Immediate = true
	}
	switch {
	case fleet.NameTaken:
		find("broker", "fleet_alone", api.Severe, fixedMessage("another broker of the fleet has the same name, so this broker is alone",
			"give one of them another --fleet-name"))
	case fleet.Away:
		find("broker", "fleet_away", api.Severe, fixedMessage("the fleet is away: NATS does not answer, or refuses this broker or its subjects ("+cmp.Or(fleet.Why, "no reason yet")+"), and jobs that need other brokers' workers wait",
			"check whether the servers that --fleet names are running and can be reached; brokers join again by themselves"))
	default:
		for _, name := range fleet.LostBrokers {
			find(name, "fleet_lost", api.Warning, fixedMessage("a broker of the fleet is lost: the jobs lent to it were requeued",
				"check whether it is running and reaches NATS; if it was removed on purpose, this finding disappears within ten minutes"))
		}
		for _, name := range fleet.OtherVersions {
			find(name, "fleet_version", api.Warning, fixedMessage("a broker of the fleet uses another version of the messages: no jobs are lent to it or borrowed from it",
				"give both brokers the same release; gloom fleet shows the version"))
		}
	}
}

// checkUnserved reports a type that no worker here serves. In a fleet, other brokers may have busy
// workers for it: brokers announce only idle workers.
func (f *finder) checkUnserved(t *Type, find func(severity, cause string, msg message) *finding.Condition) {
	fleet, severity := f.Fleet, api.Severe
	if fleet != nil && !fleet.Away && !fleet.NameTaken && fleet.BrokersUp > 0 {
		severity = api.Warning
	}
	find(severity, "no_worker", func() (string, string) {
		text, advice := finding.JobsWaiting(t.Figures.Queued)+", but no worker serves the type", "start a worker for it, or forget the type if it was a test or misspelt ("+typeCommand("forget", t, "--jobs")+")"
		if fleet == nil {
			return text, advice
		}
		switch text += " here, and "; {
		case fleet.NameTaken:
			text += "this broker is alone: another broker of the fleet has its name"
		case fleet.Away:
			text += "the fleet has been away for " + formatSpan(f.Now.Sub(fleet.Since))
		case fleet.BrokersUp == 0:
			text += "no other broker of the fleet is connected"
		default:
			text += "no other broker of the fleet has an idle worker for it"
			advice = "see whether the workers of other brokers are busy or the type is misspelt, or start a worker"
		}
		if lost := fleet.LostServing(t.Figures.Type); len(lost) > 0 {
			text += "; workers for it were at " + strings.Join(lost[:min(len(lost), 3)], ", ") + ", lost lately"
		}
		return text, advice
	})
}

// checkLimit reports a limit that is almost reached.
func (f *finder) checkLimit(kind, subject string, limit Limit) *finding.Condition {
	if limit.Max <= 0 || float64(limit.Used) < nearLimit*float64(limit.Max) {
		return nil
	}
	share := float64(limit.Used) / float64(limit.Max)
	severity := api.Warning
	switch {
	case limit.RefusesNothing:
		severity = api.Info
	case share >= 1:
		severity = api.Severe
	}
	limitFinding := f.add(severity, kind, subject, "limit", share, func() (string, string) {
		n := func(v int64) string {
			if limit.IsBytes {
				return humanize.IBytes(uint64(v))
			}
			return humanize.Comma(v)
		}
		advice := "raise the limit, or see what takes so much: when it is reached, clients are refused"
		if limit.RefusesNothing {
			advice = "raise the limit to keep more: beyond it the oldest are dropped"
		}
		return fmt.Sprintf("%s of %s are used (--%s)", n(limit.Used), n(limit.Max), limit.Name), advice
	})
	limitFinding.Limit = limit.Name
	return limitFinding
}

func (f *finder) checkType(t *Type) {
	find := func(severity, cause string, msg message) *finding.Condition {
		return f.add(severity, "type", t.Figures.Type, cause, float64(t.Figures.Queued), msg)
	}
	if t.Figures.Queued > 0 {
		f.checkQueue(t, find)
	}
	if t.LostWorkers >= minFailures {
		find(api.Severe, "workers_lost", fixedMessage(fmt.Sprintf("%d workers were lost while they ran its job %.200q", t.LostWorkers, t.LostJob),
			"see its runs ("+finding.Command("explain", t.LostJob)+"), and whether the job makes its workers crash: cancel it ("+finding.Command("cancel", t.LostJob, "--running")+"), or fix the workers")).Immediate = true
	}
	if t.ExcessFailures >= minFailures+uint64(t.LostWorkers) && t.IsFailing(f.Now) {
		find(failureFinding(t)).Immediate = true
	}
	if g := &t.releases; g.increase >= minReleases && g.isRecent(f.Now) {
		find(api.Warning, "given_back", fixedMessage("workers recently gave back "+finding.Plural(g.increase, "job")+" of it without running them",
			"jobs may circle between workers: gloom explain ID shows how often one was given back, and by which workers")).Immediate = true
	}
	if t.SameReason >= minFailures {
		find(api.Warning, "same_reason", func() (string, string) {
			return fmt.Sprintf("%d of its last %d failed jobs failed for the same reason: %.200s", t.SameReason, t.RecentFailures, t.Reason),
				"they share one cause (" + typeCommand("dead ls", t) + "): fix it, then retry them (" + typeCommand("dead retry", t, "--all") + ")"
		}).Immediate = true
	}
	if f.Now.Sub(t.ExpiredAt) <= recentTime {
		find(api.Warning, "expired", fixedMessage("some of its jobs reached their deadline before they were done",
			"add workers, or give its jobs more time (expires_ms)")).Immediate = true
	}
	liveJobs := int64(t.Figures.Queued + t.Figures.Delayed + t.Figures.Running)
	f.checkLimit("type", t.Figures.Type, Limit{Name: "max-type-jobs", Used: liveJobs, Max: f.MaxTypeJobs})
	f.checkLimit("type", t.Figures.Type, Limit{Name: "max-type-bytes", Used: t.Figures.Bytes, Max: f.MaxTypeBytes, IsBytes: true})
	f.checkLimit("type", t.Figures.Type, Limit{Name: "dead-letters", Used: int64(t.Figures.Dead), Max: f.DeadLetters, RefusesNothing: true})
}

// checkQueue reports the waiting jobs of a type.
func (f *finder) checkQueue(t *Type, find func(severity, cause string, msg message) *finding.Condition) {
	heldJobs := min(uint64(t.HeldJobs), t.Figures.Queued)
	if heldJobs > 0 {
		find(api.Info, "group_limit", func() (string, string) {
			return finding.JobsWaiting(t.Figures.Queued) + ": rules of groups hold " + humanize.Comma(int64(heldJobs)) + " back",
				typeCommand("groups --type", t) + " shows which; if a limit is too low, change the rule (gloom limit --group PATTERN)"
		})
	}
	shortest := minDrainTime
	if t.WasOvertaken {
		shortest = finding.Grace
	}
	// The oldest job may be one that is held back.
	if f.checkStopped(t, find) || heldJobs > 0 || t.UsualWait == 0 || t.StuckFor < max(shortest, minWaitRatio*t.UsualWait) {
		return
	}
	find(api.Warning, "overlong", func() (string, string) {
		advice := "the runs before it take long: see them (" + typeCommand("jobs", t, "--state running") + "), or add workers"
		if t.WasOvertaken {
			advice = "other jobs go first, because of a larger priority or their group's turn: see the type's jobs, or add workers"
		}
		return fmt.Sprintf("its oldest job has been waiting for %s; 19 of 20 jobs waited less than %s", formatSpan(t.StuckFor), formatSpan(t.UsualWait)), advice
	}).Immediate = true
}

// failureFinding returns the finding about a type whose runs fail.
func failureFinding(t *Type) (severity, cause string, msg message) {
	pause := "; pause the type until its workers are fixed (" + typeCommand("pause", t) + ")"
	advice := "see why: its failed jobs show the reasons (" + typeCommand("dead ls", t) + ")" + pause
	if t.RecentFailures == 0 {
		advice = "see why: " + typeCommand("jobs", t) + " lists its jobs, gloom explain ID shows the runs of one" + pause
	}
	if t.AnsweredSince {
		return api.Warning, "failing", fixedMessage("more of its runs fail than succeed: "+humanize.Comma(int64(t.ExcessFailures))+" more since that began", advice)
	}
	return api.Severe, "failing", fixedMessage("all of its runs fail: "+humanize.Comma(int64(t.ExcessFailures))+" failed, and none has succeeded since the first", advice)
}

// checkStopped reports why no job of a type is handed out, and returns false if jobs are handed out.
func (f *finder) checkStopped(t *Type, find func(severity, cause string, msg message) *finding.Condition) bool {
	free := t.Figures.Queued - min(t.Figures.Queued, uint64(t.HeldJobs)) // not held back by groups
	switch c := t.Figures.Limits.Concurrency; {
	case t.Figures.Paused:
		find(api.Warning, "paused", func() (string, string) {
			return finding.JobsWaiting(t.Figures.Queued) + ": the type is paused", "resume it when its jobs may run again (" + typeCommand("resume", t) + ")"
		})
	case t.Figures.Workers == 0 && (f.Fleet == nil || t.Figures.Running == 0):
		f.checkUnserved(t, find)
	case free == 0:
		return true // rules of groups hold all of them back
	case c > 0 && t.Figures.Running >= uint64(c):
		find(api.Warning, "type_concurrency", func() (string, string) {
			return fmt.Sprintf("%s: the type has reached its concurrency, %d", finding.JobsWaiting(free), c), "raise its concurrency (" + typeCommand("limit", t, fmt.Sprint("--concurrency ", 2*c)) + "), if its resources can take that"
		})
	case t.Figures.Limits.Rate > 0 && t.Figures.Idle > 0:
		find(api.Warning, "type_rate", func() (string, string) {
			return fmt.Sprintf("%s, with idle workers: the type is limited to %s", finding.JobsWaiting(free), rate.Text(t.Figures.Limits.Rate)), "raise its rate (" + typeCommand("limit", t, "--rate "+rate.Flag(min(2*t.Figures.Limits.Rate, broker.MaxRate))) + "), if its resources can take that"
		})
	case t.Figures.Idle > 0:
		return false
	default:
		drain, known := f.estimateDrain(t, free)
		if known && drain < minDrainTime {
			return false
		}
		if t.Figures.Running == 0 {
			find(api.Warning, "workers_away", func() (string, string) {
				text := finding.JobsWaiting(free) + ", and none is running: "
				if t.Figures.Workers == 1 {
					text += "its only worker is busy with jobs of other types, holds overdue runs, or does not answer"
				} else {
					text += fmt.Sprintf("its %d workers are busy with jobs of other types, hold overdue runs, or do not answer", t.Figures.Workers)
				}
				return text, "see what they do (gloom ls workers), or add workers"
			})
			return true
		}
		find(api.Warning, "all_busy", func() (string, string) {
			text := fmt.Sprintf("%s: all %d workers are busy", finding.JobsWaiting(free), t.Figures.Workers)
			switch t.Figures.Workers {
			case 1:
				text = finding.JobsWaiting(free) + ": its only worker is busy"
			case 0:
				text = fmt.Sprintf("%s: its workers are at other brokers and all busy, with %s", finding.JobsWaiting(free), finding.Plural(t.Figures.Running, "job"))
			}
			switch {
			case t.peakJobs.isGrowing() && t.Rates.In > t.Rates.Out && t.Rates.Out > 0:
				text += fmt.Sprintf("; %.3g a second come in, %.3g are done: the queue is growing", t.Rates.In, t.Rates.Out)
			case known:
				text += "; at the current rate they are done in " + formatSpan(drain)
			case t.MeanRun == 0 && t.StuckFor < minDrainTime:
				return text, "add workers" // the first runs may just be long
			default:
				text += "; none has ended lately"
			}
			return text, "add workers, or see whether some hang (" + typeCommand("jobs", t, "--state running") + ")"
		})
	}
	return true
}

// estimateDrain estimates how long the given number of jobs takes, from the current rate or else from
// the mean duration of past runs. It returns false if neither is known.
func (f *finder) estimateDrain(t *Type, jobs uint64) (time.Duration, bool) {
	seconds := 0.0
	switch {
	case t.Rates.Out > 0:
		seconds = float64(jobs) / t.Rates.Out
	case t.MeanRun > 0:
		seconds = float64(jobs) * t.MeanRun.Seconds() / float64(max(t.Figures.Running, 1))
		if t.StuckFor > 3*t.MeanRun {
			return 0, false // they hang
		}
	default:
		return 0, false
	}
	return time.Duration(min(seconds, 1e9) * float64(time.Second)), true
}

func (f *finder) checkGroup(g *api.Group) {
	if g.Held == 0 || g.Rule == "" {
		return
	}
	f.add(api.Warning, "group", g.Group, "group_limit", float64(g.Held), func() (string, string) {
		return fmt.Sprintf("the rule for %q holds %s back, with %d running", g.Rule, finding.Plural(g.Held, "job"), g.Running),
			"if the limit is too low, change the rule (" + finding.Command("limit --group", g.Rule) + ")"
	})
}

func (f *finder) checkClient(c *Client) {
	find := func(cause string, weight float64, msg message) {
		condition := f.add(api.Warning, "client", c.Name, cause, weight, msg)
		condition.Number, condition.Address, condition.Worker, condition.Immediate = c.Number, c.Address, c.IsWorker, true
	}
	if c.Overdue > 0 {
		find("overdue", float64(c.Overdue), fixedMessage(finding.Plural(c.Overdue, "run")+" on this worker passed the timeout; it gets no more jobs until it answers",
			"check whether it hangs, or restart it"))
	}
	if c.Unread >= minUnread && c.UnreadFor >= finding.Grace {
		role := "submitter"
		if c.IsWorker {
			role = "worker"
		}
		find("unread", float64(c.Unread), fixedMessage(fmt.Sprintf("this %s has read nothing for %s, with %s waiting for it", role, formatSpan(c.UnreadFor), humanize.IBytes(uint64(c.Unread))),
			"check whether it hangs, or restart it; its connection is closed when too much is unread"))
	}
	for _, limit := range []Limit{
		{Name: "max-submitter-jobs", Used: c.Jobs, Max: f.MaxSubmitterJobs},
		{Name: "max-submitter-bytes", Used: c.Bytes, Max: f.MaxSubmitterBytes, IsBytes: true},
	} {
		if limitFinding := f.checkLimit("client", c.Name, limit); limitFinding != nil {
			limitFinding.Number, limitFinding.Address = c.Number, c.Address
		}
	}
}
