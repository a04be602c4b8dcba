package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/text"
)

// view is what happened between two samples.
type view struct {
	Time     time.Time `json:"time"`
	Interval float64   `json:"interval_seconds"`
	Types    []row     `json:"types"`

	status brokerStatus
	more   bool
}

// row is a type in it.
type row struct {
	Type       string  `json:"type"`
	Paused     bool    `json:"paused"`
	Limits     limits  `json:"limits"`
	Queued     uint64  `json:"queued"`
	Delayed    uint64  `json:"delayed"`
	Oldest     float64 `json:"oldest_seconds"`
	Running    uint64  `json:"running"`
	Workers    int     `json:"workers"`
	Idle       int     `json:"idle"`
	In         float64 `json:"in_per_second"`
	Out        float64 `json:"out_per_second"`
	Dispatched uint64  `json:"dispatched"` // in the interval
	// Wait is nil when nothing was handed out.
	Wait *float64 `json:"wait_p99_seconds"`
}

// compare makes rates of two samples; of a type that is new in the second one,
// or that the broker had forgotten in between, everything is new.
func compare(a, b *sample) *view {
	v := &view{Time: b.at, Interval: b.at.Sub(a.at).Seconds(), status: b.status, more: b.more, Types: []row{}}
	before := make(map[string]*typeInfo, len(a.types))
	for i := range a.types {
		before[a.types[i].Type] = &a.types[i]
	}
	for i := range b.types {
		now := &b.types[i]
		was := before[now.Type]
		if was == nil || was.Ledger.Submitted > now.Ledger.Submitted || was.Ledger.ended() > now.Ledger.ended() {
			was = &typeInfo{}
		}
		r := row{
			Type: now.Type, Paused: now.Paused, Limits: now.Limits, Queued: now.Queued, Delayed: now.Delayed,
			Oldest: now.Oldest, Running: now.Running, Workers: now.Workers, Idle: now.Idle,
		}
		if v.Interval > 0 {
			r.In = float64(now.Ledger.Submitted-was.Ledger.Submitted) / v.Interval
			r.Out = float64(now.Ledger.ended()-was.Ledger.ended()) / v.Interval
		}
		r.Dispatched, r.Wait = p99(was.Wait, now.Wait)
		v.Types = append(v.Types, r)
	}
	return v
}

// p99 estimates below which duration, in seconds, 99 of 100 lie that were
// counted between two looks at a histogram: bucket i counts durations from
// 2^(i-1) up to 2^i µs. Within a bucket they are taken to be spread evenly.
func p99(was, now []uint64) (total uint64, seconds *float64) {
	diff := make([]uint64, len(now))
	for i, n := range now {
		if i < len(was) && was[i] <= n {
			n -= was[i]
		}
		diff[i] = n
		total += n
	}
	if total == 0 {
		return 0, nil
	}
	below := 0.0
	want := 0.99 * float64(total)
	for i, n := range diff {
		if below+float64(n) < want || n == 0 {
			below += float64(n)
			continue
		}
		from, to := 0.0, float64(uint64(1)<<i)
		if i > 0 {
			from = to / 2
		}
		us := from + (to-from)*(want-below)/float64(n)
		s := us / 1e6
		return total, &s
	}
	return total, nil
}

// topColumns are the columns of top. Their widths and the blanks between them
// leave the type 20 characters of 80.
var topColumns = []struct {
	name, sort string
	width      int
	cell       func(r *row) string
	less       func(a, b *row) int
}{
	{"TYPE", "type", 0, nil, func(a, b *row) int { return strings.Compare(a.Type, b.Type) }},
	{"QUEUED", "queued", 7, func(r *row) string { return count(r.Queued) }, func(a, b *row) int { return cmp.Compare(a.Queued, b.Queued) }},
	{"OLDEST", "oldest", 6, func(r *row) string { return spanOr(r.Oldest, r.Queued > 0) }, func(a, b *row) int { return cmp.Compare(a.Oldest, b.Oldest) }},
	{"RUNNING", "running", 7, func(r *row) string { return count(r.Running) }, func(a, b *row) int { return cmp.Compare(a.Running, b.Running) }},
	{"WORKERS", "workers", 7, func(r *row) string { return count(uint64(r.Workers)) }, func(a, b *row) int { return cmp.Compare(a.Workers, b.Workers) }},
	{"IDLE", "idle", 5, func(r *row) string { return count(uint64(r.Idle)) }, func(a, b *row) int { return cmp.Compare(a.Idle, b.Idle) }},
	{"IN/S", "in", 6, func(r *row) string { return perSecond(r.In) }, func(a, b *row) int { return cmp.Compare(a.In, b.In) }},
	{"OUT/S", "out", 6, func(r *row) string { return perSecond(r.Out) }, func(a, b *row) int { return cmp.Compare(a.Out, b.Out) }},
	{"P99 WAIT", "wait", 8, func(r *row) string { return spanOr(r.wait(), r.Wait != nil) }, func(a, b *row) int { return cmp.Compare(a.wait(), b.wait()) }},
}

