package web

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"gloom/cmd/internal/finding"
	"gloom/cmd/serverlessd/engine"
	"gloom/cmd/serverlessd/job"
	"gloom/cmd/serverlessd/store"
)

const (
	// behind is how long a job may be in the journal alone.
	behind = time.Minute
	// near is from how many percent of a limit on it is close to it.
	near = 90
	// lately is over which time it is told what became of runs.
	lately = time.Minute
)

// ends is how many runs had ended at a time, and how many of them without success.
type ends struct {
	at       time.Time
	all, bad int64
}

// past is what earlier looks saw, and since when there is what they found.
type past struct {
	ends   []ends
	memory finding.Memory
}

// find finds what does not move, or soon will not, the worst first.
func (p *past) find(l *engine.Look, handlers map[string]*job.Handler, unready error, opt *Options, now time.Time) finding.List {
	is := ends{at: now}
	for code, n := range l.Ended {
		if code == "retry" {
			continue
		}
		if is.all += n; code != "ok" {
			is.bad += n
		}
	}
	for len(p.ends) > 0 && now.Sub(p.ends[0].at) > lately {
		p.ends = p.ends[1:]
	}
	p.ends = append(p.ends, is)
	was := p.ends[0]
	all := judge(l, handlers, unready, opt, is.all-was.all, is.bad-was.bad, now.Sub(was.at))
	p.memory.Note(all, now)
	return all
}

// judge lists what is wrong, given what became of runs lately.
func judge(l *engine.Look, handlers map[string]*job.Handler, unready error, opt *Options, ended, bad int64, over time.Duration) finding.List {
	all := finding.List{}
	daemon := func(severity, cause, what, advice string) { all.Add(severity, "daemon", "daemon", cause, what, advice) }
	ails := false
	for _, s := range l.Stores {
		if s.Ails == nil {
			continue
		}
		ails = true
		what, advice := "refuses something: ", "It costs no job: it is tried again."
		if s.Away {
			what, advice = "is away: ", "Jobs are still accepted: they wait in the journal."
		}
		all.Add(finding.Severe, "store", s.Name, "store", what+s.Ails.Error(), advice)
	}
	if l.Broker != nil {
		daemon(finding.Severe, "broker_away", "the broker is away: "+l.Broker.Error(), "Jobs for Gloom workers wait. All others go on.")
	} else if unready != nil && !ails {
		daemon(finding.Severe, "not_ready", "is not ready: "+unready.Error(), "GET /readyz tells when it is over.")
	}
	if l.Imbalance != 0 {
		daemon(finding.Severe, "imbalance", fmt.Sprintf("the counts of the stores are off by %d", l.Imbalance), "This is a bug.")
	}
	if !l.HandsOut {
		daemon(finding.Warning, "paused", "hands out no jobs", "It was stopped. It still accepts jobs, and other daemons run them. POST /start lets it go on.")
	}
	var sum store.Counts
	failing := false
	for _, jobtype := range slices.Sorted(maps.Keys(l.Types)) {
		c := l.Types[jobtype]
		sum.Sum(&c)
		if c.Waiting > 0 && handlers[jobtype] == nil {
			client, typ, _ := strings.Cut(jobtype, "-")
			all.Add(finding.Severe, "type", jobtype, "no_handler", finding.Jobs(c.Waiting, "wait")+", and the type has no handler", fmt.Sprintf("Once it has one, they run: POST /%s/handler/add/%s", client, typ))
		}
		if bad := c.Failed + c.Abandoned; bad > 1 && bad >= c.OK {
			failing = true
			all.Add(finding.Warning, "type", jobtype, "failing", fmt.Sprintf("%d jobs did not succeed, %d did", bad, c.OK), "What they said tells why; once that is mended, retry them.")
		}
	}
	if !failing && bad > 1 && 2*bad > ended {
		daemon(finding.Warning, "failing", fmt.Sprintf("%d of %d runs that ended here in the last minute did not succeed", bad, ended), "What the jobs said tells why.")
	}
	journal := func(severity, cause, what, advice string) {
		all.Add(severity, "journal", "journal", cause, what, advice)
	}
	if n := l.Journal.Failures; n > 0 {
		journal(finding.Severe, "journal", fmt.Sprintf("%d writes or syncs failed since the start", n), "Look at its disk, and at the log.")
	}
	if sum.SetAside > 0 {
		journal(finding.Warning, "set_aside", fmt.Sprintf("%d jobs were set aside, which no store would take", sum.SetAside), "GET /aside tells why, POST /put-back?all=true tries again.")
	} else if n := l.Journal.Bad; n > 0 {
		journal(finding.Warning, "set_aside", fmt.Sprintf("%d files are set aside", n), "GET /aside tells why, POST /put-back?all=true tries again.")
	}
	if l.JournalAge > behind {
		journal(finding.Warning, "behind", fmt.Sprintf("%d jobs are in no store yet, the oldest for %v", l.Journal.Jobs, l.JournalAge.Round(time.Second)), "A store is away or slow. They run once it has them.")
	}
	if n, most := l.Journal.Bytes, opt.JournalMax; most > 0 && n*100 >= most*near {
		journal(finding.Warning, "limit", fmt.Sprintf("is close to --journal-max: %d %%", 100*n/most), "Beyond it, new jobs are refused.")
	}
	if opt.Concurrency > 0 && l.Batches >= opt.Concurrency && sum.Waiting > 0 {
		daemon(finding.Info, "busy", fmt.Sprintf("all %d slots are taken, and %s", opt.Concurrency, finding.Jobs(sum.Waiting, "wait")),
			finding.Through(sum.Waiting, float64(ended)/max(over.Seconds(), 1))+"A larger --concurrency, or another daemon, would help.")
	}
	all.Sort()
	return all
}
