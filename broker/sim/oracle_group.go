package sim

import (
	"slices"

	"gloom/broker"
)

// ruled is a rule and a group that it applies to.
type ruled struct{ pattern, group string }

// turnOf identifies a tenant of a fair type: a group or a submitter.
type turnOf struct {
	typ, group string
	origin     int
}

func turn(j *oracleJob) turnOf {
	if len(j.groups) > 0 {
		return turnOf{typ: j.typ, group: j.groups[0]}
	}
	return turnOf{typ: j.typ, origin: j.origin}
}

// length returns the total length of the names.
func length(names []string) (n int) {
	for _, name := range names {
		n += len(name)
	}
	return n
}

// each calls fn for every group of the job and every rule that applies to it.
func (o *oracle) each(j *oracleJob, fn func(at ruled, r broker.Rule)) {
	for _, g := range j.groups {
		for pattern, r := range o.rules {
			if fits(pattern, g) {
				fn(ruled{pattern, g}, r)
			}
		}
	}
}

// runs returns the number of running jobs of a group.
func (o *oracle) runs(group string) (n int64) {
	for _, j := range o.jobs {
		if j.place == running && slices.Contains(j.groups, group) {
			n++
		}
	}
	return n
}

// allowed reports whether all groups of a job let it run. If a rate has let it run only since
// the last tick, the core may check the rate again or wait for the rate's timer. In this case
// the job counts as allowed only if the core hands it out next (next), has found that its
// worker runs a borrowed job with the same id, or has expired the job already.
func (o *oracle) allowed(j *oracleJob, next string) bool {
	if len(j.groups) == 0 || len(o.rules) == 0 {
		return !o.left[j]
	}
	early, late, full := o.opens(j)
	_, clashed := o.sight.due(j.id)
	return !full && !o.left[j] && (late <= o.ticked || early <= o.now && (j.id == next || clashed || o.lapsed(j) && !o.sight.held(j.id)))
}

// lapsed reports whether the deadline of a waiting job has passed.
func (o *oracle) lapsed(j *oracleJob) bool { return j.expires != 0 && j.expires <= o.now }

// opens returns the times between which the rates of a job's groups begin to let it run, and
// whether one of the groups is at its concurrency.
func (o *oracle) opens(j *oracleJob) (early, late int64, full bool) {
	o.each(j, func(x ruled, r broker.Rule) {
		full = full || r.Concurrency >= 0 && o.runs(x.group) >= r.Concurrency
		if r.Rate > 0 {
			from, until := o.rate(x).opens(quotaOf(&r))
			early, late = max(early, from), max(late, until)
		}
	})
	return early, late, full
}

// eachRate calls fn for every group of the job and every rate that applies to it.
func (o *oracle) eachRate(j *oracleJob, fn func(x *rated, q quota)) {
	o.each(j, func(at ruled, r broker.Rule) {
		if r.Rate > 0 {
			fn(o.rate(at), quotaOf(&r))
		}
	})
}

// setRule sets a rule. The jobs that its old rate has allowed still count under a new rate.
func (o *oracle) setRule(c *command) {
	there := o.groupsBut(nil, o.ticked, false)
	old, was := o.rules[c.id]
	o.rules[c.id] = c.rule
	if was && old.Rate == c.rule.Rate && old.Burst == c.rule.Burst {
		return
	}
	o.ruled[c.id] = o.now
	kept := was && old.Rate > 0 && c.rule.Rate > 0
	if !kept {
		o.forgetRates(c.id)
	}
	for group := range there {
		at := ruled{c.id, group}
		switch {
		case !fits(c.id, group):
		case !kept:
			*o.rate(at) = rated{set: o.now}
		default:
			o.rate(at).change(o.now, &old, &c.rule)
		}
	}
}

// rate returns the starts that the rate of a rule has allowed for a group.
func (o *oracle) rate(at ruled) *rated {
	if o.rates[at] == nil {
		o.rates[at] = &rated{set: o.ruled[at.pattern]}
	}
	return o.rates[at]
}

func (o *oracle) dropRule(c *command) {
	delete(o.rules, c.id)
	o.forgetRates(c.id)
}

func (o *oracle) forgetRates(pattern string) {
	for at := range o.rates {
		if at.pattern == pattern {
			delete(o.rates, at)
		}
	}
}

