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
	// FailingFor is how long failed runs are a finding if no run has been answered since.
	FailingFor = time.Minute
)

// State holds the conditions, and the time when each was first seen.
type State struct {
	found   finding.List
	memory  finding.Tracker
	history history
}

// Update updates the conditions from the figures of a broker.
func (s *State) Update(b *Broker) {
	l := finder{Broker: b, history: &s.history}
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
	s.found = s.memory.Update(l.found, b.Now)
}

// List returns the matching findings, as finding.List does.
func (s *State) List(q finding.Query, limit int) api.Findings { return s.found.Select(q, limit) }
