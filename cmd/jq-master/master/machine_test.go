package master

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"gloom/cmd/internal/unique"
	"gloom/cmd/jq-master/job"
	"gloom/cmd/jq-master/store"
	"gloom/wire"
)

// TestSeeds runs random simulations. After each command the counts are right, and in the end all
// accepted jobs have ended as the replies to workers and pushers said.
func TestSeeds(t *testing.T) {
	if *seedFlag != 0 {
		newSimulation(t, *seedFlag).run(400)
		return
	}
	base := rand.Uint64() >> 1
	t.Logf("seeds from %d on", base)
	for n := range *seedsFlag {
		newSimulation(t, base+uint64(n)).run(400)
	}
}

func (w *simulation) run(steps int) {
	w.slowStore = true
	for range steps {
		w.act()
		w.advance()
	}
	w.repair()
}

func (w *simulation) oneIn(n int) bool { return w.rng.IntN(n) == 0 }

func pickOne[T any](w *simulation, items []T) (v T, ok bool) {
	if len(items) == 0 {
		return v, false
	}
	return items[w.rng.IntN(len(items))], true
}

// advance lets the store, the broker and the workers serve some of their requests.
func (w *simulation) advance() {
	if w.rng.IntN(2) == 0 {
		w.store.flush()
	}
	w.broker.serveSome(w.rng.IntN(6))
	if w.broker.match() {
		w.broker.match()
	}
	w.step(w.machine, func() { w.machine.submitSlice(3) })
	w.sweep()
	if w.failure != nil {
		w.fatalf("the machine gave up: %v", w.failure)
	}
	if len(w.broker.todo) > 0 || w.machine.constraints.sweepIndex >= 0 {
		return
	}
	for r := range w.machine.jobs.All() { // the broker must have the waiting jobs as the machine has them
		b := w.broker.jobs[r.ID]
		if b == nil || !r.submitted || !r.State.Waits() || r.op != opNone || b.running || slices.ContainsFunc(w.machine.pendingResubmits, func(l pendingResubmit) bool { return l.id == r.ID }) {
			continue
		}
		if !slices.Equal(b.groups, r.constraints.groups()) {
			w.fatalf("the broker has job %v in %q, not %q", r.ID, b.groups, r.constraints.groups())
		}
		if b.priority != w.machine.brokerPriority(r) {
			w.fatalf("the broker has job %v with priority %d, not %d", r.ID, b.priority, w.machine.brokerPriority(r))
		}
	}
}

// elapse moves the machine's clocks on, a beat at a time, so that the machine does not seem to
// stand still. Work that falls due is not done here: pass does it.
func (w *simulation) elapse(d time.Duration) {
	for end := w.now + toMillis(d); w.now < end; {
		w.now = min(end, w.now+toMillis(beatInterval))
		w.machine.setTime(w.now, w.now+w.set, w.now+w.set)
	}
}

// pass delivers the broker's messages to the machine, moves the clock, and then runs the machine's
// due work.
func (w *simulation) pass(d time.Duration) {
	w.broker.deliver()
	w.elapse(d)
	w.step(w.machine, func() { w.machine.checkPeriodic(); w.machine.refill(); w.machine.resubmitPending(); w.machine.tick() })
}

func (w *simulation) jobs() []*expectedJob {
	jobs := make([]*expectedJob, 0, len(w.model))
	for _, e := range w.model {
		jobs = append(jobs, e)
	}
	slices.SortFunc(jobs, func(a, b *expectedJob) int { return slices.Compare(a.id[:], b.id[:]) })
	return jobs
}