// groupsBut returns the groups that exist at a time: those that a job other than without is in,
// and those that a rate still remembers. If surely is set, only rates that must still remember
// the group count.
func (o *oracle) groupsBut(without *oracleJob, at int64, surely bool) map[string]bool {
	all := map[string]bool{}
	for _, j := range o.jobs {
		if j != without && j.place != ended {
			for _, g := range j.groups {
				all[g] = true
			}
		}
	}
	for of, r := range o.rates {
		early, late := r.counts()
		if (early > at || late > at && !surely) && o.rules[of.pattern].Rate > 0 {
			all[of.group] = true
		}
	}
	return all
}

// fading reports whether there is a group that exists only until the core checks the rates
// again.
func (o *oracle) fading(now int64) bool {
	return len(o.rates) > 0 && len(o.groupsBut(nil, o.ticked, false)) != len(o.groupsBut(nil, now, true))
}

// tooManyGroups reports whether there would be too many groups if job leaves (or nil) moved to
// the named groups. Until a tick, the core may count groups that rates no longer remember.
func (o *oracle) tooManyGroups(names []string, leaves *oracleJob) bool {
	if o.cfg.MaxGroups == 0 || len(names) == 0 {
		return false
	}
	with := func(at int64, surely bool) int {
		all := o.groupsBut(leaves, at, surely)
		for _, g := range names {
			all[g] = true
		}
		return len(all)
	}
	return with(o.now, true) > o.cfg.MaxGroups || with(o.ticked, false) > o.cfg.MaxGroups && o.sight.overloaded
}

// candidate returns the job of a type that must go next, as the nth of this command: the best
// job or, in a fair type, the job whose turn it is. If several tenants came or were served in
// the same command, the core chooses which of them goes first.
func (o *oracle) candidate(k *oracleType, n int) *oracleJob {
	next := o.sight.out(k.name, n)
	best := o.best(k.name, next)
	if !k.fair || best == nil {
		return best
	}
	heads := o.heads(k, next)
	// If the core hands out no job of the type, the candidate is the job whose turn is next. If
	// several tenants have the same turn, it is the last of their jobs.
	for t, head := range heads {
		at, first := o.turn(t), o.turn(turn(best))
		if head.priority > best.priority || head.priority == best.priority && (at < first || at == first && best.before(head)) {
			best = head
		}
	}
	j := o.held[next]
	if j == nil || heads[turn(j)] != j || j.priority < best.priority || o.turn(turn(j)) > o.turn(turn(best)) {
		return best
	}
	return j
}

// heads returns the best job of each tenant of a type.
func (o *oracle) heads(k *oracleType, next string) map[turnOf]*oracleJob {
	heads := map[turnOf]*oracleJob{}
	for _, j := range o.jobs {
		if j.place == queued && j.typ == k.name && o.allowed(j, next) {
			if t := turn(j); heads[t] == nil || j.before(heads[t]) {
				heads[t] = j
			}
		}
	}
	return heads
}

// turn returns the number of the command in which a tenant was last served or came.
func (o *oracle) turn(t turnOf) int {
	if at, there := o.turns[t]; there {
		return at
	}
	return o.commands
}

// arrive updates the list of tenants: those that have waiting or running jobs.
func (o *oracle) arrive() {
	there := map[turnOf]bool{}
	for _, j := range o.jobs {
		if j.place != ended && o.types[j.typ].fair {
			t := turn(j)
			there[t] = true
			o.turns[t] = o.turn(t)
		}
	}
	for t := range o.turns {
		if !there[t] {
			delete(o.turns, t)
		}
	}
}

// waitsForRate returns the latest time at which the rates of its groups let a queued job run.
// waits reports that nothing but these rates holds the job back, and that they still did at the last
// tick.
func (o *oracle) waitsForRate(j *oracleJob) (at int64, waits bool) {
	if len(j.groups) == 0 || len(o.rules) == 0 || j.place != queued || o.stopped || !o.mayRun(o.types[j.typ]) || o.firstInLine(j.typ) == nil {
		return 0, false
	}
	_, at, full := o.opens(j)
	return at, !full && (at > o.now || at > o.ticked && o.types[j.typ].rate == 0)
}

// forgetGroups forgets what the rates remember of groups that no longer exist.
func (o *oracle) forgetGroups() {
	if len(o.rates) == 0 {
		return
	}
	there := o.groupsBut(nil, o.ticked, false)
	for at := range o.rates {
		if !there[at.group] {
			delete(o.rates, at)
		}
	}
}
