package report

import (
	"fmt"
	"io"
	"strings"

	"golang.org/x/perf/benchfmt"

	"gloom/bench/result"
)

// benchstatSuffixes maps units to the suffixes by which benchstat recognises them.
var benchstatSuffixes = map[result.Unit]string{result.PerSecond: "", result.Nanoseconds: "-ns", result.Bytes: "-B", result.Processors: ""}

func benchstatUnit(m *result.Metric) string {
	name, denominator, _ := strings.Cut(strings.ReplaceAll(m.Name, " ", "-"), "/")
	if denominator != "" {
		denominator = "/" + denominator
	}
	return name + benchstatSuffixes[m.Unit] + denominator
}

// writeBenchmark writes the rounds of a file in Go's benchmark format, a line for each. From these
// lines benchstat shows the changes from one file to another or, with -col /server, the differences
// between the servers of one file.
func writeBenchmark(w io.Writer, f *result.File) {
	out := benchfmt.NewWriter(w)
	for _, m := range result.Metrics() {
		direction := "lower"
		if m.HigherIsBetter {
			direction = "higher"
		}
		key := benchfmt.UnitMetadataKey{Unit: benchstatUnit(m), Key: "better"}
		_ = out.Write(&benchfmt.UnitMetadata{UnitMetadataKey: key, OrigUnit: key.Unit, Value: direction})
	}
	for _, run := range f.Runs {
		name := ""
		for word := range strings.FieldsSeq(run.Shape) {
			name += capitalize(word)
		}
		if x, ok := run.Params.Value(f.Sweep); ok {
			name = fmt.Sprintf("%s/%s=%g", capitalize(f.Sweep), f.Sweep, x)
		}
		name += fmt.Sprintf("/server=%s-%d", strings.ReplaceAll(run.Server.Kind, "-", "_"), f.Host.Processors)
		for _, round := range run.Rounds {
			r := &benchfmt.Result{Name: benchfmt.Name(name), Iters: int(max(1, round.Jobs))}
			r.SetConfig("cpu", f.Host.CPU)
			r.SetConfig("load", describeLoad(&run.Params, 0))
			for i := range r.Config {
				r.Config[i].File = true
			}
			for _, m := range result.Metrics() {
				if x, ok := m.Value(round); ok {
					r.Values = append(r.Values, benchfmt.Value{Value: x, Unit: benchstatUnit(m)})
				}
			}
			_ = out.Write(r)
		}
	}
}
