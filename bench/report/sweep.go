package report

import (
	"slices"
	"strconv"
	"strings"

	"gloom/bench/result"
)

// sweepTables are one table per server of a sweep: a row for each value.
func sweepTables(f *result.File) []*grid {
	var tables []*grid
	for _, kind := range kindsOf(f) {
		var runs []*result.Run
		for _, r := range f.Runs {
			if r.Server.Kind == kind {
				runs = append(runs, r)
			}
		}
		metrics := columns(runs)
		for _, m := range []*result.Metric{result.IdleMemory, result.Fill, result.JobMemory} {
			if has(runs, m) && !slices.Contains(metrics, m) {
				metrics = append(metrics, m)
			}
		}
		g := &grid{title: runs[0].Server.Title + " over " + f.Sweep, head: []string{f.Sweep}}
		for _, m := range metrics {
			g.head = append(g.head, metricName(m, runs))
		}
		absent := map[string][]string{}
		for _, r := range runs {
			x, _ := r.Params.Value(f.Sweep)
			value := grouped(strconv.FormatFloat(x, 'f', -1, 64))
			if r.Skipped != "" {
				absent[r.Skipped] = append(absent[r.Skipped], value)
			}
			if len(r.Rounds) == 0 {
				continue
			}
			cells := []string{value}
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
		g.notes = append(g.notes, "Besides: "+load(&runs[0].Params, len(runs[0].Rounds), varied(f.Sweep)...))
		for _, why := range sortedKeys(absent) {
			g.notes = append(g.notes, "Not at "+strings.Join(absent[why], ", ")+": "+why+".")
		}
		tables = append(tables, g)
	}
	return tables
}

// varied are the parameters that a sweep varies: with the types the workers,
// of which each type needs one.
func varied(sweep string) []string {
	if sweep == "types" {
		return []string{sweep, "workers"}
	}
	return []string{sweep}
}
