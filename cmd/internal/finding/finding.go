// Package finding lists the problems that keep a daemon's jobs from running, or soon will, with the
// broker's words, for GET /v1/findings and the page.
package finding

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"gloom/broker/admin/api"
)

// The severities, the worst first.
const (
	Severe  = api.Severe
	Warning = api.Warning
	Info    = api.Info
)

var severities = []string{Severe, Warning, Info}

// List is a list of findings.
type List []api.Finding

// Add adds a finding.
func (l *List) Add(severity, kind, subject, cause, finding, advice string) {
	*l = append(*l, api.Finding{Severity: severity, Kind: kind, Subject: subject, Cause: cause, Finding: finding, Advice: advice})
}

// Sort puts the worst findings first, and keeps the order of those that are equally bad.
func (l List) Sort() {
	slices.SortStableFunc(l, func(a, b api.Finding) int {
		return cmp.Compare(slices.Index(severities, a.Severity), slices.Index(severities, b.Severity))
	})
}

// Counts returns how many findings there are of each severity.
func (l List) Counts() map[string]int {
	n := make(map[string]int)
	for i := range l {
		n[l[i].Severity]++
	}
	return n
}

// few is how many findings that differ only in their subjects are shown one by one.
const few = 3

// Folded keeps only the first of those findings that differ only in their subjects. The last one
// kept counts the others in Alike.
func (l List) Folded() List {
	type class struct{ severity, kind, cause string }
	met, out := make(map[class]int), List{}
	last := make(map[class]int) // the index in out
	for _, f := range l {
		c := class{f.Severity, f.Kind, f.Cause}
		if met[c]++; met[c] > few {
			out[last[c]].Alike++
			continue
		}
		last[c] = len(out)
		out = append(out, f)
	}
	return out
}

// Memory knows since when each finding of the last call of Note has existed.
type Memory struct{ since map[string]string }

// Note sets since when each finding has existed.
func (m *Memory) Note(l List, now time.Time) {
	since := make(map[string]string, len(l))
	for i := range l {
		f := &l[i]
		key := f.Cause + " " + f.Kind + " " + f.Subject
		f.Since = cmp.Or(m.since[key], now.UTC().Format("2006-01-02T15:04:05.000Z07:00"))
		since[key] = f.Since
	}
	m.since = since
}

// Jobs returns what a number of jobs does: "1 job waits", "3 jobs wait".
func Jobs[N int | int64 | uint64](n N, do string) string {
	if n == 1 {
		return "1 job " + do + "s"
	}
	return fmt.Sprint(n, " jobs ", do)
}

// Through returns a sentence on when n jobs will have run, "" if the rate is 0.
func Through[N int | int64 | uint64](n N, perSecond float64) string {
	if perSecond <= 0 {
		return ""
	}
	return fmt.Sprintf("At this rate they are through in %v. ", (time.Duration(float64(n) / perSecond * float64(time.Second))).Round(time.Second))
}
