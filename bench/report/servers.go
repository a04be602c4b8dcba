package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/table"
	"golang.org/x/perf/benchmath"

	"gloom/bench/result"
)

const ourServer = "gloomd"

// comparedMetrics returns the metrics in which servers are compared, and the metrics among them
// that decide a race. Both depend on the kind of load.
func comparedMetrics(runs []*result.Run) (all, deciding []*result.Metric) {
	switch {
	case anyRunHas(runs, result.Fill):
		all = []*result.Metric{result.Rate, result.ServerCPU, result.Fill, result.FillCPU, result.JobMemory}
		return all, []*result.Metric{result.Rate, result.JobMemory}
	case runs[0].Params.Rate > 0 || runs[0].Params.Submitters*runs[0].Params.Window == 1:
		all = []*result.Metric{result.P50, result.P99, result.P999, result.ServerCPU}
		return all, all[:1]
	}
	all = []*result.Metric{result.Rate, result.ServerCPU, result.P50, result.P99, result.RSS}
	return all, all[:2]
}

func anyRunHas(runs []*result.Run, m *result.Metric) bool {
	return slices.ContainsFunc(runs, func(r *result.Run) bool { return len(m.Values(r)) > 0 })
}

// metricName returns a metric's name in a table of runs: if the run has a fill, the jobs per second
// are those of the drain.
func metricName(m *result.Metric, runs []*result.Run) string {
	if !anyRunHas(runs, result.Fill) {
		return m.Name
	}
	switch m {
	case result.Rate:
		return "drain jobs/s"
	case result.ServerCPU:
		return "drain CPU/job"
	}
	return m.Name
}

// serversTable returns the table of one shape on several servers.
func serversTable(shape string, runs []*result.Run) *grid {
	metrics, _ := comparedMetrics(runs)
	g := mediansTable(capitalize(shape), "server", "Not measured: %s (%s).", metrics, runs, func(r *result.Run) string { return r.Server.Title })
	rounds := 0
	for _, r := range runs {
		rounds = max(rounds, len(r.Rounds))
	}
	g.footnotes = append([]string{describeLoad(&runs[0].Params, rounds)}, g.footnotes...)
	return g
}

// sweepTable returns the table of one server under loads that differ in one parameter.
func sweepTable(param string, runs []*result.Run) *grid {
	metrics, _ := comparedMetrics(runs)
	for _, m := range []*result.Metric{result.IdleMemory, result.Fill, result.JobMemory} {
		if anyRunHas(runs, m) && !slices.Contains(metrics, m) {
			metrics = append(metrics, m)
		}
	}
	g := mediansTable(runs[0].Server.Title+" over "+param, param, "Not measured at %s: %s.", metrics, runs, func(r *result.Run) string {
		x, _ := r.Params.Value(param)
		return humanize.Commaf(x)
	})
	g.footnotes = append([]string{"The other parameters: " + describeLoad(&runs[0].Params, len(runs[0].Rounds), sweptParameters(param)...)}, g.footnotes...)
	return g
}

// sweptParameters returns the parameters that a sweep varies: besides the types also the workers,
// because each type needs a worker.
func sweptParameters(sweep string) []string {
	if sweep == "types" {
		return []string{sweep, "workers"}
	}
	return []string{sweep}
}

// mediansTable returns a table of runs: the medians of their rounds, and how much the rounds
// differed. Its notes name the runs that were not measured.
func mediansTable(title, param, absent string, metrics []*result.Metric, runs []*result.Run, name func(*result.Run) string) *grid {
	g := &grid{title: title, head: table.Row{param}}
	for _, m := range metrics {
		g.head = append(g.head, metricName(m, runs))
	}
	missing := map[string][]string{}
	for _, r := range runs {
		if r.Skipped != "" {
			missing[r.Skipped] = append(missing[r.Skipped], name(r))
		}
		if len(r.Rounds) == 0 {
			continue
		}
		cells := table.Row{name(r)}
		for _, m := range metrics {
			v := m.Values(r)
			cell := formatMedian(m, v)
			if len(v) > 1 {
				cell += " " + formatSpread(v)
			}
			cells = append(cells, cell)
		}
		g.rows = append(g.rows, cells)
	}
	for _, reason := range slices.Sorted(maps.Keys(missing)) {
		g.footnotes = append(g.footnotes, fmt.Sprintf(absent, strings.Join(missing[reason], ", "), reason))
	}
	return g
}

// comparisonTable returns the table that compares gloomd with every other server. For each decisive
// metric it has the factor by which gloomd is better (above 1) or worse, and says whether the
// difference is more than noise. It returns nil if gloomd was not measured.
func comparisonTable(f *result.File) *grid {
	g := &grid{title: "Gloomd against …", head: table.Row{""}}
	type column struct {
		runs   []*result.Run
		ourRun *result.Run
		m      *result.Metric
	}
	var cols []column
	var kinds []string
	titles := map[string]string{}
	for _, name := range shapeNames(f) {
		runs := runsOfShape(f, name)
		ourRun := f.Find(name, ourServer)
		for _, r := range runs {
			if r.Server.Kind != ourServer && !slices.Contains(kinds, r.Server.Kind) {
				kinds = append(kinds, r.Server.Kind)
				titles[r.Server.Kind] = r.Server.Title
			}
		}
		if ourRun == nil || len(ourRun.Rounds) == 0 || len(runs) < 2 {
			continue
		}
		_, deciding := comparedMetrics(runs)
		for _, m := range deciding {
			cols = append(cols, column{runs, ourRun, m})
			g.head = append(g.head, name+", "+metricName(m, runs))
		}
	}
	if len(cols) == 0 {
		return nil
	}
	for _, k := range kinds {
		cells := table.Row{titles[k]}
		for _, c := range cols {
			cell := "–"
			for _, r := range c.runs {
				if r.Server.Kind == k {
					cell = comparisonCell(c.m, c.ourRun, r)
				}
			}
			cells = append(cells, cell)
		}
		g.rows = append(g.rows, cells)
	}
	g.footnotes = append(g.footnotes, "Factors of medians, above 1 where gloomd is better; won or lost where the rounds of the two differ "+
		"by more than noise (Mann-Whitney U, p ≤ 0.05), ~ where they do not.")
	return g
}

// significanceLevel is the accepted probability of reporting noise as a difference.
const significanceLevel = 0.05

// comparisonCell says by what factor gloomd's metric is better than another server's, and whether
// that is more than noise, by benchstat's test.
func comparisonCell(m *result.Metric, ourRun, other *result.Run) string {
	x, y := m.Values(ourRun), m.Values(other)
	if len(x) == 0 || len(y) == 0 || median(x) <= 0 || median(y) <= 0 {
		return "–"
	}
	factor := median(x) / median(y)
	if !m.HigherIsBetter {
		factor = 1 / factor
	}
	t := benchmath.DefaultThresholds
	t.CompareAlpha = significanceLevel
	c := benchmath.AssumeNothing.Compare(benchmath.NewSample(x, &t), benchmath.NewSample(y, &t))
	verdict := "~"
	switch {
	case c.P > significanceLevel || factor == 1:
	case factor > 1:
		verdict = "won"
	default:
		verdict = "lost"
	}
	return fmt.Sprintf("%.2f × %s", factor, verdict)
}