func (w *simulation) act() {
	switch n := w.rng.IntN(100); {
	case n < 22:
		w.enqueue()
	case n < 30 && len(w.workers) < 6:
		w.register()
	case n < 60:
		w.workerActs()
	case n < 64:
		w.cancelOne(w.oneIn(2))
	case n < 67:
		if e, ok := pickOne(w, w.jobs()); ok {
			w.logf("revive %v", e.id)
			e.revived = true // the job may not have been cancelled: a crash may have lost the cancellation
			w.step(w.machine, func() {
				w.machine.revive(e.id, func(err error) {
					if err == nil {
						w.logf("revived %v", e.id)
						e.revived, e.ended, e.cancelled, e.failures = true, false, false, 0
					}
				})
			})
		}
	case n < 68:
		if e, ok := pickOne(w, w.jobs()); ok {
			priority := int32(w.rng.IntN(5) - 2)
			w.logf("job %v gets priority %d", e.id, priority)
			w.step(w.machine, func() { w.machine.reprioritize(e.id, priority, func(error) {}) })
		}
	case n < 70:
		w.constrain()
	case n < 72:
		w.toggleStore()
	case n < 73:
		w.crash()
	case n < 75:
		w.logf("the broker is lost")
		w.step(w.machine, func() { w.machine.forgetSubmissions() })
		b := w.broker
		w.broker = &naiveBroker{w: w, machine: w.machine, jobs: map[job.ID]*naiveJob{}, workers: map[job.ID]serving{}, rules: map[string]ruleChange{}}
		b.todo = nil
		w.machine.env.broker = w.broker
		b.deliver() // the deadline is judged before the connection is read
	case n < 80:
		w.poll()
	case n < 90:
		w.broker.endWithoutMaster()
	default:
		w.pass(time.Duration(w.rng.IntN(2500)) * time.Millisecond)
	}
}

// repair lets everything work, and checks that all jobs end.
func (w *simulation) repair() {
	w.healed = true
	if w.store.away {
		w.toggleStore()
	}
	for _, id := range []string{"k0", "k1"} {
		w.step(w.machine, func() { w.machine.changeConstraint(id, nil, selector{}, 0, false, func(bool, error) {}) })
	}
	w.register()
	w.register()
	ended := func() bool {
		return w.machine.counts[job.Queued]+w.machine.counts[job.Running]+w.machine.counts[job.Retrying] == 0
	}
	for n := 0; !ended(); n++ {
		if n > 20_000 {
			for r := range w.machine.jobs.All() {
				if !r.State.Ended() {
					w.t.Logf("%v %v op %d submitted %v attempt %d due in %d: broker %+v", r.ID, r.State, r.op, r.submitted, r.Attempt, r.Due-w.now, w.broker.jobs[r.ID])
				}
			}
			for id, v := range w.broker.workers {
				w.t.Logf("%v %+v", id, v)
			}
			w.fatalf("jobs do not end: %v", w.machine.counts)
		}
		w.store.flush()
		w.broker.serveSome(10)
		w.broker.match()
		w.step(w.machine, func() { w.machine.submitSlice(3) })
		w.sweep()
		for range 3 {
			w.workerActs()
		}
		w.pass(100 * time.Millisecond)
		if w.failure != nil {
			w.fatalf("the machine gave up: %v", w.failure)
		}
	}
	for _, e := range w.jobs() {
		r := w.machine.jobs.Get(e.id)
		switch {
		case r == nil:
		case e.cancelled && !e.revived && r.State != job.Cancelled:
			w.fatalf("job %v was cancelled, and is %v", e.id, r.State)
		case e.succeeded && r.State != job.Done:
			w.fatalf("job %v succeeded, and is %v", e.id, r.State)
		case len(r.Attempts) > 0 && r.Attempts[len(r.Attempts)-1].Worker == job.ID{}:
			w.fatalf("job %v ended as by one of the broker's own workers, which are none", e.id)
		}
	}
	if w.machine.jobsPending != 0 || len(w.machine.pendingResubmits) > 0 {
		w.fatalf("%d jobs are still to come, %d late", w.machine.jobsPending, len(w.machine.pendingResubmits))
	}
}

