package main

import (
	"io"
	"os"
	"strings"
	"unicode"

	"github.com/mattn/go-runewidth"
	"golang.org/x/term"
)

// table is rows of cells, each of one line or more.
type table struct {
	columns []string
	rows    [][][]string // row, column, line
}

func newTable(columns ...string) *table { return &table{columns: columns} }

// add adds a row of cells of one line.
func (t *table) add(cells ...string) {
	for i := range cells {
		cells[i] = clean(cells[i])
	}
	t.addLines(cells...)
}

// addLines adds a row whose cells may have several lines; their text must be
// clean.
func (t *table) addLines(cells ...string) {
	row := make([][]string, len(cells))
	for i, cell := range cells {
		row[i] = strings.Split(cell, "\n")
	}
	t.rows = append(t.rows, row)
}

// clean keeps what others have named from moving the cursor, and a cell on its
// line.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			return ' '
		case unicode.IsControl(r) || !unicode.IsGraphic(r):
			return '?'
		}
		return r
	}, text)
}

func (t *table) widths() []int {
	widths := make([]int, len(t.columns))
	for i, name := range t.columns {
		widths[i] = len(name)
		for _, row := range t.rows {
			for _, line := range row[i] {
				widths[i] = max(widths[i], runewidth.StringWidth(line))
			}
		}
	}
	return widths
}

// lines calls f with the cells of every line of the table's body.
func (t *table) lines(f func(cells []string)) {
	for _, row := range t.rows {
		height := 0
		for _, cell := range row {
			height = max(height, len(cell))
		}
		for n := range height {
			cells := make([]string, len(row))
			for i, cell := range row {
				if n < len(cell) {
					cells[i] = cell[n]
				}
			}
			f(cells)
		}
	}
}

// plain is the table for programs: the shape that scripts already take apart.
func (t *table) plain() string {
	var out strings.Builder
	widths := t.widths()
	write := func(cells []string) {
		for i, cell := range cells {
			if i > 0 {
				out.WriteString(" | ")
			}
			out.WriteString(runewidth.FillRight(cell, widths[i]))
		}
		out.WriteByte('\n')
	}
	var heads, rules []string
	for i, name := range t.columns {
		heads = append(heads, strings.ToUpper(name))
		rules = append(rules, strings.Repeat("-", widths[i]))
	}
	write(heads)
	write(rules)
	t.lines(write)
	return out.String()
}

const (
	bold   = "\x1b[1m"
	faint  = "\x1b[2m"
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	reset  = "\x1b[0m"
)

// fancy is the table for people: numbers to the right, what wants attention in
// colour.
func (t *table) fancy(colour bool) string {
	var out strings.Builder
	paint := func(with, text string) {
		if colour && with != "" {
			out.WriteString(with + text + reset)
		} else {
			out.WriteString(text)
		}
	}
	widths, numbers := t.widths(), t.numeric()
	write := func(cells []string, tint func(column int, cell string) string) {
		for i, cell := range cells {
			pad := strings.Repeat(" ", widths[i]-runewidth.StringWidth(cell))
			if i > 0 {
				out.WriteString("  ")
			}
			if numbers[i] {
				out.WriteString(pad)
			}
			paint(tint(i, cell), cell)
			if !numbers[i] && i < len(cells)-1 {
				out.WriteString(pad)
			}
		}
		out.WriteByte('\n')
	}
	var heads []string
	for _, name := range t.columns {
		heads = append(heads, strings.ToUpper(name))
	}
	write(heads, func(int, string) string { return bold })
	t.lines(func(cells []string) { write(cells, t.tint) })
	return out.String()
}

// numeric tells which columns hold numbers only.
func (t *table) numeric() []bool {
	numbers := make([]bool, len(t.columns))
	for i := range numbers {
		numbers[i] = len(t.rows) > 0
	}
	t.lines(func(cells []string) {
		for i, cell := range cells {
			if strings.Trim(cell, "0123456789-") != "" {
				numbers[i] = false
			}
		}
	})
	return numbers
}

func (t *table) tint(column int, cell string) string {
	switch t.columns[column] + " " + cell {
	case "paused yes":
		return yellow
	case "paused no", "length 0":
		return faint
	case "result ok", "sent yes":
		return green
	case "result fail", "sent no":
		return red
	}
	if t.columns[column] == "error" {
		return red
	}
	return ""
}

// print shows a table as it suits the output.
func (a *app) print(t *table) error {
	text := t.plain()
	if terminal(a.stdout) {
		text = t.fancy(!a.noColor && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb")
	}
	_, err := io.WriteString(a.stdout, text)
	return err
}

func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
