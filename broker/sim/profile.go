package sim

import (
	"math/rand/v2"
	"time"

	"gloom/broker"
)

// profile holds the parameters with which runs of one kind are generated.
type profile struct {
	name string
	// weight holds the weight of each verb: how often it is chosen, compared with the others.
	weight [numVerbs]int
	steps  func(r *rand.Rand) int
	// ids, types and priorities are the numbers of different values in use. They are small, so
	// that commands collide.
	ids, types, priorities int
	// submitters and workers are how many of them a run tries to keep connected.
	submitters, workers int
	// names allows workers to ask for prefetch, and notices allows them to ask for cancel frames.
	names, notices bool
	// Each field from delay to headers is the chance in percent that a submit has that option.
	delay, timeout, backoff, expires, retries, detach, quiet, progress, keep, age, headers int
	// several is the chance in percent that a join lists several types.
	several int
	// groups is the chance in percent that a submit names groups, and maxGroups is the largest
	// number of them.
	groups, maxGroups int
	// extraSetting is the chance in percent that a change of a setting changes another setting,
	// too.
	extraSetting int
	// bodies returns the length of a body.
	bodies func(r *rand.Rand) int
	// wildPriorities spreads priorities over all of int64.
	wildPriorities bool
	// config sets limits.
	config func(r *rand.Rand, c *broker.Config)
	// ledgerEvery is after how many commands the ledgers are compared.
	ledgerEvery int
	// phase, if set, changes the weights in the course of a run.
	phase func(step, steps int, weight *[numVerbs]int)
	// churn is the chance in percent that a submit takes a new id.
	churn int
	// sameTime is the chance in percent that a command has the same time as the one before
	// it.
	sameTime int
}

func uniform(lo, hi int) func(*rand.Rand) int {
	return func(r *rand.Rand) int { return lo + r.IntN(hi-lo+1) }
}

// plainWeights are the weights for clients that only submit, join and respond.
func plainWeights() [numVerbs]int {
	var w [numVerbs]int
	w[submit], w[respond], w[join], w[gone], w[expelled] = 100, 70, 25, 8, 3
	w[addSubmitter], w[addWorker], w[tick] = 3, 5, 10
	return w
}

func richWeights() [numVerbs]int {
	w := plainWeights()
	w[cancel], w[fail], w[progress], w[leave], w[tick] = 25, 30, 12, 5, 40
	w[pause], w[limit], w[revoke], w[revive] = 3, 3, 4, 4
	w[revokeAll], w[reviveAll], w[forget] = 1, 1, 1
	w[attach], w[written] = 4, 4
	w[change], w[amend], w[release] = 6, 2, 8
	return w
}

func plain() profile {
	return profile{
		weight: plainWeights(), steps: uniform(40, 200),
		ids: 8, types: 2, priorities: 3, submitters: 3, workers: 3,
		bodies: uniform(1, 40), ledgerEvery: 1, sameTime: 70,
	}
}

func rich() profile {
	p := plain()
	p.weight = richWeights()
	p.names, p.notices = true, true
	p.delay, p.timeout, p.backoff, p.expires, p.retries = 20, 30, 25, 25, 40
	p.detach, p.quiet, p.progress, p.keep = 15, 10, 25, 10
	p.age, p.headers, p.several, p.extraSetting = 10, 15, 15, 40
	p.sameTime = 50
	return p
}

func lending() profile {
	p := rich()
	p.ids, p.types, p.workers, p.submitters = 8, 2, 3, 2
	p.weight[addBorrower], p.weight[addLender], p.weight[allot] = 5, 4, 25
	p.weight[borrow], p.weight[unwant], p.weight[follow], p.weight[giveBack] = 90, 12, 5, 12
	p.weight[join], p.weight[release], p.weight[respond], p.steps = 40, 15, 90, uniform(60, 250)
	p.config = func(r *rand.Rand, c *broker.Config) {
		maybe := func(n int) int { return r.IntN(2) * (1 + r.IntN(n)) }
		c.MaxJobs, c.MaxTypeJobs, c.MaxSubmitterJobs = maybe(12), maybe(10), maybe(6)
		c.MaxBytes, c.MaxTypeBytes, c.MaxTypes = int64(maybe(3000)), int64(maybe(2000)), maybe(4)
	}
	return p
}

