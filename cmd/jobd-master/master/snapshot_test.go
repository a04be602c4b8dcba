package master

import (
	"slices"
	"strings"
	"testing"
	"time"

	"gloom/broker/admin/finding"
	"gloom/cmd/jobd/overview"
)

// TestSnapshotBoundsItsCounts: a snapshot takes no more counts from reports than it has room for.
func TestSnapshotBoundsItsCounts(t *testing.T) {
	room := 5
	for _, c := range []struct{ reported, want, left int }{{3, 3, 2}, {1000, 2, 0}, {1, 0, 0}} {
		if got := limitCounts(make([]overview.Count, c.reported), &room); len(got) != c.want || cap(got) > 10 || room != c.left {
			t.Errorf("%d of %d counts, with memory for %d, and room for %d more", len(got), c.reported, cap(got), room)
		}
	}
}

// TestEachFaultOfFleetIsFound: each fault of a fleet is found, and a healthy fleet has no findings.
func TestEachFaultOfFleetIsFound(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	oldTime, recentTime := now.Add(-time.Hour), now.Add(-time.Second)
	target := func(waiting int, o Target) Target {
		o.Target = overview.Target{Target: "t", Concurrency: 4 * o.Workers, Queued: o.Queued, Running: o.Running}
		o.Waiting, o.RowsCounted = waiting, true
		o.Paused = o.Workers > 0 && o.PausedBy == o.Workers
		return o
	}
	running := func(t Target, n int) Target { t.Running = n; return t }
	for name, c := range map[string]struct {
		t    Target
		n    recentCounts
		want string // severity, cause and text of the finding
	}{
		"idle":                {target(0, Target{Workers: 1}), recentCounts{}, ""},
		"at work":             {running(target(3, Target{Workers: 1, Oldest: &recentTime}), 2), recentCounts{window: 10 * time.Second, accepted: 5, ok: 5}, ""},
		"unserved":            {target(1, Target{}), recentCounts{}, "severe no_worker 1 row is waiting, and no worker serves it"},
		"poked":               {target(0, Target{Poked: true}), recentCounts{}, "severe no_worker was poked"},
		"away":                {target(0, Target{LeftAt: &oldTime}), recentCounts{}, "warning away its last worker left 1h0m0s ago"},
		"paused":              {target(2, Target{Workers: 2, PausedBy: 2}), recentCounts{}, "warning paused is paused, and 2 rows are waiting"},
		"paused, many":        {target(2, Target{Workers: 2, PausedBy: 2, More: true}), recentCounts{}, "warning paused is paused, and at least 2 rows are waiting"},
		"paused, none waits":  {target(0, Target{Workers: 2, PausedBy: 2}), recentCounts{}, "info paused is paused"},
		"paused at one":       {target(9, Target{Workers: 2, PausedBy: 1}), recentCounts{}, "info paused is paused at 1 of 2 workers"},
		"by hand":             {target(0, Target{Workers: 1, Manual: 3}), recentCounts{}, "info manual 3 rows are waiting to be run by hand"},
		"failing":             {target(0, Target{Workers: 1}), recentCounts{window: 10 * time.Second, ok: 2, fail: 3}, "warning failing 3 of 5 rows"},
		"one failed":          {target(0, Target{Workers: 1}), recentCounts{window: 10 * time.Second, fail: 1}, ""},
		"nobody pokes":        {target(5, Target{Workers: 1, Oldest: &oldTime}), recentCounts{window: 10 * time.Second}, "warning unpoked 5 rows are waiting though slots are free"},
		"poked a moment ago":  {target(5, Target{Workers: 1, Oldest: &oldTime}), recentCounts{window: 10 * time.Second, accepted: 1}, ""},
		"looked at once only": {target(5, Target{Workers: 1, Oldest: &oldTime}), recentCounts{}, ""},
		"all slots taken":     {running(target(40, Target{Workers: 1, Oldest: &oldTime}), 4), recentCounts{window: 10 * time.Second, accepted: 20, ok: 20}, "info all_busy all 4 slots are taken, and 40 rows are waiting At this rate they will be done in 20s."},
	} {
		l := &Snapshot{At: now, Workers: []Worker{{Name: "w"}}, Targets: []Target{c.t}}
		got := findFindings(l, func(string) recentCounts { return c.n })
		var texts []string
		for _, f := range got {
			texts = append(texts, strings.Join([]string{f.Severity, f.Cause, f.Finding.Finding, f.Advice}, " "))
		}
		if c.want == "" && len(texts) > 0 || c.want != "" && (len(texts) != 1 || !strings.HasPrefix(texts[0], c.want)) {
			t.Errorf("%s: %q, want %q", name, texts, c.want)
		}
	}
	l := &Snapshot{At: now, Workers: []Worker{{Name: "a", ReportsNoRows: true}, {Address: "b", Silent: true}, {Name: "c", Trouble: "database is away"}, {Name: "d", CountError: "no index"}, {Name: "e", Refused: "no end"}}, Targets: []Target{target(0, Target{Workers: 1, Manual: 1})}}
	var found []string
	for _, f := range new(finding.Tracker).Update(findFindings(l, func(string) recentCounts { return recentCounts{} }), now) {
		found = append(found, f.Severity+" "+f.Subject)
	}
	if want := []string{"severe c", "warning b", "warning d", "warning e", "info a", "info t"}; !slices.Equal(found, want) {
		t.Errorf("the worst first: %v, want %v", found, want)
	}
	if got := findFindings(&Snapshot{At: now}, nil); len(got) != 1 || got[0].Cause != "no_worker" {
		t.Errorf("without a worker: %v", got)
	}
}
