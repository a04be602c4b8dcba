package sim

import (
	"fmt"
	"math"
	"slices"

	"gloom/broker"
)

// ruled is a group under a rule.
type ruled struct{ pattern, group string }

// turnOf is a tenant that takes turns in a fair type: a group, or a submitter.
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

// length is the length of all names together.
func length(names []string) (n int) {
	for _, name := range names {
		n += len(name)
	}
	return n
}

func burstOf(r *broker.Rule) float64 {
	if r.Burst > 0 {
		return float64(r.Burst)
	}
	return max(1, math.Floor(r.Rate))
}

func stepOf(r *broker.Rule) int64 { return int64(min(max(1, 1e9/r.Rate), 1e18)) }

// spare is how much earlier than evenly spaced a job may go.
func spare(r *broker.Rule) int64 { return int64(min((burstOf(r)-1)*float64(stepOf(r)), 4e18)) }

// each calls fn for every rule that holds for a group of the job.
func (o *oracle) each(j *oracleJob, fn func(at ruled, r broker.Rule)) {
	for _, g := range j.groups {
		for pattern, r := range o.rules {
			if fits(pattern, g) {
				fn(ruled{pattern, g}, r)
			}
		}
	}
}

// runs counts the running jobs of a group.
func (o *oracle) runs(group string) (n int64) {
	for _, j := range o.jobs {
		if j.place == running && slices.Contains(j.groups, group) {
			n++
		}
	}
	return n
}

// allowed: all groups of a job let it go. If a rate lets it go only since the last
// tick, the core may check the rate again or wait for its timer. Then the job is
// allowed only if the core hands it out next (next), or has expired it already.
func (o *oracle) allowed(j *oracleJob, next string) bool {
	if len(j.groups) == 0 || len(o.rules) == 0 {
		return !o.left[j]
	}
	at, full := o.opens(j)
	return !full && !o.left[j] && (at <= o.ticked || at <= o.now && (j.id == next || o.lapsed(j) && !o.sight.held(j.id)))
}

// lapsed: the deadline of a waiting job has passed.
func (o *oracle) lapsed(j *oracleJob) bool { return j.expires != 0 && j.expires <= o.now }

// opens is when the rates of a job's groups let it go; full: one of the groups may run
// no more jobs.
func (o *oracle) opens(j *oracleJob) (at int64, full bool) {
	o.each(j, func(x ruled, r broker.Rule) {
		full = full || r.Concurrency >= 0 && o.runs(x.group) >= r.Concurrency
		if r.Rate > 0 {
			at = max(at, o.rate(x).next-spare(&r))
		}
	})
	return at, full
}

func (o *oracle) occupy(j *oracleJob) {
	o.each(j, func(at ruled, r broker.Rule) {
		if r.Rate > 0 {
			o.rate(at).take(o.now, stepOf(&r))
			o.judgeRate(at, j, stepOf(&r), spare(&r))
		}
	})
}

func (o *oracle) refund(j *oracleJob) {
	o.each(j, func(at ruled, r broker.Rule) {
		if r.Rate > 0 {
			o.rate(at).giveBack(o.now, j.since, stepOf(&r))
			o.unstart(at, j)
		}
	})
}

// setRule: a bucket keeps its tokens as long as there is a rate.
func (o *oracle) setRule(c *command) {
	there := o.groupsBut(nil, o.ticked)
	old, was := o.rules[c.id]
	o.rules[c.id] = c.rule
	if was && old.Rate == c.rule.Rate && old.Burst == c.rule.Burst {
		return
	}
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
			used := float64(o.rate(at).used(o.now)) / float64(stepOf(&old))
			tokens := min(burstOf(&c.rule), burstOf(&old)-used)
			*o.rate(at) = rated{set: o.now, next: o.now + int64(min((burstOf(&c.rule)-tokens)*float64(stepOf(&c.rule)), 4e18))}
			delete(o.starts, at)
		}
	}
}

// rate is what a rule's rate has let through of a group.
func (o *oracle) rate(at ruled) *rated {
	if o.rates[at] == nil {
		o.rates[at] = &rated{set: -1}
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
			delete(o.starts, at)
		}
	}
}

