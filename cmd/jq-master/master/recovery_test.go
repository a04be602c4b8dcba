package master

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/rs/zerolog"

	gloom "gloom/clients/go"
	"gloom/cmd/internal/unique"
	"gloom/cmd/jq-master/job"
)

// TestBrokerEnds: a shared broker ends a job without the master, before, while or after one of the
// master's workers runs it. For the master the job has not ended: it is submitted again, and runs.
func TestBrokerEnds(t *testing.T) {
	lossOutcome := &job.Outcome{Reason: job.Other, Message: "its worker was lost", Retry: true}
	for name, ends := range map[string]func(m *machine, r *record, handOut func()){
		"while it runs": func(m *machine, r *record, handOut func()) {
			handOut()
			m.onBrokerAnswer(r.ID, r.submission, lossOutcome, true)
		},
		"cancelled while it runs": func(m *machine, r *record, handOut func()) {
			handOut()
			m.onNotAtBroker(r.ID, r.submission)
		},
		"before the hand-out is read": func(m *machine, r *record, handOut func()) {
			m.onBrokerAnswer(r.ID, r.submission, lossOutcome, true)
			handOut()
		},
		"while the master stood still": func(m *machine, r *record, handOut func()) {
			m.deadlinesFrom = m.now + 1
			m.onBrokerAnswer(r.ID, r.submission, lossOutcome, false)
			handOut()
		},
		"with a connection before": func(m *machine, r *record, handOut func()) {
			number := r.submission
			m.forgetSubmissions()
			m.submitSlice(1)
			m.onBrokerAnswer(r.ID, number, &job.Outcome{Success: true, Result: nilValue}, false)
			m.onNotAtBroker(r.ID, number)
			handOut()
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newSimulation(t, 1)
			m, k, pushes := w.machine, w.someWorker(), &pushRecorder{}
			m.env.push = pushes
			w.step(m, func() { m.submitSlice(1); m.workersMayGetJobs = true; m.updateServing(k) })
			w.step(m, func() {
				m.enqueue(&enqueueRequest{jobs: []*NewJob{{Attributes: job.Attributes{Name: "n", Timeout: 30_000, MaxRetry: 1}}}, reply: func([]job.ID, bool, error) {}})
			})
			w.store.flush()
			r := m.bySeq[0].rec
			w.broker.serveSome(1 << 20)
			lostRun := naiveRun{w.broker, &naiveJob{submission: submission{id: r.ID}}}
			w.broker.jobs = map[job.ID]*naiveJob{}
			w.step(m, func() { ends(m, r, func() { m.onHandout(k.ID, r.ID, false, lostRun) }) })
			w.store.flush()
			w.broker.serveSome(1 << 20)
			for _, onAnswer := range pushes.onAnswer {
				onAnswer(Answer{Kind: AnswerUnreachable})
			}
			w.store.flush()
			w.pass(2 * resubmitPause)
			w.broker.serveSome(1 << 20)
			if !r.State.Waits() || r.Attempt != 0 || w.broker.jobs[r.ID] == nil {
				t.Errorf("the job is %v after %d attempts, the broker has %v", r.State, r.Attempt, w.broker.jobs[r.ID])
			}
		})
	}
}

// TestGloomWorkerGivesUp: a Gloom worker fails a job for good while the master stands still, after the
// job was at one of the master's workers. The job does not run again.
func TestGloomWorkerGivesUp(t *testing.T) {
	w := newSimulation(t, 2) // Gloom workers may join
	m := w.machine
	w.step(m, func() {
		m.submitSlice(1)
		m.enqueue(&enqueueRequest{jobs: []*NewJob{{Attributes: job.Attributes{Name: "n", Timeout: 30_000, MaxRetry: 5}}}, reply: func([]job.ID, bool, error) {}})
	})
	w.store.flush()
	r := m.bySeq[0].rec
	w.step(m, func() {
		r.handedOut, m.deadlinesFrom = true, m.now+1
		m.onBrokerAnswer(r.ID, r.submission, &job.Outcome{Reason: job.Other, Message: "never"}, false)
	})
	w.store.flush()
	w.pass(2 * resubmitPause)
	w.store.flush()
	if r.State != job.Failed || r.Message != "never" {
		t.Errorf("the job is %v with the message %q", r.State, r.Message)
	}
}

