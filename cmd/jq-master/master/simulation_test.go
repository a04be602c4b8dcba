package master

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"gloom/cmd/jq-master/job"
	"gloom/cmd/jq-master/store"
	"gloom/wire"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "the one seed to run")
	lastFlag  = flag.Int("last", 60, "how many lines of the log of a failed world to show")
	seedsFlag = flag.Int("seeds", 60, "how many seeds to run")
)

// simulation is a machine with its surroundings, driven by a seed: a store that is slow and goes
// away, a naive broker, workers of all kinds, and pushers.
type simulation struct {
	t    *testing.T
	seed uint64
	rng  *rand.Rand
	now  int64
	set  int64 // how far the wall clock was set ahead
	ids  uint64
	log  []string

	machine *machine
	memory  *store.Memory
	store   *slowStore
	broker  *naiveBroker
	depth   int
	failure error // the error that ended the machine

	workers   []*simWorker
	model     map[job.ID]*expectedJob
	healed    bool
	slowStore bool // the broker's connections
}

// expectedJob is the state that a job must have according to the replies to its pusher and workers.
type expectedJob struct {
	id        job.ID
	maxRetry  int32
	sentCount int // attempts that workers got and have not refused
	failures  int
	succeeded bool
	ended     bool // a worker reported a failure without a retry
	cancelled bool
	revived   bool
	name      string
}

type simWorker struct {
	id      job.ID
	max     int
	pulls   bool
	silent  bool
	beats   bool
	removed bool
	running map[job.ID]int32 // attempts of the jobs that it has
	pending *pullRequest
}

func newSimulation(t *testing.T, seed uint64) *simulation {
	w := &simulation{t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 1)), now: 1_700_000_000_000, memory: store.NewMemory(), model: map[job.ID]*expectedJob{}}
	w.store = &slowStore{Memory: w.memory, w: w}
	w.start()
	return w
}

func (w *simulation) logf(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf("%d ", w.now-1_700_000_000_000)+fmt.Sprintf(format, args...))
}

func (w *simulation) fatalf(format string, args ...any) {
	w.t.Helper()
	for _, l := range w.log[max(0, len(w.log)-*lastFlag):] {
		w.t.Log(l)
	}
	w.t.Fatalf("seed %d: %s", w.seed, fmt.Sprintf(format, args...))
}

// start starts a machine with the content of the store.
func (w *simulation) start() {
	l := DefaultLimits()
	l.MaxJobs, l.KeepEnded, l.ResultTTL, l.BackoffCap = 40, 10*time.Minute, 20*time.Second, 20*time.Second
	l.Heartbeat = time.Second
	m := newMachine(l, w.seed)
	m.prefix, m.singleRunPrefix = "jq.", "jq."
	if w.seed%2 == 0 { // Gloom workers may join the broker
		m.singleRunPrefix = "jq-once."
	}
	m.newID = func() (id job.ID) {
		w.ids++
		binary.BigEndian.PutUint64(id[8:], w.ids)
		return id
	}
	w.machine, w.failure = m, nil
	w.broker = &naiveBroker{w: w, machine: m, jobs: map[job.ID]*naiveJob{}, workers: map[job.ID]serving{}, rules: map[string]ruleChange{}}
	m.env = environment{
		store: w.store, broker: w.broker, push: w,
		run: func(f func()) { w.step(m, f) },
		runOr: func(f, onGone func()) {
			if !w.step(m, f) {
				onGone()
			}
		},
		fail: func(err error) { w.failure = err },
	}
	m.setTime(w.now, w.now+w.set, w.now+w.set)
	err := w.memory.Load(context.Background(), store.LoadHandlers{
		Worker:     m.loadWorker,
		Key:        m.loadKey,
		Constraint: func(k *job.Constraint) error { sel, _ := Compile(k); m.replace(k, sel); return nil },
		Job:        m.load,
		Schedule:   func(string, []byte) error { return nil }, // restart reads them
		Seq:        func(last uint64) { m.seq = max(m.seq, last) },
	})
	if err != nil {
		w.fatalf("load: %v", err)
	}
	m.finishLoad()
}

func (w *simulation) step(m *machine, f func()) bool {
	if w.machine != m {
		return false
	}
	m.setTime(w.now, w.now+w.set, w.now+w.set)
	f()
	w.depth++
	defer func() { w.depth-- }()
	if w.depth > 1 {
		return true
	}
	for len(m.afterStep) > 0 {
		todo := m.afterStep
		m.afterStep = nil
		for _, g := range todo {
			g()
		}
	}
	w.check()
	return true
}

