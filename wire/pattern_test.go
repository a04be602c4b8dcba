package wire

import (
	"math/rand/v2"
	"strings"
	"testing"
)

func TestPatternMatchesNames(t *testing.T) {
	for _, c := range []struct {
		pattern, value string
		want           bool
	}{
		{"mail", "mail", true}, {"mail", "mails", false}, {"*", "x", true}, {"****", "x", true},
		{"mail-*", "mail-", true}, {"mail-*", "mail-a", true}, {"mail-*", "mail", false},
		{"a*a", "a", false}, {"a*a", "aa", true}, {"a*b*c", "abc", true}, {"a*b*c", "acb", false},
		{"*ab*ab*", "abab", true}, {"*ab*ab*", "abaab", true}, {"*ab*ab*", "aba", false},
		{"*n", "\n", false}, {`*"*`, `say "x"`, true}, {`*\*`, `"`, false}, {"é*", "\u00e9t\u00e9", true},
	} {
		p := NewPattern(Canonical(nil, c.pattern))
		if got := p.Matches(Value(Canonical(nil, c.value))); got != c.want {
			t.Errorf("%q fits %q: %v, want %v", c.value, c.pattern, got, c.want)
		}
	}
}

// slowMatches reports whether a value matches a pattern, by trying every way in which it might.
func slowMatches(pattern, value string) bool {
	switch {
	case pattern == "":
		return value == ""
	case pattern[0] == '*':
		return slowMatches(pattern[1:], value) || value != "" && slowMatches(pattern, value[1:])
	}
	return value != "" && value[0] == pattern[0] && slowMatches(pattern[1:], value[1:])
}

func TestPatternAgainstSlow(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	word := func(letters string) string {
		var s strings.Builder
		for range 1 + r.IntN(8) {
			s.WriteByte(letters[r.IntN(len(letters))])
		}
		return s.String()
	}
	matches := 0
	for range 50_000 {
		pattern, value := word("ab*"), word("ab")
		p := NewPattern([]byte(pattern))
		got, want := p.Matches(value), slowMatches(pattern, value)
		if got != want || p.IsPlain() == strings.Contains(pattern, "*") {
			t.Fatalf("%q fits %q: %v, want %v", value, pattern, got, want)
		}
		if got {
			matches++
		}
	}
	if matches < 5000 {
		t.Errorf("only %d values fit", matches)
	}
}

// BenchmarkPattern matches the slowest cases: many stars and long names.
func BenchmarkPattern(b *testing.B) {
	value := strings.Repeat("a", 1024)
	for _, pattern := range []string{strings.Repeat("*", 1024), strings.Repeat("*a", 511) + "b", "*" + strings.Repeat("a", 500) + "b*", strings.Repeat("*aab", 200)} {
		p := NewPattern([]byte(pattern))
		b.Run(pattern[:8], func(b *testing.B) {
			for range b.N {
				p.Matches(value)
			}
		})
	}
}
