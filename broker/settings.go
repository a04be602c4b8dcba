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

// Configure applies all settings before any job is handed out. If a setting must be refused,
// Configure applies no setting and returns the refused setting.
func (b *Broker) Configure(now int64, s *Settings) ([]Effect, *BadSetting) {
	b.begin(now)
	if refusal := b.check(s); refusal != nil {
		return b.end(), refusal
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
		rules += n
		if !pattern.IsPlain() {
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
	newTypes, lastName := 0, []byte(nil)
	for i := range s.Types {
		setting := &s.Types[i]
		if l := setting.Limits; l != nil {
			r := Rule{int64(l.Concurrency), l.Rate, int64(l.Burst)}
			if why := r.check(0); why != 0 {
				return &BadSetting{Type: setting.Name, Rule: r, Reason: Reason{Why: why}}
			}
		}
		n := b.usedTypesDelta(setting)
		newTypes += n
		if n > 0 {
			lastName = setting.Name
		}
	}
	if b.hasNoRoomForTypes(newTypes) {
		return &BadSetting{Type: lastName, Reason: b.tooManyTypes()}
	}
	return nil
}

// usedTypesDelta returns +1 if a setting brings an unused type into use, -1 if it ends the use of a
// type, and 0 otherwise.
func (b *Broker) usedTypesDelta(setting *TypeSetting) int {
	jt := b.typesByName[string(setting.Name)]
	if jt == nil || jt.unusedRing != nil {
		return +1
	}
	if limits, fair := setting.resultFor(jt); jt.hasSettings() && !jt.isBusy() && limits == (TypeLimits{}) && !fair {
		return -1
	}
	return 0
}

// resultFor returns the limits and the fairness that type jt will have after the setting.
func (setting *TypeSetting) resultFor(jt *jobType) (TypeLimits, bool) {
	limits, fair := jt.limits, jt.fair
	if setting.Limits != nil {
		limits = *setting.Limits
	}
	if setting.Fair != nil {
		fair = *setting.Fair
	}
	return limits, fair
}

func (b *Broker) setType(setting *TypeSetting) {
	jt := b.typeFor(setting.Name)
	limits, fair := setting.resultFor(jt)
	if setting.Limits != nil {
		jt.limits, jt.pace, jt.rate = limits, limits.pace(), bucket{rateSetAt: b.now}
		if jt.runningHere() == 0 {
			jt.rate.rateSetAt-- // no job of the type is out, so a job that starts at this very time counts
		}
		b.stopTimer(&jt.timerPos)
	}
	if setting.Paused != nil {
		jt.paused = *setting.Paused
	}
	if jt.fair != fair {
		jt.fair = fair
		b.changeFairness(jt)
	}
	b.markForMatching(jt)
	b.updateUnusedRing(jt)
}