// TestSurplusOfEndedJobsIsForgotten: if there are too many ended jobs, the master forgets only as
// many as it must, even if the store is slow to forget.
func TestSurplusOfEndedJobsIsForgotten(t *testing.T) {
	w := newSimulation(t, 1)
	m := w.machine
	m.MaxEnded = 10
	w.step(m, func() {
		for n := range 3 * maxStepRecords {
			j := &job.Job{ID: m.newID(), Attributes: job.Attributes{Name: "n"}, Seq: uint64(n + 1), State: job.Done, Finished: w.now}
			m.load(j, w.now+toMillis(time.Hour), 0)
		}
	})
	w.now += toMillis(2 * minEndedAge)
	w.store.away = true
	for range 5 {
		w.step(m, m.expire)
	}
	w.store.away = false
	w.store.flush()
	if n := m.counts[job.Done]; n != m.MaxEnded || m.beingForgotten != 0 {
		t.Fatalf("%d jobs are left of at most %d, %d are leaving", n, m.MaxEnded, m.beingForgotten)
	}
}

// TestJobsAreSurplusAfterTheirWindow: an ended job that holds its unique key for a time is not
// forgotten before this time has passed, and is then forgotten like all others.
func TestJobsAreSurplusAfterTheirWindow(t *testing.T) {
	w := newSimulation(t, 1)
	m := w.machine
	m.MaxEnded = 10
	until := w.now + toMillis(time.Minute)
	w.step(m, func() {
		for n := range 30 {
			j := &job.Job{ID: m.newID(), Attributes: job.Attributes{Name: "n"}, Seq: uint64(n + 1), State: job.Done, Finished: w.now}
			j.Unique = &job.Unique{Key: fmt.Sprint(n), Period: unique.PeriodWindow, Until: until}
			drop := int64(0)
			if n%2 == 0 {
				j.Result, drop = nilValue, until+int64(n%3-1)*1000 // dropped before, at or after the end of the window
			}
			m.load(j, until+toMillis(time.Hour), drop)
		}
	})
	for _, c := range []struct {
		now  int64
		left int
	}{{until - 1, 30}, {until + 2000, 30}, {until + 2000 + toMillis(minEndedAge), m.MaxEnded}} {
		for w.now < c.now { // in one step, the machine would have stood still
			w.now = min(w.now+toMillis(maxCommandGap)/2, c.now)
			w.step(m, m.tick)
		}
		w.step(m, m.expire)
		w.store.flush()
		if n := m.counts[job.Done]; n != c.left || m.beingForgotten != 0 {
			t.Fatalf("%d jobs are left, not %d, %d are leaving", n, c.left, m.beingForgotten)
		}
	}
}

// TestSurplusBytes: the bytes of ended jobs leave room for new jobs, but kept results do not.
func TestSurplusBytes(t *testing.T) {
	w := newSimulation(t, 1)
	m := w.machine
	m.MaxBytes = 100 << 10
	w.step(m, func() {
		for n := range 90 {
			j := &job.Job{ID: m.newID(), Attributes: job.Attributes{Name: "n"}, Seq: uint64(n + 1), State: job.Done, Finished: w.now}
			j.Argument = make([]byte, 1<<10)
			drop := int64(0)
			if n%3 == 0 {
				j.Argument, j.Result, drop = j.Argument[:1<<9], make([]byte, 1<<9), never
			}
			m.load(j, never, drop)
		}
	})
	w.step(m, m.expire)
	w.store.flush()
	if m.results != 30 || m.counts[job.Done] != 30+50 || m.endedBytes != 50<<10 || m.bytes != 80<<10 {
		t.Fatalf("%d results and %d jobs are left, with %d of %d bytes without a result", m.results, m.counts[job.Done], m.endedBytes, m.bytes)
	}
}

