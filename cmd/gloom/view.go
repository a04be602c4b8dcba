package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/text"

	"gloom/broker/admin/api"
	"gloom/cmd/gloom/doors"
	"gloom/cmd/internal/cli"
)

// view holds what happened between two samples.
type view struct {
	Time     time.Time `json:"time"`
	Interval float64   `json:"interval_seconds"`
	Types    []row     `json:"types"`

	status      doors.Status
	findings    *api.Findings
	more        bool
	allFiltered bool // there are types, even if none is in the view
}

// row is a type in a view.
type row struct {
	Type    string     `json:"type"`
	Paused  bool       `json:"paused"`
	Limits  api.Limits `json:"limits"`
	Queued  uint64     `json:"queued"`
	Delayed uint64     `json:"delayed"`
	Oldest  float64    `json:"oldest_seconds"`
	Running uint64     `json:"running"`
	Workers int        `json:"workers"`
	Idle    int        `json:"idle"`
	// In and Out are nil where the ledger forgets jobs.
	In         *float64 `json:"in_per_second"`
	Out        *float64 `json:"out_per_second"`
	Dispatched uint64   `json:"dispatched"` // in the interval
	// Wait is nil when nothing was handed out.
	Wait     *float64 `json:"wait_p99_seconds"`
	unserved bool
}

// computeView computes rates from two samples. A type counts from zero if it is new in the second
// sample, or if the broker forgot it in between.
func computeView(a, b *sample) *view {
	v := &view{Time: b.at, Interval: b.at.Sub(a.at).Seconds(), status: b.status, findings: b.findings, more: b.more, Types: []row{}}
	before := make(map[string]*api.Type, len(a.types))
	for i := range a.types {
		before[a.types[i].Type] = &a.types[i]
	}
	for i := range b.types {
		typ := &b.types[i]
		oldType := before[typ.Type]
		if oldType == nil || oldType.Ledger.Submitted > typ.Ledger.Submitted || oldType.Ledger.Ended() > typ.Ledger.Ended() {
			oldType = &api.Type{}
		}
		r := row{
			Type: typ.Type, Paused: typ.Paused, Limits: typ.Limits, Queued: typ.Queued, Delayed: typ.Delayed,
			Oldest: typ.OldestSeconds, Running: typ.Running, Workers: typ.Workers, Idle: typ.Idle, unserved: typ.Unserved(),
		}
		if v.status.Rates == nil {
			r.In, r.Out = new(0.0), new(0.0)
			if v.Interval > 0 {
				*r.In = float64(typ.Ledger.Submitted-oldType.Ledger.Submitted) / v.Interval
				*r.Out = float64(typ.Ledger.Ended()-oldType.Ledger.Ended()) / v.Interval
			}
		}
		r.Dispatched, r.Wait = estimateP99(oldType.Wait, typ.Wait, max(oldType.OldestSeconds, typ.OldestSeconds))
		v.Types = append(v.Types, r)
	}
	return v
}

// estimateP99 estimates the 99th percentile, in seconds, of the durations that were counted between
// two readings of a histogram: bucket i counts durations from 2^(i-1) up to 2^i µs. Within a bucket
// the durations are assumed to be spread evenly. If the age of the oldest job that was seen waiting
// falls into the bucket, they are spread up to this age.
func estimateP99(before, now []uint64, oldest float64) (total uint64, seconds *float64) {
	diff := make([]uint64, len(now))
	for i, n := range now {
		if i < len(before) && before[i] <= n {
			n -= before[i]
		}
		diff[i] = n
		total += n
	}
	counted := 0.0
	want := 0.99 * float64(total)
	for i, n := range diff {
		if n == 0 || counted+float64(n) < want {
			counted += float64(n)
			continue
		}
		from, to := 0.0, float64(uint64(1)<<i)/1e6
		if i > 0 {
			from = to / 2
		}
		if oldest > from {
			to = min(to, oldest)
		}
		s := from + (to-from)*(want-counted)/float64(n)
		return total, &s
	}
	return total, nil
}

