package master

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"gloom/cmd/jq-master/job"
	"gloom/wire"
)

// maxListed is the maximum number of records that one page examines.
const maxListed = 10_000

// List returns the jobs that a filter selects, newest first. It returns at most limit jobs and
// examines at most maxListed records. cursor is the Next of the previous page, 0 for the newest
// jobs.
func (m *Master) List(f *Filter, limit int, cursor uint64) (*Page, error) {
	page := &Page{}
	var err error
	page.Next, err = m.walk(f, cursor, maxListed, func(r *record) bool {
		page.Jobs = append(page.Jobs, r.Job)
		return len(page.Jobs) < limit
	})
	return page, err
}

// walk calls the machine's walk for maxStepRecords records at a time, so that other commands can
// run in between.
func (m *Master) walk(f *Filter, cursor uint64, budget int, visit func(*record) bool) (next uint64, err error) {
	for more := true; budget > 0 && more; budget -= maxStepRecords {
		next, err = readMachine(m, func(mc *machine) (uint64, error) {
			return mc.walk(f, cursor, maxStepRecords, func(r *record) bool {
				more = visit(r)
				return more
			}), nil
		})
		if cursor = next; next == 0 {
			break
		}
	}
	return next, err
}

// walk calls visit for the jobs that a filter selects, newest first, beginning below a cursor (0
// for the newest). It ends when visit returns false or budget records have been examined; a record
// with a large argument counts as several. It returns the cursor to continue from, 0 at the end.
func (m *machine) walk(f *Filter, cursor uint64, budget int, visit func(*record) bool) uint64 {
	i := len(m.bySeq)
	if cursor != 0 {
		i, _ = m.find(cursor)
	}
	for i--; i >= 0; i-- {
		budget--
		r := m.bySeq[i].rec
		if r != nil && f.Match != nil {
			budget -= matchCost(r.Job) - 1
		}
		if r != nil && f.matches(r) && !visit(r) || budget <= 0 {
			if i == 0 {
				return 0
			}
			return m.bySeq[i].seq
		}
	}
	return 0
}

func (f *Filter) matches(r *record) bool {
	switch {
	case f.HasState && r.State != f.State,
		f.Name != "" && r.Name != f.Name,
		f.From != 0 && r.Enqueued < f.From,
		f.To != 0 && r.Enqueued >= f.To,
		!f.Worker.IsZero() && r.Worker != f.Worker:
		return false
	}
	if f.Match == nil {
		return true
	}
	return f.Match(&r.Attributes)
}

