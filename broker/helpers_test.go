package broker

import (
	"bytes"
	"slices"
)

// SetRule sets one rule, and reports whether there was none for the pattern before.
func (b *Broker) SetRule(now int64, pattern []byte, q Rule) (effects []Effect, created bool, refusal *BadSetting) {
	created = b.rules[string(pattern)] == nil
	effects, refusal = b.Configure(now, &Settings{Rules: []RuleInfo{{pattern, q}}})
	return effects, created && refusal == nil, refusal
}

// DropRule removes a rule, and reports whether the rule existed.
func (b *Broker) DropRule(now int64, pattern []byte) ([]Effect, bool) {
	there := b.rules[string(pattern)] != nil
	effects, _ := b.Configure(now, &Settings{Drop: [][]byte{pattern}})
	return effects, there
}

// SetFair sets whether tenants take turns in one type.
func (b *Broker) SetFair(now int64, name []byte, fair bool) ([]Effect, *BadSetting) {
	return b.Configure(now, &Settings{Types: []TypeSetting{{Name: name, Fair: &fair}}})
}

// Pause pauses one type, or ends its pause.
func (b *Broker) Pause(now int64, name []byte, pause bool) ([]Effect, *BadSetting) {
	return b.Configure(now, &Settings{Types: []TypeSetting{{Name: name, Paused: &pause}}})
}

// Limit sets the limits of one type.
func (b *Broker) Limit(now int64, name []byte, l TypeLimits) ([]Effect, *BadSetting) {
	return b.Configure(now, &Settings{Types: []TypeSetting{{Name: name, Limits: &l}}})
}

// Rules lists all rules by pattern.
func (b *Broker) Rules() []RuleInfo {
	infos := make([]RuleInfo, 0, len(b.rules))
	for _, r := range b.rules {
		infos = append(infos, r.RuleInfo)
	}
	slices.SortFunc(infos, func(x, y RuleInfo) int { return bytes.Compare(x.Pattern, y.Pattern) })
	return infos
}

// Groups returns up to limit of the busiest groups, in one call.
func (b *Broker) Groups(limit int) []GroupInfo {
	l := GroupLook{Limit: limit}
	for b.LookGroups(&l) {
	}
	return l.Infos(nil)
}

// ForgottenTotals returns the counts of types that have been forgotten.
func (b *Broker) ForgottenTotals() Ledger { return b.forgottenTotals }