// TestEarlyCommands: the broker has requeued a job without the master, and hands it out before its
// retry is due. The job keeps waiting.
func TestEarlyCommands(t *testing.T) {
	w := newSimulation(t, 1)
	c, k := w.machine, w.someWorker()
	r := c.newRecord(&job.Job{ID: c.newID(), Attributes: job.Attributes{Name: "n", MaxRetry: 2}, Seq: 1, State: job.Retrying, Retries: 1, Attempt: 1, Due: w.now + 1000})
	c.ledger.Enqueued = 1
	c.workersMayGetJobs = true
	earlyJob := &naiveJob{submission: submission{id: r.ID}, running: true, runs: 1}
	w.step(c, func() { c.submitSlice(1); c.onHandout(k.ID, r.ID, false, naiveRun{w.broker, earlyJob}) })
	w.broker.serveSome(1 << 20)
	if r.State != job.Retrying || earlyJob.running || earlyJob.ready != r.Due {
		t.Errorf("the job is %v, and ready at the broker %d ms before it is due", r.State, r.Due-earlyJob.ready)
	}
}

// TestClockAhead: jobs were stored while the store's clock was ahead by a day, and the clock is
// right when the next master loads them. The jobs wait, and are kept, no longer than if the clock
// had been right.
func TestClockAhead(t *testing.T) {
	const day, minute = 24 * 3600_000, 60_000
	w := newSimulation(t, 1)
	m := w.machine
	n, wall := uint64(0), m.wallTime
	load := func(j job.Job, forgetAt, dropAt int64) *record {
		n++
		j.ID, j.Name, j.Seq = m.newID(), "n", n
		m.load(&j, forgetAt, dropAt)
		return m.jobs.Get(j.ID)
	}
	aheadTime := wall + day
	failedAt := func(at int64) []job.Attempt { return []job.Attempt{{Number: 1, Finished: at}} }
	for name, one := range map[string]struct {
		j    job.Job
		rest int64
	}{
		"delayed":             {job.Job{Enqueued: aheadTime, Due: aheadTime + minute}, minute},
		"delayed, in time":    {job.Job{Enqueued: wall - minute, Due: wall + 2*day}, 2 * day},
		"at once":             {job.Job{Enqueued: aheadTime}, 0},
		"retried":             {job.Job{State: job.Retrying, Retries: 1, Enqueued: wall - minute, Due: aheadTime, Attempts: failedAt(aheadTime - minute)}, minute},
		"all ahead":           {job.Job{State: job.Retrying, Retries: 1, Enqueued: aheadTime, Due: aheadTime + 2*minute, Attempts: failedAt(aheadTime + minute)}, minute},
		"retried, in time":    {job.Job{State: job.Retrying, Retries: 1, Enqueued: wall - day, Due: wall + 1000, Attempts: failedAt(wall - 1000)}, 1000},
		"asked for a day":     {job.Job{State: job.Retrying, Retries: 1, Enqueued: wall - minute, Due: wall + day - 1000, Attempts: failedAt(wall - 1000)}, day - 1000},
		"extended, in retry":  {job.Job{State: job.Retrying, Retries: 1, Enqueued: wall - day, Due: wall + day, Attributes: job.Attributes{Unique: &job.Unique{Key: "e"}}}, day},
		"extended long after": {job.Job{Enqueued: aheadTime, Due: aheadTime + minute, Attributes: job.Attributes{Unique: &job.Unique{Key: "l"}}}, minute},
	} {
		if r := load(one.j, 0, 0); r.dueAt-m.monotonic != one.rest && (one.rest > 0 || r.dueAt > m.monotonic) {
			t.Errorf("%s: it waits %d ms, not %d", name, r.dueAt-m.monotonic, one.rest)
		}
	}
	r := load(job.Job{State: job.Done, Enqueued: aheadTime, Attributes: job.Attributes{Unique: &job.Unique{Key: "w", Period: unique.PeriodWindow, Until: aheadTime + minute}}}, aheadTime+toMillis(m.KeepEnded), 0)
	if !r.HoldsKey(wall+minute-1) || r.HoldsKey(wall+minute) {
		t.Error("the key is not held for a minute")
	}
	r = load(job.Job{State: job.Done, Enqueued: aheadTime, Result: nilValue}, aheadTime+toMillis(m.KeepEnded), aheadTime+toMillis(m.ResultTTL))
	if r.runInfo.dropAt != wall+toMillis(m.ResultTTL) || r.runInfo.forgetAt != wall+toMillis(m.KeepEnded) {
		t.Errorf("the result is kept %d ms, the job %d ms", r.runInfo.dropAt-wall, r.runInfo.forgetAt-wall)
	}
}

