package report

import (
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"gloom/bench/result"
)

// Compare writes what changed from one result file to another: for each shape
// and server in both, every figure with both medians, and the change only where
// it is more than noise. It fails when the files have nothing in common.
func Compare(w io.Writer, old, new *result.File, s Style) error {
	var notes []string
	if old.Host != new.Host {
		notes = append(notes, fmt.Sprintf("The machines differ: %s, %s against %s, %s. So does what is below.", old.Host.CPU,
			old.Host.Kernel, new.Host.CPU, new.Host.Kernel))
	}
	common := 0
	for _, a := range old.Runs {
		b := new.Find(a.Shape, a.Server.Kind)
		if b == nil || len(a.Rounds) == 0 || len(b.Rounds) == 0 {
			continue
		}
		common++
		changes(a, b).write(w, s)
	}
	if common == 0 {
		return fmt.Errorf("nothing to compare: the files have no shape on the same server in common (%s; %s)", contents(old),
			contents(new))
	}
	notes = append(notes, fmt.Sprintf("~ is a difference that chance alone makes more often than once in %.0f times (Mann-Whitney U "+
		"test, as benchstat does it).", 1/alpha))
	for _, n := range notes {
		fmt.Fprintln(w, n)
	}
	return nil
}

func changes(a, b *result.Run) *grid {
	g := &grid{title: capital(a.Shape) + " on " + a.Server.Title, head: []string{"figure", "old", "new", "change", "p", "rounds"}}
	few := false
	for _, m := range result.Metrics() {
		x, y := m.Values(a), m.Values(b)
		v, ok := Judge(m, x, y)
		if !ok || m == result.Noise {
			continue
		}
		few = few || v.TooFew
		change := v.Change()
		if v.Real {
			change += " " + v.String()
		}
		g.rows = append(g.rows, []string{m.Name, figure(v.Old, m.Unit) + " " + spread(x), figure(v.New, m.Unit) + " " + spread(y),
			change, fmt.Sprintf("%.3f", v.P), fmt.Sprintf("%d + %d", v.OldN, v.NewN)})
	}
	if !reflect.DeepEqual(a.Params, b.Params) {
		g.notes = append(g.notes, "The loads differ. Old: "+load(&a.Params, len(a.Rounds))+" New: "+load(&b.Params, len(b.Rounds)))
	} else {
		g.notes = append(g.notes, load(&a.Params, max(len(a.Rounds), len(b.Rounds))))
	}
	if few {
		g.notes = append(g.notes, "Too few rounds for any difference to count as real: four on each side at least.")
	}
	return g
}

func contents(f *result.File) string {
	var names []string
	for _, r := range f.Runs {
		name := r.Shape + " on " + r.Server.Kind
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}
