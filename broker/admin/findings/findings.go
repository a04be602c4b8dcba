// Package findings derives from a broker's figures why jobs do not progress, or soon will not.
// It has no sockets and no clock: Look is given the figures and the time.
package findings

import (
	"time"

	"gloom/broker/admin/api"
	"gloom/broker/admin/finding"
)

const (
	// recentTime is how long an event counts as recent.
	recentTime = 3 * time.Second
	// For FailingFor after the last failure, failed runs are a finding if no run has been answered
	// since.
	FailingFor = time.Minute
)

// State holds the conditions, and the time when each was first seen.
type State struct {
	current      finding.List
	tracker      finding.Tracker
	lastCounters lastCounters
}

// Update updates the conditions from the figures of a broker.
func (s *State) Update(b *Broker) {
	l := finder{Broker: b, lastCounters: &s.lastCounters}
	l.checkBroker()
	for t := range b.Types {
		l.checkType(t)
	}
	for i := range b.Groups {
		l.checkGroup(&b.Groups[i])
	}
	for i := range b.Clients {
		l.checkClient(&b.Clients[i])
	}
	s.current = s.tracker.Update(l.conditions, b.Now)
}

// List returns the matching findings, as finding.List does.
func (s *State) List(q finding.Query, limit int) api.Findings { return s.current.Select(q, limit) }
