package master

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"
	"time"

	"gloom/cmd/jq-master/job"
	"gloom/wire"
)

// manyLooked is how many records a page looks at.
const manyLooked = 10_000

// List returns the jobs that a filter picks, newest first: at most limit, among at most 10,000
// records. Cursor is a page's Next, 0 for the newest.
func (m *Master) List(f *Filter, limit int, cursor uint64) (*Page, error) {
	page := &Page{}
	var err error
	page.Next, err = m.each(f, cursor, manyLooked, func(r *record) bool {
		page.Jobs = append(page.Jobs, r.Job)
		return len(page.Jobs) < limit
	})
	return page, err
}

// each calls the machine's each in pieces, between which other commands run, for so many records.
func (m *Master) each(f *Filter, cursor uint64, looks int, found func(*record) bool) (next uint64, err error) {
	for more := true; looks > 0 && more; looks -= manyAtOnce {
		next, err = look(m, func(c *machine) (uint64, error) {
			return c.each(f, cursor, manyAtOnce, func(r *record) bool {
				more = found(r)
				return more
			}), nil
		})
		if cursor = next; next == 0 {
			break
		}
	}
	return next, err
}

// each calls found for jobs that a filter picks, newest first and from below a cursor, until found
// returns false or so many records were looked at. It returns the cursor to continue from, 0 at
// the end.
func (c *machine) each(f *Filter, cursor uint64, looks int, found func(*record) bool) uint64 {
	i := len(c.order)
	if cursor != 0 {
		i, _ = c.find(cursor)
	}
	for i--; i >= 0; i-- {
		looks--
		r := c.order[i].rec
		if r != nil && f.Match != nil {
			looks -= weight(r.Job) - 1
		}
		if r != nil && f.picks(r) && !found(r) || looks <= 0 {
			if i == 0 {
				return 0
			}
			return c.order[i].seq
		}
	}
	return 0
}

func (f *Filter) picks(r *record) bool {
	switch {
	case f.HasState && r.State != f.State,
		f.Name != "" && r.Name != f.Name,
		f.From != 0 && r.Enqueued < f.From,
		f.To != 0 && r.Enqueued >= f.To,
		!f.Worker.None() && r.Worker != f.Worker:
		return false
	}
	if f.Match == nil {
		return true
	}
	return f.Match(&r.Attributes)
}