// column is a column of top.
type column struct {
	name, sortKey string
	width         int
	cell          func(r *row) string
	less          func(a, b *row) int
}

// topColumns lists the columns of top. Their widths and the blanks between them
// leave the type 20 characters of 80.
var topColumns = []column{
	{"TYPE", "type", 0, (*row).label, func(a, b *row) int { return strings.Compare(a.Type, b.Type) }},
	{"QUEUED", "queued", 7, func(r *row) string { return formatCount(r.Queued) }, func(a, b *row) int { return cmp.Compare(a.Queued, b.Queued) }},
	{"OLDEST", "oldest", 6, func(r *row) string { return formatOptionalSpan(r.Oldest, r.Queued > 0 && r.Oldest > 0) }, func(a, b *row) int { return cmp.Compare(a.Oldest, b.Oldest) }},
	{"RUNNING", "running", 7, func(r *row) string { return formatCount(r.Running) }, func(a, b *row) int { return cmp.Compare(a.Running, b.Running) }},
	{"WORKERS", "workers", 7, func(r *row) string { return formatCount(uint64(r.Workers)) }, func(a, b *row) int { return cmp.Compare(a.Workers, b.Workers) }},
	{"IDLE", "idle", 5, func(r *row) string { return formatCount(uint64(r.Idle)) }, func(a, b *row) int { return cmp.Compare(a.Idle, b.Idle) }},
	{"IN/S", "in", 6, func(r *row) string { return formatOptionalRate(r.In) }, func(a, b *row) int { return cmp.Compare(valueOrUnknown(a.In), valueOrUnknown(b.In)) }},
	{"OUT/S", "out", 6, func(r *row) string { return formatOptionalRate(r.Out) }, func(a, b *row) int { return cmp.Compare(valueOrUnknown(a.Out), valueOrUnknown(b.Out)) }},
	{"P99 WAIT", "wait", 8, func(r *row) string { return formatOptionalSpan(valueOrUnknown(r.Wait), r.Wait != nil) }, func(a, b *row) int { return cmp.Compare(valueOrUnknown(a.Wait), valueOrUnknown(b.Wait)) }},
}

// valueOrUnknown returns a value, or -1 if it is not known.
func valueOrUnknown(v *float64) float64 {
	if v == nil {
		return -1
	}
	return *v
}

func formatOptionalRate(v *float64) string {
	if v == nil {
		return "-"
	}
	return formatShortRate(*v)
}

func formatOptionalSpan(seconds float64, ok bool) string {
	if !ok {
		return "-"
	}
	return formatShortSpan(seconds)
}

// filterTypes returns a view of only the types whose names contain part.
func (v *view) filterTypes(part string) *view {
	filtered := *v
	filtered.Types, filtered.allFiltered = []row{}, len(v.Types) > 0
	for i := range v.Types {
		if strings.Contains(v.Types[i].Type, part) {
			filtered.Types = append(filtered.Types, v.Types[i])
		}
	}
	return &filtered
}

// sort orders the rows; equal ones go by name.
func (v *view) sort(columnName string, descending bool) {
	for _, c := range topColumns {
		if c.sortKey != columnName {
			continue
		}
		slices.SortStableFunc(v.Types, func(a, b row) int {
			n := c.less(&a, &b)
			if descending {
				n = -n
			}
			if n == 0 {
				n = strings.Compare(a.Type, b.Type)
			}
			return n
		})
	}
}

// tableStyle holds the colours of the parts of a table.
type tableStyle struct{ head, sorted, problem, note text.Colors }

// screenStyle returns the style for a terminal, with or without colours. It is readable on dark and
// on light screens.
func screenStyle(colours bool) tableStyle {
	l := tableStyle{
		head: text.Colors{text.ReverseVideo}, sorted: text.Colors{text.ReverseVideo, text.Bold, text.Underline},
		problem: text.Colors{text.Bold}, note: text.Colors{text.Bold},
	}
	if colours {
		l.problem = text.Colors{text.FgRed}
	}
	return l
}

