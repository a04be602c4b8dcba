package settings

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"gloom/broker"
	"gloom/broker/hub"
	"gloom/broker/wording"
)

// FileLimits are the settings in a file: those of types by their names, and rules of groups by
// their patterns, both in canonical form.
type FileLimits struct {
	Types  map[string]TypeSettings
	Groups map[string]broker.Rule
}

// TypeSettings are the settings of a type.
type TypeSettings struct {
	Limits broker.TypeLimits
	Fair   bool
}

// Limits holds the settings of types and groups from two sources: a file, and operators. Until
// the process ends, a setting of an operator takes precedence over one of the file.
type Limits struct {
	hub      *hub.Hub
	maxTypes int // bounds the types whose settings operators have set

	mu    sync.Mutex
	file  FileLimits
	rules map[string]broker.Rule // rules that operators have set, by pattern
	// limitedTypes and fairTypes are the types whose limits or fairness operators have set.
	limitedTypes, fairTypes map[string]bool
}

// Errors of DropRule.
var (
	ErrNoRule   = errors.New("there is no rule for this pattern")
	ErrFileRule = errors.New("the rule is in the file of limits; remove it there and reload the file (SIGHUP)")
)

// GroupRule is the rule for a pattern. IsFromFile reports whether the rule comes from the file.
type GroupRule struct {
	Pattern string // canonical
	broker.Rule
	IsFromFile bool
}

// NewLimits returns empty limits. maxTypes bounds the types whose settings operators may set.
func NewLimits(h *hub.Hub, maxTypes int) *Limits {
	return &Limits{hub: h, maxTypes: maxTypes, rules: map[string]broker.Rule{}, limitedTypes: map[string]bool{}, fairTypes: map[string]bool{}}
}

// Rule returns the rule in force for exactly this pattern.
func (l *Limits) Rule(pattern string) (GroupRule, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ruleLocked(pattern)
}

func (l *Limits) ruleLocked(pattern string) (GroupRule, bool) {
	if r, ok := l.rules[pattern]; ok {
		return GroupRule{pattern, r, false}, true
	}
	r, ok := l.file.Groups[pattern]
	return GroupRule{pattern, r, true}, ok
}

// Rules returns all rules in force, by pattern.
func (l *Limits) Rules() []GroupRule {
	l.mu.Lock()
	defer l.mu.Unlock()
	patterns := maps.Clone(l.rules)
	maps.Copy(patterns, l.file.Groups)
	out := make([]GroupRule, 0, len(patterns))
	for _, p := range slices.Sorted(maps.Keys(patterns)) {
		r, _ := l.ruleLocked(p)
		out = append(out, r)
	}
	return out
}

// SetRule sets the rule for a pattern until the process ends, and reports whether there
// was none.
func (l *Limits) SetRule(pattern string, r broker.Rule) (created bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, known := l.ruleLocked(pattern)
	if err := l.setRule(pattern, r); err != nil {
		return false, err
	}
	l.rules[pattern] = r
	return !known, nil
}

// DropRule removes an operator's rule. If the file has a rule for the pattern, the file's rule
// is in force again. If operators have set no rule for it, it returns ErrFileRule or ErrNoRule.
func (l *Limits) DropRule(pattern string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	old, known := l.ruleLocked(pattern)
	switch {
	case !known:
		return ErrNoRule
	case old.IsFromFile:
		return ErrFileRule
	}
	delete(l.rules, pattern)
	if r, ok := l.file.Groups[pattern]; ok {
		return l.setRule(pattern, r)
	}
	return l.apply(&broker.Settings{Drop: [][]byte{[]byte(pattern)}})
}

func (l *Limits) setRule(pattern string, r broker.Rule) error {
	return l.apply(&broker.Settings{Rules: []broker.RuleInfo{{Pattern: []byte(pattern), Rule: r}}})
}

// SetTypeLimits sets the limits of a type until the process ends.
func (l *Limits) SetTypeLimits(name string, limits broker.TypeLimits) error {
	return l.setType(l.limitedTypes, broker.TypeSetting{Name: []byte(name), Limits: &limits})
}

// SetFair sets whether the tenants of a type take turns, until the process ends.
func (l *Limits) SetFair(name string, fair bool) error {
	return l.setType(l.fairTypes, broker.TypeSetting{Name: []byte(name), Fair: &fair})
}

func (l *Limits) setType(set map[string]bool, t broker.TypeSetting) error {
	name := string(t.Name)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !set[name] && len(set) >= l.maxTypes {
		return &wording.SettingError{Type: t.Name, Reason: fmt.Sprintf("%d types have settings already, and no more are allowed (max-types)", len(set))}
	}
	if err := l.apply(&broker.Settings{Types: []broker.TypeSetting{t}}); err != nil {
		return err
	}
	set[name] = true
	return nil
}

// Load replaces the settings of the file. On an error, a *wording.SettingError, nothing
// changes.
func (l *Limits) Load(f FileLimits) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.file
	var s broker.Settings
	for p := range before.Groups {
		if !hasKey(f.Groups, p) && !hasKey(l.rules, p) {
			s.Drop = append(s.Drop, []byte(p))
		}
	}
	for _, p := range slices.Sorted(maps.Keys(f.Groups)) {
		beforeSettings, known := before.Groups[p]
		if after := f.Groups[p]; (!known || beforeSettings != after) && !hasKey(l.rules, p) {
			s.Rules = append(s.Rules, broker.RuleInfo{Pattern: []byte(p), Rule: after})
		}
	}
	names := maps.Clone(before.Types)
	if names == nil {
		names = map[string]TypeSettings{}
	}
	maps.Copy(names, f.Types)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		beforeSettings, after := before.Types[name], f.Types[name]
		t := broker.TypeSetting{Name: []byte(name)}
		if beforeSettings.Limits != after.Limits && !l.limitedTypes[name] {
			t.Limits = &after.Limits
		}
		if beforeSettings.Fair != after.Fair && !l.fairTypes[name] {
			t.Fair = &after.Fair
		}
		if t.Limits != nil || t.Fair != nil {
			s.Types = append(s.Types, t)
		}
	}
	err := l.apply(&s)
	if err == nil {
		l.file = f
	}
	return err
}

func (l *Limits) apply(s *broker.Settings) (err error) {
	l.hub.Do(func(b *broker.Broker, now int64) []broker.Effect {
		fx, refusal := b.Configure(now, s)
		err = wording.SettingErrorOf(refusal)
		return fx
	})
	return err
}

func hasKey[V any](m map[string]V, key string) bool {
	_, ok := m[key]
	return ok
}