// check checks the invariants that hold after each command.
func (w *simulation) check() {
	mc := w.machine
	l := mc.balance()
	if n := l.imbalance(); n != 0 {
		w.fatalf("the ledger is out of balance by %d: %+v %v", n, l, mc.counts)
	}
	for i, r := range mc.timers {
		if r.runInfo.timerIndex != i || mc.jobs.Get(r.ID) != r {
			w.fatalf("timer %d is of job %v, which thinks it is %d", i, r.ID, r.runInfo.timerIndex)
		}
	}
	var counts StateCounts
	var bytes, usedBytes int64
	running := map[*worker]int{}
	results, waiters := 0, 0
	for r := range mc.jobs.All() {
		counts[r.State]++
		bytes += r.size()
		if r.State.Ended() && r.op != opForget && r.runInfo.dropAt == 0 && r.runInfo.keyUntil == 0 {
			usedBytes += r.size()
		}
		if run := r.currentRun(); run != nil {
			running[run.worker]++
			if r.State != job.Running {
				w.fatalf("job %v is %v and has a run", r.ID, r.State)
			}
		} else if r.State == job.Running {
			w.fatalf("job %v is running without a run", r.ID)
		}
		if r.runInfo != nil {
			if i := r.runInfo.timerIndex; i >= 0 && mc.timers[i] != r {
				w.fatalf("job %v (%v) thinks it is timer %d", r.ID, r.State, i)
			}
			if r.runInfo.dropAt != 0 {
				results++
			}
			waiters += len(r.runInfo.pollers)
			if r.State.Ended() && r.op == opNone && r.runInfo.timerIndex < 0 {
				w.fatalf("job %v has ended (%v op %d forget %d) and will not be forgotten", r.ID, r.State, r.op, r.runInfo.forgetAt-w.now)
			}
		}
		if r.State == job.Running && r.runInfo.timerIndex < 0 && r.op == opNone {
			w.fatalf("job %v runs without a deadline", r.ID)
		}
		if r.State.Waits() && r.op == opNone && mc.workersMayGetJobs && !r.submitted && !slices.ContainsFunc(mc.pendingResubmits, func(l pendingResubmit) bool { return l.id == r.ID }) {
			w.fatalf("job %v waits, and the broker does not have it", r.ID)
		}
	}
	oldest := time.Duration(0)
	if i := slices.IndexFunc(mc.bySeq, func(p seqEntry) bool { return p.rec != nil && p.rec.State.Waits() }); i >= 0 && !mc.loading {
		oldest = mc.age(mc.bySeq[i].rec)
	}
	if got := mc.oldest(); got != oldest && !mc.loading {
		w.fatalf("the oldest job has waited for %v, in truth for %v", got, oldest)
	}
	if counts != mc.counts {
		w.fatalf("counts %v, in truth %v", mc.counts, counts)
	}
	for _, k := range mc.workers {
		if len(k.runs) != running[k] || len(k.runs) > k.MaxJobs && k.Name != "" {
			w.fatalf("worker %v has %d runs, in truth %d of at most %d", k.ID, len(k.runs), running[k], k.MaxJobs)
		}
	}
	if mc.jobsPending == 0 && bytes != mc.bytes {
		w.fatalf("%d bytes, in truth %d", mc.bytes, bytes)
	}
	if usedBytes != mc.endedBytes {
		w.fatalf("%d bytes of jobs that may be forgotten, in truth %d", mc.endedBytes, usedBytes)
	}
	if results != mc.results {
		w.fatalf("%d results, in truth %d", mc.results, results)
	}
	if waiters != mc.waiters-w.pulling() {
		w.fatalf("%d waiters, in truth %d and %d pulls", mc.waiters, waiters, w.pulling())
	}
	for r := range mc.jobs.All() {
		if r.State.Ended() || mc.constraints.sweepIndex >= 0 {
			continue
		}
		if want := mc.constraints.setFor(matchAll(mc.constraints.enabled, &r.Attributes, nil)); !slices.Equal(want.groups(), r.constraints.groups()) {
			w.fatalf("job %v is in the groups %q, not %q", r.ID, r.constraints.groups(), want.groups())
		}
	}
	for _, k := range mc.constraints.byID {
		matchCount, runs := 0, 0
		for r := range mc.jobs.All() {
			if r.constraints == nil {
				continue
			}
			for _, m := range r.constraints.members {
				if m.constraint == k {
					matchCount++
					if r.State == job.Running {
						runs++
					}
				}
			}
		}
		if matchCount != k.matching || runs != k.running {
			w.fatalf("constraint %s has %d jobs and %d runs, in truth %d and %d", k.ID, k.matching, k.running, matchCount, runs)
		}
	}
}

