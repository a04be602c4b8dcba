package broker

import (
	"bytes"
	"slices"

	"gloom/wire"
)

// Rule limits every group that matches a pattern, each group separately.
type Rule struct {
	// Concurrency limits the jobs of the group that run at a time. 0 holds back all jobs of the
	// group, and -1 sets no limit.
	Concurrency int64
	// Rate limits the jobs that are handed out per second; 0 sets no limit. Burst limits the jobs
	// that are handed out at once after a pause; 0 stands for the rate, but at least 1.
	Rate  float64
	Burst int64
}

// RuleInfo is a rule and the pattern of the groups that it limits.
type RuleInfo struct {
	Pattern []byte
	Rule
}

// rule is a RuleInfo that has been set. A rule never changes: a group has the old rule until it
// gets the new one.
type rule struct {
	RuleInfo
	pattern wire.Pattern
	pace
}

// The fields of a Rule may not exceed these values.
const (
	MaxConcurrency = 1e9
	MaxRate        = 1e9
	MaxBurst       = 1e6
)

const (
	// MaxWildcardRules bounds the rules with a *, since a new group may match any of them.
	// maxRules bounds all rules.
	MaxWildcardRules = 1000
	maxRules         = 100_000
)

// check returns which part of a rule is out of range, or 0. minConcurrency is the smallest
// Concurrency that is allowed: -1 for a rule, 0 for the limits of a type.
func (r *Rule) check(minConcurrency int64) Why {
	switch {
	case r.Concurrency < minConcurrency || r.Concurrency > MaxConcurrency:
		return WhyBadConcurrency
	case !(r.Rate >= 0 && r.Rate <= MaxRate):
		return WhyBadRate
	case r.Burst < 0 || r.Burst > MaxBurst:
		return WhyBadBurst
	case r.Burst > 0 && r.Rate == 0:
		return WhyBurstWithoutRate
	case r.Concurrency < 0 && r.Rate == 0:
		return WhyEmptyRule
	}
	return 0
}

func (b *Broker) setRule(info *RuleInfo) *rule {
	b.dropRule(info.Pattern)
	r := &rule{RuleInfo{bytes.Clone(info.Pattern), info.Rule}, wire.NewPattern(info.Pattern), newPace(info.Rate, info.burst())}
	b.rules[string(info.Pattern)] = r
	if !r.pattern.IsPlain() {
		b.wildcardRules.add(r)
	}
	return r
}

// dropRule removes the rule with this pattern and returns it, or nil.
func (b *Broker) dropRule(pattern []byte) *rule {
	r := b.rules[string(pattern)]
	if r != nil && !r.pattern.IsPlain() {
		b.wildcardRules.remove(r)
	}
	delete(b.rules, string(pattern))
	return r
}

// revision is the chore that applies changed rules with a * to the groups that match.
type revision struct {
	rules []*rule
	next  int
}

// reviseGroups applies changed rules to all groups that match.
func (b *Broker) reviseGroups(changed []*rule) {
	b.rulesVersion++
	var withWildcard []*rule
	for _, r := range changed {
		if !r.pattern.IsPlain() {
			withWildcard = append(withWildcard, r)
		} else if g := b.findGroup(r.Pattern); g != nil {
			b.applyRules(g)
		}
	}
	if len(withWildcard) > 0 {
		b.revisionsInProgress++
		b.chores.add(&revision{rules: withWildcard})
	}
}

func (r *revision) step(b *Broker) (cost int, done bool) {
	if r.next >= len(b.groups.All()) {
		b.revisionsInProgress--
		return 1, true
	}
	g := b.groups.All()[r.next]
	r.next++
	if g == nil {
		return 1, false
	}
	name := wire.Value(g.name)
	cost = len(r.rules)
	if slices.ContainsFunc(r.rules, func(r *rule) bool { return r.pattern.Matches(name) }) {
		b.applyRules(g)
		cost += recordVisits
	}
	return cost, false
}

// applyNewRules applies the current rules to the groups of a set, before a job with that set is
// handed out.
func (b *Broker) applyNewRules(s *groupSet) {
	for _, g := range s.groups {
		if g.rulesVersion != b.rulesVersion {
			b.applyRules(g)
		}
	}
}

// applyRules sets a group's limits to those of the rules. If the group already had a limit of the
// same rule, that limit keeps its tokens, up to the new burst.
func (b *Broker) applyRules(g *group) {
	g.rulesVersion = b.rulesVersion
	var limits []limit
	set := b.now
	if !g.counted {
		set-- // no job of the group is out, so a job that starts at this very time counts
	}
	add := func(r *rule) {
		l := limit{r, bucket{rateSetAt: set}}
		for i := range g.limits {
			if old := &g.limits[i]; bytes.Equal(old.rule.Pattern, r.Pattern) && g.counted {
				l.bucket = b.bucketAfter(old, r)
			}
		}
		limits = append(limits, l)
	}
	if r := b.rules[string(g.name)]; r != nil && r.pattern.IsPlain() {
		add(r)
	}
	if b.wildcardRules.n > 0 {
		for _, r := range b.wildcardRules.matching(wire.Value(g.name)) {
			add(r)
		}
	}
	b.limitSlots += int64(cap(limits) - cap(g.limits))
	g.limits = limits
	if g.setCount > 0 || g.counted {
		b.updateGroup(g)
	}
}

// bucketAfter returns the bucket after a rule has changed. Without a rate before or after the
// change, it is a new bucket.
func (b *Broker) bucketAfter(old *limit, new *rule) bucket {
	switch oldRule := old.rule; {
	case new.Rate == 0 || oldRule.Rate == 0:
		return bucket{rateSetAt: b.now}
	case oldRule.Rate == new.Rate && oldRule.Burst == new.Burst:
		return old.bucket
	default:
		usedTokens := float64(old.used(b.now)) / float64(oldRule.step)
		tokens := min(new.burst(), oldRule.burst()-usedTokens)
		return bucket{rateSetAt: b.now, fullAt: b.now + int64(min((new.burst()-tokens)*float64(new.step), 4e18))}
	}
}