// TestCancelledRunsAreTold: a worker whose run was cancelled is told to stop also by the next master,
// until the run would have timed out, unless it runs the job again.
func TestCancelledRunsAreTold(t *testing.T) {
	m := newMachine(DefaultLimits(), 1)
	m.setTime(toMillis(time.Hour), toMillis(time.Hour), 0)
	worker := m.newID()
	m.loadWorker(&job.Worker{ID: worker, MaxJobs: 9, Heartbeat: true})
	load := func(state job.State, age time.Duration, cancelled bool) job.ID {
		started := m.wallTime - toMillis(age)
		j := &job.Job{ID: m.newID(), Attributes: job.Attributes{Name: "n", Timeout: 60_000}, Seq: m.seq + 1, State: state, Worker: worker, Started: started}
		j.Attempts = []job.Attempt{{Number: 1, Worker: worker, Started: started, Cancelled: cancelled}}
		m.load(j, never, 0)
		return j.ID
	}
	want := []job.ID{load(job.Cancelled, 59*time.Second, true), load(job.Queued, time.Second, true)}
	load(job.Cancelled, 63*time.Second, true)
	load(job.Done, time.Second, false)
	load(job.Running, time.Second, true)
	got := m.heartbeat(m.workers[worker])
	slices.SortFunc(want, func(a, b job.ID) int { return slices.Compare(a[:], b[:]) })
	if !slices.Equal(got, want) {
		t.Errorf("the worker is told to stop %v, not %v", got, want)
	}
}

// TestRunsFirst: a new broker first hands out the jobs that already run, so that the runs count in
// their groups.
func TestRunsFirst(t *testing.T) {
	w := newSimulation(t, 1)
	c, busyWorker, idleWorker := w.machine, w.someWorker(), w.someWorker()
	c.env.push = &pushRecorder{}
	w.step(c, func() { c.workersMayGetJobs = true; w.addWaiting(1); c.start(w.addWaiting(1), busyWorker, nil) })
	w.store.flush()
	w.step(c, c.forgetSubmissions)
	w.step(c, func() { c.submitSlice(1) })
	w.broker.serveSome(1)
	if len(w.broker.jobs) != 1 || w.broker.jobs[c.bySeq[1].rec.ID] == nil {
		t.Fatalf("the broker got %v first", w.broker.jobs)
	}
	w.step(c, func() { c.submitSlice(10) })
	w.broker.serveSome(1 << 20)
	w.pass(beatInterval)
	w.broker.serveSome(1 << 20)
	if types := w.broker.workers[busyWorker.ID].types; len(types) != 1 || types[0] != c.heldRunsType(busyWorker) || w.broker.workers[idleWorker.ID].prefetch > 0 {
		t.Fatalf("one serves %q, and the other has room for %d, before the run is handed out", types, w.broker.workers[idleWorker.ID].prefetch)
	}
	w.broker.match()
	w.pass(beatInterval)
	w.broker.serveSome(1 << 20)
	if len(w.broker.workers[busyWorker.ID].types) < 2 || w.broker.workers[idleWorker.ID].prefetch == 0 {
		t.Errorf("the broker has %+v", w.broker.workers)
	}
}

// TestRepeatedRefusalsDoNotFillLog: a broker at a limit, which refuses all jobs again and again,
// does not fill the log.
func TestRepeatedRefusalsDoNotFillLog(t *testing.T) {
	var log bytes.Buffer
	b := Broker{Submitter: []gloom.Option{gloom.Addrs("127.0.0.1:1")}, Close: func() {}}
	l, err := openBrokerConn(b, "jq~", 10, func(func(*machine)) {}, zerolog.New(&log))
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	for range 1000 {
		l.onResult(&submission{}, nil, &gloom.RefusedError{Code: gloom.ErrOverloaded, Reason: "the broker holds 10 jobs (max-jobs)"})
	}
	if n := bytes.Count(log.Bytes(), []byte("\n")); n != 1 {
		t.Errorf("%d lines", n)
	}
}

