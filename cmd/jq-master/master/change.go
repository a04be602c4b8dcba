package master

import (
	"bytes"

	"gloom/broker"
	"gloom/cmd/jq-master/job"
)

// changeConstraint sets the constraint with this id to n, or drops it if n is nil. It sets
// n.Version, and replies when the change applies to all jobs. created says that the constraint is
// new. ifMatch and mustExist are as in Master.PutConstraint.
func (m *machine) changeConstraint(id string, n *job.Constraint, sel selector, ifMatch uint64, mustExist bool, reply func(created bool, err error)) {
	refuse := func(err error) { reply(false, err) }
	old := m.constraints.byID[id]
	switch {
	case m.awayErr == nil && m.changingConstraints:
		m.waitingChanges = append(m.waitingChanges, func() { m.changeConstraint(id, n, sel, ifMatch, mustExist, reply) })
		return
	case n == nil && old == nil:
		refuse(job.Refuse(job.UnknownConstraint, "", "there is no constraint %q", id))
		return
	case m.awayErr != nil:
		refuse(m.storeAway())
		return
	case (mustExist || ifMatch != 0) && old == nil, ifMatch != 0 && old.Version != ifMatch:
		refuse(job.Refuse(job.PreconditionFailed, "", "the constraint %q does not have the version in If-Match", id))
		return
	case old == nil && len(m.constraints.byID) >= m.MaxConstraints:
		refuse(overloaded("there are %d constraints, and no more are allowed (max-constraints)", len(m.constraints.byID)))
		return
	}
	var stored *job.Constraint
	if n != nil {
		patternCount := (&constraint{Constraint: *n}).patternCount()
		for other, k := range m.constraints.byID {
			if patternCount > 0 && other != id {
				patternCount += k.patternCount()
			}
		}
		if patternCount > broker.MaxWildcardRules {
			refuse(overloaded("with this one, constraints with per would need %d rules at the broker (one for rate and one for concurrency); it takes at most %d", patternCount, broker.MaxWildcardRules))
			return
		}
		n.Version = max(FirstVersion(m.wallTime), m.constraints.lastVersion+1)
		if old != nil {
			n.Version = max(n.Version, old.Version+1)
		}
		m.constraints.lastVersion = n.Version
		stored = new(*n)
	}
	m.changingConstraints = true
	onWritten := func(err error) {
		m.env.run(func() {
			defer m.onChangeWritten()
			onDone := func() { reply(old == nil, nil) }
			switch {
			case err != nil:
				refuse(m.refusal(err))
			case stored == nil:
				if old.removed = true; old.Enabled {
					m.dropRules(old)
				}
				delete(m.constraints.byID, id)
				m.constraints.updateEnabled()
				m.constraints.startSweep(nil, onDone)
			case old != nil && old.hasSameRules(stored):
				old.Constraint = *stored
				m.shortenPhase(old)
				if old.Enabled {
					m.sendRules(old)
				}
				m.constraints.callAtEnd(onDone, len(m.bySeq))
			default:
				m.constraints.startSweep(m.replace(stored, sel), onDone)
			}
		})
	}
	m.runAfterStep(func() { m.env.store.PutConstraint(id, stored, onWritten) })
}

// FirstVersion returns the least version of a constraint that is set at the time now. It is a time,
// so that a constraint that was dropped and set again, also after a restart, has none of its old
// versions.
func FirstVersion(now int64) uint64 { return uint64(max(now, 1)) }

// onChangeWritten is called when the write of a changed constraint has succeeded or failed. It runs
// the changes that have waited for the write, because their If-Match refers to the constraint as
// written.
func (m *machine) onChangeWritten() {
	m.changingConstraints = false
	m.waitingChanges.run(func() bool { return m.changingConstraints })
}

// UnwritableError is the error for a constraint that could not be written to its file. The store
// has not changed.
type UnwritableError struct{ Err error }

func (u *UnwritableError) Error() string { return "the constraint is not stored: " + u.Err.Error() }

// replace sets a constraint in place of the constraint with the same id, if any.
func (m *machine) replace(n *job.Constraint, sel selector) *constraint {
	m.constraints.lastNumber++
	k := &constraint{Constraint: *n, selector: sel, groupPrefix: groupPrefixOf(m.namespace, n.ID), number: m.constraints.lastNumber}
	if sel.valueOf != nil {
		k.jobsByValue = make(map[valueHash]int)
	}
	old := m.constraints.byID[n.ID]
	if old != nil {
		old.removed = true
	}
	if old != nil && old.Enabled {
		k.phase, k.phaseAt = old.phase, old.phaseAt
		m.shortenPhase(k)
		for _, kind := range limitKinds {
			was, is := old.hasRule(kind), k.hasRule(kind) && k.Enabled
			if was && (!is || old.pattern(kind) != k.pattern(kind)) {
				m.sendRule(ruleChange{pattern: old.pattern(kind), drop: true})
			}
		}
	}
	m.constraints.byID[n.ID] = k
	if k.Enabled {
		m.sendRules(k)
	}
	m.constraints.updateEnabled()
	return k
}

// hasSameRules reports whether two constraints match the same jobs and have rules of the same
// kinds, so that they differ only in numbers.
func (k *constraint) hasSameRules(n *job.Constraint) bool {
	return k.Enabled == n.Enabled && k.Per == n.Per && bytes.Equal(k.Match, n.Match) &&
		(k.Concurrency >= 0) == (n.Concurrency >= 0) && (k.Rate > 0) == (n.Rate > 0)
}

// hasRule reports whether a constraint has a rule for a kind of limit.
func (k *constraint) hasRule(kind byte) bool {
	if kind == concurrencyKind {
		return k.Concurrency >= 0
	}
	return k.Rate > 0
}
