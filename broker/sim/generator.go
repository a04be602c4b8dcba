package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"gloom/broker"
)

// generator generates the commands of a run. It looks at the oracle's state, so that
// interesting cases come more often than by chance.
type generator struct {
	profile  profile
	rng      *rand.Rand
	oracle   *oracle
	core     *broker.Broker
	step     int
	steps    int
	now      int64
	peers    int // how many peer numbers are used
	freshIDs int // how many ids besides the common ones are used
	loans    int // how many numbers of borrowed runs are used
}

// noise is the text from which bodies are cut.
var noise = func() []byte {
	r := rand.New(rand.NewPCG(1, 2))
	mem := make([]byte, 1<<20)
	for i := range mem {
		mem[i] = "abcdefghijklmnopqrstuvwxyz0123456789"[r.IntN(36)]
	}
	return mem
}()

func (g *generator) percent(n int) bool { return g.rng.IntN(100) < n }

// number returns the profile's number with this name. chance takes this number as a percentage, and
// returns true with this probability. below takes it as a bound, and returns a random number below
// the bound.
func (g *generator) number(name string) int  { return g.profile.numbers.get(name) }
func (g *generator) chance(name string) bool { return g.percent(g.number(name)) }
func (g *generator) below(name string) int   { return g.rng.IntN(g.number(name)) }

// maybeDuration returns 0 or, with the chance that the profile has under this name, a random duration.
func (g *generator) maybeDuration(name string) time.Duration {
	if g.chance(name) {
		return g.duration()
	}
	return 0
}

