package master

import (
	"fmt"
	"time"

	"gloom/broker/admin/api"
	"gloom/broker/admin/finding"
	"gloom/cmd/jq-master/job"
)

// FindingLists holds the findings, the worst first.
type FindingLists struct {
	All    finding.List
	Folded api.Findings
}

// maxFolded is the maximum number of findings in the statistics.
const maxFolded = 20

// Findings returns the findings. Callers within the same second share a result.
func (m *Master) Findings() (*FindingLists, error) {
	return m.findings.get(func() (*FindingLists, bool, error) {
		stats, err := m.Stats(statNames)
		if err != nil {
			return nil, false, err
		}
		rules, err := m.Constraints()
		if err != nil {
			return nil, false, err
		}
		look := m.findingTracker.Update(findFindings(stats, rules, &m.opt.Limits), time.Now())
		return &FindingLists{look, look.Select(finding.Query{Fold: true}, maxFolded)}, true, nil
	})
}

const (
	// maxSilence limits how long workers that pull may be silent while jobs wait. maxSilence is longer
	// than one request for jobs, so that a worker between two requests does not count as silent.
	maxSilence = time.Minute
	// nearPercent is the percentage of a limit from which a count is "close" to the limit.
	nearPercent = 90
)

func findFindings(stats *Stats, rules []*ConstraintView, limits *Limits) finding.Conditions {
	conditions := finding.Conditions{}
	master := func(severity, cause, text, advice string) {
		conditions.Add(severity, "master", "master", cause, text, advice)
	}
	if stats.StoreError != "" {
		master(api.Severe, "store_away", "its store is away: "+stats.StoreError, "Nothing is enqueued or handed out until it is back; reports of workers wait for a while.")
	}
	if stats.Refusal != "" {
		master(api.Severe, "refused", "the broker refuses jobs: "+stats.Refusal, "They wait, and the master submits them again and again. The findings of the broker say what keeps it from taking them.")
	}
	name := func(severity string, n *NameStats, cause, text, advice string) {
		conditions.Add(severity, "name", n.Name, cause, text, advice)
	}
	failing := false
	for i := range stats.Names {
		n := &stats.Names[i]
		waitingCount, failedCount := n.States[job.Queued]+n.States[job.Retrying], n.States[job.Failed]
		switch {
		case waitingCount == 0:
		case !n.Served:
			name(api.Severe, n, "no_worker", finding.JobsWaiting(waitingCount)+", and no worker serves the name", "Start a worker that serves it, or check the names that the workers serve.")
		case n.Silence >= maxSilence && n.States[job.Running] == 0:
			name(api.Severe, n, "silent", fmt.Sprintf("%s, and the workers that could take them have been silent for %v", finding.JobsWaiting(waitingCount), n.Silence.Round(time.Second)),
				"These workers pull, but have not asked for jobs for a while; they hang or are gone. Restart them.")
		}
		if failedCount > 1 && failedCount >= n.States[job.Done] {
			failing = true
			name(api.Warning, n, "failing", fmt.Sprintf("%d jobs ended with an error, %d done", failedCount, n.States[job.Done]), "Their messages say why. Once the cause is fixed, retry them all.")
		}
	}
	if !failing && stats.Failed > 1 && 2*stats.Failed > stats.Ended {
		master(api.Warning, "failing", fmt.Sprintf("%d of %d jobs that ended in the last minute ended with an error", stats.Failed, stats.Ended), "Their messages say why.")
	}
	for _, k := range rules {
		if k.Enabled && k.Blocked > 0 {
			advice := "Change the constraint to let more jobs run."
			if k.Concurrency == 0 {
				advice = "It lets no job run."
			}
			conditions.Add(api.Warning, "constraint", k.ID, "held", fmt.Sprintf("holds back %d of its %d jobs", k.Blocked, k.Matching), advice)
		}
	}
	if stats.Paused > 0 {
		master(api.Warning, "paused", fmt.Sprintf("%d of its %d workers get no jobs for now", stats.Paused, stats.Workers), "The list of workers says why: they are busy or cannot be reached.")
	}
	reach := func(name string, n, limit int64) {
		switch {
		case limit <= 0 || n*100 < limit*nearPercent:
		case n < limit:
			master(api.Warning, "limit", fmt.Sprintf("it is close to %s: %d %%", name, 100*n/limit), "Beyond it, new jobs are refused.")
		default:
			master(api.Warning, "limit", fmt.Sprintf("it has reached %s: %d %%", name, 100*n/limit), "New jobs are refused.")
		}
	}
	reach("--max-jobs", int64(stats.Ledger.Waiting+stats.Ledger.Running), int64(limits.MaxJobs))
	if limit := limits.MaxBytes; limit > 0 && stats.Bytes >= limit && stats.Results > 0 {
		master(api.Severe, "limit", fmt.Sprintf("it holds %d %% of --max-bytes: new jobs and further results are refused", 100*stats.Bytes/limit),
			"Jobs that keep a result cannot end until clients have fetched others, or --max-bytes is larger.")
	} else {
		reach("what --max-bytes leaves for jobs", stats.Bytes, limits.bytesForJobs())
	}
	if n := stats.Ledger.Waiting; stats.Slots > 0 && stats.Busy >= stats.Slots && n > 0 {
		master(api.Info, "busy", fmt.Sprintf("all %d slots of its workers are taken, and %s", stats.Slots, finding.JobsWaiting(n)), finding.DrainTime(n, stats.EndedRate)+"More workers would help.")
	}
	return conditions
}
