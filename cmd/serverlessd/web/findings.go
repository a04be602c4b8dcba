package web

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"gloom/broker/admin/api"
	"gloom/broker/admin/finding"
	"gloom/cmd/serverlessd/engine"
	"gloom/cmd/serverlessd/job"
	"gloom/cmd/serverlessd/store"
)

const (
	// If a job waits in the journal for a store for longer than maxBehind, that is a finding.
	maxBehind = time.Minute
	// nearPercent is the percentage of a limit from which a count is "close" to the limit.
	nearPercent = 90
	// recentPeriod is the last period, in which ended runs are counted.
	recentPeriod = time.Minute
)

// endSample says how many runs had ended by a moment, and how many of the ended runs had not
// succeeded.
type endSample struct {
	at            time.Time
	total, failed int64
}

// endHistory holds the counts of earlier calls of find, and since when each finding has existed.
type endHistory struct {
	samples []endSample
	tracker finding.Tracker
}

// find returns the findings, the worst first.
func (p *endHistory) find(snapshot *engine.Snapshot, handlers map[string]*job.Handler, unready error, opt *Options, now time.Time) finding.List {
	latest := endSample{at: now}
	for code, n := range snapshot.Ended {
		if code == "retry" {
			continue
		}
		latest.total += n
		if code != "ok" {
			latest.failed += n
		}
	}
	for len(p.samples) > 0 && now.Sub(p.samples[0].at) > recentPeriod {
		p.samples = p.samples[1:]
	}
	p.samples = append(p.samples, latest)
	earliest := p.samples[0]
	return p.tracker.Update(findFindings(snapshot, handlers, unready, opt, latest.total-earliest.total, latest.failed-earliest.failed, now.Sub(earliest.at)), now)
}

// findFindings returns the current findings. ended counts the runs that ended in the last period.
// failedCount counts the ended runs that did not succeed.
func findFindings(snapshot *engine.Snapshot, handlers map[string]*job.Handler, unready error, opt *Options, ended, failedCount int64, window time.Duration) finding.Conditions {
	conditions := finding.Conditions{}
	daemon := func(severity, cause, text, advice string) {
		conditions.Add(severity, "daemon", "daemon", cause, text, advice)
	}
	hasStoreFault := false
	for i, s := range snapshot.Stores {
		if s.Error == "" {
			continue
		}
		hasStoreFault = true
		text, advice := "refuses something: ", "No job is lost: it is tried again."
		if s.Away || s.Damaged {
			advice = "Jobs are still accepted: they wait in the journal."
			if i == 0 { // it has the schedules and the keys
				advice = "New jobs wait in the journal, except that jobs with unique keys are refused. Schedules make no jobs."
			}
		}
		if s.Damaged {
			advice += " The jobs in the store may be lost: stop all daemons that use the file, and restore a backup, without the -wal and -shm files that stand beside the damaged one."
		} else if s.Away {
			text = "is away: "
		}
		conditions.Add(api.Severe, "store", s.Name, "store", text+s.Error, advice)
	}
	if snapshot.Broker != nil {
		daemon(api.Severe, "broker_away", "the broker is away: "+snapshot.Broker.Error(), "Jobs for Gloom workers wait. All others run.")
	} else if unready != nil && !hasStoreFault {
		daemon(api.Severe, "not_ready", "is not ready: "+unready.Error(), "GET /readyz shows when it is over.")
	}
	if snapshot.Imbalance != 0 {
		daemon(api.Severe, "imbalance", fmt.Sprintf("the counts of the stores are off by %d", snapshot.Imbalance),
			"This is a bug, unless tables were restored or changed while a daemon was running. The jobs run all the same.")
	}
	if !snapshot.HandsOut {
		daemon(api.Warning, "paused", "hands out no jobs", "It was stopped. It still accepts jobs, and other daemons run them. POST /start resumes it.")
	}
	var sum store.Counts
	failing := false
	for _, jobtype := range slices.Sorted(maps.Keys(snapshot.Types)) {
		c := snapshot.Types[jobtype]
		sum.Add(&c)
		if c.Waiting > 0 && handlers[jobtype] == nil && !snapshot.HandlersUnread {
			client, typ, _ := strings.Cut(jobtype, "-")
			conditions.Add(api.Severe, "type", jobtype, "no_handler", finding.JobsWaiting(c.Waiting)+", and the type has no handler", fmt.Sprintf("Its jobs run once it has one: POST /%s/handler/add/%s", client, typ))
		}
		if failedCount := c.Failed + c.Abandoned; failedCount > 1 && failedCount >= c.OK {
			failing = true
			conditions.Add(api.Warning, "type", jobtype, "failing", fmt.Sprintf("%d jobs did not succeed, %d did", failedCount, c.OK), "Their output says why; once that is fixed, retry them.")
		}
	}
	if !failing && failedCount > 1 && 2*failedCount > ended {
		daemon(api.Warning, "failing", fmt.Sprintf("%d of %d runs that ended here in the last minute did not succeed", failedCount, ended), "The output of the jobs says why.")
	}
	journal := func(severity, cause, text, advice string) {
		conditions.Add(severity, "journal", "journal", cause, text, advice)
	}
	if n := snapshot.Journal.Failures; n > 0 {
		journal(api.Severe, "journal", fmt.Sprintf("%d writes or syncs failed since the start", n), "Check its disk and the log.")
	}
	if sum.SetAside > 0 {
		journal(api.Warning, "set_aside", fmt.Sprintf("%d jobs were set aside, which no store would accept", sum.SetAside), "GET /aside shows why, POST /put-back?all=true tries again.")
	} else if n := snapshot.Journal.AsideFiles; n > 0 {
		journal(api.Warning, "set_aside", fmt.Sprintf("%d files are set aside", n), "GET /aside shows why, POST /put-back?all=true tries again.")
	}
	if age := time.Duration(snapshot.Journal.Age); age > maxBehind {
		journal(api.Warning, "behind", fmt.Sprintf("%d jobs are in no store yet, the oldest for %v", snapshot.Journal.Jobs, age.Round(time.Second)), "A store is away or slow, or they are for a store that is not given any more, as the log says at the start. The jobs run once a store has them.")
	}
	if n, limit := snapshot.Journal.Bytes, opt.JournalMax; limit > 0 && n*100 >= limit*nearPercent {
		journal(api.Warning, "limit", fmt.Sprintf("is close to --journal-max: %d %%", 100*n/limit), "Beyond it, new jobs are refused.")
	}
	if opt.Concurrency > 0 && snapshot.Batches >= opt.Concurrency && sum.Waiting > 0 {
		daemon(api.Info, "busy", fmt.Sprintf("all %d slots are taken, and %s", opt.Concurrency, finding.JobsWaiting(sum.Waiting)),
			finding.DrainTime(sum.Waiting, float64(ended)/max(window.Seconds(), 1))+"A larger --concurrency, or another daemon, would help.")
	}
	return conditions
}