func (g *generator) next() *command {
	g.step++
	if g.profile.phase != nil {
		g.profile.numbers.set(g.profile.phase(g.step, g.steps))
	}
	c := &command{verb: g.verb()}
	c.now = g.time(c.verb)
	// If a type has a rate and jobs have groups, let no tick be late: the time at which the core
	// checks the rate again decides which job goes first. The same holds if a rule is set or dropped
	// while there is a group that no rate remembers any more: the core forgets it at the tick, and
	// until then it may exist or not.
	changesRule := (c.verb == setRule || c.verb == dropRule) && g.oracle.expiringGroups(max(c.now, g.oracle.now))
	if g.number("groups") > 0 && (changesRule || g.oracle.paced() && g.core.NextTick() <= max(c.now, g.oracle.now)) {
		c.verb, c.now = tick, max(c.now, g.oracle.now)
	}
	if (c.verb == revokeAll || c.verb == reviveAll || c.verb == forget) && g.number("ids") > 100 {
		c.verb = tick // such a command would take more than one step
	}
	c.peer = g.peer(c.verb)
	switch c.verb {
	case addSubmitter:
		c.token = uint64(g.rng.IntN(5) / 4)
	case attach, written:
		c.id, c.progress, c.room = g.keptID(c.verb == written), g.percent(40), 1<<30
		if g.percent(10) {
			c.room = g.rng.IntN(30)
		}
	case credit:
		c.room = g.rng.IntN(200)
	case submit:
		g.submit(c)
	case cancel, revoke:
		c.id, c.boolArg = g.id(c.peer), c.verb == revoke && g.percent(50)
	case join:
		c.typ = g.typ()
		if g.number("named") > 0 && g.chance("named") {
			c.prefetch = 1 + g.rng.IntN(6)
		}
		c.notices = g.number("notices") > 0 && g.chance("notices")
		c.wantHeaders = g.chance("headers")
		if g.chance("several") {
			c.typ, c.types = "", g.patterns()
			if g.percent(40) {
				c.except = g.patterns()
			}
			if g.percent(20) {
				c.allow = g.typ() + g.typ()
			}
		}
	case addBorrower:
		if c.typ = g.typ(); g.oracle.cfg.MaxTypes > 0 && !g.oracle.used(c.typ) {
			c.verb, c.peer, c.typ = tick, 0, "" // brokers offer to borrow only where jobs wait
		}
	case allot:
		c.room = g.rng.IntN(5)
	case borrow:
		g.loans++
		c.run = g.loans
		c.id, c.typ, c.priority, c.progress = g.id(0), g.typ(), int64(g.below("priorities")), g.percent(50)
		if g.percent(30) {
			c.age = g.duration()
		}
		g.body(c)
	case unwant, follow:
		c.run, c.boolArg = g.loans-g.rng.IntN(6), g.percent(50)
	case respond, progress:
		c.id = g.outID(c.peer)
		g.body(c)
	case setRule, dropRule, setFair, limit:
		g.changeSetting(c)
		for len(c.others) < 4 && g.chance("extraSetting") {
			extraCommand := &command{verb: []verb{setRule, dropRule, setFair, limit}[g.rng.IntN(4)], now: c.now}
			if g.changeSetting(extraCommand); !slices.ContainsFunc(c.settings(), func(y *command) bool { return extraCommand.id == y.id && extraCommand.typ == y.typ }) {
				c.others = append(c.others, extraCommand)
			}
		}
	case change, amend:
		if c.setGroups = g.chance("groups"); c.setGroups {
			c.groups = g.groups()
		}
		c.id, c.delay = g.id(c.peer), -1
		if c.setPriority = g.percent(60); c.setPriority {
			c.priority = int64(g.below("priorities"))
		}
		if !c.setPriority || g.percent(40) {
			c.delay = g.duration() * time.Duration(g.rng.IntN(2))
		}
	case release, giveBack:
		c.id, c.delay = g.outID(c.peer), g.duration()*time.Duration(g.rng.IntN(2))
	case fail:
		c.id, c.reason = g.outID(c.peer), fmt.Sprintf("the generator failed in step %d", g.step)
		c.noRetry, c.lost = g.percent(15), g.oracle.hasKind(c.peer, borrowers|lenders) && g.percent(30)
		c.failDelay = -1
		if g.percent(30) && !c.lost {
			c.failDelay = int64(g.duration()) * int64(g.rng.IntN(2))
		}
	case expelled:
		c.reason = "size_error: too long"
	case pause:
		c.typ, c.boolArg = g.typ(), g.percent(50)
	case revokeAll:
		c.typ, c.boolArg = g.typ(), g.percent(30)
		if g.chance("groups") {
			c.typ, c.groups = "", g.groups()[:1]
		}
	case reviveAll, forget:
		c.typ, c.boolArg = g.typ(), g.percent(70)
	case revive:
		c.typ, c.id = g.typ(), g.id(0)
		if n := len(g.oracle.letters); n > 0 && g.percent(80) {
			l := g.oracle.letters[g.rng.IntN(n)]
			c.typ, c.id = l.typ, l.id
		}
	}
	return c
}

// changeSetting generates a change of a rule, or of a setting of a type.
func (g *generator) changeSetting(c *command) {
	switch c.verb {
	case setRule, dropRule:
		c.id = []string{"g0", "g1", "g*", "*", "*1"}[g.rng.IntN(5)]
		c.rule.Concurrency = int64(g.rng.IntN(4)) - 1
		if c.rule.Concurrency < 0 || g.percent(30) {
			c.rule.Rate = []float64{0.5, 3, 20, 700, 1e6}[g.rng.IntN(5)]
			c.rule.Burst = int64(g.rng.IntN(7))
		}
	case setFair:
		c.typ, c.boolArg = g.typ(), g.percent(70)
	case limit:
		c.typ = g.typ()
		if g.percent(50) {
			c.concurrency = g.rng.IntN(4)
		}
		if g.percent(50) {
			c.rate = []float64{0.5, 3, 20, 700, 1e6, 1e9, 1e-12, 2e9, -1, math.NaN()}[g.rng.IntN(10)]
		}
		if g.percent(30) {
			c.burst = g.rng.IntN(7)
		}
	}
}

