package sim

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"gloom/broker"
)

// profile is the kind of one run, with its numbers, which may change in the course of the run.
type profile struct {
	*kind
	// numbers has a number for each parameter. A verb's number is its weight: how often the verb is
	// chosen, compared with other verbs. The others are those of plainNumbers.
	numbers numbers
}

// kind is a kind of runs.
type kind struct {
	// n is its share of the runs or, for a special kind, the number by which a seed must be
	// divisible.
	n    uint64
	name string
	// parameters are the numbers that differ from plainNumbers.
	parameters string
	// bodies returns the length of a body. If it is nil, bodies have 1 to 40 bytes.
	bodies func(r *rand.Rand) int
	// config, if set, sets limits.
	config func(r *rand.Rand, c *broker.Config)
	// phase, if set, returns weights that replace others in the course of a run.
	phase func(step, steps int) string
}

// numbers holds parameters by name.
type numbers map[string]int

// get returns the number with a name, which must be one of plainNumbers.
func (n numbers) get(name string) int {
	x, known := n[name]
	if !known {
		panic(fmt.Sprintf("sim: no number is called %q", name))
	}
	return x
}

// set sets numbers given as words of the form name=value.
func (n numbers) set(text string) {
	for _, word := range strings.Fields(text) {
		name, value, _ := strings.Cut(word, "=")
		n.get(name)
		var err error
		if n[name], err = strconv.Atoi(value); err != nil {
			panic(err)
		}
	}
}

// plainNumbers are the parameters of clients that only submit, join and respond.
//
// minSteps and maxSteps are the range of the number of commands. ids, types and priorities are
// the numbers of different values in use. They are small, so that commands collide. A run tries
// to keep this number of submitters and workers connected. The ledgers are compared after every
// ledgerEvery commands. maxGroups is the largest number of groups of a job.
//
// The others are chances in percent. sameTime: a command has the same time as the one before it.
// churn: a submit takes a new id. delay to groups: a submit has that option. several: a join lists
// several types. extraSetting: a change of a setting changes another one, too. named and notices: a
// worker asks for prefetch or for notices. If wild is not 0, priorities are spread over all of
// int64.
const plainNumbers = `
	submit=100 respond=70 join=25 gone=8 expelled=3 submitter=3 worker=5 tick=10
	minSteps=40 maxSteps=200 ids=8 types=2 priorities=3 submitters=3 workers=3 ledgerEvery=1 maxGroups=0 sameTime=70 churn=0
	delay=0 timeout=0 backoff=0 expires=0 retries=0 detach=0 quiet=0 progressed=0 keep=0 age=0 headers=0 groups=0
	several=0 extraSetting=0 named=0 notices=0 wild=0`

// allFeatureWeights are the weights for clients that do everything. allFeatures adds the other
// numbers, and lending those for worlds with brokers of a fleet.
const (
	allFeatureWeights = `
	cancel=25 fail=30 progress=12 leave=5 tick=40 pause=3 limit=3 revoke=4 revive=4 revoke-all=1 revive-all=1 forget=1
	attach=4 written=4 change=6 amend=2 release=8 `
	allFeatures = allFeatureWeights + `
	named=50 notices=50 delay=20 timeout=30 backoff=25 expires=25 retries=40 detach=15 quiet=10 progressed=25 keep=10
	age=10 headers=15 several=15 extraSetting=40 sameTime=50 `
	lending = allFeatures + `
	ids=8 types=2 workers=3 submitters=2 borrower=5 lender=4 allot=25 borrow=90 unwant=12 follow=5 return=12 join=40
	release=15 respond=90 minSteps=60 maxSteps=250 `
)

func uniform(lo, hi int) func(*rand.Rand) int {
	return func(r *rand.Rand) int { return lo + r.IntN(hi-lo+1) }
}

// noneOrUpTo returns 0, for no limit, or a limit of n at most.
func noneOrUpTo(r *rand.Rand, n int) int { return r.IntN(2) * (1 + r.IntN(n)) }

func lendingLimits(r *rand.Rand, c *broker.Config) {
	c.MaxJobs, c.MaxTypeJobs, c.MaxSubmitterJobs = noneOrUpTo(r, 12), noneOrUpTo(r, 10), noneOrUpTo(r, 6)
	c.MaxBytes, c.MaxTypeBytes, c.MaxTypes = int64(noneOrUpTo(r, 3000)), int64(noneOrUpTo(r, 2000)), noneOrUpTo(r, 4)
}

