package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"
)

// column is one of a table's.
type column struct {
	name string
	left bool // aligned so; numbers are to the right
	max  int  // width beyond which it is cut; 0 is none
	hide bool
}

// grid is a table without lines: good to read, to grep and to cut.
func grid(columns []column) table.Writer {
	w := table.NewWriter()
	style := table.StyleDefault
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	style.Format.Header = text.FormatDefault
	w.SetStyle(style)
	w.SuppressTrailingSpaces()
	var head table.Row
	var configs []table.ColumnConfig
	for i, c := range columns {
		head = append(head, c.name)
		align := text.AlignRight
		if c.left {
			align = text.AlignLeft
		}
		configs = append(configs, table.ColumnConfig{
			Number: i + 1, Align: align, AlignHeader: align, Hidden: c.hide,
			WidthMax: c.max, WidthMaxEnforcer: cutTo,
		})
	}
	w.AppendHeader(head)
	w.SetColumnConfigs(configs)
	return w
}

// render prints a table whose widest column takes what room a terminal leaves.
func (t *tool) render(make func(most int) table.Writer) error {
	const widest, narrowest = 1000, 10
	out := make(widest).Render()
	if isTerminal(t.out) {
		width, _, err := term.GetSize(int(t.out.Fd()))
		for most := width; err == nil && most >= narrowest && lineWidth(out) > width; most -= 2 {
			out = make(most).Render()
		}
	}
	_, err := fmt.Fprintln(t.out, out)
	return outputError(err)
}

func lineWidth(s string) int {
	widest := 0
	for l := range strings.Lines(s) {
		widest = max(widest, text.StringWidthWithoutEscSequences(strings.TrimRight(l, "\n")))
	}
	return widest
}

// cutTo shortens what is too wide.
func cutTo(s string, width int) string {
	if width <= 0 || text.StringWidthWithoutEscSequences(s) <= width {
		return s
	}
	return text.Trim(s, width-1) + "…"
}

// clean makes a name fit for a terminal: no control characters.
func clean(s string) string {
	if strings.IndexFunc(s, func(r rune) bool { return !strconv.IsPrint(r) }) < 0 {
		return s
	}
	q := strconv.Quote(s)
	return q[1 : len(q)-1]
}

// tame is clean for texts of several lines.
func tame(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		parts := strings.Split(l, "\t")
		for k, p := range parts {
			parts[k] = clean(p)
		}
		lines[i] = strings.Join(parts, "\t")
	}
	return strings.Join(lines, "\n")
}

// span is a duration for people, of two units at most.
func span(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	switch {
	case seconds <= 0:
		return "0s"
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < 10*time.Second:
		return strconv.FormatFloat(seconds, 'f', 1, 64) + "s"
	case d < time.Minute:
		return d.Round(time.Second).String()
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%02dh", int(d.Hours())/24, int(d.Hours())%24)
}

// short is a duration in at most six characters.
func short(seconds float64) string {
	us := seconds * 1e6
	switch {
	case us < 1000:
		return fmt.Sprintf("%.0fµs", us)
	case us < 10_000:
		return fmt.Sprintf("%.1fms", us/1e3)
	case us < 1e6:
		return fmt.Sprintf("%.0fms", us/1e3)
	case seconds < 10:
		return fmt.Sprintf("%.1fs", seconds)
	}
	return span(seconds)
}

// perSecond is a rate for people, in at most five characters.
func perSecond(r float64) string {
	switch {
	case r <= 0:
		return "0"
	case r < 9.95:
		return strconv.FormatFloat(r, 'f', 1, 64)
	}
	return count(uint64(math.Round(r)))
}

// count is a number in at most six characters.
func count(n uint64) string {
	switch {
	case n < 1_000_000:
		return strconv.FormatUint(n, 10)
	case n < 100_000_000:
		return strconv.FormatFloat(float64(n)/1e6, 'f', 1, 64) + "M"
	case n < 10_000_000_000:
		return strconv.FormatUint(n/1_000_000, 10) + "M"
	}
	return strconv.FormatUint(n/1_000_000_000, 10) + "G"
}

func bytesOf(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }

// plural is a count with its noun.
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return humanize.Comma(int64(n)) + " " + noun + "s"
}
