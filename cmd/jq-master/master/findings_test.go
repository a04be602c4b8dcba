package master

import (
	"strings"
	"testing"
	"time"

	"gloom/cmd/jq-master/job"
)

// TestEachProblemIsFound: each problem is found, and a healthy master has no findings.
func TestEachProblemIsFound(t *testing.T) {
	type counts = StateCounts
	limits := &Limits{MaxJobs: 100, MaxBytes: 1000}
	name := func(n NameStats) *Stats { n.Name = "mail"; return &Stats{Names: []NameStats{n}} }
	rule := func(v ConstraintView) []*ConstraintView { v.ID, v.Enabled = "r", true; return []*ConstraintView{&v} }
	for label, c := range map[string]struct {
		s     *Stats
		rules []*ConstraintView
		want  string
	}{
		"idle":             {s: &Stats{Workers: 1, Slots: 4}},
		"at work":          {s: name(NameStats{Served: true, States: counts{job.Queued: 9, job.Done: 9, job.Failed: 2}})},
		"between requests": {s: name(NameStats{Served: true, Silence: maxSilence - 1, States: counts{job.Queued: 9}})},
		"others work":      {s: name(NameStats{Served: true, Silence: time.Hour, States: counts{job.Queued: 9, job.Running: 1}})},
		"nothing waits":    {s: name(NameStats{Served: true, Silence: time.Hour, States: counts{job.Done: 9}})},
		"silent":           {s: name(NameStats{Served: true, Silence: 12 * time.Minute, States: counts{job.Queued: 25}}), want: "severe mail silent 25 jobs are waiting, and the workers that could take them have been silent for 12m0s"},
		"unserved":         {s: name(NameStats{States: counts{job.Retrying: 1}}), want: "severe mail no_worker 1 job is waiting, and no worker serves the name"},
		"failing":          {s: name(NameStats{States: counts{job.Failed: 11, job.Done: 3}}), want: "warning mail failing 11 jobs ended with an error, 3 done"},
		"failing lately":   {s: &Stats{Ended: 5, Failed: 3}, want: "warning master failing 3 of 5 jobs"},
		"few failed":       {s: &Stats{Ended: 5, Failed: 2}},
		"away":             {s: &Stats{StoreError: "refused"}, want: "severe master store_away its store is away: refused"},
		"refused":          {s: &Stats{Refusal: "the broker holds 10 jobs (max-jobs)"}, want: "severe master refused the broker refuses jobs: the broker holds 10 jobs (max-jobs) They wait"},
		"held":             {s: &Stats{}, rules: rule(ConstraintView{Constraint: job.Constraint{Concurrency: 2}, Blocked: 3, Matching: 7}), want: "warning r held holds back 3 of its 7 jobs Change the constraint"},
		"held for good":    {s: &Stats{}, rules: rule(ConstraintView{Blocked: 3, Matching: 7}), want: "warning r held holds back 3 of its 7 jobs It lets no job run."},
		"paused":           {s: &Stats{Workers: 3, Paused: 1}, want: "warning master paused 1 of its 3 workers"},
		"full":             {s: &Stats{Ledger: Ledger{Waiting: 80, Running: 10}}, want: "warning master limit it is close to --max-jobs: 90 %"},
		"more than full":   {s: &Stats{Ledger: Ledger{Waiting: 110, Running: 10}}, want: "warning master limit it has reached --max-jobs: 120 % New jobs are refused."},
		"heavy":            {s: &Stats{Bytes: 800}, want: "warning master limit it is close to what --max-bytes leaves for jobs: 91 % Beyond it, new jobs are refused."},
		"heavier":          {s: &Stats{Bytes: 880, Results: 1}, want: "warning master limit it has reached what --max-bytes leaves for jobs: 100 % New jobs are refused."},
		"no other result":  {s: &Stats{Bytes: 1100}, want: "warning master limit it has reached what --max-bytes leaves for jobs: 125 % New jobs are refused."},
		"no more results":  {s: &Stats{Bytes: 1100, Results: 1}, want: "severe master limit it holds 110 % of --max-bytes: new jobs and further results are refused Jobs that keep"},
		"busy":             {s: &Stats{Slots: 2, Busy: 2, Ledger: Ledger{Waiting: 20}, EndedRate: 2}, want: "info master busy all 2 slots of its workers are taken, and 20 jobs are waiting At this rate they will be done in 10s. More"},
	} {
		var texts []string
		for _, f := range findFindings(c.s, c.rules, limits) {
			texts = append(texts, strings.Join([]string{f.Severity, f.Subject, f.Cause, f.Finding.Finding, f.Advice}, " "))
		}
		if got := strings.Join(texts, "; "); c.want == "" && got != "" || len(texts) > 1 || !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %q, want %q", label, texts, c.want)
		}
	}
}
