package store

import (
	"strings"
	"unicode/utf8"
)

// cutToFit makes a text fit a column. It replaces characters outside the column's charset, as far
// as we know them. It cuts a text that is too long between two characters, and marks the cut. limit
// bounds the text, too, in bytes of UTF-8.
func (c column) cutToFit(s string, limit int64) (text string, truncated bool) {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if c.charset == "utf8" || c.charset == "utf8mb3" {
		s = replaceAstral(s)
	}
	if room := c.maxBytes / c.growthFactor(); c.maxBytes > 0 && room < limit {
		limit = room
	}
	if int64(len(s)) > limit {
		s, truncated = shorten(s, limit), true
	}
	if c.maxChars > 0 && int64(len(s)) > c.maxChars && int64(utf8.RuneCountInString(s)) > c.maxChars {
		at, n := 0, int64(0)
		for at = range s {
			if n == c.maxChars {
				break
			}
			n++
		}
		s, truncated = s[:at], true
	}
	return s, truncated
}

// growthFactor returns the factor by which a UTF-8 text can grow in the charset.
func (c column) growthFactor() int64 {
	switch {
	case strings.HasPrefix(c.charset, "utf32"):
		return 4
	case strings.HasPrefix(c.charset, "utf16"), strings.HasPrefix(c.charset, "ucs2"):
		return 2
	}
	return 1
}

// isUTF8 reports whether the column has a text's bytes as they are.
func (c column) isUTF8() bool {
	switch c.charset {
	case "", "utf8", "utf8mb3", "utf8mb4":
		return true
	}
	return false
}

// storedLen returns what the SQL function lenFunction returns for a text in this column.
func (c column) storedLen(s string) int64 {
	if c.isUTF8() {
		return int64(len(s))
	}
	return int64(utf8.RuneCountInString(s))
}

func (c column) lenFunction() string {
	if c.isUTF8() {
		return "LENGTH"
	}
	return "CHAR_LENGTH"
}

// placeholder returns the SQL for a text of this column. An explicit conversion replaces characters
// that the charset lacks; an implicit one cuts the text at the first.
func (c column) placeholder() string {
	if c.isUTF8() {
		return "?"
	}
	return "CONVERT(? USING " + c.charset + ")"
}

// pattern returns the SQL for a text that is compared with this column. Both the conversion and the
// collation are explicit, because the server refuses an implicit conversion that loses characters, and
// texts of two collations.
func (c column) pattern() string {
	if c.charset == "" {
		return "?"
	}
	return "CONVERT(? USING " + c.charset + ") COLLATE " + c.collation
}

// replaceAstral replaces the characters beyond the basic plane, which MySQL's utf8 cannot hold.
func replaceAstral(s string) string {
	for _, r := range s {
		if r > 0xFFFF {
			return strings.Map(func(r rune) rune {
				if r > 0xFFFF {
					return utf8.RuneError
				}
				return r
			}, s)
		}
	}
	return s
}

// cutMark ends a text that was cut.
const cutMark = "\n[cut to fit the database]"

// shorten cuts a text to limit bytes, cutMark included.
func shorten(s string, limit int64) string {
	return Shorten(strings.TrimSuffix(s, cutMark), limit, cutMark)
}

// Shorten cuts a text between two characters to at most limit bytes. It ends with the mark if there
// is room for it.
func Shorten(s string, limit int64, mark string) string {
	if int64(len(mark)) > limit/2 {
		mark = ""
	}
	end := min(max(limit-int64(len(mark)), 0), int64(len(s)))
	for end > 0 && end < int64(len(s)) && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + mark
}

// escapedLen returns how many bytes a text takes in a statement.
func escapedLen(s string) int64 {
	n := int64(len(s)) + 2
	for i := range len(s) {
		switch s[i] {
		case 0, '\n', '\r', '\x1a', '\'', '"', '\\':
			n++
		}
	}
	return n
}

// fitPacket cuts two texts until both fit into one statement of packet bytes. Each text gets at
// least half of the packet.
func fitPacket(a, b string, packet int64) (string, string) {
	ea, eb := escapedLen(a), escapedLen(b)
	if ea+eb <= packet {
		return a, b
	}
	a = fitEscaped(a, max(packet/2, packet-eb))
	return a, fitEscaped(b, packet-escapedLen(a))
}

// fitEscaped cuts a text until it takes no more than size bytes in a statement.
func fitEscaped(s string, size int64) string {
	for excess := escapedLen(s) - size; excess > 0 && len(s) > 0; excess = escapedLen(s) - size {
		s = shorten(s, max(0, int64(len(s))-max(excess/2, 1)))
	}
	return s
}
