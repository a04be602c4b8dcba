// Package wording says in plain English what the core reports in numbers.
package wording

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"gloom/broker"
	"gloom/broker/rate"
)

// reasons holds the text of each Why. Names in braces stand for fields of the Reason.
var reasons = [...]string{
	broker.WhyWorkerLost:     "its worker was lost in run {have}",
	broker.WhyTimedOut:       "run {have} took longer than its timeout of {milliseconds}",
	broker.WhyWorkerClosed:   "its worker was closed: {text}",
	broker.WhyDeadlinePassed: "its deadline (expires_ms) passed before it could run",
	broker.WhyStopped:        "the broker stopped before the job was done",
	broker.WhyRevoked:        "cancelled by an operator",
	broker.WhyTypeForgotten:  "an operator forgot its type",
	broker.WhyGivenBack:      "given back",
	broker.WhyAttachedTo:     "another connection attached to this job",

	broker.WhyNotKept:          "no kept job has this id",
	broker.WhyNotCancellable:   "no job of this connection, and no detached one, has this id",
	broker.WhyNotChangeable:    "no waiting job of this connection, and no detached one, has this id",
	broker.WhyNotWaiting:       "no waiting job has this id",
	broker.WhyNoLetter:         "no failed job with this id is kept",
	broker.WhyNotRunningHere:   "no job with this id is out on this connection",
	broker.WhyNothingRunning:   "not_processing: no job is out on this connection",
	broker.WhyIsRunning:        "running: the job is out on a worker",
	broker.WhyAlreadyEnded:     "the job has ended",
	broker.WhyOutcomeOnItsWay:  "the job has ended, and its last frame is on its way",
	broker.WhyAlreadyCancelled: "the job was cancelled already",
	broker.WhyIDInUse:          "a job with this id is waiting or running",
	broker.WhyOutcomeKept:      "the outcome of a job with this id is kept for another {time}: attach to it, or cancel it",

	broker.WhyDraining:              "the broker is shutting down and takes no new jobs",
	broker.WhyTooManyTypes:          "the broker holds {most} types (max-types)",
	broker.WhyTooManyPairs:          "the broker holds {have} pairs of a type and a set of types that serves it (max-pairs)",
	broker.WhyTooManyPoolBytes:      "the lists of types that workers joined with take {have} bytes, and {need} more would exceed {most} (an eighth of max-bytes, 1 MiB at least)",
	broker.WhyTooManyJobs:           "the broker holds {have} jobs{among} (max-jobs)",
	broker.WhyTooManyBytes:          "the broker holds {have} bytes{among}, and {need} more would exceed {most} (max-bytes)",
	broker.WhyTooManyTypeJobs:       "type {type} holds {have} jobs (max-type-jobs)",
	broker.WhyTooManyTypeBytes:      "type {type} holds {have} bytes, and {need} more would exceed {most} (max-type-bytes)",
	broker.WhyTooManySubmitterJobs:  "this submitter holds {have} jobs (max-submitter-jobs)",
	broker.WhyTooManySubmitterBytes: "this submitter holds {have} bytes, and {need} more would exceed {most} (max-submitter-bytes)",
	broker.WhyTooManyGroups:         "the broker holds {have} groups (max-groups)",
	broker.WhyTooManyOverdue:        "there are {overdue} overdue runs, and {have} of them are on this connection, which does not answer them (half of max-jobs or max-bytes)",
	broker.WhyFrameTooLong:          "the kept frame does not fit into what may wait for this connection (max-outbound)",
	broker.WhyTooManyRules:          "there would be more than {most} rules, or than {need} with a *",
	broker.WhyEmptyRule:             "a rule needs concurrency or rate",
}

// Reason puts a reason of the core into words.
func Reason(r *broker.Reason) string {
	if r.Why == broker.WhySeeText {
		return r.Text
	}
	buf := make([]byte, 0, 256)
	rest := reasons[r.Why]
	for {
		before, behind, found := strings.Cut(rest, "{")
		if !found {
			break
		}
		buf = append(buf, before...)
		before, rest, _ = strings.Cut(behind, "}")
		switch before {
		case "have":
			buf = strconv.AppendInt(buf, r.Have, 10)
		case "overdue":
			buf = strconv.AppendInt(buf, int64(r.Overdue), 10)
		case "among":
			if r.Overdue > 0 {
				buf = append(strconv.AppendInt(append(buf, " ("...), int64(r.Overdue), 10), " overdue runs among them)"...)
			}
		case "need":
			buf = strconv.AppendInt(buf, r.Need, 10)
		case "most":
			buf = strconv.AppendInt(buf, r.Limit, 10)
		case "time":
			buf = append(buf, time.Duration(r.Have).Round(time.Second).String()...)
		case "milliseconds":
			buf = append(buf, (time.Duration(r.Limit) * time.Millisecond).String()...)
		case "type":
			buf = strconv.AppendQuote(buf, r.Text)
		default:
			buf = append(buf, r.Text...)
		}
	}
	if len(buf) == 0 {
		return rest
	}
	return string(append(buf, rest...))
}