// kind is a kind of runs, made by changing a base profile. n is its share of the runs or, for a
// special kind, the number by which a seed must be divisible.
type kind struct {
	n      uint64
	name   string
	base   func() profile
	change func(p *profile)
}

func (k *kind) profile() profile {
	p := k.base()
	p.name = k.name
	k.change(&p)
	return p
}

// common are the kinds of short runs.
var common = []kind{
	{28, "plain", plain, func(*profile) {}},
	{24, "rich", rich, func(*profile) {}},
	{10, "prefetch", rich, func(p *profile) {
		p.ids, p.workers, p.types = 16, 4, 1
		p.weight[leave] = 15
		p.weight[respond], p.weight[credit] = 100, 30
		p.config = func(r *rand.Rand, c *broker.Config) { c.Credit = int64(r.IntN(2) * (1 + r.IntN(150))) }
	}},
	{10, "time", rich, func(p *profile) {
		p.delay, p.timeout, p.backoff, p.expires = 60, 60, 60, 60
		p.weight[tick], p.weight[fail] = 120, 60
		p.sameTime = 20
	}},
	{6, "limits", rich, func(p *profile) {
		p.weight[pause], p.weight[limit], p.weight[tick] = 20, 30, 80
		p.config = func(r *rand.Rand, c *broker.Config) {
			maybe := func(n int) int { return r.IntN(2) * (1 + r.IntN(n)) }
			c.MaxJobs, c.MaxTypeJobs, c.MaxSubmitterJobs = maybe(8), maybe(6), maybe(5)
			c.MaxBytes, c.MaxTypeBytes, c.MaxSubmitterBytes = int64(maybe(1200)), int64(maybe(1000)), int64(maybe(800))
		}
	}},
	{6, "vanishing", rich, func(p *profile) {
		p.submitters, p.weight[gone], p.weight[addSubmitter] = 6, 40, 15
		p.weight[tick] = 8
		p.ids = 5
	}},
	{5, "letters", rich, func(p *profile) {
		p.weight[revive], p.weight[fail] = 30, 90
		p.config = func(r *rand.Rand, c *broker.Config) {
			c.DeadLetters, c.DeadBytes, c.DeadAge = 1+r.IntN(4), 1<<20, []time.Duration{2 * time.Millisecond, time.Second, time.Hour}[r.IntN(3)]
			c.Retries = r.IntN(2)
		}
	}},
	// At most one job fails at a time, because the oracle learns the reason, whose length
	// counts, only from the letter.
	{3, "letter bytes", plain, func(p *profile) {
		p.weight = richWeights()
		p.weight[revive], p.weight[fail] = 30, 90
		p.backoff, p.delay, p.expires, p.detach = 20, 20, 20, 30
		p.config = func(r *rand.Rand, c *broker.Config) {
			c.DeadLetters, c.DeadBytes, c.DeadAge = 1+r.IntN(5), int64(290+r.IntN(1200)), time.Second
			c.Retries = r.IntN(2)
		}
	}},
	{4, "types", rich, func(p *profile) {
		p.types, p.weight[join], p.weight[pause], p.weight[limit] = 10, 60, 10, 10
		p.weight[forget] = 20
		p.config = func(r *rand.Rand, c *broker.Config) {
			c.IdleTypes = r.IntN(3)
			c.KeptTypes = r.IntN(c.IdleTypes + 1)
			c.MaxTypes = r.IntN(2) * (2 + r.IntN(6))
		}
	}},
	{8, "keep", rich, func(p *profile) {
		p.keep, p.submitters, p.ids, p.types = 70, 4, 10, 1
		p.weight[attach], p.weight[written], p.weight[gone], p.weight[addSubmitter] = 40, 20, 20, 12
		p.weight[respond], p.weight[tick] = 100, 60
	}},
	{8, "several", rich, func(p *profile) {
		p.several, p.types, p.workers, p.weight[join] = 80, 5, 5, 40
		p.config = func(r *rand.Rand, c *broker.Config) {
			c.IdleTypes = r.IntN(6)
			c.MaxTypes = r.IntN(2) * (3 + r.IntN(6))
		}
	}},
	{8, "groups", rich, func(p *profile) {
		p.groups, p.maxGroups, p.ids, p.types = 70, 3, 16, 3
		p.weight[setRule], p.weight[dropRule], p.weight[tick] = 15, 5, 60
		p.config = func(r *rand.Rand, c *broker.Config) { c.MaxGroups = r.IntN(2) * (1 + r.IntN(4)) }
	}},
	{8, "fair", rich, func(p *profile) {
		p.groups, p.maxGroups, p.ids, p.types = 60, 2, 20, 2
		p.weight[setFair], p.weight[setRule], p.weight[dropRule] = 20, 4, 4
		p.weight[submit], p.weight[respond], p.weight[tick] = 140, 110, 50
	}},
	{8, "lending", lending, func(*profile) {}},
	{5, "rates", rich, func(p *profile) {
		p.groups, p.maxGroups, p.ids, p.types, p.workers = 50, 1, 24, 1, 2
		p.weight[setRule], p.weight[limit], p.weight[pause], p.weight[gone] = 4, 6, 0, 1
		p.weight[submit], p.weight[release], p.weight[respond], p.weight[join] = 140, 120, 30, 40
		p.steps, p.sameTime = uniform(100, 300), 60
	}},
	// Queues of groups are used again and again, with more priorities than an empty queue keeps
	// lanes for.
	{4, "group lanes", plain, func(p *profile) {
		p.groups, p.maxGroups, p.ids, p.types, p.priorities = 90, 1, 60, 1, 9
		p.submitters, p.workers, p.steps = 1, 2, uniform(150, 300)
		p.weight[gone], p.weight[expelled] = 1, 0
		p.phase = func(step, _ int, w *[numVerbs]int) {
			w[submit], w[respond] = 400, 5
			if step/30%2 == 1 {
				w[submit], w[respond] = 5, 400
			}
		}
	}},
	{3, "drain", rich, func(p *profile) {
		p.phase = func(step, steps int, w *[numVerbs]int) {
			switch {
			case step > steps*3/4:
				w[expel] = 10
			case step > steps/2:
				w[drain] = 10
			}
		}
	}},
	{3, "spread", rich, func(p *profile) {
		p.submitters, p.workers, p.ids, p.types = 2, 6, 60, 26
		p.weight[submit], p.weight[gone], p.steps = 200, 3, uniform(150, 300)
	}},
	{3, "many", rich, func(p *profile) {
		p.submitters, p.workers, p.ids, p.types = 40, 12, 60, 12
		p.weight[addSubmitter], p.steps = 30, uniform(150, 300)
	}},
}

