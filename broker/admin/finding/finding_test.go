package finding

import (
	"fmt"
	"testing"
	"time"

	"gloom/broker/admin/api"
)

// TestFindingsAreOrderedAndFolded: the most severe findings come first, equally severe ones in the
// order in which they were added. More than three similar findings are folded into the first of
// them. Each finding says since when its condition has lasted without a break.
func TestFindingsAreOrderedAndFolded(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	var m Tracker
	look := func(at time.Duration, names ...string) List {
		var l Conditions
		l.Add(api.Info, "daemon", "daemon", "busy", "all slots are taken", "")
		for _, n := range names {
			l.Add(api.Severe, "type", n, "no_worker", "no worker", "")
		}
		return m.Update(l, start.Add(at))
	}
	render := func(l List, q Query, limit int) string {
		f := l.Select(q, limit)
		render := ""
		for _, f := range f.Items {
			since, _ := time.Parse(time.RFC3339, f.Since)
			render += fmt.Sprint(f.Severity, " ", f.Subject, " +", f.AlikeCount, " for ", start.Add(2*time.Second).Sub(since), "; ")
		}
		return render + fmt.Sprint(f.More, " more, ", f.Counts)
	}
	look(0, "b", "a")
	look(time.Second, "b")
	l := look(2*time.Second, "e", "b", "c", "d", "a")
	for name, c := range map[string]struct {
		q     Query
		limit int
		want  string
	}{
		"folded":      {Query{Fold: true}, 20, "severe e +4 for 0s; info daemon +0 for 2s; 4 more, {5 0 1}"},
		"all":         {Query{}, 3, "severe e +0 for 0s; severe b +0 for 2s; severe c +0 for 0s; 3 more, {5 0 1}"},
		"of a cause":  {Query{Cause: "busy"}, 3, "info daemon +0 for 2s; 0 more, {0 0 1}"},
		"of one":      {Query{Subject: "a"}, 3, "severe a +0 for 0s; 0 more, {1 0 0}"},
		"few allowed": {Query{Fold: true, Visible: func(f *api.Finding) bool { return f.Subject > "b" }}, 20, "severe e +0 for 0s; severe c +0 for 0s; severe d +0 for 0s; info daemon +0 for 2s; 0 more, {3 0 1}"},
		"none":        {Query{Subject: "f"}, 3, "0 more, {0 0 0}"},
	} {
		if got := render(l, c.q, c.limit); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// TestLeastSevereConditionsAreForgotten: the least severe ones beyond the limit are forgotten, and nothing holds them.
func TestLeastSevereConditionsAreForgotten(t *testing.T) {
	var tracker Tracker
	found := make(Conditions, 0, maxTracked+5)
	for i := range cap(found) {
		found.Add(api.Severe, "type", fmt.Sprint(i), "no_worker", "no worker", "")
	}
	if l := tracker.Update(found, time.Unix(0, 0)); len(l) != maxTracked {
		t.Errorf("%d conditions are known, want %d", len(l), maxTracked)
	}
	for _, c := range found[maxTracked:] {
		if c != nil {
			t.Errorf("condition %q is held", c.Subject)
		}
	}
}