// sweep runs a slice of a sweep, with other commands in between.
func (w *simulation) sweep() {
	var part *sweepSlice
	w.step(w.machine, func() { part = w.machine.nextSlice(5) })
	if part == nil {
		return
	}
	if w.oneIn(4) {
		w.store.flush()
	}
	part.match()
	w.step(w.machine, func() { w.machine.sweepSlice(part) })
}

func (w *simulation) pulling() int { return 0 }

// slowStore is a store that answers when the world lets it.
type slowStore struct {
	*store.Memory
	w       *simulation
	pending []func()
	away    bool
}

func (s *slowStore) put(f func()) {
	if s.away || s.w.rng.IntN(3) == 0 {
		s.pending = append(s.pending, f)
	} else {
		f()
	}
}

func (s *slowStore) flush() {
	for len(s.pending) > 0 && !s.away {
		f := s.pending[0]
		s.pending = s.pending[1:]
		f()
	}
}

func (s *slowStore) Enqueue(jobs []*job.Job, key *store.Key, done func([]job.ID, bool, error)) {
	if s.away {
		done(nil, false, store.ErrAway)
		return
	}
	s.put(func() { s.Memory.Enqueue(jobs, key, done) })
}
func (s *slowStore) Move(old, j *job.Job, forgetAt, dropAt int64, done func(error)) {
	s.put(func() { s.Memory.Move(old, j, forgetAt, dropAt, done) })
}
func (s *slowStore) Forget(ids []job.ID, done func(error)) {
	s.put(func() { s.Memory.Forget(ids, done) })
}

// naiveBroker is a broker without any index: it examines all jobs each time.
type naiveBroker struct {
	w           *simulation
	machine     *machine
	todo        []func()
	pendingActs []func() // hand-outs that the machine has not read yet from the workers' connections
	jobs        map[job.ID]*naiveJob
	workers     map[job.ID]serving
	rules       map[string]ruleChange
	arrived     int
}

type naiveJob struct {
	submission
	heldUntil int64
	arrived   int
	ready     int64
	worker    job.ID
	running   bool
	runs      int32
}

func (b *naiveBroker) later(f func()) { b.todo = append(b.todo, f) }

func (b *naiveBroker) submit(s submission) {
	b.w.logf("submit %v %s after %v", s.id, s.typ, s.delay)
	b.later(func() {
		if b.jobs[s.id] != nil {
			b.w.logf("the broker has %v already", s.id)
			b.w.step(b.machine, func() { b.machine.onNotAtBroker(s.id, s.number) })
			return
		}
		b.arrived++
		b.jobs[s.id] = &naiveJob{submission: s, heldUntil: b.w.now - toMillis(s.age), arrived: b.arrived, ready: b.w.now + toMillis(s.delay)}
	})
}

func (b *naiveBroker) change(id job.ID, groups []string, priority *int64, delay *time.Duration) {
	b.later(func() {
		j := b.jobs[id]
		if j == nil {
			return
		}
		if j.running {
			b.w.step(b.machine, func() { b.machine.onChangeRefused(id, delay != nil) })
			return
		}
		if groups != nil {
			j.groups = groups
		}
		if priority != nil {
			j.priority = *priority
		}
		if delay != nil {
			j.ready = b.w.now + delay.Milliseconds()
		}
	})
}

func (b *naiveBroker) cancel(id job.ID) {
	b.w.logf("withdraw %v", id)
	b.later(func() {
		if j := b.jobs[id]; j != nil && !j.running {
			delete(b.jobs, id)
		}
	})
}

func (b *naiveBroker) setServing(w job.ID, v serving) { b.later(func() { b.workers[w] = v }) }
func (b *naiveBroker) removeWorker(w job.ID)          { b.later(func() { delete(b.workers, w) }) }
func (b *naiveBroker) setRule(r ruleChange)           { b.later(func() { b.rules[r.pattern] = r }) }
func (b *naiveBroker) flush(onDone func(bool))        { b.later(func() { onDone(true) }) }

// serveSome serves at most n of the pending requests, in order.
func (b *naiveBroker) serveSome(n int) {
	for ; n > 0 && len(b.todo) > 0 && b.w.machine == b.machine; n-- {
		f := b.todo[0]
		b.todo = b.todo[1:]
		f()
	}
	b.deliver()
}

// deliver lets the machine read the hand-outs. They are on other connections than the submitter's
// frames, so they may come a little later.
func (b *naiveBroker) deliver() {
	for ; len(b.pendingActs) > 0 && b.w.machine == b.machine; b.pendingActs = b.pendingActs[1:] {
		b.pendingActs[0]()
	}
}

