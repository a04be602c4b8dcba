package sim

import (
	"cmp"
	"maps"
	"slices"

	"gloom/broker"
)

// ruleGroup is a rule and a group that it applies to.
type ruleGroup struct{ pattern, group string }

// tenantKey identifies a tenant of a fair type: a group or a submitter.
type tenantKey struct {
	typ, group string
	origin     int
}

func tenantOf(j *oracleJob) tenantKey {
	if len(j.groups) > 0 {
		return tenantKey{typ: j.typ, group: j.groups[0]}
	}
	return tenantKey{typ: j.typ, origin: j.origin}
}

// eachRule calls fn for every group of the job and every rule that applies to it.
func (o *oracle) eachRule(j *oracleJob, fn func(at ruleGroup, r broker.Rule)) {
	for _, g := range j.groups {
		for pattern, r := range o.rules {
			if fits(pattern, g) {
				fn(ruleGroup{pattern, g}, r)
			}
		}
	}
}

// allowed reports whether all groups of a job let it run. If a rate has let it run only since
// the last tick, the core may check the rate again or wait for the rate's timer. Such a job counts
// as allowed only if the core shows that it has checked the rate: it hands the job out next (next is
// the id of the job that it hands out next), it finds that the job's worker runs a borrowed job with
// the same id, or it expires the job.
func (o *oracle) allowed(j *oracleJob, next string) bool {
	if len(j.groups) == 0 || len(o.rules) == 0 {
		return !o.leftToTick[j]
	}
	earliest, latest, full := o.opensBetween(j)
	_, clashed := o.observed.delay(j.id)
	return !full && !o.leftToTick[j] && (latest <= o.lastTick || earliest <= o.now && (j.id == next || clashed || o.lapsed(j) && !o.observed.held(j.id)))
}

// mayHaveOpened reports whether a type has a waiting job whose rates opened, as far as the oracle
// knows, after the last tick or open later.
func (o *oracle) mayHaveOpened(ot *oracleType) bool {
	return len(o.rules) > 0 && slices.ContainsFunc(o.jobs, func(j *oracleJob) bool {
		if j.state != queued || j.typ != ot.name || len(j.groups) == 0 {
			return false
		}
		earliest, latest, full := o.opensBetween(j)
		return !full && earliest <= o.now && latest > o.lastTick
	})
}

// lapsed reports whether the deadline of a waiting job has passed.
func (o *oracle) lapsed(j *oracleJob) bool { return j.expires != 0 && j.expires <= o.now }

// opensBetween returns the times between which the rates of a job's groups begin to let it run, and
// whether one of the groups is at its concurrency.
func (o *oracle) opensBetween(j *oracleJob) (earliest, latest int64, full bool) {
	o.eachRule(j, func(at ruleGroup, r broker.Rule) {
		runs, _ := total(o.jobs, func(k *oracleJob) bool { return k.state == running && slices.Contains(k.groups, at.group) })
		full = full || r.Concurrency >= 0 && int64(runs) >= r.Concurrency
		if r.Rate > 0 {
			from, until := o.rate(at).opensBetween(quotaOf(&r))
			earliest, latest = max(earliest, from), max(latest, until)
		}
	})
	return earliest, latest, full
}

// eachRate calls fn for every group of the job and every rate that applies to it.
func (o *oracle) eachRate(j *oracleJob, fn func(rate *rateState, q quota)) {
	o.eachRule(j, func(at ruleGroup, r broker.Rule) {
		if r.Rate > 0 {
			fn(o.rate(at), quotaOf(&r))
		}
	})
}

// setRule sets a rule. The jobs that its old rate has allowed still count under a new rate.
func (o *oracle) setRule(c *command) {
	groups := o.groupsWithout(nil, o.lastTick, false)
	oldRule, existed := o.rules[c.id]
	o.rules[c.id] = c.rule
	if existed && oldRule.Rate == c.rule.Rate && oldRule.Burst == c.rule.Burst {
		return
	}
	o.ruleSetAt[c.id] = o.now
	keepStarts := existed && oldRule.Rate > 0 && c.rule.Rate > 0
	if !keepStarts {
		o.forgetRates(c.id)
	}
	for group := range groups {
		key := ruleGroup{c.id, group}
		switch {
		case !fits(c.id, group):
		case !keepStarts:
			*o.rate(key) = rateState{setAt: o.now}
		default:
			o.rate(key).change(o.now, &oldRule, &c.rule)
		}
	}
}

// rate returns the starts that the rate of a rule has allowed for a group.
func (o *oracle) rate(at ruleGroup) *rateState {
	if o.rates[at] == nil {
		o.rates[at] = &rateState{setAt: o.ruleSetAt[at.pattern]}
	}
	return o.rates[at]
}

func (o *oracle) dropRule(c *command) {
	delete(o.rules, c.id)
	o.forgetRates(c.id)
}

func (o *oracle) forgetRates(pattern string) {
	maps.DeleteFunc(o.rates, func(at ruleGroup, _ *rateState) bool { return at.pattern == pattern })
}