// special are kinds of long runs.
var special = []kind{
	// Jobs with groups are lent, and some types are fair.
	{19, "lending groups", lending, func(p *profile) {
		p.groups, p.maxGroups, p.ids, p.types = 70, 3, 16, 3
		p.weight[setRule], p.weight[dropRule], p.weight[setFair], p.weight[tick] = 15, 5, 3, 60
	}},
	{101, "lanes", rich, func(p *profile) {
		p.ids, p.types, p.priorities, p.churn = 400, 1, 150, 70
		p.submitters, p.workers = 2, 2
		p.steps = uniform(400, 700)
		p.weight[submit], p.weight[gone] = 250, 3
		p.ledgerEvery = 8
	}},
	{103, "wild", rich, func(p *profile) {
		p.wildPriorities, p.ids, p.churn = true, 60, 50
		p.steps = uniform(200, 400)
	}},
	{107, "old letters", rich, func(p *profile) {
		p.weight[revive], p.weight[fail], p.ids, p.churn = 60, 120, 30, 60
		p.steps, p.types = uniform(600, 900), 4
		p.retries, p.delay, p.sameTime = 10, 5, 80
		p.config = func(r *rand.Rand, c *broker.Config) { c.Retries = 0 }
	}},
	{211, "long", rich, func(p *profile) { p.steps = uniform(2000, 4000) }},
	{223, "big", rich, func(p *profile) {
		p.bodies = func(r *rand.Rand) int { return []int{1, 40 << 10, 128<<10 - 1, 128 << 10, 300 << 10}[r.IntN(5)] }
		p.config = func(r *rand.Rand, c *broker.Config) {
			c.DeadLetters, c.DeadBytes, c.DeadAge = 3, 1<<20, time.Hour
			c.MaxBytes = 4 << 20
		}
	}},
	// Bodies fill slabs. Most jobs end soon and a few stay, so that slabs are compacted.
	{499, "slabs", rich, func(p *profile) {
		p.ids, p.churn, p.types, p.submitters, p.workers = 3000, 95, 2, 4, 3
		p.bodies = func(r *rand.Rand) int { return []int{100, 20 << 10, 30 << 10}[r.IntN(3)] }
		p.steps, p.ledgerEvery = uniform(2500, 3500), 64
		p.weight[gone], p.weight[expelled], p.weight[pause], p.weight[limit] = 2, 1, 1, 1
		p.phase = func(step, steps int, w *[numVerbs]int) {
			w[submit], w[respond], w[cancel] = 60, 90, 90
			if step < steps/3 {
				w[submit], w[respond], w[cancel] = 200, 10, 5
			}
		}
	}},
	// Many jobs, which take several chunks of records, then few, so that chunks are given back.
	{997, "crowd", rich, func(p *profile) {
		p.ids, p.churn, p.types, p.submitters, p.workers = 6000, 97, 3, 5, 5
		p.steps, p.ledgerEvery = uniform(9000, 10000), 256
		p.weight[gone], p.weight[addSubmitter] = 1, 3
		p.phase = func(step, steps int, w *[numVerbs]int) {
			w[submit], w[respond], w[cancel], w[gone] = 50, 150, 150, 3
			if step < steps/2 {
				w[submit], w[respond], w[cancel], w[gone] = 400, 10, 5, 0
			}
		}
	}},
	// A drain is cut short while there are more jobs than one step can end.
	{401, "stop", rich, func(p *profile) {
		p.ids, p.churn, p.types, p.submitters, p.workers = 4000, 99, 3, 4, 4
		p.steps, p.ledgerEvery = uniform(2500, 3000), 256
		p.weight[submit], p.weight[gone], p.weight[limit] = 900, 1, 60
		p.phase = func(step, steps int, w *[numVerbs]int) {
			if step > steps-100 {
				w[expel] = 60
			}
		}
	}},
	// More deadlines are due at a time than one tick handles.
	{983, "alarms", rich, func(p *profile) {
		p.ids, p.churn, p.types, p.submitters, p.workers = 3000, 98, 2, 3, 3
		p.delay, p.expires, p.timeout, p.backoff = 90, 50, 50, 10
		p.steps, p.ledgerEvery = uniform(3000, 4000), 64
		p.weight[submit], p.weight[gone], p.weight[expelled], p.weight[limit] = 600, 0, 0, 0
		p.sameTime = 97
	}},
}

// profileOf returns the profile for the run of a seed.
func profileOf(seed uint64, r *rand.Rand) profile {
	for i := range special {
		if seed%special[i].n == 0 {
			return special[i].profile()
		}
	}
	sum := 0
	for i := range common {
		sum += int(common[i].n)
	}
	n, i := r.IntN(sum), 0
	for ; n >= int(common[i].n); i++ {
		n -= int(common[i].n)
	}
	return common[i].profile()
}

// configOf returns the core's configuration for a run.
func configOf(p *profile, r *rand.Rand) broker.Config {
	c := broker.Config{
		Retries: r.IntN(4), IdleTypes: 1000, Seed: r.Uint64(),
		DeadLetters: 100, DeadBytes: 1 << 20, DeadAge: time.Hour, History: 1 << 30,
	}
	if p.config != nil {
		p.config(r, &c)
	}
	return c
}
