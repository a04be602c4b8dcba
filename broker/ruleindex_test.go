package broker

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"gloom/wire"
)

// TestRuleIndexAgainstAllRules compares what the index finds with the result of trying all rules.
func TestRuleIndexAgainstAllRules(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	word := func(letters string, limit int) string {
		b := make([]byte, 1+rng.IntN(limit))
		for i := range b {
			b[i] = letters[rng.IntN(len(letters))]
		}
		return string(b)
	}
	matchCount := 0
	for range scaleDown(2000, 300) {
		var rules []*rule
		var x ruleIndex
		knownPatterns := map[string]bool{}
		for range rng.IntN(60) {
			text := word("ab*\xff", 6)
			if pattern := wire.NewPattern([]byte(text)); !pattern.IsPlain() && !knownPatterns[text] {
				knownPatterns[text] = true
				rules = append(rules, &rule{RuleInfo: RuleInfo{Pattern: []byte(text)}, pattern: pattern})
				x.add(rules[len(rules)-1])
			}
		}
		slices.SortFunc(rules, func(a, b *rule) int { return bytes.Compare(a.Pattern, b.Pattern) })
		rules = slices.DeleteFunc(rules, func(r *rule) bool {
			gone := rng.IntN(8) == 0
			if gone {
				x.remove(r)
			}
			return gone
		})
		for range 50 {
			value := word("ab\xff", 7)
			var want []*rule
			for _, r := range rules {
				if r.pattern.Matches(value) {
					want = append(want, r)
				}
			}
			if got := x.matching(value); !slices.Equal(got, want) {
				t.Fatalf("%q fits %d rules, the index finds %d of %d", value, len(want), len(got), len(rules))
			}
			matchCount += len(want)
		}
	}
	if matchCount < 10_000 {
		t.Errorf("only %d rules fit", matchCount)
	}
}
