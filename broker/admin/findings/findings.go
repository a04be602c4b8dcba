// Package findings derives from a broker's figures why something does not move, or will
// soon stop. It has no sockets and no clock: Look is given the figures and the time.
package findings

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"gloom/broker/admin/api"
)

const (
	// grace is how long a condition must last before it is reported: a queue that is full
	// for a moment is not a finding.
	grace = time.Second
	// lately is how long an event counts as recent.
	lately = 3 * time.Second
	// FailingFor is how long failed runs count if no run has been answered since.
	FailingFor = time.Minute
	// mostKnown bounds the conditions that are remembered between snapshots; the mildest
	// are dropped.
	mostKnown = 10_000
)

// severities, the worst first.
var severities = []string{api.Severe, api.Warning, api.Info}

// known is a condition that has been seen.
type known struct {
	api.Finding
	// weight orders conditions of the same severity, larger first.
	weight float64
	since  time.Time
	// atOnce: it is reported without waiting for grace.
	atOnce bool
	// words builds the text and the advice when they are requested.
	words words
}

type key struct {
	kind, subject, cause, limit string
	number                      uint64
}

func (x *known) key() key { return key{x.Kind, x.Subject, x.Cause, x.Limit, x.Number} }

func (x *known) compare(y *known) int {
	return cmp.Or(
		cmp.Compare(slices.Index(severities, x.Severity), slices.Index(severities, y.Severity)),
		cmp.Compare(y.weight, x.weight), strings.Compare(x.Subject, y.Subject), strings.Compare(x.Cause, y.Cause), strings.Compare(x.Limit, y.Limit), cmp.Compare(x.Number, y.Number))
}

// State is the set of conditions, and when each was first seen.
type State struct {
	found []*known
	since map[key]time.Time
	at    time.Time // of the last snapshot
	past  past
}

// Look updates the conditions from the figures of a broker.
func (s *State) Look(b *Broker) {
	l := looker{Broker: b, past: &s.past}
	l.broker()
	for t := range b.Types {
		l.jobType(t)
	}
	for i := range b.Groups {
		l.group(&b.Groups[i])
	}
	for i := range b.Clients {
		l.client(&b.Clients[i])
	}
	slices.SortFunc(l.found, (*known).compare)
	l.found = l.found[:min(len(l.found), mostKnown)]
	since := make(map[key]time.Time, len(l.found))
	for _, x := range l.found {
		at, ok := s.since[x.key()]
		if !ok {
			// A condition counts from the last snapshot without it. So one that must last is
			// reported in time, however rarely snapshots are taken.
			if at = b.Now; !x.atOnce && !s.at.IsZero() {
				at = s.at
			}
		}
		x.since, since[x.key()] = at, at
	}
	s.since, s.at = since, b.Now
	s.found = slices.DeleteFunc(l.found, func(x *known) bool { return !x.atOnce && b.Now.Sub(x.since) < grace })
}

// Query selects findings by subject and cause; "" selects all. With Fold, if more than
// someAlike findings have the same severity, kind, cause and limit, only the first is
// listed.
type Query struct {
	Subject, Cause string
	Fold           bool
}

// someAlike is the largest number of findings that differ only in their subject and are still
// listed one by one.
const someAlike = 3

// List returns the matching findings, at most limit, the most severe first; how many more
// there are; and how many of each severity in all.
func (s *State) List(q Query, limit int) api.Findings {
	out := api.Findings{Items: []api.Finding{}}
	counts := map[string]*int{api.Severe: &out.Counts.Severe, api.Warning: &out.Counts.Warning, api.Info: &out.Counts.Info}
	type class struct{ severity, kind, cause, limit string }
	of := func(x *known) class { return class{x.Severity, x.Kind, x.Cause, x.Limit} }
	alike := map[class]int{}
	if q.Fold {
		for _, x := range s.found {
			alike[of(x)]++
		}
	}
	for _, x := range s.found {
		if q.Subject != "" && x.Subject != q.Subject || q.Cause != "" && x.Cause != q.Cause {
			continue
		}
		*counts[x.Severity]++
		n := alike[of(x)]
		if n < 0 || len(out.Items) == limit {
			out.More++
			continue
		}
		f := x.Finding
		if n > someAlike {
			f.Alike, alike[of(x)] = n-1, -1
		}
		f.Finding, f.Advice = x.words()
		f.Since = x.since.UTC().Format("2006-01-02T15:04:05.000Z07:00")
		out.Items = append(out.Items, f)
	}
	return out
}