// endWithoutMaster ends a run or a waiting job without the master, as the loss of a worker's connection or an
// operator at the broker would.
func (b *naiveBroker) endWithoutMaster() {
	jobs := slices.SortedFunc(maps.Values(b.jobs), func(a, b *naiveJob) int { return a.arrived - b.arrived })
	j, ok := pickOne(b.w, jobs)
	if !ok {
		return
	}
	b.w.logf("the broker ends %v, running %v, run %d of %d", j.id, j.running, j.runs, j.retries+1)
	if j.running && j.runs <= j.retries {
		copiedJob := *j // a copy, so that an answer to the earlier run is discarded
		copiedJob.running = false
		b.jobs[j.id] = &copiedJob
		return
	}
	b.fail(j, j.running)
}

// fail ends a job at the broker because its last run was lost or has failed, or because it was
// cancelled.
func (b *naiveBroker) fail(j *naiveJob, lost bool) {
	delete(b.jobs, j.id)
	b.later(func() {
		b.w.step(b.machine, func() {
			if lost && !strings.HasPrefix(j.typ, "jq~") {
				b.machine.onBrokerAnswer(j.id, j.number, &job.Outcome{Reason: job.Other, Message: "its worker was lost", Retry: true, Retried: j.retried}, true)
			} else {
				b.machine.onNotAtBroker(j.id, j.number)
			}
		})
	})
}

func (b *naiveBroker) allows(j *naiveJob) bool {
	for _, g := range j.groups {
		for p, r := range b.rules {
			if r.drop || r.concurrency < 0 || !fits(p, g) {
				continue
			}
			n := int64(0)
			for _, o := range b.jobs {
				if o.running && slices.Contains(o.groups, g) {
					n++
				}
			}
			if n >= r.concurrency {
				return false
			}
		}
	}
	return true
}

// match hands out the best job that may run, and reports whether there was such a job.
func (b *naiveBroker) match() bool {
	var best *naiveJob
	var to job.ID
	for _, j := range b.jobs {
		if j.running || j.ready > b.w.now || !b.allows(j) {
			continue
		}
		if best != nil && (j.priority < best.priority || j.priority == best.priority && (j.heldUntil > best.heldUntil || j.heldUntil == best.heldUntil && j.arrived > best.arrived)) {
			continue
		}
		for _, id := range slices.SortedFunc(maps.Keys(b.workers), func(a, b job.ID) int { return slices.Compare(a[:], b[:]) }) {
			v := b.workers[id]
			out := 0
			for _, o := range b.jobs {
				if o.running && o.worker == id {
					out++
				}
			}
			serves := func(globs []string) bool {
				return slices.ContainsFunc(globs, func(p string) bool { return fits(p, j.typ) })
			}
			if out < v.prefetch && serves(v.types) && !serves(v.exceptTypes) {
				best, to = j, id
				break
			}
		}
	}
	if best == nil {
		return false
	}
	best.running, best.worker = true, to
	best.runs++
	b.pendingActs = append(b.pendingActs, func() {
		b.w.logf("handed %v to %v", best.id, to)
		b.w.step(b.machine, func() { b.machine.onHandout(to, best.id, strings.HasPrefix(best.typ, "jq~"), naiveRun{b, best}) })
	})
	if !b.w.slowStore || !b.w.oneIn(4) {
		b.deliver()
	}
	return true
}

type naiveRun struct {
	b *naiveBroker
	j *naiveJob
}

func (r naiveRun) end() {
	r.b.w.logf("end %v", r.j.id)
	r.b.later(func() {
		if r.b.jobs[r.j.id] == r.j {
			delete(r.b.jobs, r.j.id)
		}
	})
}
func (r naiveRun) release(delay time.Duration) {
	r.b.w.logf("release %v for %v", r.j.id, delay)
	r.b.later(func() { r.j.running, r.j.ready, r.j.runs = false, r.b.w.now+toMillis(delay), r.j.runs-1 })
}
func (r naiveRun) retry(delay time.Duration) {
	r.b.later(func() {
		r.j.running, r.j.ready = false, r.b.w.now+toMillis(delay)
		if r.j.runs > r.j.retries && r.b.jobs[r.j.id] == r.j {
			delete(r.b.jobs, r.j.id)
			r.b.later(func() {
				r.b.w.step(r.b.machine, func() { r.b.machine.onRetriesUsedUp(r.j.id, r.j.number, r.j.retried) })
			})
		}
	})
}
func (s *slowStore) PutSchedule(name string, text []byte, jobs []*job.Job, done func(error)) {
	s.put(func() { s.Memory.PutSchedule(name, text, jobs, done) })
}

// fits reports whether a name fits a glob.
func fits(glob, name string) bool {
	p := wire.NewPattern(wire.Canonical(nil, glob))
	return p.Matches(name)
}
