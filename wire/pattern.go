package wire

import "strings"

// Pattern is a name in which * stands for any number of characters, including none.
type Pattern struct {
	// prefix is the part before the first *, suffix is the part after the last *, and middle is the
	// text in between. Without a *, prefix is the whole name.
	prefix, middle, suffix string
	hasStar                bool
	minLen                 int // the length in bytes of the shortest value that can match
}

// NewPattern reads a pattern from a canonical name.
func NewPattern(canonical []byte) Pattern {
	head, rest, star := strings.Cut(Value(canonical), "*")
	for strings.Contains(rest, "**") { // several * in a row mean the same as one
		rest = strings.ReplaceAll(rest, "**", "*")
	}
	p := Pattern{prefix: head, hasStar: star, minLen: len(head) + len(rest) - strings.Count(rest, "*")}
	if lastStar := strings.LastIndexByte(rest, '*'); lastStar >= 0 {
		p.middle, p.suffix = rest[:lastStar], rest[lastStar+1:]
	} else {
		p.suffix = rest
	}
	return p
}

// IsPlain reports whether the pattern has no *, so that it matches only itself.
func (p *Pattern) IsPlain() bool { return !p.hasStar }

// PrefixAndSuffix returns the prefix and the suffix that all matching values have.
func (p *Pattern) PrefixAndSuffix() (head, tail string) { return p.prefix, p.suffix }

// Matches reports whether a value, as returned by Value, matches the pattern. Its time is at
// most proportional to the lengths of both.
func (p *Pattern) Matches(value string) bool {
	switch {
	case len(value) < p.minLen || !strings.HasPrefix(value, p.prefix):
		return false
	case !p.hasStar:
		return len(value) == p.minLen
	case !strings.HasSuffix(value, p.suffix):
		return false
	}
	value = value[len(p.prefix) : len(value)-len(p.suffix)]
	for part, rest := "", p.middle; rest != ""; {
		part, rest, _ = strings.Cut(rest, "*")
		i := strings.Index(value, part)
		if i < 0 {
			return false
		}
		value = value[i+len(part):]
	}
	return true
}