// TestKeyHoldersDisplaceNoOthers: ended jobs that hold their unique keys, and so cannot be forgotten,
// do not cause others to be forgotten, whatever bytes they have.
func TestKeyHoldersDisplaceNoOthers(t *testing.T) {
	w := newSimulation(t, 1)
	m := w.machine
	m.MaxBytes = 100 << 10
	until := w.now + toMillis(10*time.Second)
	w.step(m, func() {
		for n := range 70 {
			j := &job.Job{ID: m.newID(), Attributes: job.Attributes{Name: "n", Argument: make([]byte, 1<<10)}, Seq: uint64(n + 1), State: job.Done, Finished: w.now}
			if n < 60 {
				j.Unique = &job.Unique{Key: fmt.Sprint(n), Period: unique.PeriodWindow, Until: until}
			}
			m.load(j, never, 0)
		}
	})
	w.step(m, m.expire)
	w.store.flush()
	if n := m.counts[job.Done]; n != 70 || m.endedBytes != 10<<10 {
		t.Fatalf("%d jobs are left; %d bytes may be forgotten", n, m.endedBytes)
	}
	for w.now < until+1000 { // in one step, the machine would have stood still
		w.now += toMillis(maxCommandGap) / 2
		w.step(m, m.tick)
	}
	w.step(m, m.expire)
	w.store.flush()
	if m.endedBytes > m.MaxBytes/2 || m.counts[job.Done] < 40 {
		t.Fatalf("after the windows %d jobs are left, with %d bytes", m.counts[job.Done], m.endedBytes)
	}
}

// TestLoadInAnyOrder: jobs are in order after a start, although the store gives the ended jobs,
// which are older, after the waiting jobs.
func TestLoadInAnyOrder(t *testing.T) {
	const n = 1000
	m := newMachine(DefaultLimits(), 1)
	load := func(seq uint64, s job.State) {
		m.load(&job.Job{ID: job.NewID(), Attributes: job.Attributes{Name: "n"}, Seq: seq, State: s}, never, 0)
	}
	for i := range uint64(n) {
		load(n+1+i, job.Queued)
	}
	for i := range uint64(n) {
		load(n-i, job.Done)
	}
	if first := m.bySeq[0].seq; first != n+1 {
		t.Fatalf("the first job is %d: each one that was read later has moved all others", first)
	}
	m.finishLoad()
	for i, p := range m.bySeq {
		if p.seq != uint64(i+1) || p.rec.Seq != p.seq {
			t.Fatalf("place %d is of job %d", i, p.seq)
		}
	}
}

// TestAgeOfOldestWaitingJob: the age of the oldest waiting job, and of the oldest with each name,
// is known behind any number of ended jobs.
func TestAgeOfOldestWaitingJob(t *testing.T) {
	m := newMachine(DefaultLimits(), 1)
	m.wallTime = toMillis(time.Hour)
	seq := uint64(0)
	load := func(name string, s job.State, age time.Duration) *record {
		seq++
		j := &job.Job{ID: job.NewID(), Attributes: job.Attributes{Name: name}, Seq: seq, State: s, Enqueued: m.wallTime - toMillis(age)}
		m.load(j, never, 0)
		return m.jobs.Get(j.ID)
	}
	first := load("a", job.Done, 50*time.Minute)
	for range 2 * maxListed {
		load("a", job.Done, 40*time.Minute)
	}
	load("b", job.Queued, 30*time.Minute)
	load("b", job.Queued, 20*time.Minute)
	load("c", job.Retrying, 10*time.Minute)
	m.finishLoad()
	checkAges := func(oldest, a, b, cc time.Duration) {
		t.Helper()
		ages := m.oldestOf()
		if got := m.oldest(); got != oldest || ages[m.names["a"]] != a || ages[m.names["b"]] != b || ages[m.names["c"]] != cc {
			t.Errorf("the oldest has waited for %v, those of the names for %v, %v, %v", got, ages[m.names["a"]], ages[m.names["b"]], ages[m.names["c"]])
		}
	}
	checkAges(30*time.Minute, 0, 30*time.Minute, 10*time.Minute)
	retriedJob := first.nextState()
	retriedJob.State = job.Queued
	m.replaceJob(first, retriedJob)
	checkAges(50*time.Minute, 50*time.Minute, 0, 0) // the other names are behind too many jobs
	done := first.nextState()
	done.State = job.Done
	m.replaceJob(first, done)
	for range 3 {
		m.oldest()
	}
	checkAges(30*time.Minute, 0, 30*time.Minute, 10*time.Minute)
}

