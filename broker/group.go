package broker

import (
	"bytes"
	"encoding/binary"
	"slices"
	"unsafe"

	"gloom/broker/container"
)

// group is a name that jobs of any types can share. It exists while a job is in it, while a rate
// still counts jobs that the group let through, or while a queue may use the group again.
type group struct {
	number   uint32
	name     []byte
	setCount int // how many groupSets contain it
	// waiting and running count its jobs.
	waiting, running int
	limits           []limit
	rulesVersion     uint64 // the value of Broker.rulesVersion when its limits were set
	// counted reports that the group counts against MaxGroups.
	counted bool
	// shut is set while a rule lets no more of the group's jobs run.
	shut     bool
	timerPos int32 // position in Broker.timers, or -1
	// parked holds the heldQueues of the group that are in no line, ordered by their best jobs.
	// openPos is its position in Broker.openGroups, or -1.
	parked  container.Heap
	openPos int32
	// watchers are the fair types that watch the group (see watcher).
	watchers container.Ring[jobType]
}

// limit is the limit that one rule sets on one group.
type limit struct {
	rule *rule
	bucket
}

// groupSet is the set of groups of a job, in order. All queues with the
// same set share one record. It is nil for a job without groups.
type groupSet struct {
	number     uint32
	groups     []*group
	queueCount int // how many queues have this set
	bytes      int64
}

const groupSize, groupSetSize = int64(unsafe.Sizeof(group{})) + 64, int64(unsafe.Sizeof(groupSet{})) + 64

func (s *groupSet) allGroups() []*group {
	if s == nil {
		return nil
	}
	return s.groups
}

// shutGroup returns the first group of the set that is shut, or nil.
func (s *groupSet) shutGroup() *group {
	for _, g := range s.allGroups() {
		if g.shut {
			return g
		}
	}
	return nil
}

// weight returns what the names of the set add to the weight of a job.
func (s *groupSet) weight() int64 {
	if s == nil {
		return 0
	}
	return s.bytes
}

// groupSetKey appends the key that identifies a set.
func groupSetKey(key []byte, names [][]byte) []byte {
	for _, name := range names {
		key = append(binary.AppendUvarint(key, uint64(len(name))), name...)
	}
	return key
}

// hasKey reports whether key is the key of the set.
func (s *groupSet) hasKey(key []byte) bool {
	for _, g := range s.groups {
		size, n := binary.Uvarint(key)
		if n <= 0 || int(size) != len(g.name) || !bytes.HasPrefix(key[n:], g.name) {
			return false
		}
		key = key[n+len(g.name):]
	}
	return len(key) == 0
}

// has reports whether a group with this name is in the set.
func (s *groupSet) has(name []byte) bool {
	return slices.ContainsFunc(s.allGroups(), func(g *group) bool { return bytes.Equal(g.name, name) })
}

// names returns the names of the groups.
func (s *groupSet) names() (names [][]byte) {
	for _, g := range s.allGroups() {
		names = append(names, g.name)
	}
	return names
}

// groupSetFor returns the set of these groups, creating it if it does not exist. It is nil
// without groups.
func (b *Broker) groupSetFor(names [][]byte) *groupSet {
	if len(names) == 0 {
		return nil
	}
	key := groupSetKey(b.scratch[:0], names)
	b.scratch = key
	hash := b.groupSetIndex.Hash(key)
	if rec := b.groupSetIndex.Find(hash, key); rec != 0 {
		return b.groupSets.At(rec - 1)
	}
	s := &groupSet{}
	for _, name := range names {
		g := b.groupFor(name)
		g.setCount++
		s.groups = append(s.groups, g)
		s.bytes += int64(len(name))
	}
	s.number = b.groupSets.Add(s)
	b.groupSetIndex.Insert(hash, s.number+1)
	return s
}

func (b *Broker) dropSet(s *groupSet) {
	b.scratch = groupSetKey(b.scratch[:0], s.names())
	b.groupSetIndex.Remove(b.groupSetIndex.Hash(b.scratch), s.number+1)
	b.groupSets.Drop(s.number)
	for _, g := range s.groups {
		g.setCount--
		b.updateGroup(g)
	}
}

func (b *Broker) groupFor(name []byte) *group {
	if g := b.findGroup(name); g != nil {
		return g
	}
	g := &group{name: append([]byte(nil), name...), timerPos: -1, openPos: -1}
	g.parked = container.Heap{SetPos: b.posSetters.line, Bytes: &b.heapBytes}
	b.groupNameBytes += int64(len(name))
	g.number = b.groups.Add(g)
	b.groupIndex.Insert(b.groupIndex.Hash(g.name), g.number+1)
	b.applyRules(g)
	return g
}

func (b *Broker) findGroup(name []byte) *group {
	if rec := b.groupIndex.Find(b.groupIndex.Hash(name), name); rec != 0 {
		return b.groups.At(rec - 1)
	}
	return nil
}

