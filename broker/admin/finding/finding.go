// Package finding keeps a daemon's findings from one look to the next: it records how long each
// condition has lasted, orders the findings, and lists only the first of many that differ only in
// their subjects. The daemon itself looks for conditions.
package finding

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"gloom/broker/admin/api"
)

const (
	// Grace is how long a condition must last before it is reported: a queue that is full for a
	// moment is not a finding.
	Grace = time.Second
	// maxKnown bounds the conditions that are remembered between looks; the least severe
	// ones are dropped.
	maxKnown = 10_000
	// foldAbove is the largest number of findings that differ only in their subject and are
	// still listed one by one if Fold is set.
	foldAbove = 3
)

// severities are the severities of findings, the worst first.
var severities = []string{api.Severe, api.Warning, api.Info}

// Found is a condition that a look has found.
type Found struct {
	api.Finding
	// Weight orders conditions of the same severity, larger first.
	Weight float64
	// AtOnce: it is reported without waiting for Grace.
	AtOnce bool
	// Words writes the finding and the advice when they are requested. If it is nil, they are
	// set already.
	Words func() (finding, advice string)

	since time.Time
}

type key struct {
	kind, subject, cause, limit string
	number                      uint64
}

func (x *Found) key() key { return key{x.Kind, x.Subject, x.Cause, x.Limit, x.Number} }

func (x *Found) compare(y *Found) int {
	return cmp.Or(
		cmp.Compare(slices.Index(severities, x.Severity), slices.Index(severities, y.Severity)),
		cmp.Compare(y.Weight, x.Weight), strings.Compare(x.Subject, y.Subject), strings.Compare(x.Cause, y.Cause), strings.Compare(x.Limit, y.Limit), cmp.Compare(x.Number, y.Number))
}

// Look collects the conditions that are found in one look at a daemon.
type Look []*Found

// Add adds a condition that is reported at once, after earlier ones of the same severity.
func (l *Look) Add(severity, kind, subject, cause, finding, advice string) {
	*l = append(*l, &Found{
		Finding: api.Finding{Severity: severity, Kind: kind, Subject: subject, Cause: cause, Finding: finding, Advice: advice},
		Weight:  -float64(len(*l)), AtOnce: true,
	})
}

// Memory records how long the conditions that the last look found have lasted.
type Memory struct {
	since map[key]time.Time
	at    time.Time // when the last look was
}

// Note records the conditions that a look has found, and returns those to report.
func (m *Memory) Note(found Look, now time.Time) List {
	slices.SortFunc(found, (*Found).compare)
	found = found[:min(len(found), maxKnown)]
	since := make(map[key]time.Time, len(found))
	for _, x := range found {
		at, ok := m.since[x.key()]
		if !ok {
			// A condition is assumed to have begun at the last look without it. So it is
			// reported in time even if looks are rare.
			if at = now; !x.AtOnce && !m.at.IsZero() {
				at = m.at
			}
		}
		x.since, since[x.key()] = at, at
	}
	m.since, m.at = since, now
	return List(slices.DeleteFunc(found, func(x *Found) bool { return !x.AtOnce && now.Sub(x.since) < Grace }))
}

// List holds all findings of a look, the most severe first. It does not change.
type List []*Found

// Query selects findings by subject and cause; "" selects all. With Fold, if more than foldAbove
// findings have the same severity, kind, cause and limit, only the first is listed.
type Query struct {
	Subject, Cause string
	// May reports whether the viewer may see a finding; nil: all.
	May  func(*api.Finding) bool
	Fold bool
}

// Select returns the matching findings, at most limit; how many more there are; and the total of
// each severity.
func (l List) Select(q Query, limit int) api.Findings {
	out := api.Findings{Items: []api.Finding{}}
	counts := map[string]*int{api.Severe: &out.Counts.Severe, api.Warning: &out.Counts.Warning, api.Info: &out.Counts.Info}
	type class struct{ severity, kind, cause, limit string }
	classOf := func(x *Found) class { return class{x.Severity, x.Kind, x.Cause, x.Limit} }
	matches := func(x *Found) bool {
		return (q.Subject == "" || x.Subject == q.Subject) && (q.Cause == "" || x.Cause == q.Cause) && (q.May == nil || q.May(&x.Finding))
	}
	groups := map[class]int{}
	if q.Fold {
		for _, x := range l {
			if matches(x) {
				groups[classOf(x)]++
			}
		}
	}
	for _, x := range l {
		if !matches(x) {
			continue
		}
		*counts[x.Severity]++
		n := groups[classOf(x)]
		if n < 0 || len(out.Items) == limit {
			out.More++
			continue
		}
		f := x.Finding
		if n > foldAbove {
			f.Alike, groups[classOf(x)] = n-1, -1
		}
		if x.Words != nil {
			f.Finding, f.Advice = x.Words()
		}
		f.Since = x.since.UTC().Format("2006-01-02T15:04:05.000Z07:00")
		out.Items = append(out.Items, f)
	}
	return out
}