// Detail returns everything about a job.
func (m *Master) Detail(ctx context.Context, id job.ID) (*Detail, error) {
	var line *brokerLine
	d, err := look(m, func(c *machine) (*Detail, error) {
		r := c.jobs.Get(id)
		if r == nil {
			return nil, unknownJob(id)
		}
		line = m.line
		d := &Detail{Job: r.Job, Place: -1}
		d.HasResult = r.past != nil && r.past.drop != 0
		switch {
		case !r.waits():
		case c.away != nil:
			d.Waits = "the store is away"
		case c.draining:
			d.Waits = "the master is stopping"
		case c.rest(r) > 0:
			d.Waits = "it is not due yet"
		case !slices.ContainsFunc(c.byAge(), func(w *worker) bool { return w.serves(r.Name) }):
			d.Waits = "no worker serves its name"
		}
		return d, nil
	})
	if err != nil || line == nil || d.Job.State != job.Queued && d.Job.State != job.Retrying {
		return d, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	told, err := line.b.Rules.Explain(ctx, id.String())
	if err != nil {
		return d, nil // it is just being handed out, or the broker is away
	}
	if told.Ahead != nil {
		d.Place, d.Exact = *told.Ahead, told.AheadExact == nil || *told.AheadExact
	}
	if told.HeldBy != nil {
		if id, ours := constraintOf(m.opt.Namespace, told.HeldBy.Group); ours {
			d.BlockedBy = append(d.BlockedBy, id)
		}
	}
	return d, nil
}

// serves reports whether the worker serves jobs of a name.
func (w *worker) serves(name string) bool {
	return !w.gone && !w.Leaving && slices.ContainsFunc(w.Names, func(glob string) bool { return fits(glob, name) })
}

// fits reports whether a name fits a glob.
func fits(glob, name string) bool {
	p := wire.NewPattern(wire.Canonical(nil, glob))
	return p.Fits(name)
}

// Bulk retries or cancels at most limit of the jobs that a filter picks, among all there are: the
// next request begins with the newest again. More says that there may be others.
func (m *Master) Bulk(ctx context.Context, action string, f *Filter, limit int) (affected int, more bool, err error) {
	fitting := func(s job.State) bool {
		if action == "retry" {
			return s == job.Failed || s == job.Cancelled || s == job.Retrying
		}
		return s == job.Queued || s == job.Retrying
	}
	var ids []job.ID
	next, err := m.each(f, 0, math.MaxInt, func(r *record) bool {
		if fitting(r.State) {
			ids = append(ids, r.ID)
		}
		return len(ids) < limit
	})
	if err != nil {
		return 0, false, err
	}
	act := m.CancelAny
	if action == "retry" {
		act = m.Retry
	}
	for _, id := range ids {
		if err = act(ctx, id); err == nil {
			affected++
		} else if f, ok := err.(*job.Fault); !ok || f.Code != job.WrongState && f.Code != job.UnknownJob {
			return affected, true, err
		}
	}
	return affected, next != 0, nil
}

// Workers returns all workers, the oldest first.
func (m *Master) Workers() ([]*WorkerView, error) {
	return look(m, func(c *machine) ([]*WorkerView, error) {
		all := []*WorkerView{}
		for _, w := range c.byAge() {
			v := &WorkerView{Worker: w.Worker, Running: len(w.runs), Seen: c.wallAt(w.seen), Why: w.why, Leaving: w.Leaving}
			if c.now < w.pausedTo {
				v.Paused = time.UnixMilli(c.wallAt(w.pausedTo))
			}
			all = append(all, v)
		}
		return all, nil
	})
}

// statNames is how many names the statistics have.
const statNames = 1000

// Stats returns counts.
func (m *Master) Stats() (*Stats, error) {
	var names []name
	s, err := look(m, func(c *machine) (*Stats, error) {
		s := &Stats{
			States: states(&c.counts), Ledger: c.ledger, Workers: len(c.workers), Bytes: c.held(),
			Results: c.results, Waiters: c.waiters, Durable: m.opt.Store.Durable(), Busy: c.counts[job.Running],
			Oldest: c.oldest(),
		}
		s.EnqueuedRate, s.HandedOutRate, s.EndedRate = m.rates.perSecond()
		if c.away != nil {
			s.StoreAway = c.away.Error()
		}
		for _, w := range c.workers {
			s.Slots += w.MaxJobs
		}
		names = make([]name, 0, len(c.names))
		for _, n := range c.names {
			names = append(names, *n)
		}
		return s, nil
	})
	if err != nil {
		return nil, err
	}
	total := func(n *name) (sum int) {
		for _, v := range n.counts {
			sum += v
		}
		return sum
	}
	// Without the lock: there may be as many names as jobs.
	slices.SortFunc(names, func(a, b name) int { return cmp.Or(cmp.Compare(total(&b), total(&a)), strings.Compare(a.text, b.text)) })
	for i := range names[:min(len(names), statNames)] {
		s.Names = append(s.Names, NameStats{names[i].text, states(&names[i].counts)})
	}
	return s, nil
}

func states(counts *[6]int) map[job.State]int {
	all := make(map[job.State]int, len(counts))
	for s, n := range counts {
		all[job.State(s)] = n
	}
	return all
}

// oldest returns how long the oldest waiting job has waited, as far as a few looks tell.
func (c *machine) oldest() time.Duration {
	for i := range min(len(c.order), manyLooked) {
		if r := c.order[i].rec; r != nil && r.waits() {
			return time.Duration(max(c.wall-r.Enqueued, 0)) * time.Millisecond
		}
	}
	return 0
}

func (c *machine) viewConstraints(persisted bool) []*ConstraintView {
	all := []*ConstraintView{}
	for _, k := range c.constraints.byID {
		all = append(all, k.view(persisted))
	}
	slices.SortFunc(all, func(a, b *ConstraintView) int { return strings.Compare(a.ID, b.ID) })
	return all
}

func (k *constraint) view(persisted bool) *ConstraintView {
	return &ConstraintView{Constraint: k.Constraint, Matching: k.matching, Running: k.running, Persisted: persisted}
}

// rates remembers a minute of the ledger.
type rates struct {
	samples [61]Ledger
	n       int
}

func (r *rates) sample(l *Ledger) {
	r.samples[r.n%len(r.samples)] = *l
	r.n++
}

func (r *rates) perSecond() (enqueued, handedOut, ended float64) {
	span := min(r.n, len(r.samples)) - 1
	if span < 1 {
		return 0, 0, 0
	}
	a, b := &r.samples[(r.n-1-span)%len(r.samples)], &r.samples[(r.n-1)%len(r.samples)]
	over := func(x, y uint64) float64 { return float64(y-x) / float64(span) }
	return over(a.Enqueued, b.Enqueued), over(a.HandedOut, b.HandedOut),
		over(a.Done+a.Failed+a.Cancelled, b.Done+b.Failed+b.Cancelled)
}
