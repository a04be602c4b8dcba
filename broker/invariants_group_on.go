//go:build invariants

package broker

import "slices"

// checkGroups checks the counts of groups, and which groups are shut.
func (c *census) checkGroups() {
	b := c.b
	waiting, running, sets := map[*group]int{}, map[*group]int{}, map[*group]int{}
	queues := map[*groupSet]int{}
	for _, q := range b.queues.All() {
		if q != nil && q.groupSet != nil {
			queues[q.groupSet]++
		}
	}
	for _, h := range b.holdings.All() {
		if h == nil || h.queue.groupSet == nil {
			continue
		}
		for _, g := range h.queue.groupSet.groups {
			running[g] += h.runs.n
			if !h.isDead {
				waiting[g] += h.queuedJobs + h.delayedJobs
			}
		}
	}
	ids := uint32(0)
	for number, s := range b.groupSets.All() {
		if s == nil {
			continue
		}
		ids++
		key := groupSetKey(nil, s.names())
		mustHold(b.groupSetIndex.Find(b.groupSetIndex.Hash(key), key) == s.number+1 && int(s.number) == number, "a set of groups is not found")
		mustHold(s.queueCount == queues[s] && s.queueCount > 0, "a set of groups counts %d queues, but has %d", s.queueCount, queues[s])
		for _, g := range s.groups {
			sets[g]++
		}
	}
	counted := 0
	for number, g := range b.groups.All() {
		if g == nil {
			continue
		}
		mustHold(b.findGroup(g.name) == g && int(g.number) == number, "group %q is not found", g.name)
		mustHold(g.waiting == waiting[g] && g.running == running[g] && g.setCount == sets[g], "group %q counts %d waiting jobs, %d running jobs and %d sets, but has %d, %d and %d", g.name, g.waiting, g.running, g.setCount, waiting[g], running[g], sets[g])
		mustHold(g.counted == (g.waiting+g.running > 0 || g.ratesResetAt() > b.now || g.timerPos >= 0 && g.ratesResetAt() > 0), "group %q: counted %v", g.name, g.counted)
		mustHold(g.counted || g.setCount > 0, "group %q is in no set", g.name)
		mustHold(!g.counted || g.waiting+g.running > 0 || g.timerPos >= 0, "group %q has no jobs and no timer", g.name)
		if g.counted {
			counted++
		}
		cause, until := b.shutCause(g)
		mustHold(g.shut == (cause != nil) || g.shut && g.timerPos >= 0, "group %q: shut %v, rule %v", g.name, g.shut, cause)
		mustHold(until == 0 || g.timerPos >= 0, "group %q is shut until %d, and has no timer", g.name, until)
		c.checkHeap("parked", &g.parked, c.position)
		mustHold((g.openPos >= 0) == (!g.shut && g.parked.Len() > 0), "group %q: shut %v, %d queues parked, place %d", g.name, g.shut, g.parked.Len(), g.openPos)
		mustHold(g.openPos < 0 || g.parked.Top().Ties(b.openGroups.At(int(g.openPos))), "the place of group %q is not that of its best job", g.name)
		g.watchers.Each(func(jt *jobType) {
			mustHold(jt.watchedSet != nil && slices.Contains(jt.watchedSet.groups, g), "group %q is watched by a type that watches others", g.name)
		})
	}
	c.checkHeap("open groups", &b.openGroups, func(number uint32) int32 { return b.groups.At(number).openPos })
	mustHold(counted == b.countedGroups, "%d groups have jobs or are remembered, counted %d", counted, b.countedGroups)
}
