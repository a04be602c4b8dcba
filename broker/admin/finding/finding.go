// Package finding keeps a daemon's findings from one look to the next. It records how long each
// condition has lasted, and orders the findings. Of many findings that differ only in their
// subjects, it lists the first. The daemon itself looks for conditions.
package finding

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"gloom/broker/admin/api"
)

const (
	// Grace is how long a condition must last before it is reported. So a queue that is full only
	// for a moment is not a finding.
	Grace = time.Second
	// maxTracked bounds the conditions that are remembered between looks. The least severe ones
	// beyond it are dropped.
	maxTracked = 10_000
	// If Fold is set, findings that differ only in their subject are listed one by one up to
	// maxAlikeFindings.
	maxAlikeFindings = 3
)

// severities are the severities of findings, the worst first.
var severities = []string{api.Severe, api.Warning, api.Info}

// Condition is a condition that a look has found.
type Condition struct {
	api.Finding
	// Weight orders conditions of the same severity, larger first.
	Weight float64
	// Immediate reports the condition without waiting for Grace.
	Immediate bool
	// Text writes the finding and the advice when they are requested. If it is nil, they are
	// set already.
	Text func() (finding, advice string)

	since time.Time
}

// conditionKey is equal for the same condition in different looks.
type conditionKey struct {
	kind, subject, cause, limit string
	number                      uint64
}

func (c *Condition) key() conditionKey {
	return conditionKey{c.Kind, c.Subject, c.Cause, c.Limit, c.Number}
}

func (c *Condition) compare(other *Condition) int {
	return cmp.Or(
		cmp.Compare(slices.Index(severities, c.Severity), slices.Index(severities, other.Severity)),
		cmp.Compare(other.Weight, c.Weight), strings.Compare(c.Subject, other.Subject), strings.Compare(c.Cause, other.Cause), strings.Compare(c.Limit, other.Limit), cmp.Compare(c.Number, other.Number))
}

// Conditions collects the conditions that are found in one look at a daemon.
type Conditions []*Condition

// Add adds a condition that is reported without a grace period, and listed after earlier ones of
// its severity.
func (c *Conditions) Add(severity, kind, subject, cause, finding, advice string) {
	*c = append(*c, &Condition{
		Finding: api.Finding{Severity: severity, Kind: kind, Subject: subject, Cause: cause, Finding: finding, Advice: advice},
		Weight:  -float64(len(*c)), Immediate: true,
	})
}

// Tracker records since when each current condition has lasted.
type Tracker struct {
	firstSeen map[conditionKey]time.Time
	updatedAt time.Time // when the last look was
}

// Update records the conditions that a look has found, and returns those to report.
func (t *Tracker) Update(conditions Conditions, now time.Time) List {
	slices.SortFunc(conditions, (*Condition).compare)
	tracked := min(len(conditions), maxTracked)
	clear(conditions[tracked:]) // otherwise the array would hold them, too
	conditions = conditions[:tracked]
	since := make(map[conditionKey]time.Time, len(conditions))
	for _, c := range conditions {
		at, ok := t.firstSeen[c.key()]
		if !ok {
			// A condition is assumed to have begun at the last look without it. So the condition is reported
			// in time even if looks are rare.
			at = now
			if !c.Immediate && !t.updatedAt.IsZero() {
				at = t.updatedAt
			}
		}
		c.since, since[c.key()] = at, at
	}
	t.firstSeen, t.updatedAt = since, now
	return List(slices.DeleteFunc(conditions, func(c *Condition) bool { return !c.Immediate && now.Sub(c.since) < Grace }))
}

// List holds all findings of a look, the most severe first. It does not change.
type List []*Condition

// Query selects findings by subject and cause; "" selects all. With Fold, if more than
// maxAlikeFindings have the same severity, kind, cause and limit, only the first is listed.
type Query struct {
	Subject, Cause string
	// Visible reports whether the viewer may see a finding; nil means that all are visible.
	Visible func(*api.Finding) bool
	Fold    bool
}

// Select returns the matching findings, at most limit; how many more there are; and the total of
// each severity.
func (l List) Select(q Query, limit int) api.Findings {
	out := api.Findings{Items: []api.Finding{}}
	counts := map[string]*int{api.Severe: &out.Counts.Severe, api.Warning: &out.Counts.Warning, api.Info: &out.Counts.Info}
	type class struct{ severity, kind, cause, limit string }
	classOf := func(c *Condition) class { return class{c.Severity, c.Kind, c.Cause, c.Limit} }
	matches := func(c *Condition) bool {
		return (q.Subject == "" || c.Subject == q.Subject) && (q.Cause == "" || c.Cause == q.Cause) && (q.Visible == nil || q.Visible(&c.Finding))
	}
	groups := map[class]int{}
	if q.Fold {
		for _, c := range l {
			if matches(c) {
				groups[classOf(c)]++
			}
		}
	}
	for _, c := range l {
		if !matches(c) {
			continue
		}
		*counts[c.Severity]++
		n := groups[classOf(c)]
		if n < 0 || len(out.Items) == limit {
			out.More++
			continue
		}
		f := c.Finding
		if n > maxAlikeFindings {
			f.AlikeCount, groups[classOf(c)] = n-1, -1
		}
		if c.Text != nil {
			f.Finding, f.Advice = c.Text()
		}
		f.Since = c.since.UTC().Format("2006-01-02T15:04:05.000Z07:00")
		out.Items = append(out.Items, f)
	}
	return out
}
