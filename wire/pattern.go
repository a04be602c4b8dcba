package wire

import "strings"

// Pattern is a name in which * stands for any number of characters, including none.
type Pattern struct {
	// head and tail are the parts before the first * and after the last one, mid has the
	// parts in between. Without a *, head is the whole name.
	head, mid, tail string
	star            bool
	minLen          int // how many bytes a matching value must have at least
}

// NewPattern reads a pattern from a canonical name.
func NewPattern(canonical []byte) Pattern {
	head, rest, star := strings.Cut(Value(canonical), "*")
	for strings.Contains(rest, "**") { // several * in a row mean the same as one
		rest = strings.ReplaceAll(rest, "**", "*")
	}
	p := Pattern{head: head, star: star, minLen: len(head) + len(rest) - strings.Count(rest, "*")}
	if last := strings.LastIndexByte(rest, '*'); last >= 0 {
		p.mid, p.tail = rest[:last], rest[last+1:]
	} else {
		p.tail = rest
	}
	return p
}

// Plain reports whether the pattern has no *, so that it matches only itself.
func (p *Pattern) Plain() bool { return !p.star }

// Ends returns the prefix and the suffix that all matching values have.
func (p *Pattern) Ends() (head, tail string) { return p.head, p.tail }

// Fits reports whether a value, as returned by Value, matches the pattern. Its time is at
// most proportional to the lengths of both.
func (p *Pattern) Fits(value string) bool {
	switch {
	case len(value) < p.minLen || !strings.HasPrefix(value, p.head):
		return false
	case !p.star:
		return len(value) == p.minLen
	case !strings.HasSuffix(value, p.tail):
		return false
	}
	value = value[len(p.head) : len(value)-len(p.tail)]
	for part, rest := "", p.mid; rest != ""; {
		part, rest, _ = strings.Cut(rest, "*")
		i := strings.Index(value, part)
		if i < 0 {
			return false
		}
		value = value[i+len(part):]
	}
	return true
}
