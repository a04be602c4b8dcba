package report

import (
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/text"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"gloom/bench/result"
)

// Plot writes SVG plots of a file's runs into a directory and returns their paths: jobs per second
// where several servers ran the same load, latency curves; for a sweep, each figure over the varied
// parameter.
func Plot(f *result.File, dir string) ([]string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	d := drawer{dir: dir}
	if f.Sweep != "" {
		d.drawSweep(f)
		return d.paths, d.err
	}
	for _, name := range shapeNames(f) {
		runs := runsOfShape(f, name)
		if len(runs) > 1 {
			d.drawBars(name, runs)
		}
		d.drawCurves(name, runs)
		for _, r := range runs {
			d.drawTimeline(r)
		}
	}
	return d.paths, d.err
}

// drawer keeps the first error, so that plots can be drawn one after the other without
// checks.
type drawer struct {
	dir   string
	paths []string
	err   error
}

// must returns a function that strips the error from a pair of results and keeps the first such
// error in d. The figures of a result file cause no error, so callers need not check each call.
func must[T any](d *drawer) func(T, error) T {
	return func(x T, err error) T {
		if d.err == nil {
			d.err = err
		}
		return x
	}
}

// chart is a plot with its legend beside it.
type chart struct {
	*plot.Plot
	legend        plot.Legend
	legendEntries int
	height        vg.Length
}

func init() { plot.DefaultFont.Variant = "Sans" }

// newChart makes a chart whose title names the figure and the load.
func newChart(title, load string) *chart {
	p := plot.New()
	p.Title.Text = title + "\n" + text.WrapSoft(load, 100)
	p.Title.TextStyle.Font.Size = vg.Points(11)
	p.Title.Padding = vg.Points(8)
	p.X.Padding, p.Y.Padding = vg.Points(6), vg.Points(6)
	c := &chart{Plot: p, legend: plot.NewLegend(), height: 4 * vg.Inch}
	c.legend.Top, c.legend.Left = true, true
	c.legend.Padding = vg.Points(3)
	return c
}

// addLegendEntry adds a line to the legend: a title beside the marks that it explains.
func (c *chart) addLegendEntry(title string, thumbs ...plot.Thumbnailer) {
	c.legend.Add(title, thumbs...)
	c.legendEntries++
}

const (
	// margin is the space, in points, that keeps the last label of an axis within the picture.
	margin      = 20
	legendWidth = 150 // in points
)

