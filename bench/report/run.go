package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"gloom/bench/result"
)

// Write writes the report of a file: a table of all figures of each run, and the faults, if any. If
// several servers ran the same load, a table compares them.
func Write(w io.Writer, f *result.File, s Style) {
	if s == Benchmark {
		writeBenchmark(w, f)
		return
	}
	writeHeader(w, f, s)
	if f.Sweep != "" {
		for _, kind := range serverKinds(f) {
			sweepTable(f.Sweep, runsOnServer(f, kind)).write(w, s)
		}
		writeFaults(w, f, s)
		return
	}
	if g := comparisonTable(f); g != nil {
		g.write(w, s)
	}
	for _, name := range shapeNames(f) {
		runs := runsOfShape(f, name)
		if len(runs) > 1 {
			serversTable(name, runs).write(w, s)
		} else {
			figuresTable(runs[0]).write(w, s)
			if g := samplesTable(runs[0]); g != nil {
				g.write(w, s)
			}
		}
	}
	writeFaults(w, f, s)
}

func writeHeader(w io.Writer, f *result.File, s Style) {
	commit := f.Build.Commit
	if commit == "" {
		commit = "unknown"
	} else {
		commit = commit[:min(12, len(commit))]
	}
	if f.Build.Modified {
		commit += " with changes"
	}
	text := fmt.Sprintf("%s, commit %s, %s; %s, %d processors, %s, %s.", f.Started.Format(time.DateOnly), commit, f.Build.Go,
		f.Host.CPU, f.Host.Processors, f.Host.Kernel, f.Host.OS)
	if n := interference(f); n >= reportedInterference {
		text += fmt.Sprintf(" Other programs kept %.1f processors busy during the runs: CPU per job is more reliable than jobs per second.", n)
	}
	fmt.Fprintln(w, text)
	fmt.Fprintln(w)
}

// A report warns if other programs kept at least reportedInterference processors busy.
const reportedInterference = 0.15

// interference returns how many processors other programs kept busy, as the median of all rounds.
func interference(f *result.File) float64 {
	var v []float64
	for _, r := range f.Runs {
		v = append(v, result.Noise.Values(r)...)
	}
	if v == nil {
		return 0
	}
	return median(v)
}

// shapeNames returns the names of a file's shapes, in the order of its runs.
func shapeNames(f *result.File) []string {
	return runNames(f, func(r *result.Run) string { return r.Shape })
}

// serverKinds returns the kinds of a file's servers, in the order of its runs.
func serverKinds(f *result.File) []string {
	return runNames(f, func(r *result.Run) string { return r.Server.Kind })
}

