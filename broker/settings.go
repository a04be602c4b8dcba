package broker

import "gloom/wire"

// Settings are rules of groups and settings of types that change together.
type Settings struct {
	Rules []RuleInfo // to be set
	Drop  [][]byte   // patterns of rules to be removed; none of them may be in Rules
	Types []TypeSetting
}

// TypeSetting is a change of the settings of one type, which need not be known yet. A field that is
// nil changes nothing.
type TypeSetting struct {
	Name   []byte
	Limits *TypeLimits
	Fair   *bool // tenants take turns
	Paused *bool // no job of the type may start
}

// BadSetting is a setting that is refused: a rule, or a setting of a type.
type BadSetting struct {
	Pattern, Type []byte // the pattern of the rule, or the name of the type; the other one is nil
	Rule                 // the rule as it was given
	Reason        Reason
}

// Configure applies all settings before any job is handed out. If one of them must be refused,
// Configure applies none and returns that one.
func (b *Broker) Configure(now int64, s *Settings) ([]Effect, *BadSetting) {
	b.begin(now)
	if bad := b.check(s); bad != nil {
		return b.end(), bad
	}
	var changed []*rule
	for _, pattern := range s.Drop {
		if r := b.dropRule(pattern); r != nil {
			changed = append(changed, r)
		}
	}
	for i := range s.Rules {
		changed = append(changed, b.setRule(&s.Rules[i]))
	}
	b.reviseGroups(changed)
	for i := range s.Types {
		b.setType(&s.Types[i])
	}
	return b.end(), nil
}

// check returns the first setting that must be refused, or nil.
func (b *Broker) check(s *Settings) *BadSetting {
	rules, wildcardRules := len(b.rules), b.wildcardRules.n
	count := func(pattern wire.Pattern, n int) {
		if rules += n; !pattern.IsPlain() {
			wildcardRules += n
		}
	}
	for _, pattern := range s.Drop {
		if r := b.rules[string(pattern)]; r != nil {
			count(r.pattern, -1)
		}
	}
	for i := range s.Rules {
		r := &s.Rules[i]
		if why := r.check(-1); why != 0 {
			return &BadSetting{Pattern: r.Pattern, Rule: r.Rule, Reason: Reason{Why: why}}
		}
		if b.rules[string(r.Pattern)] == nil {
			count(wire.NewPattern(r.Pattern), +1)
		}
		if rules > maxRules || wildcardRules > MaxWildcardRules {
			return &BadSetting{Pattern: r.Pattern, Reason: Reason{Why: WhyTooManyRules, Limit: maxRules, Need: MaxWildcardRules}}
		}
	}
	newTypes, last := 0, []byte(nil)
	for i := range s.Types {
		t := &s.Types[i]
		if l := t.Limits; l != nil {
			r := Rule{int64(l.Concurrency), l.Rate, int64(l.Burst)}
			if why := r.check(0); why != 0 {
				return &BadSetting{Type: t.Name, Rule: r, Reason: Reason{Why: why}}
			}
		}
		n := b.addedTypes(t)
		if newTypes += n; n > 0 {
			last = t.Name
		}
	}
	if b.hasNoRoomForTypes(newTypes) {
		return &BadSetting{Type: last, Reason: b.tooManyTypes()}
	}
	return nil
}

// addedTypes returns +1 if a setting brings an unused type into use, -1 if it ends the use of a
// type, and 0 otherwise.
func (b *Broker) addedTypes(t *TypeSetting) int {
	k := b.typesByName[string(t.Name)]
	if k == nil || k.unusedIn != nil {
		return +1
	}
	if limits, fair := t.resultFor(k); k.hasSettings() && !k.isBusy() && limits == (TypeLimits{}) && !fair {
		return -1
	}
	return 0
}

// resultFor returns the limits and the fairness that type k will have after the setting.
func (t *TypeSetting) resultFor(k *jobType) (TypeLimits, bool) {
	limits, fair := k.limits, k.fair
	if t.Limits != nil {
		limits = *t.Limits
	}
	if t.Fair != nil {
		fair = *t.Fair
	}
	return limits, fair
}

func (b *Broker) setType(t *TypeSetting) {
	k := b.typeFor(t.Name)
	limits, fair := t.resultFor(k)
	if t.Limits != nil {
		k.limits, k.pace, k.rate = limits, limits.pace(), bucket{rateSetAt: b.now}
		if k.runningHere() == 0 {
			k.rate.rateSetAt-- // no job of the type is out, so a job that starts at this very time counts
		}
		b.stopTimer(&k.timerPos)
	}
	if t.Paused != nil {
		k.paused = *t.Paused
	}
	if k.fair != fair {
		k.fair = fair
		b.changeFairness(k)
	}
	b.markTouched(k)
	b.reviewUse(k)
}
