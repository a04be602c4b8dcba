package web

import (
	"errors"
	"strings"
	"testing"
	"time"

	"gloom/cmd/serverlessd/engine"
	"gloom/cmd/serverlessd/job"
	"gloom/cmd/serverlessd/journal"
	"gloom/cmd/serverlessd/store"
)

// TestEachProblemIsFound: each problem is found, and a healthy daemon has no findings.
func TestEachProblemIsFound(t *testing.T) {
	type types = map[string]store.Counts
	errGone, handled := errors.New("gone"), map[string]*job.Handler{"a-x": {}}
	opt := &Options{JournalMax: 1000, Concurrency: 2}
	start := time.Unix(1_700_000_000, 0)
	for name, c := range map[string]struct {
		l     engine.Snapshot
		ready error
		want  string
	}{
		"idle":           {},
		"at work":        {l: engine.Snapshot{Types: types{"a-x": {Waiting: 3, Running: 2, OK: 9, Failed: 2}}, Batches: 1}},
		"without one":    {l: engine.Snapshot{Types: types{"a-y": {Waiting: 2}}}, want: "severe a-y no_handler 2 jobs are waiting, and the type has no handler Its jobs run once it has one: POST /a/handler/add/y"},
		"not known":      {l: engine.Snapshot{Types: types{"a-y": {Waiting: 2}}, HandlersUnread: true}},
		"failing":        {l: engine.Snapshot{Types: types{"a-x": {OK: 2, Failed: 1, Abandoned: 1}}}, want: "warning a-x failing 2 jobs did not succeed, 2 did"},
		"failing lately": {l: engine.Snapshot{Ended: map[string]int64{"ok": 104, "failed": 5, "retry": 90}}, want: "warning daemon failing 5 of 9 runs"},
		"store away": {l: engine.Snapshot{Stores: []engine.StoreSnapshot{{Name: "s", Error: errGone.Error(), Away: true}}}, ready: errGone,
			want: "severe s store is away: gone New jobs wait in the journal, except that jobs with unique keys are refused. Schedules make no jobs."},
		"second store": {l: engine.Snapshot{Stores: []engine.StoreSnapshot{{}, {Name: "s", Error: errGone.Error(), Away: true}}}, want: "severe s store is away: gone Jobs are still accepted: they wait in the journal."},
		"store damaged": {l: engine.Snapshot{Stores: []engine.StoreSnapshot{{Name: "s", Error: errGone.Error(), Damaged: true}}},
			want: "severe s store refuses something: gone New jobs wait in the journal, except that jobs with unique keys are refused. Schedules make no jobs. The jobs in the store may be lost: stop all daemons"},
		"second store damaged": {l: engine.Snapshot{Stores: []engine.StoreSnapshot{{}, {Name: "s", Error: errGone.Error(), Damaged: true}}},
			want: "severe s store refuses something: gone Jobs are still accepted: they wait in the journal. The jobs in the store may be lost: stop all daemons"},
		"store refuses": {l: engine.Snapshot{Stores: []engine.StoreSnapshot{{Name: "s", Error: errGone.Error()}}}, want: "severe s store refuses something: gone"},
		"broker away":   {l: engine.Snapshot{Broker: errGone}, ready: errGone, want: "severe daemon broker_away the broker is away: gone"},
		"not ready":     {ready: errGone, want: "severe daemon not_ready is not ready: gone"},
		"off":           {l: engine.Snapshot{Imbalance: -1}, want: "severe daemon imbalance the counts of the stores are off by -1"},
		"set aside":     {l: engine.Snapshot{Types: types{"a-x": {SetAside: 2}}, Journal: journal.Stats{AsideFiles: 1}}, want: "warning journal set_aside 2 jobs were set aside, which no store would accept"},
		"damaged":       {l: engine.Snapshot{Journal: journal.Stats{AsideFiles: 1}}, want: "warning journal set_aside 1 files are set aside"},
		"cannot write":  {l: engine.Snapshot{Journal: journal.Stats{Failures: 1}}, want: "severe journal journal 1 writes or syncs failed"},
		"behind":        {l: engine.Snapshot{Journal: journal.Stats{Jobs: 7, Age: job.Milliseconds(2 * time.Minute)}}, want: "warning journal behind 7 jobs are in no store yet, the oldest for 2m0s"},
		"full":          {l: engine.Snapshot{Journal: journal.Stats{Bytes: 900}}, want: "warning journal limit is close to --journal-max: 90 %"},
		"busy":          {l: engine.Snapshot{Types: types{"a-x": {Waiting: 20}}, Batches: 2, Ended: map[string]int64{"ok": 120}}, want: "info daemon busy all 2 slots are taken, and 20 jobs are waiting At this rate they will be done in 10s. A larger"},
	} {
		var p endHistory
		c.l.HandsOut = true
		p.find(&engine.Snapshot{HandsOut: true, Ended: map[string]int64{"ok": 100}}, handled, nil, opt, start)
		var texts []string
		for _, f := range p.find(&c.l, handled, c.ready, opt, start.Add(10*time.Second)) {
			texts = append(texts, strings.Join([]string{f.Severity, f.Subject, f.Cause, f.Finding.Finding, f.Advice}, " "))
		}
		if got := strings.Join(texts, "; "); c.want == "" && got != "" || len(texts) > 1 || !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %q, want %q", name, texts, c.want)
		}
	}
	var p endHistory
	if got := p.find(&engine.Snapshot{}, nil, nil, opt, start); len(got) != 1 || got[0].Cause != "paused" {
		t.Errorf("stopped: %v", got)
	}
}
