package report

import (
	"fmt"

	"github.com/jedib0t/go-pretty/v6/table"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"

	"gloom/bench/result"
)

// maxSampleRows limits the intervals of a long round that a table shows.
const maxSampleRows = 12

// samplesTable returns the table of the parts of a run's rounds; nil if there are none.
func samplesTable(r *result.Run) *grid {
	g := &grid{title: "During the run", head: table.Row{"while", "jobs/s", "p50", "p99", "max", "RSS", "descriptors"}}
	for i, round := range r.Rounds {
		n := len(round.Samples)
		step := 1
		if n > 0 && round.Samples[0].Name == "" {
			step = max(1, (n+maxSampleRows-1)/maxSampleRows)
		}
		last := 0.0
		for k, s := range round.Samples {
			seconds := s.At - last
			last = s.At
			if k%step != 0 {
				continue
			}
			name := s.Name
			if name == "" {
				name = fmt.Sprintf("until %.0f s", s.At)
			}
			if len(r.Rounds) > 1 {
				name = fmt.Sprintf("round %d: %s", i+1, name)
			}
			g.rows = append(g.rows, table.Row{name, formatThousands(float64(s.Jobs) / seconds), formatDuration(float64(s.P50)),
				formatDuration(float64(s.P99)), formatDuration(float64(s.Max)), formatBytes(float64(s.RSS)), formatThousands(float64(s.Descriptors))})
		}
		if n >= 8 && round.Samples[0].Name == "" {
			g.footnotes = append(g.footnotes, describeTrend(round.Samples))
		}
	}
	if g.rows == nil {
		return nil
	}
	return g
}

// describeTrend says whether memory and descriptors grew. It compares the second quarter with the last,
// because a server needs some time to reach its size.
func describeTrend(s []result.Sample) string {
	q := len(s) / 4
	quantile := func(part []result.Sample, f func(result.Sample) float64) float64 {
		var v []float64
		for _, x := range part {
			v = append(v, f(x))
		}
		return median(v)
	}
	rss := func(x result.Sample) float64 { return float64(x.RSS) }
	fds := func(x result.Sample) float64 { return float64(x.Descriptors) }
	second, end := s[q:2*q], s[len(s)-q:]
	return fmt.Sprintf("From the second quarter to the last: RSS %s → %s, descriptors %s → %s (medians).", formatBytes(quantile(second, rss)),
		formatBytes(quantile(end, rss)), formatThousands(quantile(second, fds)), formatThousands(quantile(end, fds)))
}

// drawTimeline draws a long round's samples over time.
func (d *drawer) drawTimeline(r *result.Run) {
	for i, round := range r.Rounds {
		if len(round.Samples) < 2 || round.Samples[0].Name != "" {
			continue
		}
		for _, m := range []struct {
			name  string
			unit  result.Unit
			value func(s result.Sample) float64
		}{
			{"p99", result.Nanoseconds, func(s result.Sample) float64 { return float64(s.P99) }},
			{"RSS", result.Bytes, func(s result.Sample) float64 { return float64(s.RSS) }},
		} {
			c := newChart(fmt.Sprintf("%s on %s: %s", capitalize(r.Shape), r.Server.Title, m.name), describeLoad(&r.Params, 0))
			c.X.Label.Text, c.Y.Min = "seconds", 0
			c.Y.Tick.Marker = siTicks{plot.DefaultTicks{}, m.unit}
			var points plotter.XYs
			for _, s := range round.Samples {
				points = append(points, plotter.XY{X: s.At, Y: m.value(s)})
			}
			line := must[*plotter.Line](d)(plotter.NewLine(points))
			if d.err != nil {
				return
			}
			line.LineStyle = lineStyle(ourServer, 0)
			c.Add(plotter.NewGrid(), line)
			d.save(c, fmt.Sprintf("%s %d %s over time", r.Shape, i+1, m.name))
		}
	}
}
