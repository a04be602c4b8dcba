package report

import (
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// Style is the form of a report.
type Style uint8

const (
	Terminal Style = iota
	Markdown
	Benchmark // Go's benchmark format, for benchstat
)

// ParseStyle reads "terminal", "markdown" or "benchmark".
func ParseStyle(name string) (Style, error) {
	switch name {
	case "terminal":
		return Terminal, nil
	case "markdown":
		return Markdown, nil
	case "benchmark":
		return Benchmark, nil
	}
	return 0, fmt.Errorf("format %q: must be terminal, markdown or benchmark", name)
}

// grid is a table before it is written. The first column is text, the others
// are figures.
type grid struct {
	title     string
	head      table.Row
	rows      []table.Row
	footnotes []string
}

func (g *grid) write(w io.Writer, s Style) {
	t := table.NewWriter()
	t.AppendHeader(g.head)
	t.AppendRows(g.rows)
	var cols []table.ColumnConfig
	for i := range g.head {
		align := text.AlignRight
		if i == 0 {
			align = text.AlignLeft
		}
		cols = append(cols, table.ColumnConfig{Number: i + 1, Align: align, AlignHeader: align})
	}
	t.SetColumnConfigs(cols)
	if s == Markdown {
		if g.title != "" {
			fmt.Fprintf(w, "### %s\n\n", g.title)
		}
		fmt.Fprintln(w, t.RenderMarkdown())
		fmt.Fprintln(w)
		for _, n := range g.footnotes {
			fmt.Fprintf(w, "%s\n\n", n)
		}
		return
	}
	style := table.StyleRounded
	style.Format.Header = text.FormatDefault
	t.SetStyle(style)
	if g.title != "" {
		fmt.Fprintln(w, text.Bold.Sprint(g.title))
	}
	fmt.Fprintln(w, t.Render())
	for _, n := range g.footnotes {
		fmt.Fprintln(w, text.WrapSoft(n, 110))
	}
	fmt.Fprintln(w)
}

func formatPercent(x float64) string {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return ""
	}
	return fmt.Sprintf("±%.0f %%", x*100)
}

// capitalize begins a phrase with a capital letter.
func capitalize(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
