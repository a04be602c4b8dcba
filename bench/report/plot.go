package report

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"gloom/bench/result"
)

const (
	plotWidth  = 7 * vg.Inch
	plotHeight = 4 * vg.Inch
)

// Plot writes SVG plots of a file's runs into a directory and returns their
// paths: jobs per second where several servers did the same, latency curves,
// and for a sweep each figure over what was varied.
func Plot(f *result.File, dir string) ([]string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	d := drawer{dir: dir}
	if f.Sweep != "" {
		d.sweep(f)
		return d.paths, d.err
	}
	for _, name := range shapes(f) {
		runs := runsOf(f, name)
		if len(runs) > 1 {
			d.bars(name, runs)
		}
		d.curves(name, runs)
		for _, r := range runs {
			d.timeline(r)
		}
	}
	return d.paths, d.err
}

// drawer keeps the first error, so that plots can be listed plainly.
type drawer struct {
	dir   string
	paths []string
	err   error
}

func (d *drawer) save(p *plot.Plot, name string) {
	if d.err != nil {
		return
	}
	path := filepath.Join(d.dir, fileName(name)+".svg")
	if d.err = p.Save(plotWidth, plotHeight, path); d.err == nil {
		d.paths = append(d.paths, path)
	}
}

// headroom is the space above the highest value, for the legend.
const headroom = 1.2

func newPlot(title string) *plot.Plot {
	p := plot.New()
	p.Title.Text = title
	p.Title.Padding = vg.Points(8)
	p.X.Padding, p.Y.Padding = vg.Points(6), vg.Points(6)
	return p
}

// stroke tells line i from the others, in print too.
func stroke(i int) draw.LineStyle {
	s := draw.LineStyle{Color: plotutil.DarkColors[i%len(plotutil.DarkColors)], Width: vg.Points(1.5)}
	if i > 2 {
		s.Dashes = plotutil.Dashes(i - 2)
	}
	return s
}

func fileName(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, s)
}

// bars draws the first figure of a shape for each server.
func (d *drawer) bars(shape string, runs []*result.Run) {
	m := columns(runs)[0]
	var values plotter.Values
	var names []string
	for _, r := range runs {
		if v := m.Values(r); len(v) > 0 {
			x := median(v)
			if m.Unit == result.Nanoseconds {
				x /= 1e3
			}
			values = append(values, x)
			names = append(names, twoLines(r.Server.Title))
		}
	}
	if len(values) == 0 || d.err != nil {
		return
	}
	p := newPlot(capital(shape))
	p.Y.Label.Text = axisName(m, runs)
	p.Y.Min = 0
	bars, err := plotter.NewBarChart(values, vg.Points(24))
	if err != nil {
		d.err = err
		return
	}
	bars.Color = plotutil.Color(2)
	bars.LineStyle.Width = 0
	p.Add(plotter.NewGrid(), bars)
	p.NominalX(names...)
	p.X.Min, p.X.Max = -0.5, float64(len(names))-0.5
	p.Y.Max *= headroom
	d.save(p, shape+"-"+m.Name)
}

// twoLines breaks a title at its first space, which keeps labels apart.
func twoLines(title string) string { return strings.Replace(title, " ", "\n", 1) }

func axisName(m *result.Metric, runs []*result.Run) string {
	name := metricName(m, runs)
	switch m.Unit {
	case result.Nanoseconds:
		return name + ", µs"
	case result.Bytes:
		return name + ", bytes"
	}
	return name
}

// curves draws latency over the share of jobs that were at least so fast, on an
// axis that gives each further nine the same room.
func (d *drawer) curves(shape string, runs []*result.Run) {
	p := newPlot(capital(shape) + ": latency")
	p.X.Label.Text = "share of jobs, %"
	p.Y.Label.Text = "ms"
	p.Y.Scale = plot.LogScale{}
	p.Y.Tick.Marker = plot.LogTicks{Prec: -1}
	p.X.Tick.Marker = nines(4)
	p.Legend.Top, p.Legend.Left = true, true
	p.Add(plotter.NewGrid())
	drawn := 0
	for _, r := range runs {
		points, err := curve(r)
		if err != nil {
			d.err = err
			return
		}
		if len(points) == 0 {
			continue
		}
		line, err := plotter.NewLine(points)
		if err != nil {
			d.err = err
			return
		}
		line.LineStyle = stroke(drawn)
		p.Add(line)
		p.Legend.Add(r.Server.Title, line)
		drawn++
	}
	if drawn > 0 {
		p.Y.Max *= 10 // room for the legend
		d.save(p, shape+"-latency")
	}
}

// curve is the latency of all rounds of a run together.
func curve(r *result.Run) (plotter.XYs, error) {
	total, err := r.Latency()
	if err != nil || total == nil {
		return nil, err
	}
	var points plotter.XYs
	for x := 0.0; x <= 5; x += 0.05 {
		if float64(total.TotalCount())*math.Pow(10, -x) < 1 {
			break // no job stands for this
		}
		q := 100 * (1 - math.Pow(10, -x))
		points = append(points, plotter.XY{X: x, Y: float64(max(1, total.ValueAtQuantile(q))) / 1e6})
	}
	return points, nil
}

func nines(n int) plot.ConstantTicks {
	ticks := plot.ConstantTicks{{Value: 0, Label: "0"}, {Value: math.Log10(2), Label: "50"}}
	for i := 1; i <= n; i++ {
		label := "90"
		if i > 1 {
			label = "99"
		}
		if i > 2 {
			label += "." + strings.Repeat("9", i-2)
		}
		ticks = append(ticks, plot.Tick{Value: float64(i), Label: label})
	}
	return ticks
}

// sweep draws each figure over the varied parameter, one line per server.
func (d *drawer) sweep(f *result.File) {
	for _, m := range result.Metrics() {
		if m == result.Noise || !has(f.Runs, m) {
			continue
		}
		p := newPlot(metricName(m, f.Runs) + " over " + f.Sweep)
		p.X.Label.Text = f.Sweep
		p.Y.Label.Text = axisName(m, f.Runs)
		p.Y.Min = 0
		p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
		p.Legend.Top, p.Legend.Left = true, true
		p.Add(plotter.NewGrid())
		for i, kind := range kindsOf(f) {
			points, title := series(f, kind, m)
			if len(points) < 2 {
				continue
			}
			line, dots, err := plotter.NewLinePoints(points)
			if err != nil {
				d.err = err
				return
			}
			line.LineStyle = stroke(i)
			dots.Color, dots.Shape = line.Color, plotutil.Shape(i)
			p.Add(line, dots)
			p.Legend.Add(title, line, dots)
		}
		p.Y.Max *= headroom
		d.save(p, fmt.Sprintf("%s over %s", metricName(m, f.Runs), f.Sweep))
	}
}

func series(f *result.File, kind string, m *result.Metric) (points plotter.XYs, title string) {
	for _, r := range f.Runs {
		v := m.Values(r)
		if r.Server.Kind != kind || len(v) == 0 {
			continue
		}
		x, ok := r.Params.Value(f.Sweep)
		if !ok || x <= 0 {
			continue // a logarithmic axis has no zero
		}
		y := median(v)
		if m.Unit == result.Nanoseconds {
			y /= 1e3
		}
		points = append(points, plotter.XY{X: x, Y: y})
		title = r.Server.Title
	}
	return points, title
}

func kindsOf(f *result.File) []string {
	seen := map[string]bool{}
	var kinds []string
	for _, r := range f.Runs {
		if !seen[r.Server.Kind] {
			seen[r.Server.Kind] = true
			kinds = append(kinds, r.Server.Kind)
		}
	}
	return kinds
}