func (g *generator) verb() verb {
	submitterCount, workerCount := g.oracle.connectedCount(submitters), g.oracle.connectedCount(workers)
	if submitterCount == 0 && g.percent(50) || submitterCount < g.number("submitters") && g.percent(10) {
		return addSubmitter
	}
	if workerCount == 0 && g.percent(50) || workerCount < g.number("workers") && g.percent(10) {
		return addWorker
	}
	sum := 0
	for _, v := range verbs {
		sum += g.number(v.name)
	}
	n := g.rng.IntN(sum)
	for v, x := range verbs {
		n -= g.number(x.name)
		if n < 0 {
			if v := verb(v); v == addSubmitter && submitterCount >= 2*g.number("submitters") || v == addWorker && workerCount >= 2*g.number("workers") {
				return tick
			}
			return verb(v)
		}
	}
	panic("sim: weights do not add up")
}

// time returns the time of the next command. Often this is the time of the last command, often
// exactly a deadline. Sometimes it jumps forwards or backwards.
func (g *generator) time(v verb) int64 {
	sameTimePercent := g.number("sameTime")
	if v == tick {
		sameTimePercent /= 3
	}
	if g.percent(sameTimePercent) {
		return g.now
	}
	switch n := g.rng.IntN(100); {
	case n < 50:
		if at := g.oracle.next(); at < g.now+int64(800*24*time.Hour) {
			g.now = max(g.now, at) + int64(g.rng.IntN(3)-1)
			break
		}
		fallthrough
	case n < 80:
		g.now += g.rng.Int64N(int64(4 * time.Millisecond))
	case n < 90:
		g.now += g.rng.Int64N(int64(3 * time.Second))
	case n < 94:
		g.now -= g.rng.Int64N(int64(10 * time.Millisecond))
	case n < 96:
		// A command from the past, as if a thread had been delayed.
		return g.now - g.rng.Int64N(int64(time.Hour))
	case n < 97:
		g.now += int64(400 * 24 * time.Hour)
	default:
		g.now += g.rng.Int64N(int64(2 * time.Hour))
	}
	return g.now
}

// peer chooses the peer that sends a command: mostly a connected one of the right kind.
func (g *generator) peer(v verb) int {
	from := verbs[v].from
	switch from {
	case 0:
		return 0
	case newcomers:
		g.peers++
		return g.peers
	}
	if v == gone || v == expelled {
		if g.percent(60) {
			from &= workers | borrowers
		} else {
			from &= submitters | lenders
		}
	}
	if from&(submitters|workers) != 0 {
		switch n := g.rng.IntN(100); {
		case n < 2:
			if number := g.rng.IntN(g.peers+3) + 1; !g.oracle.hasKind(number, borrowers|lenders) { // a peer that is lost, connected or unknown
				return number
			}
		case n < 3:
			return 100000 + g.rng.IntN(20)
		case n < 4:
			from = from<<1&(workers|borrowers) | from>>1&(submitters|lenders) // the other side
		}
	}
	var suitable, busy []int
	for _, p := range g.oracle.peers {
		if p.kind&from != 0 {
			suitable = append(suitable, p.number)
			if len(p.out) > 0 || p.kind == workers && !p.joined && v == join {
				busy = append(busy, p.number)
			}
		}
	}
	if len(busy) > 0 && g.percent(85) && verbs[v].from&(workers|borrowers) != 0 && v != leave && v != credit && v != allot {
		return busy[g.rng.IntN(len(busy))]
	}
	if len(suitable) == 0 {
		return 100000
	}
	return suitable[g.rng.IntN(len(suitable))]
}

func (g *generator) commonID() string { return fmt.Sprintf("j%d", g.below("ids")) }

// id returns an id for a command of a peer: often that of one of its jobs.
func (g *generator) id(peer int) string {
	if len(g.oracle.jobs) > 0 && g.percent(70) {
		for range 4 {
			j := g.oracle.jobs[g.rng.IntN(len(g.oracle.jobs))]
			if j.owner == peer || j.detach || peer == 0 {
				return j.id
			}
		}
	}
	return g.commonID()
}

