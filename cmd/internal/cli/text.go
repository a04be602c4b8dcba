package cli

import (
	"os"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"
)

// IsTerminal reports whether the output is a terminal whose cursor can be moved.
func IsTerminal(to any) bool {
	f, ok := to.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb"
}

// HasColours reports whether output may have colours.
func HasColours(to any) bool { return IsTerminal(to) && os.Getenv("NO_COLOR") == "" }

// TerminalWidth returns the columns of the terminal, 0 if the output is none or does not say.
func TerminalWidth(to any) int {
	if !IsTerminal(to) {
		return 0
	}
	width, _, _ := term.GetSize(int(to.(*os.File).Fd())) // 0 after an error
	return width
}

// Width returns how many columns a line of text takes on a screen. Escape sequences take none.
func Width(s string) int { return text.StringWidthWithoutEscSequences(s) }

// Truncate shortens text that is wider than width, with an ellipsis.
func Truncate(s string, width int) string {
	if width <= 0 || Width(s) <= width {
		return s
	}
	return text.Trim(s, width-1) + "…"
}

// Clean makes another party's name safe for one line of a terminal: unprintable
// characters are escaped, and a name that is only blanks is quoted.
func Clean(s string) string {
	if s != "" && strings.Trim(s, " ") == "" {
		return strconv.Quote(s)
	}
	return escapeUnprintable(s)
}

func escapeUnprintable(s string) string {
	if strings.IndexFunc(s, func(r rune) bool { return !strconv.IsPrint(r) }) < 0 {
		return s
	}
	q := strconv.Quote(s)
	return q[1 : len(q)-1]
}

// QuoteName makes another party's name safe inside a sentence: it is like Clean, but also quotes a
// name that is empty or has a blank.
func QuoteName(s string) string {
	if s == "" || strings.Contains(s, " ") {
		return strconv.Quote(s)
	}
	return Clean(s)
}

// CleanText is like Clean, but keeps line breaks and tabs.
func CleanText(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		parts := strings.Split(l, "\t")
		for k, p := range parts {
			parts[k] = escapeUnprintable(p)
		}
		lines[i] = strings.Join(parts, "\t")
	}
	return strings.Join(lines, "\n")
}

// Plural returns a count with its noun.
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return humanize.Comma(int64(n)) + " " + noun + "s"
}