func runNames(f *result.File, name func(*result.Run) string) (names []string) {
	for _, r := range f.Runs {
		if n := name(r); !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	return names
}

func runsOfShape(f *result.File, shape string) []*result.Run {
	return slices.DeleteFunc(slices.Clone(f.Runs), func(r *result.Run) bool { return r.Shape != shape })
}

func runsOnServer(f *result.File, kind string) []*result.Run {
	return slices.DeleteFunc(slices.Clone(f.Runs), func(r *result.Run) bool { return r.Server.Kind != kind })
}

// figuresTable returns the table of all figures that one run measured.
func figuresTable(r *result.Run) *grid {
	g := &grid{title: capitalize(r.Shape) + " on " + r.Server.Title, head: table.Row{"figure", "median", "min", "max"}}
	if r.Skipped != "" {
		g.footnotes = append(g.footnotes, "Not measured: "+r.Skipped+".")
	}
	for _, m := range result.Metrics() {
		v := m.Values(r)
		if len(v) == 0 {
			continue
		}
		g.rows = append(g.rows, table.Row{m.Name, formatValue(median(v), m.Unit), formatValue(slices.Min(v), m.Unit), formatValue(slices.Max(v), m.Unit)})
	}
	g.footnotes = append(g.footnotes, describeLoad(&r.Params, len(r.Rounds)))
	if n := describeEvents(r); n != "" {
		g.footnotes = append(g.footnotes, n)
	}
	return g
}

// describeLoad describes the load in one line, without the varied parameter.
func describeLoad(p *result.Params, rounds int, exceptNames ...string) string {
	var parts []string
	notVaried := func(name string) bool { return !slices.Contains(exceptNames, name) }
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	if p.Rate > 0 && notVaried("rate") && notVaried("submitters") {
		add("%s jobs/s at %s intervals from %s", formatThousands(p.Rate), p.Arrivals, plural(p.Submitters, "submitter"))
	} else if p.Window > 0 && notVaried("window") && notVaried("submitters") {
		add("%s × %s outstanding", plural(p.Submitters, "submitter"), formatThousands(float64(p.Window)))
	}
	if notVaried("workers") {
		add("%s", plural(p.Workers, "worker"))
	}
	if p.Idle > 0 && notVaried("idle-workers") {
		add("%s idle workers", formatThousands(float64(p.Idle)))
	}
	if p.Types > 1 && notVaried("types") {
		add("%s types", formatThousands(float64(p.Types)))
	}
	if p.Versatile {
		add("each worker on all types")
	}
	if p.Groups > 0 {
		add("%s groups", formatThousands(float64(p.Groups)))
	}
	if p.Priorities > 1 && notVaried("priorities") {
		add("%s priorities", formatThousands(float64(p.Priorities)))
	}
	if p.Prefetch > 0 && notVaried("prefetch") {
		add("prefetch %d", p.Prefetch)
	}
	if p.WorkTimeUS > 0 {
		add("work of %v", time.Duration(p.WorkTimeUS)*time.Microsecond)
	}
	if notVaried("body") {
		add("body %s", formatBytes(float64(p.BodySize)))
	}
	if p.OneCPU {
		add("server and generator on one processor")
	}
	if p.Unix {
		add("over unix sockets")
	}
	if c := p.Churn; c != nil {
		add("%g workers and %g submitters lost per second", c.Workers, c.Submitters)
	}
	if p.Jobs > 0 && notVaried("backlog") {
		add("%s jobs", formatThousands(float64(p.Jobs)))
	} else if p.Seconds > 0 {
		add("%v", time.Duration(p.Seconds*float64(time.Second)).Round(time.Millisecond))
	}
	if rounds > 0 {
		add("%s", plural(rounds, "round"))
	}
	return capitalize(strings.Join(parts, ", ")) + "."
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return formatThousands(float64(n)) + " " + noun + "s"
}

// describeEvents describes what happened besides answers.
func describeEvents(r *result.Run) string {
	var failed, forgotten, redelivered, lateJobs, workers, submitters int64
	for _, x := range r.Rounds {
		failed += x.Failed
		forgotten += x.Forgotten
		redelivered += x.Redelivered
		lateJobs += x.Deferred
		workers += x.WorkerHangups
		submitters += x.SubmitterHangups
	}
	var parts []string
	for _, e := range []struct {
		n    int64
		name string
	}{
		{workers, "workers hung up"}, {submitters, "submitters hung up"}, {redelivered, "jobs sent to a worker again"},
		{failed, "jobs failed after losing their workers"}, {forgotten, "jobs were outstanding when their submitter hung up"},
		{lateJobs, "jobs were sent more than 1 ms late because of the generator"},
	} {
		if e.n > 0 {
			parts = append(parts, formatThousands(float64(e.n))+" "+e.name)
		}
	}
	if parts == nil {
		return ""
	}
	return "In all rounds: " + strings.Join(parts, ", ") + "."
}

func writeFaults(w io.Writer, f *result.File, s Style) {
	for _, run := range f.Runs {
		for i, r := range run.Rounds {
			if len(r.Faults) == 0 {
				continue
			}
			var parts []string
			for name, n := range r.Faults {
				parts = append(parts, fmt.Sprintf("%d %s", n, name))
			}
			slices.Sort(parts)
			fmt.Fprintf(w, "FAULTS of %s, %s, round %d: %s\n", run.Server.Title, run.Shape, i+1, strings.Join(parts, ", "))
			for _, x := range r.FaultSamples {
				fmt.Fprintf(w, "  %s\n", x)
			}
		}
	}
}