// TestErrorMessagesCountTowardsSize: the messages of failed attempts count towards a job's size.
func TestErrorMessagesCountTowardsSize(t *testing.T) {
	r := record{Job: &job.Job{Message: "four", Attempts: []job.Attempt{{Message: "one"}, {Message: "four"}}}}
	if n := r.size(); n != 4+3+4 {
		t.Errorf("size %d", n)
	}
}

// TestOldBroker: requests of a step for one broker never go to the next broker.
func TestOldBroker(t *testing.T) {
	w := newSimulation(t, 1)
	c, next := w.machine, &naiveBroker{w: w}
	c.submitWaiting(c.newRecord(&job.Job{ID: c.newID(), Attributes: job.Attributes{Name: "n"}, Seq: 1, State: job.Queued}))
	c.submitSlice(2)
	c.sendRule(ruleChange{pattern: "c:x"})
	c.env.broker = next
	for _, f := range c.afterStep {
		f()
	}
	if len(next.todo) != 0 || len(w.broker.todo) != 3 {
		t.Fatalf("the broker got %d errands, the next one %d", len(w.broker.todo), len(next.todo))
	}
}

// addWaiting adds a stored job.
func (w *simulation) addWaiting(timeout float64) *record {
	j := &job.Job{ID: w.machine.newID(), Attributes: job.Attributes{Name: "n", Timeout: job.Seconds(timeout)}, Seq: w.machine.seq + 1, Enqueued: w.now}
	w.memory.Enqueue([]*job.Job{j}, nil, func([]job.ID, bool, error) {})
	w.machine.load(j, 0, 0)
	w.machine.afterStep = nil
	r := w.machine.jobs.Get(j.ID)
	r.submitted = true
	return r
}

// TestSuspendedMachine: time during which the machine is suspended does not count towards
// deadlines, even after several suspensions. Messages that arrived meanwhile are read first.
func TestSuspendedMachine(t *testing.T) {
	for _, v := range []struct {
		pause, runTime time.Duration
		times          int
	}{{17 * time.Second, 0, 1}, {time.Hour, beatInterval, 3}, {2 * time.Second, 2 * beatInterval, 20}} {
		w := newSimulation(t, 1)
		m := w.machine
		k := w.someWorker()
		k.Heartbeat = true
		m.env.push = &pushRecorder{}
		var r *record
		w.step(m, func() {
			r = w.addWaiting(10)
			m.workersMayGetJobs = true
			m.start(r, k, nil)
		})
		w.store.flush()
		for range v.times {
			w.now += toMillis(v.pause)
			w.pass(0) // the alarm fires before the messages that have arrived are read
			w.pass(v.runTime)
			if r.State != job.Running || m.workers[k.ID] != k {
				t.Fatalf("%v: the job is %v, the worker is there: %v", v, r.State, m.workers[k.ID] == k)
			}
			w.step(m, func() { _, _ = m.findWorker(job.Caller{ID: k.ID}, false) })
		}
		w.pass(missedHeartbeats*m.Heartbeat + readGrace + 2*beatInterval)
		w.store.flush()
		if r.State == job.Running || m.workers[k.ID] != nil {
			t.Fatalf("%v: a silent worker is not lost", v)
		}
	}
}