func (r *row) wait() float64 {
	if r.Wait == nil {
		return -1
	}
	return *r.Wait
}

func spanOr(seconds float64, ok bool) string {
	if !ok {
		return "-"
	}
	return short(seconds)
}

// sort orders the rows; equals go by name.
func (v *view) sort(by string, descending bool) {
	for _, c := range topColumns {
		if c.sort != by {
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

// style says how parts of a table stand out: nothing that a dark or a light
// screen could not show.
type style struct{ head, sorted, bad, note, off string }

var (
	plainStyle = style{}
	monoStyle  = style{head: "\x1b[7m", sorted: "\x1b[7;1;4m", bad: "\x1b[1m", note: "\x1b[1m", off: "\x1b[0m"}
	colorStyle = style{head: "\x1b[7m", sorted: "\x1b[7;1;4m", bad: "\x1b[31m", note: "\x1b[1m", off: "\x1b[0m"}
)

// table lays the rows out for a width; 0 is as wide as it takes.
func (v *view) table(width int, sorted string, st style) []string {
	fixed, name := 0, 4
	for _, c := range topColumns {
		if c.width > 0 {
			fixed += c.width + 1
		}
	}
	for i := range v.Types {
		name = max(name, text.StringWidthWithoutEscSequences(v.Types[i].label()))
	}
	if width > 0 {
		name = max(width-fixed, 8)
	}
	var head strings.Builder
	for i, c := range topColumns {
		w, align := c.width, text.AlignRight
		if i == 0 {
			w, align = name, text.AlignLeft
		} else {
			head.WriteString(st.head + " ")
		}
		on := st.head
		cell := align.Apply(c.name, w)
		if c.sort == sorted {
			pad := strings.Repeat(" ", w-len(c.name))
			cell = st.off + st.sorted + c.name + st.off + st.head
			if i == 0 {
				cell += pad
			} else {
				cell = pad + cell
			}
		}
		head.WriteString(on + cell)
	}
	lines := []string{head.String() + st.off}
	for i := range v.Types {
		r := &v.Types[i]
		var b strings.Builder
		on := ""
		switch {
		case r.Queued > 0 && r.Workers == 0:
			on = st.bad
		case r.Paused:
			on = st.note
		}
		b.WriteString(on + text.AlignLeft.Apply(cutTo(r.label(), name), name))
		for _, c := range topColumns[1:] {
			b.WriteString(" " + text.AlignRight.Apply(c.cell(r), c.width))
		}
		if on != "" {
			b.WriteString(st.off)
		}
		lines = append(lines, b.String())
	}
	if len(v.Types) == 0 {
		lines = append(lines, "no jobs, no workers, no types yet")
	}
	return lines
}

// label is a type's name with what is set on it, the mark first so that a long
// name does not push it out.
func (r *row) label() string {
	switch {
	case r.Paused:
		return "(paused) " + clean(r.Type)
	case r.Limits != limits{}:
		return "(limit) " + clean(r.Type)
	case r.Queued > 0 && r.Workers == 0:
		return "(nobody) " + clean(r.Type)
	}
	return clean(r.Type)
}

// summary is the head of the screen.
func (v *view) summary(addr string) []string {
	s := &v.status
	state := ""
	if s.Draining {
		state = ", DRAINING"
	}
	var in, out float64
	for i := range v.Types {
		in += v.Types[i].In
		out += v.Types[i].Out
	}
	n := func(x uint64) string { return humanize.Comma(int64(x)) }
	types := plural(s.Types, "type")
	if v.more {
		types += fmt.Sprintf(" (%d shown)", len(v.Types))
	}
	return []string{
		fmt.Sprintf("gloomd %s at %s, up %s%s: %s, %s, %s", clean(s.Version), addr, span(s.Uptime), state,
			types, plural(s.Workers, "worker"), plural(s.Submitters, "submitter")),
		fmt.Sprintf("%s queued, %s delayed, %s running; %s in/s, %s out/s; %s failed",
			n(s.Ledger.Queued), n(s.Ledger.Delayed), n(s.Ledger.Running), perSecond(in), perSecond(out), n(s.Ledger.Failed)),
		"",
	}
}