func (d *drawer) save(c *chart, name string) {
	if d.err != nil {
		return
	}
	canvas := vgsvg.New(8*vg.Inch, c.height)
	area := draw.New(canvas)
	area.SetColor(color.White)
	area.Fill(area.Rectangle.Path())
	rightMargin := vg.Length(margin)
	if c.legendEntries > 1 {
		rightMargin += legendWidth
		c.legend.Draw(draw.Crop(area, area.Max.X-legendWidth, 0, 0, -vg.Inch/2))
	}
	c.Draw(draw.Crop(area, margin/2, -rightMargin, margin/2, -margin/2))
	path := filepath.Join(d.dir, fileName(name)+".svg")
	file, err := os.Create(path)
	if err != nil {
		d.err = err
		return
	}
	_, err = canvas.WriteTo(file)
	if d.err = err; err == nil {
		d.err = file.Close()
	}
	d.paths = append(d.paths, path)
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

// Gloomd's line is blue and thick. The others are thinner, in muted colours, and have different
// dashes, for prints without colour.
var (
	blue  = color.RGBA{R: 0x0b, G: 0x5f, B: 0xb4, A: 0xff}
	grey  = color.RGBA{R: 0xa9, G: 0xb4, B: 0xc0, A: 0xff}
	muted = []color.Color{
		color.RGBA{R: 0x7f, G: 0x7f, B: 0x7f, A: 0xff}, color.RGBA{R: 0xc0, G: 0x6c, B: 0x3e, A: 0xff},
		color.RGBA{R: 0x5a, G: 0x8f, B: 0x5a, A: 0xff}, color.RGBA{R: 0x9a, G: 0x6f, B: 0xa8, A: 0xff},
		color.RGBA{R: 0xb8, G: 0x9a, B: 0x3c, A: 0xff}, color.RGBA{R: 0x4f, G: 0x8f, B: 0x9f, A: 0xff},
	}
)

func lineStyle(kind string, i int) draw.LineStyle {
	if kind == ourServer {
		return draw.LineStyle{Color: blue, Width: vg.Points(2.2)}
	}
	return draw.LineStyle{Color: muted[i%len(muted)], Width: vg.Points(1.2), Dashes: plotutil.Dashes(i)}
}

// siTicks labels an axis in the units of a metric.
type siTicks struct {
	plot.Ticker
	unit result.Unit
}

func (t siTicks) Ticks(low, high float64) []plot.Tick {
	ticks := t.Ticker.Ticks(low, high)
	for i := range ticks {
		if ticks[i].Label != "" {
			ticks[i].Label = formatSI(ticks[i].Value, t.unit)
		}
	}
	return ticks
}

func formatSI(x float64, u result.Unit) string {
	switch u {
	case result.Nanoseconds:
		return humanize.SIWithDigits(x/1e9, 2, "s")
	case result.Bytes:
		return humanize.SIWithDigits(x, 2, "B")
	}
	return strings.TrimSpace(humanize.SIWithDigits(x, 2, ""))
}

// quartiles holds the first quartile, the median and the third quartile of some values.
type quartiles struct{ low, mid, high float64 }

func quartilesOf(v []float64) quartiles {
	return quartiles{quantile(v, 0.25), median(v), quantile(v, 0.75)}
}

// quartilePoints holds medians as points, with the distances to their quartiles as error bars.
type quartilePoints struct {
	plotter.XYs
	plotter.XErrors
	plotter.YErrors
}

// drawBars draws the first figure of a shape for each server, the best on top.
func (d *drawer) drawBars(shape string, runs []*result.Run) {
	metrics, _ := comparedMetrics(runs)
	m := metrics[0]
	runs = slices.DeleteFunc(slices.Clone(runs), func(r *result.Run) bool { return len(m.Values(r)) == 0 })
	if len(runs) == 0 {
		return
	}
	slices.SortStableFunc(runs, func(a, b *result.Run) int {
		if higher := median(m.Values(a)) > median(m.Values(b)); higher == m.HigherIsBetter {
			return 1
		}
		return -1
	})
	ourValues, otherValues := make(plotter.Values, len(runs)), make(plotter.Values, len(runs))
	var names []string
	var points quartilePoints
	rounds := 0
	for i, r := range runs {
		v := quartilesOf(m.Values(r))
		if r.Server.Kind == ourServer {
			ourValues[i] = v.mid
		} else {
			otherValues[i] = v.mid
		}
		// The spaces are for a viewer's font, which may be wider than the font measured here.
		names = append(names, r.Server.Title+strings.Repeat(" ", 1+len(r.Server.Title)/3))
		points.XYs = append(points.XYs, plotter.XY{X: v.mid, Y: float64(i)})
		points.XErrors = append(points.XErrors, struct{ Low, High float64 }{v.mid - v.low, v.high - v.mid})
		rounds = max(rounds, len(r.Rounds))
	}
	c := newChart(capitalize(shape)+": "+metricName(m, runs)+", medians and quartiles", describeLoad(&runs[0].Params, rounds))
	c.height = vg.Inch*3/2 + vg.Length(len(runs))*vg.Inch*3/8
	for _, b := range []struct {
		values plotter.Values
		colour color.Color
	}{{ourValues, blue}, {otherValues, grey}} {
		bars := must[*plotter.BarChart](d)(plotter.NewBarChart(b.values, vg.Points(18)))
		if d.err != nil {
			return
		}
		bars.Horizontal, bars.Color, bars.LineStyle.Width = true, b.colour, 0
		c.Add(bars)
	}
	c.Add(must[*plotter.XErrorBars](d)(plotter.NewXErrorBars(points)))
	c.NominalY(names...)
	c.Y.Min, c.Y.Max = -0.6, float64(len(names))-0.4
	c.X.Min = 0
	c.X.Tick.Marker = siTicks{plot.DefaultTicks{}, m.Unit}
	d.save(c, shape+"-"+m.Name)
}

// drawCurves draws latency over the share of jobs with at most that latency. On the axis of shares,
// each further nine (90 %, 99 %, …) has the same width.
func (d *drawer) drawCurves(shape string, runs []*result.Run) {
	c := newChart(capitalize(shape)+": latency over the share of jobs", describeLoad(&runs[0].Params, len(runs[0].Rounds)))
	c.X.Label.Text, c.Y.Label.Text = "share of jobs, %", "latency"
	c.Y.Scale, c.Y.Tick.Marker = plot.LogScale{}, siTicks{plot.LogTicks{Prec: -1}, result.Nanoseconds}
	c.X.Tick.Marker = ninesTicks(4)
	c.Add(plotter.NewGrid())
	for i, r := range runs {
		points := must[plotter.XYs](d)(latencyCurve(r))
		if len(points) == 0 {
			continue
		}
		line := must[*plotter.Line](d)(plotter.NewLine(points))
		if d.err != nil {
			return
		}
		line.LineStyle = lineStyle(r.Server.Kind, i)
		c.Add(line)
		c.addLegendEntry(r.Server.Title, line)
	}
	if c.legendEntries > 0 {
		d.save(c, shape+"-latency")
	}
}

// latencyCurve returns the points of the latency distribution of all rounds of a run together.
func latencyCurve(r *result.Run) (plotter.XYs, error) {
	total, err := r.Latency()
	if err != nil || total == nil {
		return nil, err
	}
	var points plotter.XYs
	for x := 0.0; x <= 5; x += 0.05 {
		if float64(total.TotalCount())*math.Pow(10, -x) < 1 {
			break // no job is that slow
		}
		q := 100 * (1 - math.Pow(10, -x))
		points = append(points, plotter.XY{X: x, Y: float64(max(1, total.ValueAtQuantile(q)))})
	}
	return points, nil
}

func ninesTicks(n int) plot.ConstantTicks {
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

// drawSweep draws each figure over the varied parameter, one line per server.
func (d *drawer) drawSweep(f *result.File) {
	for _, m := range result.Metrics() {
		if m == result.Noise || !anyRunHas(f.Runs, m) {
			continue
		}
		first := f.Runs[0]
		c := newChart(capitalize(metricName(m, f.Runs))+" over "+f.Sweep+", medians and quartiles",
			describeLoad(&first.Params, len(first.Rounds), sweptParameters(f.Sweep)...))
		c.X.Label.Text = f.Sweep
		c.Y.Min = 0
		c.X.Scale, c.X.Tick.Marker = plot.LogScale{}, siTicks{plot.LogTicks{Prec: -1}, result.PerSecond}
		c.Y.Tick.Marker = siTicks{plot.DefaultTicks{}, m.Unit}
		c.Add(plotter.NewGrid())
		for i, kind := range serverKinds(f) {
			points, title := sweepPoints(f, kind, m)
			if len(points.XYs) < 2 {
				continue
			}
			line, dots, err := plotter.NewLinePoints(points)
			bars := must[*plotter.YErrorBars](d)(plotter.NewYErrorBars(points))
			if d.err == nil {
				d.err = err
			}
			if d.err != nil {
				return
			}
			line.LineStyle = lineStyle(kind, i)
			bars.LineStyle.Color, dots.Color, dots.Shape = line.Color, line.Color, plotutil.Shape(i)
			c.Add(line, dots, bars)
			c.addLegendEntry(title, line, dots)
		}
		if c.legendEntries > 0 {
			d.save(c, fmt.Sprintf("%s over %s", metricName(m, f.Runs), f.Sweep))
		}
	}
}

func sweepPoints(f *result.File, kind string, m *result.Metric) (points quartilePoints, title string) {
	for _, r := range runsOnServer(f, kind) {
		v := m.Values(r)
		x, ok := r.Params.Value(f.Sweep)
		if len(v) == 0 || !ok || x <= 0 { // a logarithmic axis has no zero
			continue
		}
		y := quartilesOf(v)
		points.XYs = append(points.XYs, plotter.XY{X: x, Y: y.mid})
		points.YErrors = append(points.YErrors, struct{ Low, High float64 }{y.mid - y.low, y.high - y.mid})
		title = r.Server.Title
	}
	return points, title
}
