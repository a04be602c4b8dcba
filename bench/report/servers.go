package report

import (
	"slices"
	"strings"

	"gloom/bench/result"
)

const ours = "gloomd"

// columns are the metrics that tell servers apart, by the nature of the load.
func columns(runs []*result.Run) []*result.Metric {
	switch {
	case has(runs, result.Fill):
		return []*result.Metric{result.Rate, result.ServerCPU, result.Fill, result.FillCPU, result.JobMemory}
	case runs[0].Params.Rate > 0 || runs[0].Params.Submitters*runs[0].Params.Window == 1:
		return []*result.Metric{result.P50, result.P99, result.P999, result.ServerCPU}
	}
	return []*result.Metric{result.Rate, result.ServerCPU, result.P50, result.P99, result.RSS}
}

// decisive are the metrics by which a race is won or lost, of those in columns.
func decisive(runs []*result.Run) []*result.Metric {
	switch {
	case has(runs, result.Fill):
		return []*result.Metric{result.Rate, result.JobMemory}
	case runs[0].Params.Rate > 0 || runs[0].Params.Submitters*runs[0].Params.Window == 1:
		return []*result.Metric{result.P50}
	}
	return []*result.Metric{result.Rate, result.ServerCPU}
}

func has(runs []*result.Run, m *result.Metric) bool {
	return slices.ContainsFunc(runs, func(r *result.Run) bool { return len(m.Values(r)) > 0 })
}

// metricName is a metric's name in a table of runs: where there is a fill, the
// jobs per second are those of the drain.
func metricName(m *result.Metric, runs []*result.Run) string {
	if !has(runs, result.Fill) {
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

// servers is the table of one shape on several servers: medians, and how far
// the rounds were apart.
func servers(shape string, runs []*result.Run) *grid {
	metrics := columns(runs)
	g := &grid{title: capital(shape), head: []string{"server"}}
	for _, m := range metrics {
		g.head = append(g.head, metricName(m, runs))
	}
	rounds := 0
	absent := map[string][]string{}
	for _, r := range runs {
		rounds = max(rounds, len(r.Rounds))
		if r.Skipped != "" {
			absent[r.Skipped] = append(absent[r.Skipped], r.Server.Title)
		}
		if len(r.Rounds) == 0 {
			continue
		}
		cells := []string{r.Server.Title}
		for _, m := range metrics {
			v := m.Values(r)
			cell := summary(m, v)
			if len(v) > 1 {
				cell += " " + spread(v)
			}
			cells = append(cells, cell)
		}
		g.rows = append(g.rows, cells)
	}
	g.notes = append(g.notes, load(&runs[0].Params, rounds))
	for _, why := range sortedKeys(absent) {
		g.notes = append(g.notes, "Not here: "+strings.Join(absent[why], ", ")+" ("+why+").")
	}
	return g
}

func sortedKeys(m map[string][]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// standings is the one table that says where ours stands: for every other
// server and decisive metric by what factor ours is better (above 1) or worse,
// and whether that is more than noise. Nil when ours did not take part.
func standings(f *result.File) *grid {
	g := &grid{title: "Gloomd against …", head: []string{""}}
	type column struct {
		runs []*result.Run
		own  *result.Run
		m    *result.Metric
	}
	var cols []column
	var kinds []string
	titles := map[string]string{}
	for _, name := range shapes(f) {
		runs := runsOf(f, name)
		own := f.Find(name, ours)
		for _, r := range runs {
			if r.Server.Kind != ours && !slices.Contains(kinds, r.Server.Kind) {
				kinds = append(kinds, r.Server.Kind)
				titles[r.Server.Kind] = r.Server.Title
			}
		}
		if own == nil || len(own.Rounds) == 0 || len(runs) < 2 {
			continue
		}
		for _, m := range decisive(runs) {
			cols = append(cols, column{runs, own, m})
			g.head = append(g.head, name+", "+metricName(m, runs))
		}
	}
	if len(cols) == 0 {
		return nil
	}
	for _, k := range kinds {
		cells := []string{titles[k]}
		for _, c := range cols {
			cell := "–"
			for _, r := range c.runs {
				if r.Server.Kind == k {
					cell = standing(c.m, c.own, r)
				}
			}
			cells = append(cells, cell)
		}
		g.rows = append(g.rows, cells)
	}
	g.notes = append(g.notes, "Factors of medians, above 1 where gloomd is better; won or lost where the rounds of the two differ "+
		"by more than noise (Mann-Whitney U, p ≤ 0.05), ~ where they do not.")
	return g
}

func standing(m *result.Metric, own, other *result.Run) string {
	v, ok := Judge(m, m.Values(other), m.Values(own))
	if !ok || v.Old <= 0 || v.New <= 0 {
		return "–"
	}
	x := v.New / v.Old
	if !m.Higher {
		x = 1 / x
	}
	word := "won"
	switch {
	case !v.Real:
		word = "~"
	case !v.Better:
		word = "lost"
	}
	return ratio(x) + " " + word
}
