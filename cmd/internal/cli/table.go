package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// Column is a column of a table.
type Column struct {
	Name      string
	AlignLeft bool // aligned left; numbers are aligned right
	MaxWidth  int  // width beyond which it is cut; 0: no limit
	IsHidden  bool
}

// NewTable returns a table without ruled lines, which is easy to read, to grep and to cut.
func NewTable(columns ...Column) table.Writer {
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
		head = append(head, c.Name)
		align := text.AlignRight
		if c.AlignLeft {
			align = text.AlignLeft
		}
		configs = append(configs, table.ColumnConfig{
			Number: i + 1, Align: align, AlignHeader: align, Hidden: c.IsHidden,
			WidthMax: c.MaxWidth, WidthMaxEnforcer: Truncate,
		})
	}
	w.AppendHeader(head)
	w.SetColumnConfigs(configs)
	return w
}

// PrintTable writes a table that fits the width of the terminal. build returns the table with
// columns no wider than maxWidth. If even this table is too wide, its lines are cut, so that no
// line wraps.
func PrintTable(to io.Writer, build func(maxWidth int) table.Writer) error {
	const widest, narrowest = 1000, 10
	out := build(widest).Render()
	if width := TerminalWidth(to); width > 0 {
		for maxWidth := width; maxWidth >= narrowest && linesWidth(out) > width; maxWidth -= 2 {
			out = build(maxWidth).Render()
		}
		lines := strings.Split(out, "\n")
		for i, l := range lines {
			lines[i] = Truncate(l, width)
		}
		out = strings.Join(lines, "\n")
	}
	_, err := fmt.Fprintln(to, out)
	return err
}

func linesWidth(s string) int {
	maxWidth := 0
	for l := range strings.Lines(s) {
		maxWidth = max(maxWidth, Width(strings.TrimRight(l, "\n")))
	}
	return maxWidth
}