// common are the kinds of short runs.
var common = []kind{
	{n: 28, name: "plain"},
	{n: 24, name: "rich", parameters: allFeatures},
	{n: 10, name: "prefetch", parameters: allFeatures + "ids=16 workers=4 types=1 leave=15 respond=100 credit=30", config: func(r *rand.Rand, c *broker.Config) { c.Credit = int64(noneOrUpTo(r, 150)) }},
	{n: 10, name: "time", parameters: allFeatures + "delay=60 timeout=60 backoff=60 expires=60 tick=120 fail=60 sameTime=20"},
	{n: 6, name: "limits", parameters: allFeatures + "pause=20 limit=30 tick=80", config: func(r *rand.Rand, c *broker.Config) {
		c.MaxJobs, c.MaxTypeJobs, c.MaxSubmitterJobs = noneOrUpTo(r, 8), noneOrUpTo(r, 6), noneOrUpTo(r, 5)
		c.MaxBytes, c.MaxTypeBytes, c.MaxSubmitterBytes = int64(noneOrUpTo(r, 1200)), int64(noneOrUpTo(r, 1000)), int64(noneOrUpTo(r, 800))
	}},
	{n: 6, name: "vanishing", parameters: allFeatures + "submitters=6 gone=40 submitter=15 tick=8 ids=5"},
	{n: 5, name: "letters", parameters: allFeatures + "revive=30 fail=90", config: func(r *rand.Rand, c *broker.Config) {
		c.DeadLetters, c.DeadBytes, c.DeadAge = 1+r.IntN(4), 1<<20, []time.Duration{2 * time.Millisecond, time.Second, time.Hour}[r.IntN(3)]
		c.Retries = r.IntN(2)
	}},
	// At most one job fails at a time: the length of the reason counts, and the oracle learns
	// the reason only from the letter.
	{n: 3, name: "letter bytes", parameters: allFeatureWeights + " revive=30 fail=90 backoff=20 delay=20 expires=20 detach=30", config: func(r *rand.Rand, c *broker.Config) {
		c.DeadLetters, c.DeadBytes, c.DeadAge = 1+r.IntN(5), int64(290+r.IntN(1200)), time.Second
		c.Retries = r.IntN(2)
	}},
	{n: 4, name: "types", parameters: allFeatures + "types=10 join=60 pause=10 limit=10 forget=20", config: func(r *rand.Rand, c *broker.Config) {
		c.MaxUnusedTypes = r.IntN(3)
		c.KeptTypes = r.IntN(c.MaxUnusedTypes + 1)
		c.MaxTypes = r.IntN(2) * (2 + r.IntN(6))
	}},
	{n: 8, name: "keep", parameters: allFeatures + "keep=70 submitters=4 ids=10 types=1 attach=40 written=20 gone=20 submitter=12 respond=100 tick=60"},
	{n: 8, name: "several", parameters: allFeatures + "several=80 types=5 workers=5 join=40", config: func(r *rand.Rand, c *broker.Config) {
		c.MaxUnusedTypes, c.MaxTypes = r.IntN(6), r.IntN(2)*(3+r.IntN(6))
	}},
	{n: 8, name: "groups", parameters: allFeatures + "groups=70 maxGroups=3 ids=16 types=3 rule=15 drop-rule=5 tick=60", config: func(r *rand.Rand, c *broker.Config) { c.MaxGroups = noneOrUpTo(r, 4) }},
	{n: 8, name: "fair", parameters: allFeatures + "groups=60 maxGroups=2 ids=20 types=2 fair=20 rule=4 drop-rule=4 submit=140 respond=110 tick=50"},
	{n: 8, name: "lending", parameters: lending, config: lendingLimits},
	{n: 5, name: "rates", parameters: allFeatures + `groups=50 maxGroups=1 ids=24 types=1 workers=2 rule=4 limit=6 pause=0 gone=1 submit=140 release=120
		respond=30 join=40 minSteps=100 maxSteps=300 sameTime=60`},
	// Queues of groups are used again and again, with more priorities than an empty queue keeps
	// lanes for.
	{n: 4, name: "group lanes", parameters: `groups=90 maxGroups=1 ids=60 types=1 priorities=9 submitters=1 workers=2 minSteps=150 maxSteps=300
		gone=1 expelled=0`, phase: func(step, _ int) string {
		if step/30%2 == 1 {
			return "submit=5 respond=400"
		}
		return "submit=400 respond=5"
	}},
	{n: 3, name: "drain", parameters: allFeatures, phase: func(step, steps int) string {
		switch {
		case step > steps*3/4:
			return "expel=10 drain=0"
		case step > steps/2:
			return "drain=10"
		}
		return ""
	}},
	{n: 3, name: "spread", parameters: allFeatures + "submitters=2 workers=6 ids=60 types=26 submit=200 gone=3 minSteps=150 maxSteps=300"},
	{n: 3, name: "many", parameters: allFeatures + "submitters=40 workers=12 ids=60 types=12 submitter=30 minSteps=150 maxSteps=300"},
}