// TypeUse describes what keeps a type from being forgotten; it is "" if nothing does.
func TypeUse(u *broker.TypeUse) string {
	var parts []string
	add := func(s string, set bool) {
		if set {
			parts = append(parts, s)
		}
	}
	count := func(n int, singular, plural string) {
		if add("1 "+singular, n == 1); n > 1 {
			add(strconv.Itoa(n)+" "+plural, true)
		}
	}
	add("workers serve it", u.HasWorkers)
	count(u.Running, "job is running", "jobs are running")
	count(u.Waiting, "job is waiting", "jobs are waiting")
	count(u.Letters, "failed job is kept", "failed jobs are kept")
	count(u.Outcomes, "outcome is kept", "outcomes are kept")
	add("it is paused", u.IsPaused)
	add("it has limits or is fair", u.HasSettings)
	return strings.Join(parts, ", ")
}

// SettingError says why a rule of groups or a setting of a type is refused.
type SettingError struct {
	Pattern, Type []byte // one of them
	Reason        string
}

func (e *SettingError) Error() string {
	if e.Type != nil {
		return fmt.Sprintf("type %q: %s", e.Type, e.Reason)
	}
	return e.Reason
}

// SettingErrorOf returns why the core refused a setting, as a *SettingError, or nil if x is nil.
func SettingErrorOf(x *broker.BadSetting) error {
	if x == nil {
		return nil
	}
	e := &SettingError{Pattern: x.Pattern, Type: x.Type}
	switch x.Reason.Why {
	case broker.WhyBadConcurrency:
		e.Reason = fmt.Sprintf("concurrency is %d, want 0 to %d", x.Concurrency, int64(broker.MaxConcurrency))
	case broker.WhyBadRate:
		e.Reason = fmt.Sprintf("rate is %g, want above 0, at most %g", x.Rate, float64(broker.MaxRate))
	case broker.WhyBadBurst:
		e.Reason = fmt.Sprintf("burst is %d, want 1 to %d", x.Burst, int64(broker.MaxBurst))
	case broker.WhyBurstWithoutRate:
		e.Reason = fmt.Sprintf("burst is %d, but there is no rate", x.Burst)
	default:
		e.Reason = Reason(&x.Reason)
	}
	return e
}

// WaitingFor describes what a waiting job waits for; it is "" for other jobs.
func WaitingFor(x *broker.JobInfo) string {
	switch x.Hold {
	case broker.HeldByDelay:
		return fmt.Sprintf("its delay or backoff (%s left)", formatDuration(x.DelayLeft))
	case broker.HeldBeyondDeadline:
		return fmt.Sprintf("its delay or backoff (%s left), but the job will expire first (expires_ms, %s left)", formatDuration(x.DelayLeft), formatDuration(x.ExpiresIn))
	case broker.HeldByPause:
		return "its type is paused"
	case broker.HeldByRule:
		return fmt.Sprintf("the rule for %q, of its group %q", x.HeldRule, x.HeldBy)
	case broker.HeldByConcurrency:
		return fmt.Sprintf("the limit of %d running jobs of its type", x.Limits.Concurrency)
	case broker.HeldByRate:
		return fmt.Sprintf("the limit of its type, %s", rate.Text(x.Limits.Rate))
	case broker.HeldForWorker:
		return "no worker has joined its type"
	case broker.HeldByLeftWorkers:
		return "all workers of its type have left"
	case broker.HeldByBusyWorkers:
		return "all workers of its type are busy"
	case broker.HeldByFewWorkers:
		return "some workers of its type are busy, and the others hold overdue runs, or do not answer"
	case broker.HeldByAwayWorkers:
		return "all workers of its type are busy with jobs of other types, hold overdue runs, or do not answer"
	}
	return ""
}

// formatDuration formats a duration for people.
func formatDuration(d time.Duration) string {
	unit := time.Millisecond
	if d > time.Minute {
		unit = time.Second
	}
	return max(0, d).Round(unit).String()
}