// groupsWithout returns the groups that would exist at a time without the given job: the groups of
// all other jobs, and the groups that a rate still remembers. If surely is set, only rates that
// must still remember the group count.
func (o *oracle) groupsWithout(leaver *oracleJob, at int64, surely bool) map[string]bool {
	groups := map[string]bool{}
	for _, j := range o.jobs {
		if j != leaver && j.state != ended {
			for _, g := range j.groups {
				groups[g] = true
			}
		}
	}
	for key, r := range o.rates {
		earliest, latest := r.forgottenBetween()
		if (earliest > at || latest > at && !surely) && o.rules[key.pattern].Rate > 0 {
			groups[key.group] = true
		}
	}
	return groups
}

// expiringGroups reports whether there is a group that exists only until the core checks the rates
// again.
func (o *oracle) expiringGroups(now int64) bool {
	return len(o.rates) > 0 && len(o.groupsWithout(nil, o.lastTick, false)) != len(o.groupsWithout(nil, now, true))
}

// tooManyGroups reports whether there would be too many groups if job leaver (or nil) moved to
// the named groups. Until a tick, the core may count groups that rates no longer remember.
func (o *oracle) tooManyGroups(names []string, leaver *oracleJob) bool {
	if o.cfg.MaxGroups == 0 || len(names) == 0 {
		return false
	}
	countAt := func(at int64, surely bool) int {
		groups := o.groupsWithout(leaver, at, surely)
		for _, g := range names {
			groups[g] = true
		}
		return len(groups)
	}
	return countAt(o.now, true) > o.cfg.MaxGroups || countAt(o.lastTick, false) > o.cfg.MaxGroups && o.observed.overloaded
}

// candidate returns the job of a type that must go next, as the nth of this command. This is the
// best job or, in a fair type, the best job of the next tenant.
func (o *oracle) candidate(ot *oracleType, n int) (first *oracleJob) {
	next := ""
	if ids := o.observed.handedOut(ot.name); n < len(ids) {
		next = ids[n]
	}
	heads := map[tenantKey]*oracleJob{} // the best job of each tenant
	for _, j := range o.jobs {
		if j.state == queued && j.typ == ot.name && o.allowed(j, next) {
			var t tenantKey // in a type that is not fair, all jobs belong to one tenant
			if ot.fair {
				t = tenantOf(j)
			}
			if heads[t] == nil || j.before(heads[t]) {
				heads[t] = j
			}
		}
	}
	for _, j := range heads {
		if first == nil || o.hasTurnBefore(j, first, next) {
			first = j
		}
	}
	return first
}

// hasTurnBefore reports whether job j goes before job k of another tenant. If both tenants came or
// were served in the same command, the core chooses; next is the id of the job that it hands out
// next. If it hands out neither of the jobs, the later one counts.
func (o *oracle) hasTurnBefore(j, k *oracleJob, next string) bool {
	turn := cmp.Compare(o.turn(tenantOf(j)), o.turn(tenantOf(k)))
	switch {
	case j.priority != k.priority:
		return j.priority > k.priority
	case turn != 0:
		return turn < 0
	case j.id == next || k.id == next:
		return j.id == next
	}
	return k.before(j)
}

// turn returns the number of the command in which a tenant was last served or came.
func (o *oracle) turn(t tenantKey) int {
	if at, known := o.tenantTurns[t]; known {
		return at
	}
	return o.commands
}

// updateTenants updates the list of tenants: those that have waiting or running jobs.
func (o *oracle) updateTenants() {
	tenantKeys := map[tenantKey]bool{}
	for _, j := range o.jobs {
		if j.state != ended && o.types[j.typ].fair {
			t := tenantOf(j)
			tenantKeys[t] = true
			o.tenantTurns[t] = o.turn(t)
		}
	}
	maps.DeleteFunc(o.tenantTurns, func(t tenantKey, _ int) bool { return !tenantKeys[t] })
}

// waitsForRate returns the latest time at which the rates of its groups let a queued job run.
// waits reports that nothing but these rates holds the job back, and that they still did at the last
// tick.
func (o *oracle) waitsForRate(j *oracleJob) (at int64, waits bool) {
	if len(j.groups) == 0 || len(o.rules) == 0 || j.state != queued || o.stopped || !o.mayRun(o.types[j.typ]) || o.firstInLine(j.typ) == nil {
		return 0, false
	}
	earliest, at, full := o.opensBetween(j)
	if ot := o.types[j.typ]; ot.rate > 0 && earliest <= o.now { // the core may wait for the type's rate already
		_, opensAt := ot.rateState.opensBetween(ot.quota())
		at = max(at, opensAt)
	}
	return at, !full && (at > o.now || at > o.lastTick && o.types[j.typ].rate == 0)
}

// forgetGroups drops the rates' records of groups that no longer exist.
func (o *oracle) forgetGroups() {
	if len(o.rates) == 0 {
		return
	}
	groups := o.groupsWithout(nil, o.lastTick, false)
	maps.DeleteFunc(o.rates, func(at ruleGroup, _ *rateState) bool { return !groups[at.group] })
}