// TestOldBrokerHandout: the lease of a master expires while it stands still. The master must then not
// end a job at the broker because the job has ended in its memory: another master may have retried
// the job.
func TestOldBrokerHandout(t *testing.T) {
	w := newSimulation(t, 1)
	c, k := w.machine, w.someWorker()
	c.env.store = lapsedStore{w.store}
	c.ledger.Enqueued, c.ledger.Failed = 1, 1
	r := c.newRecord(&job.Job{ID: c.newID(), Attributes: job.Attributes{Name: "n"}, Seq: 1, State: job.Failed})
	c.addEnded(r, never, 0)
	repeatedJob := &naiveJob{submission: submission{id: r.ID}, running: true, runs: 1}
	w.broker.jobs[r.ID] = repeatedJob
	w.step(c, func() { c.onHandout(k.ID, r.ID, false, naiveRun{w.broker, repeatedJob}) })
	w.broker.serveSome(1 << 20)
	if w.broker.jobs[r.ID] == nil || repeatedJob.running {
		t.Errorf("the broker has %+v", w.broker.jobs[r.ID])
	}
}

// TestOldRules: a master whose lease has expired must not set its constraints at the broker,
// because they may have changed.
func TestOldRules(t *testing.T) {
	w := newSimulation(t, 1)
	m := w.machine
	k := &job.Constraint{ID: "a", Match: []byte{0x80}, Concurrency: -1, Rate: 1, Burst: 1, Enabled: true}
	sel, fault := Compile(k)
	if fault != nil {
		t.Fatal(fault)
	}
	m.replace(k, sel)
	m.afterStep = nil
	look := func() int {
		m.forgetSubmissions()
		m.submitSlice(1)
		m.refill()
		m.now += toMillis(time.Minute)
		m.refill()
		return len(m.afterStep)
	}
	m.env.store = lapsedStore{w.store}
	if n := look(); n > 0 {
		t.Errorf("%d steps without the lease", n)
	}
	m.env.store = w.store
	if look() < 2 {
		t.Error("no rules with the lease")
	}
}

// TestDisabledConstraintHasNoRules: also after the buckets began empty, the broker gets no rules of a
// disabled constraint, for which it may have no room.
func TestDisabledConstraintHasNoRules(t *testing.T) {
	w := newSimulation(t, 1)
	m := w.machine
	k := &job.Constraint{ID: "a", Match: []byte{0x80}, Concurrency: -1, Rate: 1, Burst: 2, Per: "/name"}
	sel, fault := Compile(k)
	if fault != nil {
		t.Fatal(fault)
	}
	w.step(m, func() { m.replace(k, sel); m.forgetSubmissions(); m.submitSlice(1) })
	for range 3 {
		w.elapse(time.Minute)
		w.step(m, m.refill)
	}
	w.broker.serveSome(1 << 20)
	if len(w.broker.rules) > 0 {
		t.Errorf("the broker has the rules %v", w.broker.rules)
	}
}

type lapsedStore struct{ *slowStore }

func (lapsedStore) HoldsLease() bool { return false }

// TestRetryWhileGivenBack: an operator's retry lets a job run soon also if the broker still has to
// read that the failed run is over, and so refuses the new delay.
func TestRetryWhileGivenBack(t *testing.T) {
	w := newSimulation(t, 1)
	m := w.machine
	r := w.addWaiting(30)
	j := r.nextState()
	j.State, j.Retries, j.Due = job.Retrying, 1, w.now+toMillis(time.Hour)
	w.step(m, func() { m.write(opPostpone, r, j, 0, 0, func() {}) })
	w.store.flush()
	atBroker := &naiveJob{submission: submission{id: r.ID, retries: maxRetries}, running: true, runs: 1}
	w.broker.jobs[r.ID] = atBroker
	w.step(m, func() {
		m.revive(r.ID, func(err error) {
			if err != nil {
				t.Error(err)
			}
		})
	})
	w.store.flush()
	w.broker.serveSome(1 << 20)
	naiveRun{w.broker, atBroker}.retry(time.Hour)
	w.broker.serveSome(1 << 20)
	for range resubmitPause/beatInterval + 1 {
		w.pass(beatInterval)
	}
	w.broker.serveSome(1 << 20)
	if atBroker.running || atBroker.ready > w.now {
		t.Errorf("at the broker the job waits for %d ms, running: %v", atBroker.ready-w.now, atBroker.running)
	}
}
