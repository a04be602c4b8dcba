package broker

import (
	"bytes"
	"slices"
)

// ruleIndex finds the rules with a * that match a name without trying all of them: by
// the text before the first * or after the last one, whichever is longer.
type ruleIndex struct {
	n                  int // rules
	byPrefix, bySuffix affixIndex
}

// affixIndex finds rules by the prefix, or by the suffix, that all matching names share.
type affixIndex struct {
	rules   map[string][]*rule
	lengths []int // element n is how many keys of rules have n bytes
}

// affixOf returns the map that a rule belongs in, and the text that is its key.
func (x *ruleIndex) affixOf(r *rule) (*affixIndex, string) {
	head, tail := r.pattern.PrefixAndSuffix()
	if len(head) < len(tail) {
		return &x.bySuffix, tail
	}
	return &x.byPrefix, head
}

func (x *ruleIndex) add(r *rule) {
	x.n++
	e, text := x.affixOf(r)
	if e.rules == nil {
		e.rules = map[string][]*rule{}
	}
	e.rules[text] = append(e.rules[text], r)
	if len(e.rules[text]) == 1 {
		if missing := len(text) + 1 - len(e.lengths); missing > 0 {
			e.lengths = append(e.lengths, make([]int, missing)...)
		}
		e.lengths[len(text)]++
	}
}

func (x *ruleIndex) remove(r *rule) {
	x.n--
	e, text := x.affixOf(r)
	e.rules[text] = slices.DeleteFunc(e.rules[text], func(o *rule) bool { return o == r })
	if len(e.rules[text]) == 0 {
		delete(e.rules, text)
		e.lengths[len(text)]--
	}
}

// matching returns the rules that match a name's value, ordered by their patterns.
func (x *ruleIndex) matching(value string) (found []*rule) {
	try := func(rules []*rule) {
		for _, r := range rules {
			if r.pattern.Matches(value) {
				found = append(found, r)
			}
		}
	}
	for n := range min(len(x.byPrefix.lengths), len(value)+1) {
		if x.byPrefix.lengths[n] > 0 {
			try(x.byPrefix.rules[value[:n]])
		}
	}
	for n := range min(len(x.bySuffix.lengths), len(value)+1) {
		if x.bySuffix.lengths[n] > 0 {
			try(x.bySuffix.rules[value[len(value)-n:]])
		}
	}
	slices.SortFunc(found, func(a, b *rule) int { return bytes.Compare(a.Pattern, b.Pattern) })
	return found
}