// tooManyGroups returns a reason with Why set if a job in these groups would exceed MaxGroups.
// leavingSet (nil for none) is the set of groups that the job leaves.
func (b *Broker) tooManyGroups(names [][]byte, leavingSet *groupSet) (reason Reason) {
	limit := b.cfg.MaxGroups
	if limit <= 0 || len(names) == 0 {
		return reason
	}
	n := b.countedGroups
	for _, name := range names {
		if g := b.findGroup(name); g == nil || !g.counted {
			n++
		}
	}
	if n > limit {
		for _, g := range leavingSet.allGroups() {
			kept := slices.ContainsFunc(names, func(name []byte) bool { return bytes.Equal(name, g.name) })
			if !kept && g.waiting+g.running == 1 && g.ratesResetAt() <= b.now {
				n--
			}
		}
	}
	if n > limit {
		reason = Reason{Why: WhyTooManyGroups, Have: int64(b.countedGroups)}
	}
	return reason
}

// countJobs adds to the numbers of waiting and running jobs of each group of a set.
func (b *Broker) countJobs(s *groupSet, waiting, running int) {
	for _, g := range s.allGroups() {
		before := g.waiting
		g.waiting, g.running = g.waiting+waiting, g.running+running
		if running != 0 || before == 0 || g.waiting == 0 {
			b.updateGroup(g)
		}
	}
}

// countRun counts a run in each group of a set and takes a token from each of their rates.
func (b *Broker) countRun(s *groupSet) {
	for _, g := range s.allGroups() {
		g.running++
		for i := range g.limits {
			l := &g.limits[i]
			l.take(b.now, &l.rule.pace)
		}
		b.updateGroup(g)
	}
}

// refundGroups gives back the tokens of a job that was handed out at startedAt.
func (b *Broker) refundGroups(s *groupSet, startedAt int64) {
	for _, g := range s.allGroups() {
		for i := range g.limits {
			l := &g.limits[i]
			l.undoTake(b.now, startedAt, &l.rule.pace)
		}
		b.updateGroup(g)
	}
}

// ratesResetAt returns the time at which all rates of the group are back at their full burst.
func (g *group) ratesResetAt() (until int64) {
	for i := range g.limits {
		until = max(until, g.limits[i].fullAt)
	}
	return until
}

// shutCause returns a rule that lets no more of the group's jobs run; it is nil if the group is open.
// If a rate keeps the group shut, until is when the rate lets the next job run, else 0.
func (b *Broker) shutCause(g *group) (cause *rule, until int64) {
	for i := range g.limits {
		l := &g.limits[i]
		if c := l.rule.Concurrency; c >= 0 && int64(g.running) >= c {
			cause = l.rule
		} else if at := l.opensAt(&l.rule.pace); at > b.now {
			cause, until = l.rule, max(until, at)
		}
	}
	return cause, until
}

// updateGroup shuts or opens a group as needed after its counts, rules or rates have changed.
func (b *Broker) updateGroup(g *group) {
	cause, at := b.shutCause(g)
	switch {
	case cause != nil && !g.shut:
		g.shut = true
		for g.watchers.Len() > 0 {
			jt := g.watchers.First()
			b.watchGroups(jt, nil)
			b.markForMatching(jt)
		}
		b.rankOpenGroup(g)
	case cause == nil && g.shut:
		g.shut = false
		b.rankOpenGroup(g)
	}
	counted := g.waiting+g.running > 0
	if !counted {
		if full := g.ratesResetAt(); full > b.now {
			counted, at = true, full
		}
	}
	if counted != g.counted {
		g.counted = counted
		if counted {
			b.countedGroups++
		} else {
			b.countedGroups--
		}
	}
	b.setGroupTimer(g, at)
	if !counted && g.setCount == 0 {
		g.parked.Release()
		b.groupIndex.Remove(b.groupIndex.Hash(g.name), g.number+1)
		b.groupNameBytes -= int64(len(g.name))
		b.limitSlots -= int64(cap(g.limits))
		b.groups.Drop(g.number)
	}
}

// setGroupTimer sets when the state of the group is next reviewed; 0 means never.
func (b *Broker) setGroupTimer(g *group, at int64) {
	switch {
	case at == 0:
		b.stopTimer(&g.timerPos)
	case g.timerPos < 0 || int64(b.timers.At(int(g.timerPos)).Major) != at:
		b.startTimer(g.timerPos, g.number|groupTimer, at)
	}
}

// groupBytes returns the size of all groups, with their sets, tenants and held queues.
func (b *Broker) groupBytes() int64 {
	return int64(b.groups.Len())*groupSize + b.groupNameBytes + b.limitSlots*int64(unsafe.Sizeof(limit{})) + int64(b.groupSets.Len())*groupSetSize +
		int64(b.tenants.Len())*tenantSize + int64(b.heldQueues.Len())*heldQueuesSize
}