// Detail returns everything about a job.
func (m *Master) Detail(ctx context.Context, id job.ID) (*Detail, error) {
	var conn *brokerConn
	detail, err := readMachine(m, func(mc *machine) (*Detail, error) {
		r := mc.jobs.Get(id)
		if r == nil {
			return nil, unknownJob(id)
		}
		conn = m.broker
		detail := &Detail{Job: r.Job, Position: -1}
		detail.HasResult = r.runInfo != nil && r.runInfo.dropAt != 0
		switch {
		case !r.State.Waits():
		case mc.awayErr != nil:
			detail.WaitReason = "the store is away"
		case mc.draining:
			detail.WaitReason = "the master is stopping"
		case mc.remainingWait(r) > 0:
			detail.WaitReason = notDue
		case conn == nil:
			detail.WaitReason = brokerAway
		default:
			switch served, silence := silenceOf(askedGlobs(mc.lastAsked()), r.Name, mc.now); {
			case !served:
				detail.WaitReason = unserved
			case silence >= maxSilence:
				detail.WaitReason = fmt.Sprintf("the workers that serve its name have been silent for %v", silence.Round(time.Second))
			}
		}
		return detail, nil
	})
	if err != nil || conn == nil || !detail.Job.State.Waits() {
		return detail, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if detail.WaitReason == unserved && m.allowsGloomWorkers() && m.isServed(ctx, conn, detail.Job.Name) {
		detail.WaitReason = ""
	}
	explained, err := conn.broker.Rules.Explain(ctx, id.String())
	if err != nil {
		return detail, nil // the job is being handed out, or the broker is away
	}
	switch {
	case detail.WaitReason != "":
	case explained.State == "delayed": // a Gloom worker has failed it, or a worker was busy
		detail.WaitReason = notDue
	case explained.State == "running" && m.allowsGloomWorkers():
		detail.WaitReason = "a Gloom worker runs it"
	}
	if explained.Ahead != nil {
		detail.Position, detail.PositionExact = *explained.Ahead, explained.AheadExact == nil || *explained.AheadExact
	}
	if explained.HeldBy != nil {
		if id, ours := constraintOf(m.opt.Namespace, explained.HeldBy.Group); ours {
			detail.BlockedBy = append(detail.BlockedBy, id)
		}
	}
	return detail, nil
}

// Why a job waits, for people.
const (
	notDue     = "it is not due yet"
	unserved   = "no worker serves its name"
	brokerAway = "the connection to the broker is lost"
)

// lastAsked returns the time at which the worker last asked for jobs: the current time if it has an
// open request, runs a job, or gets its jobs pushed.
func (w *worker) lastAsked(now int64) int64 {
	if w.Pulls() && len(w.runs) == 0 && !w.hasOpenRequest() {
		return w.lastSeen
	}
	return now
}

// lastAsked returns, for each glob of names, the time at which a worker that serves it last asked
// for jobs.
func (m *machine) lastAsked() map[string]int64 {
	last := make(map[string]int64)
	for _, w := range m.workers {
		if w.removed || w.Leaving {
			continue
		}
		at := w.lastAsked(m.now)
		for _, glob := range w.Names {
			last[glob] = max(last[glob], at)
		}
	}
	return last
}

// askedGlob stands for all workers that serve a glob.
type askedGlob struct {
	wire.Pattern
	lastSeen int64 // when one of them last asked for jobs
}

// askedGlobs returns the globs in last, which maps them to the time of the last request for jobs.
func askedGlobs(last map[string]int64) []askedGlob {
	list := make([]askedGlob, 0, len(last))
	for glob, at := range last {
		list = append(list, askedGlob{wire.NewPattern(wire.Canonical(nil, glob)), at})
	}
	return list
}

// silenceOf reports whether any worker serves a name, and returns the time since such a worker last
// asked for jobs.
func silenceOf(askers []askedGlob, name string, now int64) (served bool, since time.Duration) {
	at := int64(0)
	for i := range askers {
		if askers[i].Matches(name) {
			served, at = true, max(at, askers[i].lastSeen)
		}
	}
	if !served {
		return false, 0
	}
	return true, time.Duration(now-at) * time.Millisecond
}

// Action names something that operators can do to one job or to many.
type Action struct {
	appliesTo func(job.State) bool
	apply     func(c *machine, id job.ID, reply func(error))
}

// These are the actions. RetryAction queues a failed or cancelled job again, with all its retries,
// or lets a job that waits for a retry run at once. CancelAction is Master.Cancel for operators, to
// whom cancelled jobs are visible.
var (
	RetryAction  = Action{func(s job.State) bool { return s == job.Failed || s == job.Cancelled || s == job.Retrying }, (*machine).revive}
	CancelAction = Action{job.State.Waits, (*machine).cancelVisible}
)

// PriorityAction returns the action that gives waiting jobs another priority.
func PriorityAction(priority int32) Action {
	return Action{job.State.Waits, func(m *machine, id job.ID, reply func(error)) { m.reprioritize(id, priority, reply) }}
}

// Act applies an action to one job.
func (m *Master) Act(ctx context.Context, action Action, id job.ID) error {
	return do(context.WithoutCancel(ctx), m, func(mc *machine, reply func(error)) { action.apply(mc, id, reply) })
}

// BulkResult is the result of one call of Bulk.
type BulkResult struct {
	Affected int
	// Next is the cursor for the next call, 0 at the end; the jobs above it have been examined.
	// Start is the cursor at which this call began.
	Next, Start uint64
}

// Bulk applies an action to at most limit of the jobs that a filter selects, newest first,
// beginning below a cursor (0 for the newest). If count is set, it only counts them. If an error ends
// the call after jobs were changed, the result says how many, and the next call meets the error.
func (m *Master) Bulk(ctx context.Context, action Action, f *Filter, limit int, cursor uint64, count bool) (BulkResult, error) {
	t := BulkResult{Start: cursor}
	if cursor == 0 {
		var err error
		if t.Start, err = readMachine(m, func(mc *machine) (uint64, error) { return mc.seq + 1, nil }); err != nil {
			return t, err
		}
	}
	type target struct {
		id  job.ID
		seq uint64
	}
	var targets []target
	next, err := m.walk(f, t.Start, math.MaxInt, func(r *record) bool {
		if action.appliesTo(r.State) {
			targets = append(targets, target{r.ID, r.Seq})
		}
		return len(targets) < limit
	})
	if err != nil {
		return t, err
	}
	if t.Next = next; count {
		t.Affected = len(targets)
		return t, nil
	}
	for i := range targets {
		if err = m.Act(ctx, action, targets[i].id); err == nil {
			t.Affected++
		} else if code := codeOf(err); code != job.WrongState && code != job.UnknownJob {
			if t.Affected == 0 {
				return t, err
			}
			t.Next = targets[i-1].seq
			break
		}
	}
	return t, nil
}

// Workers returns at most limit workers, the oldest first, beginning after the worker with the id
// after, which may be gone.
func (m *Master) Workers(after job.ID, limit int) ([]*WorkerView, error) {
	return readMachine(m, func(mc *machine) ([]*WorkerView, error) {
		views := []*WorkerView{}
		workers := slices.DeleteFunc(mc.workersByAge(), func(w *worker) bool { return slices.Compare(w.ID[:], after[:]) <= 0 })
		for _, w := range workers[:min(len(workers), limit)] {
			v := &WorkerView{Worker: w.Worker, Running: len(w.runs), LastSeen: mc.wallAt(w.lastSeen), PauseReason: w.pauseReason, Leaving: w.Leaving, Silent: mc.now-w.lastAsked(mc.now) >= maxSilence.Milliseconds()}
			if mc.now < w.pausedUntil {
				v.PausedUntil = time.UnixMilli(mc.wallAt(w.pausedUntil))
			}
			views = append(views, v)
		}
		return views, nil
	})
}

// Stats returns counts and at most names of the busiest names. If there are more than manyNames
// names, the counts of names may be a second old, because counting examines all of them.
func (m *Master) Stats(names int) (*Stats, error) {
	stats, err := readMachine(m, func(mc *machine) (*Stats, error) {
		stats := &Stats{
			States: mc.counts, Ledger: mc.balance(), Workers: len(mc.workers), Bytes: mc.usedBytes(),
			Results: mc.results, Waiters: mc.waiters, Durable: m.opt.Store.Durable(), Busy: mc.counts[job.Running],
			Oldest: mc.oldest(), Wait: mc.metrics.waitSeconds.buckets, Run: mc.metrics.runSeconds.buckets,
		}
		n, seconds := m.rates.lastMinute()
		stats.Ended, stats.Failed = n.Done+n.Failed+n.Cancelled, n.Failed
		if seconds > 0 {
			stats.EnqueuedRate, stats.HandedOutRate, stats.EndedRate = float64(n.Enqueued)/seconds, float64(n.HandedOut)/seconds, float64(stats.Ended)/seconds
		}
		if mc.awayErr != nil {
			stats.StoreError = mc.awayErr.Error()
		}
		if m.broker != nil {
			stats.Refusal = m.broker.latestRefusal()
		}
		for _, w := range mc.workers {
			stats.Slots += w.MaxJobs
			if mc.now < w.pausedUntil {
				stats.Paused++
			}
		}
		return stats, nil
	})
	if err != nil || names == 0 {
		return stats, err
	}
	busiest, err := m.names.get(m.countNames)
	if err != nil {
		return nil, err
	}
	stats.Names = busiest[:min(len(busiest), names)]
	return stats, nil
}

// statNames is the maximum number of names in the statistics. If there are more than manyNames
// names, all callers within a second share the counts.
const statNames, manyNames = 1000, 100

// countNames returns the busiest names, and whether the result was so expensive that callers should
// share it.
func (m *Master) countNames() (busiest []NameStats, isExpensive bool, err error) {
	type counted struct {
		nameCounts
		total  int
		oldest time.Duration
	}
	var last map[string]int64
	var now int64
	var conn *brokerConn
	names, err := readMachine(m, func(mc *machine) ([]counted, error) {
		conn = m.broker
		names := make([]counted, 0, len(mc.names))
		ages := mc.oldestOf()
		for _, n := range mc.names {
			names = append(names, counted{nameCounts: *n, oldest: ages[n]})
		}
		last, now = mc.lastAsked(), mc.now
		return names, nil
	})
	if err != nil {
		return nil, false, err
	}
	for i := range names {
		for _, n := range names[i].counts {
			names[i].total += n
		}
	}
	slices.SortFunc(names, func(a, b counted) int { return cmp.Or(cmp.Compare(b.total, a.total), strings.Compare(a.text, b.text)) })
	serving := askedGlobs(last)
	for _, n := range names[:min(len(names), statNames)] {
		served, silence := silenceOf(serving, n.text, now)
		busiest = append(busiest, NameStats{n.text, n.counts, served, silence, n.oldest})
	}
	askedCount := 0
	ctx, cancel := context.WithTimeout(context.Background(), time.Second) // for all names: every reply with statistics waits
	defer cancel()
	for i := range busiest {
		n := &busiest[i]
		if askedCount < maxAsked && !n.Served && n.States[job.Queued]+n.States[job.Retrying] > 0 && m.allowsGloomWorkers() {
			askedCount++
			n.Served = m.isServed(ctx, conn, n.Name)
		}
	}
	return busiest, len(names) > manyNames || askedCount > 0, nil
}

// maxAsked is the maximum number of names for which one call asks the broker whether Gloom workers
// serve them.
const maxAsked = 20

// allowsGloomWorkers reports whether Gloom workers may serve jobs.
func (m *Master) allowsGloomWorkers() bool {
	return m.opt.SingleRunPrefix != m.opt.Prefix
}

// isServed reports whether a Gloom worker serves a name. It also returns true while the broker
// cannot tell, because the unknown should not be reported as a fault.
func (m *Master) isServed(ctx context.Context, conn *brokerConn, name string) bool {
	return conn == nil || conn.broker.Rules.Served(ctx, m.opt.Prefix+name)
}

// cached holds a result for a second if it was expensive to get.
type cached[T any] struct {
	mu    sync.Mutex
	value T
	until time.Time
}

func (s *cached[T]) get(compute func() (v T, isExpensive bool, err error)) (T, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Now().Before(s.until) {
		return s.value, nil
	}
	v, isExpensive, err := compute()
	s.value, s.until = v, time.Time{}
	if isExpensive && err == nil {
		s.until = time.Now().Add(time.Second)
	}
	return v, err
}

// oldest returns how long the oldest waiting job has waited. The next call begins its search at
// this job.
func (m *machine) oldest() (age time.Duration) {
	m.eachWaiting(func(r *record) bool {
		age, m.oldestWaiting = m.age(r), r.Seq
		return false
	})
	return age
}

func (m *machine) age(r *record) time.Duration {
	return time.Duration(max(m.wallTime-r.Enqueued, 0)) * time.Millisecond
}

// eachWaiting calls f with waiting jobs, the oldest first, until f returns false or maxListed
// records have been examined.
func (m *machine) eachWaiting(f func(r *record) bool) {
	from, _ := m.find(m.oldestWaiting)
	first := true
	for _, p := range m.bySeq[from:min(len(m.bySeq), from+maxListed)] {
		if r := p.rec; r != nil && r.State.Waits() {
			if first = false; !f(r) {
				return
			}
		} else if first {
			m.oldestWaiting = p.seq + 1
		}
	}
}

// oldestOf returns the age of the oldest waiting job of each name. Names whose jobs
// eachWaiting does not reach are missing.
func (m *machine) oldestOf() map[*nameCounts]time.Duration {
	ages, left := make(map[*nameCounts]time.Duration), 0
	for _, n := range m.names {
		left += min(1, n.counts[job.Queued]+n.counts[job.Retrying])
	}
	if left > 0 {
		m.eachWaiting(func(r *record) bool {
			if _, ok := ages[r.name]; !ok {
				ages[r.name] = m.age(r)
				left--
			}
			return left > 0
		})
	}
	return ages
}

// rates holds a copy of the ledger for each second of the last minute.
type rates struct {
	samples [61]Ledger
	count   int
}

func (r *rates) sample(l *Ledger) {
	r.samples[r.count%len(r.samples)] = *l
	r.count++
}

// lastMinute returns what the ledger counted in the last minute, and how many seconds the samples span.
func (r *rates) lastMinute() (n Ledger, seconds float64) {
	count := max(0, min(r.count, len(r.samples))-1)
	a, b := &r.samples[max(0, r.count-1-count)%len(r.samples)], &r.samples[max(0, r.count-1)%len(r.samples)]
	return Ledger{
		Enqueued: b.Enqueued - a.Enqueued, HandedOut: b.HandedOut - a.HandedOut,
		Done: b.Done - a.Done, Failed: b.Failed - a.Failed, Cancelled: b.Cancelled - a.Cancelled,
	}, float64(count)
}