// outID returns an id for a command of a worker: mostly that of a job that is out on it.
func (g *generator) outID(peer int) string {
	if w := g.oracle.peer(peer); w != nil && w.kind&(workers|borrowers) != 0 {
		if !w.named && g.percent(50) {
			return ""
		}
		if len(w.out) > 0 && g.percent(85) {
			return w.out[g.rng.IntN(len(w.out))].id
		}
	}
	return g.id(0)
}

// keptID returns an id for an attach: often that of a kept job without a connection.
func (g *generator) keptID(includeEnded bool) string {
	for range 8 {
		if n := len(g.oracle.jobs); n > 0 {
			if j := g.oracle.jobs[g.rng.IntN(n)]; j.keep > 0 && (j.owner == 0 || g.percent(20)) || includeEnded && j.state == ended {
				return j.id
			}
		}
	}
	return g.id(0)
}

// groups returns some groups for a job.
func (g *generator) groups() (list []string) {
	for range 1 + g.below("maxGroups") {
		if name := fmt.Sprintf("g%d", g.rng.IntN(4)); !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	return list
}

// patterns returns some type names, and some patterns that match several types.
func (g *generator) patterns() []string {
	list := []string{}
	for range 1 + g.rng.IntN(3) {
		list = append(list, []string{g.typ(), g.typ(), g.typ() + "*", "*" + g.typ(), "**", "*" + g.typ() + "*x"}[g.rng.IntN(6)])
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func (g *generator) typ() string { return string(rune('a' + g.below("types"))) }

var durations = []time.Duration{
	time.Millisecond, 2 * time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, time.Second, time.Hour,
}

func (g *generator) duration() time.Duration { return durations[g.rng.IntN(len(durations))] }

func (g *generator) body(c *command) {
	bodies := uniform(1, 40)
	if g.profile.bodies != nil {
		bodies = g.profile.bodies
	}
	n := bodies(g.rng)
	at := g.rng.IntN(len(noise) - n)
	c.body = noise[at : at+n : at+n]
	c.stable = g.percent(20)
}

func (g *generator) submit(c *command) {
	c.id, c.typ = g.commonID(), g.typ()
	if g.chance("churn") {
		g.freshIDs++
		c.id = fmt.Sprintf("n%d", g.freshIDs)
	}
	g.body(c)
	switch {
	case g.number("wild") > 0:
		c.priority = []int64{math.MinInt64, math.MinInt64 + 1, -1, 0, 1, math.MaxInt64, int64(g.rng.Uint64())}[g.rng.IntN(7)]
	case g.percent(60):
		c.priority = int64(g.below("priorities")) - int64(g.number("priorities")/3)
	}
	c.delay, c.timeout = g.maybeDuration("delay"), g.maybeDuration("timeout")
	if g.chance("backoff") {
		c.backoff = []time.Duration{time.Millisecond, 3 * time.Millisecond, time.Second, 20 * time.Hour, broker.MaxBackoff}[g.rng.IntN(5)]
	}
	if g.chance("expires") {
		// A deadline before the end of the delay would be refused before it reaches the core.
		c.expires = c.delay + g.duration()
	}
	c.retries = -1
	if g.chance("retries") {
		c.retries = []int{0, 0, 1, 2, 5, 1000, 1 << 20}[g.rng.IntN(7)]
	}
	c.detach, c.quiet, c.progress = g.chance("detach"), g.chance("quiet"), g.chance("progressed")
	c.age = g.maybeDuration("age")
	if g.chance("headers") {
		c.headers = noise[g.step : g.step+2+g.rng.IntN(9)]
	}
	if g.chance("groups") {
		c.groups = g.groups()
	}
	if !c.detach {
		c.keep = g.maybeDuration("keep")
	}
}
