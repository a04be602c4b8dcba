package broker

import (
	"cmp"
	"slices"
	"strings"
)

// ruleIndex finds the rules with a * that a name may fit without trying all of them: by the
// text before the first * or behind the last one, whichever is longer.
type ruleIndex struct{ byHead, byTail prefixes }

// prefixes finds, among many rules, those whose prefix begins a name.
type prefixes struct {
	all []prefix // by text
}

// prefix is a text and the rules that have it. within is the index of the longest other one
// that it begins with, or -1.
type prefix struct {
	text   string
	rules  []*rule
	within int
}

// newRuleIndex indexes rules with a *.
func newRuleIndex(rules []*rule) (x ruleIndex) {
	for _, r := range rules {
		if head, tail := r.like.Ends(); len(head) >= len(tail) {
			x.byHead.all = append(x.byHead.all, prefix{text: head, rules: []*rule{r}})
		} else {
			x.byTail.all = append(x.byTail.all, prefix{text: reversed(tail), rules: []*rule{r}})
		}
	}
	x.byHead.settle()
	x.byTail.settle()
	return x
}

// settle sorts, merges equal texts and fills in within.
func (x *prefixes) settle() {
	slices.SortStableFunc(x.all, func(a, b prefix) int { return strings.Compare(a.text, b.text) })
	kept := x.all[:0]
	for _, p := range x.all {
		if n := len(kept); n > 0 && kept[n-1].text == p.text {
			kept[n-1].rules = append(kept[n-1].rules, p.rules...)
			continue
		}
		p.within = len(kept) - 1
		for p.within >= 0 && !strings.HasPrefix(p.text, kept[p.within].text) {
			p.within = kept[p.within].within
		}
		kept = append(kept, p)
	}
	x.all = kept
}

// each calls fn for the rules whose prefix begins a name. In sorted order, everything
// between such a prefix and the name also begins with that prefix, so all of them are found
// from the last prefix that does not sort after the name.
func (x *prefixes) each(name string, fn func(*rule)) {
	i, found := slices.BinarySearchFunc(x.all, name, func(p prefix, name string) int { return strings.Compare(p.text, name) })
	if !found {
		i--
	}
	for ; i >= 0; i = x.all[i].within {
		if strings.HasPrefix(name, x.all[i].text) {
			for _, r := range x.all[i].rules {
				fn(r)
			}
		}
	}
}

// fitting returns the rules that a name's value fits, in the order in which they were
// first set.
func (x *ruleIndex) fitting(value string) (found []*rule) {
	fit := func(r *rule) {
		if r.like.Fits(value) {
			found = append(found, r)
		}
	}
	x.byHead.each(value, fit)
	if len(x.byTail.all) > 0 {
		x.byTail.each(reversed(value), fit)
	}
	if len(found) > 1 {
		slices.SortFunc(found, func(a, b *rule) int { return cmp.Compare(a.no, b.no) })
	}
	return found
}

// reversed returns the bytes of a text in reverse order.
func reversed(s string) string {
	b := []byte(s)
	slices.Reverse(b)
	return string(b)
}
