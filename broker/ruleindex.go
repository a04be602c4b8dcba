package broker

import (
	"bytes"
	"slices"
)

// ruleIndex finds the rules with a * that match a name, without trying all rules. It finds a rule
// by the text before the first * or after the last *, whichever is longer.
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
func (ix *ruleIndex) affixOf(r *rule) (*affixIndex, string) {
	head, tail := r.pattern.PrefixAndSuffix()
	if len(head) < len(tail) {
		return &ix.bySuffix, tail
	}
	return &ix.byPrefix, head
}

func (ix *ruleIndex) add(r *rule) {
	ix.n++
	affixes, text := ix.affixOf(r)
	if affixes.rules == nil {
		affixes.rules = map[string][]*rule{}
	}
	affixes.rules[text] = append(affixes.rules[text], r)
	if len(affixes.rules[text]) == 1 {
		if missingLengths := len(text) + 1 - len(affixes.lengths); missingLengths > 0 {
			affixes.lengths = append(affixes.lengths, make([]int, missingLengths)...)
		}
		affixes.lengths[len(text)]++
	}
}

func (ix *ruleIndex) remove(r *rule) {
	ix.n--
	affixes, text := ix.affixOf(r)
	affixes.rules[text] = slices.DeleteFunc(affixes.rules[text], func(o *rule) bool { return o == r })
	if len(affixes.rules[text]) == 0 {
		delete(affixes.rules, text)
		affixes.lengths[len(text)]--
	}
}

// matching returns the rules that match a name's value, ordered by their patterns.
func (ix *ruleIndex) matching(value string) (found []*rule) {
	tryRules := func(rules []*rule) {
		for _, r := range rules {
			if r.pattern.Matches(value) {
				found = append(found, r)
			}
		}
	}
	for n := range min(len(ix.byPrefix.lengths), len(value)+1) {
		if ix.byPrefix.lengths[n] > 0 {
			tryRules(ix.byPrefix.rules[value[:n]])
		}
	}
	for n := range min(len(ix.bySuffix.lengths), len(value)+1) {
		if ix.bySuffix.lengths[n] > 0 {
			tryRules(ix.bySuffix.rules[value[len(value)-n:]])
		}
	}
	slices.SortFunc(found, func(a, b *rule) int { return bytes.Compare(a.Pattern, b.Pattern) })
	return found
}
