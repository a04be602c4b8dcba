package main

import (
	"io"
	"os"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"

	"gloom/cmd/internal/cli"
)

// grid is a table that is being built. A cell may have several lines.
type grid struct {
	columns []string
	rows    [][]string
}

func newGrid(columns ...string) *grid { return &grid{columns: columns} }

// add adds a row of one-line cells. Control characters are removed, because other people choose the
// names.
func (g *grid) add(cells ...string) {
	for i := range cells {
		cells[i] = cli.Clean(cells[i])
	}
	g.rows = append(g.rows, cells)
}

// addLines adds a row whose cells are lists of lines.
func (g *grid) addLines(cells ...[]string) {
	var row []string
	for _, lines := range cells {
		for i := range lines {
			lines[i] = cli.Clean(lines[i])
		}
		row = append(row, strings.Join(lines, "\n"))
	}
	g.rows = append(g.rows, row)
}

// text returns the table for programs, in the format that existing scripts parse.
func (g *grid) text() string {
	w := table.NewWriter()
	style := table.StyleDefault
	style.Options = table.Options{SeparateColumns: true, SeparateHeader: true}
	style.Box = table.BoxStyle{MiddleVertical: " | ", MiddleSeparator: " | ", MiddleHorizontal: "-"}
	w.SetStyle(style)
	g.fill(w, func(_ string, cell string) string { return cell })
	return w.Render() + "\n"
}

// styled returns the table for people: numbers are right-aligned, and colours mark what needs
// attention.
func (g *grid) styled(colour bool) table.Writer {
	var columns []cli.Column
	for i, name := range g.columns {
		numbers := len(g.rows) > 0 && !slices.ContainsFunc(g.rows, func(row []string) bool {
			return strings.Trim(row[i], "0123456789-\n") != ""
		})
		columns = append(columns, cli.Column{Name: name, AlignLeft: !numbers})
	}
	w := cli.NewTable(columns...)
	w.ResetHeaders()
	g.fill(w, func(column, cell string) string {
		if colour {
			return colourCell(column, cell)
		}
		return cell
	})
	return w
}

func (g *grid) fill(w table.Writer, show func(column, cell string) string) {
	head := make(table.Row, len(g.columns))
	for i, name := range g.columns {
		head[i] = show("head", strings.ToUpper(name))
	}
	w.AppendHeader(head)
	for _, cells := range g.rows {
		row := make(table.Row, len(cells))
		for i, cell := range cells {
			lines := strings.Split(cell, "\n")
			for k, line := range lines {
				lines[k] = show(g.columns[i], line)
			}
			row[i] = strings.Join(lines, "\n")
		}
		w.AppendRow(row)
	}
}

func colourCell(column, cell string) string {
	switch column + " " + cell {
	case "paused yes":
		return text.FgYellow.Sprint(cell)
	case "paused no", "length 0":
		return text.Faint.Sprint(cell)
	case "result ok", "sent yes":
		return text.FgGreen.Sprint(cell)
	case "result fail", "sent no":
		return text.FgRed.Sprint(cell)
	}
	switch column {
	case "head":
		return text.Bold.Sprint(cell)
	case "error":
		return text.FgRed.Sprint(cell)
	}
	return cell
}

// print writes a table, plain unless the output is a terminal.
func (a *app) print(g *grid) error {
	if f, ok := a.stdout.(*os.File); !ok || !term.IsTerminal(int(f.Fd())) {
		_, err := io.WriteString(a.stdout, g.text())
		return err
	}
	colour := !a.noColor && cli.HasColours(a.stdout)
	if colour {
		text.EnableColors() // otherwise the library would guess
	}
	return cli.PrintTable(a.stdout, func(int) table.Writer { return g.styled(colour) })
}