// TestRepeatedSuspension: a machine that is suspended repeatedly still enforces deadlines, however
// short the time between two suspensions.
func TestRepeatedSuspension(t *testing.T) {
	for _, runTime := range []time.Duration{0, 10 * time.Millisecond, beatInterval, 2*beatInterval - time.Millisecond} {
		for _, pause := range []time.Duration{2*beatInterval + 1*time.Millisecond, 600 * time.Millisecond, 20 * time.Second} {
			w := newSimulation(t, 1)
			m := w.machine
			m.env.push = &pushRecorder{}
			k, other := w.someWorker(), w.someWorker()
			k.Heartbeat = true
			var lostRecord, lateRecord *record
			w.step(m, func() {
				m.workersMayGetJobs = true
				lostRecord, lateRecord = w.addWaiting(1000), w.addWaiting(3)
				m.start(lostRecord, k, nil)
				m.start(lateRecord, other, nil)
			})
			w.store.flush()
			rounds := 0
			for lostRecord.State == job.Running || lateRecord.State == job.Running {
				if rounds++; rounds > 50 {
					t.Fatalf("stops of %v, %v between them: the silent worker's job is %v, the one that is overdue is %v", pause, runTime, lostRecord.State, lateRecord.State)
				}
				w.now += toMillis(pause)
				w.pass(0)
				w.pass(runTime)
				w.store.flush()
			}
		}
	}
}

// TestSlowStart: the run's timeout does not include the time in which the store writes the start of
// the run or is away, even if that time is longer than the timeout.
func TestSlowStart(t *testing.T) {
	for _, delay := range []time.Duration{2 * time.Second, 20 * time.Second} {
		w := newSimulation(t, 1)
		m := w.machine
		k := w.someWorker()
		m.env.push = &pushRecorder{}
		w.store.away = true // the machine has not noticed that the store is away
		var r *record
		w.step(m, func() { r = w.addWaiting(3); m.workersMayGetJobs = true; m.start(r, k, nil) })
		w.pass(delay)
		w.store.away = false
		w.store.flush()
		if run := r.currentRun(); run == nil || run.deadline-m.now != 3000+toMillis(m.TimeoutGrace) {
			t.Fatalf("the start took %v: the run is %+v at %d", delay, run, m.now)
		}
		k.Heartbeat, k.lastSeen = true, m.now
		w.step(m, func() { m.onStoreChange(store.ErrAway) })
		w.pass(time.Hour)
		w.step(m, func() { m.onStoreChange(nil) })
		w.pass(missedHeartbeats * m.Heartbeat / 2)
		if r.State != job.Running || m.workers[k.ID] != k {
			t.Fatal("an hour without the store is the worker's")
		}
	}
}

// TestBrokerGivesUp: the broker ends a run and its job because the store takes longer than a run
// may last. The job is submitted again when it waits again.
func TestBrokerGivesUp(t *testing.T) {
	w := newSimulation(t, 1)
	m := w.machine
	k := w.someWorker()
	w.store.away = true
	var r *record
	w.step(m, func() {
		r = w.addWaiting(3)
		m.workersMayGetJobs, m.allSubmitted = true, true
		m.start(r, k, naiveRun{w.broker, &naiveJob{submission: submission{id: r.ID}}})
	})
	w.step(m, func() { m.onStoreChange(store.ErrAway) })
	w.elapse(3*time.Second + m.TimeoutGrace + brokerGrace)
	w.step(m, func() { m.onStoreChange(nil) })
	k.pausedUntil = m.now + 1000 // the worker leaves, so that the start is undone
	w.store.away = false
	for range 3 {
		w.store.flush()
	}
	w.broker.serveSome(10)
	if r.State != job.Queued || !r.submitted || w.broker.jobs[r.ID] == nil {
		t.Fatalf("the job is %v, and the broker has %v", r.State, w.broker.jobs[r.ID])
	}
}