// special holds the kinds of rare runs, most of them long.
var special = []kind{
	// Jobs with groups are lent, and some types are fair.
	{n: 19, name: "lending groups", parameters: lending + "groups=70 maxGroups=3 ids=16 types=3 rule=15 drop-rule=5 fair=3 tick=60", config: lendingLimits},
	{n: 101, name: "lanes", parameters: allFeatures + `ids=400 types=1 priorities=150 churn=70 submitters=2 workers=2 minSteps=400 maxSteps=700 submit=250 gone=3
		ledgerEvery=8`},
	{n: 103, name: "wild", parameters: allFeatures + "wild=1 ids=60 churn=50 minSteps=200 maxSteps=400"},
	{n: 107, name: "old letters", parameters: allFeatures + `revive=60 fail=120 ids=30 churn=60 minSteps=600 maxSteps=900 types=4 retries=10 delay=5
		sameTime=80`, config: func(r *rand.Rand, c *broker.Config) { c.Retries = 0 }},
	{n: 211, name: "long", parameters: allFeatures + "minSteps=2000 maxSteps=4000"},
	{n: 223, name: "big", parameters: allFeatures,
		bodies: func(r *rand.Rand) int { return []int{1, 40 << 10, 128<<10 - 1, 128 << 10, 300 << 10}[r.IntN(5)] },
		config: func(r *rand.Rand, c *broker.Config) {
			c.DeadLetters, c.DeadBytes, c.DeadAge = 3, 1<<20, time.Hour
			c.MaxBytes = 4 << 20
		},
	},
	// Bodies fill slabs. Most jobs end soon and a few stay, so that slabs are compacted.
	{n: 499, name: "slabs", parameters: allFeatures + `ids=3000 churn=95 types=2 submitters=4 workers=3 minSteps=2500 maxSteps=3500 ledgerEvery=64 gone=2 expelled=1
		pause=1 limit=1`,
		bodies: func(r *rand.Rand) int { return []int{100, 20 << 10, 30 << 10}[r.IntN(3)] },
		phase: func(step, steps int) string {
			if step < steps/3 {
				return "submit=200 respond=10 cancel=5"
			}
			return "submit=60 respond=90 cancel=90"
		},
	},
	// Many jobs, which take several chunks of records, then few, so that chunks are given back.
	{n: 997, name: "crowd", parameters: allFeatures + `ids=6000 churn=97 types=3 submitters=5 workers=5 minSteps=9000 maxSteps=10000 ledgerEvery=256
		submitter=3`, phase: func(step, steps int) string {
		if step < steps/2 {
			return "submit=400 respond=10 cancel=5 gone=0"
		}
		return "submit=50 respond=150 cancel=150 gone=3"
	}},
	// A drain is cut short while there are more jobs than one step can end.
	{n: 401, name: "stop", parameters: allFeatures + `ids=4000 churn=99 types=3 submitters=4 workers=4 minSteps=2500 maxSteps=3000 ledgerEvery=256 submit=900
		gone=1 limit=60`, phase: func(step, steps int) string {
		if step > steps-100 {
			return "expel=60"
		}
		return ""
	}},
	// More deadlines are due at a time than one tick handles.
	{n: 983, name: "alarms", parameters: allFeatures + `ids=3000 churn=98 types=2 submitters=3 workers=3 delay=90 expires=50 timeout=50 backoff=10
		minSteps=3000 maxSteps=4000 ledgerEvery=64 submit=600 gone=0 expelled=0 limit=0 sameTime=97`},
}

// kindOf returns the kind of the run of a seed.
func kindOf(seed uint64, r *rand.Rand) *kind {
	for i := range special {
		if seed%special[i].n == 0 {
			return &special[i]
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
	return &common[i]
}

// profileOf returns the profile for the run of a seed.
func profileOf(seed uint64, r *rand.Rand) profile {
	p := profile{kindOf(seed, r), numbers{}}
	for _, v := range verbs {
		p.numbers[v.name] = 0
	}
	for _, word := range strings.Fields(plainNumbers) {
		name, _, _ := strings.Cut(word, "=")
		p.numbers[name] = 0
	}
	p.numbers.set(plainNumbers)
	p.numbers.set(p.parameters)
	return p
}

// configOf returns the core's configuration for a run.
func configOf(p *profile, r *rand.Rand) broker.Config {
	c := broker.Config{
		Retries: r.IntN(4), MaxUnusedTypes: 1000, Seed: r.Uint64(),
		DeadLetters: 100, DeadBytes: 1 << 20, DeadAge: time.Hour, History: 1 << 30,
	}
	if p.config != nil {
		p.config(r, &c)
	}
	return c
}