// groupsBut are the groups that exist: a job other than without is in them, or a rate
// remembers them at that time.
func (o *oracle) groupsBut(without *oracleJob, at int64) map[string]bool {
	all := map[string]bool{}
	for _, j := range o.jobs {
		if j != without && j.place != ended {
			for _, g := range j.groups {
				all[g] = true
			}
		}
	}
	for of, r := range o.rates {
		if r.next > at && o.rules[of.pattern].Rate > 0 {
			all[of.group] = true
		}
	}
	return all
}

// fading: a group exists only until the core checks its rates again.
func (o *oracle) fading(now int64) bool {
	return len(o.rates) > 0 && len(o.groupsBut(nil, o.ticked)) != len(o.groupsBut(nil, now))
}

// tooManyGroups: if a job left its old groups for these, there would be too many. Until
// a tick the core may count groups that rates no longer remember.
func (o *oracle) tooManyGroups(names []string, leaves *oracleJob) bool {
	if o.cfg.MaxGroups == 0 || len(names) == 0 {
		return false
	}
	with := func(at int64) int {
		all := o.groupsBut(leaves, at)
		for _, g := range names {
			all[g] = true
		}
		return len(all)
	}
	return with(o.now) > o.cfg.MaxGroups || with(o.ticked) > o.cfg.MaxGroups && o.sight.overloaded
}

// candidate is the job of a type that goes next, as the nth of this command: the best
// job or, in a fair type, the job whose turn it may be. If several tenants came, or had
// their turns, with one command, the core chooses which of them goes first.
func (o *oracle) candidate(k *oracleType, n int) *oracleJob {
	next := o.sight.out(k.name, n)
	best := o.best(k.name, next)
	if !k.fair || best == nil {
		return best
	}
	heads := o.heads(k, next)
	// If the core hands out none of the type, the candidate is the job whose turn comes
	// first; if there are several, it is the last one: most others go before it.
	for t, head := range heads {
		at, first := o.turn(t), o.turn(turn(best))
		if head.priority > best.priority || head.priority == best.priority && (at < first || at == first && best.before(head)) {
			best = head
		}
	}
	j := o.held[next]
	if j == nil || heads[turn(j)] != j || j.priority < best.priority {
		return best
	}
	return j
}

// heads are the best jobs of each tenant of a type.
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

// inTurn complains if the job of a fair type that goes now is not of the tenant that
// was served longest ago.
func (o *oracle) inTurn(k *oracleType, j *oracleJob) {
	mine := o.turn(turn(j))
	for t, head := range o.heads(k, "") {
		if head.priority == j.priority && o.turn(t) < mine {
			o.complaint = fmt.Sprintf("job %q is handed out in the turn of %+v, from command %d, but that of %+v is from command %d", j.id, turn(j), mine, t, o.turn(t))
		}
	}
}

// turn is the command in which a tenant was last served, or came.
func (o *oracle) turn(t turnOf) int {
	if at, there := o.turns[t]; there {
		return at
	}
	return o.commands
}

// arrive notes which tenants there are: those with jobs that wait or run.
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

// waitsForRate is when a queued job may go, or could go at the last tick, if only rates
// of its groups hold it back.
func (o *oracle) waitsForRate(j *oracleJob) (at int64, only bool) {
	if len(j.groups) == 0 || len(o.rules) == 0 || j.place != queued || o.stopped || !o.mayRun(o.types[j.typ]) || o.firstInLine(j.typ) == nil {
		return 0, false
	}
	at, full := o.opens(j)
	return at, !full && (at > o.now || at > o.ticked && o.types[j.typ].rate == 0)
}

// forgetGroups forgets what rates let through of groups that no longer exist.
func (o *oracle) forgetGroups() {
	if len(o.rates) == 0 {
		return
	}
	there := o.groupsBut(nil, o.ticked)
	for at := range o.rates {
		if !there[at.group] {
			delete(o.rates, at)
			delete(o.starts, at)
		}
	}
}