// table lays the rows out for a width; 0: as wide as needed.
func (v *view) table(width int, sorted string, style tableStyle) []string {
	name := 4
	for i := range v.Types {
		name = max(name, cli.Width(v.Types[i].label()))
	}
	if width > 0 {
		name = width
		for _, c := range topColumns[1:] {
			name -= c.width + 1
		}
		name = max(name, 8)
	}
	line := func(cell func(i int) (string, text.Colors), blank text.Colors) string {
		var b strings.Builder
		for i, c := range topColumns {
			s, colours := cell(i)
			if i == 0 {
				s = cli.Truncate(s, name)
				b.WriteString(colours.Sprint(s) + blank.Sprint(strings.Repeat(" ", name-cli.Width(s))))
			} else {
				b.WriteString(blank.Sprint(strings.Repeat(" ", max(1, 1+c.width-cli.Width(s)))) + colours.Sprint(s))
			}
		}
		return b.String()
	}
	lines := []string{line(func(i int) (string, text.Colors) {
		if topColumns[i].sortKey == sorted {
			return topColumns[i].name, style.sorted
		}
		return topColumns[i].name, style.head
	}, style.head)}
	for i := range v.Types {
		r := &v.Types[i]
		var active text.Colors
		switch {
		case r.unserved:
			active = style.problem
		case r.Paused:
			active = style.note
		}
		lines = append(lines, active.Sprint(line(func(i int) (string, text.Colors) { return topColumns[i].cell(r), nil }, nil)))
	}
	switch {
	case len(v.Types) > 0:
	case v.allFiltered:
		lines = append(lines, "no type has that in its name")
	default:
		lines = append(lines, "no jobs, no workers, no types yet")
	}
	return lines
}

// label returns a type's name with a mark if it is paused, limited or unserved. The mark comes
// first, so that a long name does not push it out.
func (r *row) label() string {
	switch {
	case r.Paused:
		return "(paused) " + cli.Clean(r.Type)
	case r.Limits != api.Limits{}:
		return "(limit) " + cli.Clean(r.Type)
	case r.unserved:
		return "(no worker) " + cli.Clean(r.Type)
	}
	return cli.Clean(r.Type)
}

// summary returns the head of the screen.
func (v *view) summary(addr string) []string {
	s := &v.status
	state := ""
	if s.Draining {
		state = ", DRAINING"
	}
	var in, out float64
	for i := range v.Types {
		in += max(0, valueOrUnknown(v.Types[i].In))
		out += max(0, valueOrUnknown(v.Types[i].Out))
	}
	if s.Rates != nil {
		in, out = s.Rates.In, s.Rates.Out
	}
	n := func(x uint64) string { return humanize.Comma(int64(x)) }
	types := cli.Plural(s.Types, "type")
	if v.more {
		types += fmt.Sprintf(" (%d shown)", len(v.Types))
	}
	lines := []string{
		fmt.Sprintf("%s %s at %s, up %s%s: %s, %s", cmp.Or(s.Door, "gloomd"), cli.Clean(s.Version), addr, formatSpan(s.UptimeSeconds), state, types, describePeers(s)),
		fmt.Sprintf("%s queued, %s delayed, %s running; %s in/s, %s out/s; %s failed",
			n(s.Ledger.Queued), n(s.Ledger.Delayed), n(s.Ledger.Running), formatShortRate(in), formatShortRate(out), n(s.Ledger.Failed)),
	}
	if v.findings != nil && len(v.findings.Items) > 0 {
		line := headline(&v.findings.Items[0])
		if hiddenCount := len(v.findings.Items) - 1 + v.findings.More; hiddenCount > 0 {
			line += fmt.Sprintf(" (and %d more: gloom findings)", hiddenCount)
		}
		lines = append(lines, line)
	}
	return append(lines, "")
}