// TestClockIsSet: when the wall clock is set, delays and backoffs keep their length, the broker
// refuses no request, and ended jobs are forgotten.
func TestClockIsSet(t *testing.T) {
	for _, set := range []time.Duration{-time.Hour, time.Hour, 20 * 365 * 24 * time.Hour} {
		t.Run(set.String(), func(t *testing.T) {
			w := newSimulation(t, 1)
			c, k := w.machine, w.someWorker()
			c.env.push, c.MaxEnded = &pushRecorder{}, 0
			add := func(j job.Job) *record {
				j.ID, j.Name, j.Seq = c.newID(), "n", c.seq+1
				w.memory.Enqueue([]*job.Job{&j}, nil, func([]job.ID, bool, error) {})
				return c.newRecord(&j)
			}
			var delayed, old, ended *record
			w.step(c, func() {
				c.workersMayGetJobs, c.allSubmitted = true, true
				delayed = add(job.Job{Attributes: job.Attributes{Timeout: 1000}, Enqueued: w.now, Due: w.now + 2000})
				old = add(job.Job{Attributes: job.Attributes{Timeout: 1000}, Enqueued: w.now})
				ended = add(job.Job{State: job.Done, Finished: w.now})
				c.addEnded(ended, w.now+toMillis(time.Hour), 0)
				c.ledger.Enqueued, c.ledger.Done = 3, 1
				c.submitWaiting(delayed)
				c.submitWaiting(old)
			})
			w.set = toMillis(set)
			h := naiveRun{w.broker, &naiveJob{submission: submission{id: delayed.ID}, running: true}}
			w.elapse(1900 * time.Millisecond)
			w.step(c, func() { c.onHandout(k.ID, delayed.ID, false, h) })
			w.broker.serveSome(1 << 20)
			if delayed.State != job.Queued {
				t.Fatal("the delayed job is handed out before its time")
			}
			w.elapse(100 * time.Millisecond)
			w.step(c, func() { c.onHandout(k.ID, delayed.ID, false, h) })
			if delayed.State != job.Running {
				t.Fatalf("the delayed job is %v at its time", delayed.State)
			}
			w.step(c, func() { old.submitted = false; c.submitWaiting(old) })
			delete(w.broker.jobs, old.ID)
			w.broker.serveSome(1 << 20)
			if j := w.broker.jobs[old.ID]; j == nil || j.age > wire.MaxDurationMS*time.Millisecond {
				t.Fatalf("the broker has %+v", j)
			}
			w.store.flush()
			w.pass(minEndedAge)
			w.store.flush()
			if c.jobs.Get(ended.ID) != nil {
				t.Error("the ended job is still there")
			}
		})
	}
}

// TestMaxBackoff: the longest wait doubles with each retry up to the cap, and the broker makes the
// retries whose waits it can keep below the cap.
func TestMaxBackoff(t *testing.T) {
	const day = 24 * time.Hour
	for _, c := range []struct {
		base, limit   time.Duration
		retry         int32
		want          time.Duration
		brokerRetries int32 // of those from this one on
	}{
		{time.Second, 10 * time.Minute, 1, time.Second, 9},
		{time.Second, 10 * time.Minute, 10, 512 * time.Second, 0},
		{time.Second, 10 * time.Minute, 11, 10 * time.Minute, 0},
		{time.Second, time.Second, 1, time.Second, 0},
		{day, 365 * day, 1, day, 1},
		{day, 365 * day, 9, 256 * day, 0},
		{time.Hour, 365 * day, 40, 365 * day, 0},
		{time.Millisecond, day, 1000, day, 0},
		{time.Second, day, math.MinInt32, day, 0}, // after math.MaxInt32 retries, in a strange record
	} {
		m := newMachine(DefaultLimits(), 1)
		m.BackoffBase, m.BackoffCap = c.base, c.limit
		r := &record{Job: &job.Job{Attributes: job.Attributes{MaxRetry: job.MaxRetries}, Retries: c.retry - 1}}
		if d, n := m.maxBackoff(c.retry), m.brokerRetries(r); d != c.want || n != c.brokerRetries {
			t.Errorf("%v to %v: before retry %d at most %v, and %d retries by the broker", c.base, c.limit, c.retry, d, n)
		}
	}
}
