package report

import (
	"gloom/bench/result"
)

const (
	ours    = "gloomd"
	ceiling = "relay"
)

// columns are the metrics that tell servers apart, by shape; the first one
// decides who is ahead.
func columns(runs []*result.Run) []*result.Metric {
	switch {
	case has(runs, result.JobMemory) || has(runs, result.Fill):
		return []*result.Metric{result.Rate, result.ServerCPU, result.Fill, result.FillCPU, result.JobMemory}
	case runs[0].Params.Rate > 0 || runs[0].Params.Submitters*runs[0].Params.Window == 1:
		return []*result.Metric{result.P50, result.P99, result.P999, result.ServerCPU, result.Rate}
	}
	return []*result.Metric{result.Rate, result.ServerCPU, result.P50, result.P99, result.RSS}
}

func has(runs []*result.Run, m *result.Metric) bool {
	for _, r := range runs {
		if len(m.Values(r)) > 0 {
			return true
		}
	}
	return false
}

// compareServers is the table of one shape on several servers. Beside every
// figure of another server stands how ours compares: above 1 ours is better.
func compareServers(shape string, runs []*result.Run) *grid {
	metrics := columns(runs)
	g := &grid{title: capital(shape), head: []string{"server"}}
	var own *result.Run
	rounds := 0
	for _, r := range runs {
		rounds = max(rounds, len(r.Rounds))
		if r.Server.Kind == ours && len(r.Rounds) > 0 {
			own = r
		}
	}
	for _, m := range metrics {
		name := m.Name
		if m == result.Rate && (has(runs, result.Fill)) {
			name = "drain jobs/s"
		}
		g.head = append(g.head, name)
		if own != nil {
			g.head = append(g.head, "gloomd")
		}
	}
	for _, r := range runs {
		cells := []string{r.Server.Title}
		for _, m := range metrics {
			v := m.Values(r)
			cell := summary(m, v)
			if s := spreadOf(v); s != "" {
				cell += " " + s
			}
			cells = append(cells, cell)
			if own != nil {
				cells = append(cells, standing(m, own, r))
			}
		}
		g.rows = append(g.rows, cells)
		if r.Skipped != "" {
			g.notes = append(g.notes, r.Server.Title+" not measured here: "+r.Skipped+".")
		}
	}
	g.notes = append(g.notes, load(&runs[0].Params, rounds))
	return g
}

func spreadOf(v []float64) string {
	if len(v) < 2 {
		return ""
	}
	return spread(v)
}

// standing is how ours compares with another server in one metric.
func standing(m *result.Metric, own, other *result.Run) string {
	if own == other {
		return ""
	}
	v, ok := Judge(m, m.Values(other), m.Values(own))
	if !ok || v.Old == 0 || v.New == 0 {
		return ""
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
