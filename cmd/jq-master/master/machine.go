package master

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"gloom/cmd/jq-master/job"
	"gloom/cmd/jq-master/store"
	"gloom/wire"
)

// Limits bounds the number and size of the things that a master holds, how long it keeps them, and
// how long it waits.
type Limits struct {
	MaxJobs        int   // jobs that have not ended
	MaxBytes       int64 // bytes of arguments, results, errors and idempotency keys; an eighth of it is for results alone; ended jobs without results get at most half of it
	MaxWaiters     int
	MaxWorkers     int
	MaxConstraints int
	MaxEnded       int
	MaxError       int // bytes of an error; a longer one is kept as null

	ResultTTL, KeepEnded time.Duration
	TimeoutGrace         time.Duration
	BackoffBase          time.Duration
	BackoffCap           time.Duration
	Heartbeat            time.Duration
	StoreWait            time.Duration
	BrokerWait           time.Duration // how long a master that cannot reach its broker keeps the lease from one that can
	Aging                time.Duration // how long a job waits to gain one step of priority; 0: waiting gains none
}

// DefaultLimits returns the limits that suit most queues.
func DefaultLimits() Limits {
	return Limits{
		MaxJobs: 1_000_000, MaxBytes: 1 << 30, MaxWaiters: 10_000, MaxWorkers: 10_000,
		MaxConstraints: 1_000, MaxEnded: 100_000, MaxError: 64 << 10,
		ResultTTL: time.Hour, KeepEnded: 24 * time.Hour, TimeoutGrace: 2 * time.Second,
		BackoffBase: time.Second, BackoffCap: 10 * time.Minute, Heartbeat: 5 * time.Second,
		StoreWait: 10 * time.Second, BrokerWait: 10 * time.Second,
	}
}

const (
	missedHeartbeats   = 3
	refusedNameFor     = 60 * time.Second // how long a worker gets no jobs of a name that it did not know
	firstPause         = time.Second
	maxPause           = time.Minute
	dropAfter          = 5 * time.Minute // how long a worker may be unreachable
	minEndedAge        = time.Minute     // MaxEnded never removes jobs that ended more recently than this
	minEndedAgeForRoom = 5 * time.Second // makeRoom never removes jobs that ended more recently than this
	resubmitPause      = time.Second     // the pause before a job is submitted again
	maxStepRecords     = 1000            // maximum number of records that one step examines
)

// machine is the state machine of all jobs. It handles one command at a time, and learns the time
// only from setTime. It performs no side effects, but lists them in afterStep, in order. Only replies
// to requests are sent at once: they do not block.
type machine struct {
	Limits
	env             environment
	rng             *rand.Rand
	newID           func() job.ID
	namespace       string // part of the names of groups at the broker
	prefix          string // prefix of the types at the broker
	singleRunPrefix string // prefix of types for jobs with max_retry 0

	now           int64 // monotonic time in milliseconds; does not advance while the machine stands still or the store is away
	wallTime      int64 // the store's clock, in milliseconds since 1970; it is never set, but may change with a new term
	hostTime      int64 // this host's clock, in milliseconds since 1970; only for the due times of schedules
	monotonic     int64 // monotonic time in milliseconds, at the last call of setTime
	stoodStill    int64 // monotonic minus now: the total time for which now stood still
	deadlinesFrom int64 // no deadline is judged before this time
	graceFrom     int64 // when the machine last stood still after deadlinesFrom was reached
	afterStep     []func()

	seq            uint64
	jobs           *job.Table[*record]
	bySeq          []seqEntry // all jobs, sorted by Seq
	forgottenCount int        // how many entries of bySeq are forgotten jobs
	oldestWaiting  uint64     // no job with a smaller Seq waits
	loading        bool       // the store is being read, and bySeq is not sorted yet
	names          map[string]*nameCounts
	liveNames      int         // number of names with jobs that have not ended
	counts         StateCounts // jobs by state
	timers         timers
	ended          fifo[endedEntry]
	beingForgotten int   // ended jobs that the store is forgetting, and that still count
	bytesToFree    int64 // how many bytes makeRoom still has to free
	endedBytes     int64 // bytes of ended jobs, except those with results or unique keys and those that are being forgotten
	workers        map[job.ID]*worker

	constraints         *constraints
	changingConstraints bool     // a change of constraints is being written
	waitingChanges      waitList // changes that wait for it

	schedules *schedules

	keys           fifo[keyEntry] // valid idempotency keys, by expiry
	keyBytes       int64          // bytes of idempotency keys, including those on their way into the store
	keysPending    int            // how many keys are on their way into the store
	uniques        map[uniqueKey]*claim
	bytesPending   int64 // by how much jobs grow when what is on its way into the store is written
	resultsPending int   // results on their way into the store

	jobsPending int   // jobs on their way into the store
	bytes       int64 // size of arguments, results and errors
	waiters     int
	results     int // number of kept results

	fetchedJobs   []*record // jobs whose results the store still has to drop
	dropFetchedAt int64     // when to tell the store to drop them; 0: there are none

	fullErr           error // why the store has refused a job for lack of room
	fullUntil         int64 // the store counts as full until this time
	awayErr           error // why the store is away; nil: it is not
	draining          bool
	workersMayGetJobs bool // the broker has all jobs, and workers may get those that wait
	runsRestored      bool // the broker has all jobs, but workers get only those that they already run
	runsExpected      int  // runs that the broker has yet to hand out again; unchanged since runsExpectedSince
	runsExpectedSince int64
	maxGroups         int  // how many groups a job may be in at the broker
	allSubmitted      bool // all jobs are on their way to the broker
	submissions       uint32
	submitIndex       int // the jobs before this index of bySeq have been submitted to the broker
	relinkStart       int64
	pendingResubmits  []pendingResubmit // jobs that the broker did not take
	gloomWorker       *worker           // stands for all Gloom workers; nil before the first answer of one

	ledger  Ledger // its fields Waiting and Running are not used: balance takes them from counts
	metrics metrics
}

// metrics holds counts since the start that are not in the ledger.
type metrics struct {
	fetched, expired        uint64
	pushes                  [len(answerNames)]uint64 // number of pushes, by the kind of their answers
	waitSeconds, runSeconds histogram
}

// environment holds what the machine calls outside itself. All calls return soon. The outcome comes
// later, as a command, through a function that was passed in the call.
type environment struct {
	store  store.Store
	broker brokerLink // called through machine.tellBroker; nil while there is none
	push   Pusher
	// run runs a command soon, unless the machine has ended. runOr does the same, but calls onGone if
	// the machine has ended.
	run   func(command func())
	runOr func(command, onGone func())
	// fail ends this machine, because its state cannot be trusted, or because another master is
	// active.
	fail func(error)
}

// brokerLink is the connection to the broker.
type brokerLink interface {
	// submit queues a job. If the broker does not take it, onNotAtBroker is called.
	submit(s submission)
	// change gives a job new groups, a new priority, or a new delay from now; nil leaves the old
	// value.
	change(id job.ID, groups []string, priority *int64, delay *time.Duration)
	cancel(id job.ID)
	// setServing sets what a worker serves; the first call connects it.
	setServing(w job.ID, v serving)
	// removeWorker ends a worker's connection.
	removeWorker(w job.ID)
	setRule(ruleChange)
	// flush calls onDone when the broker has processed all earlier calls. If the connection is lost
	// before that, reached is false.
	flush(onDone func(reached bool))
}

// submission is a job as it is submitted to the broker.
type submission struct {
	id       job.ID
	number   uint32 // number of this submission of the job, which no other one has
	typ      string
	priority int64
	age      time.Duration
	delay    time.Duration
	groups   []string
	retries  int32         // how many the broker makes after failures of Gloom workers
	retried  int32         // the job's number of retries once the broker has made these
	backoff  time.Duration // before the first of them; the broker doubles it
	timeout  time.Duration
	argument []byte // nil: only the master's own workers run it
}

// serving says which types a worker serves at the broker, and how many jobs it may have at a time.
type serving struct {
	types, exceptTypes []string
	prefetch           int
}

// keyEntry holds what the machine keeps of an idempotency key. The rest is in the store.
type keyEntry struct {
	until int64 // when the key expires, by the wall clock
	size  int64
}

// brokerJob is a job that the broker has handed out.
type brokerJob interface {
	// end sends the broker an answer, so that it forgets the job.
	end()
	// release gives the job back to the broker; the job keeps its place, and the run does not
	// count.
	release(delay time.Duration)
	// retry ends a failed run; the next run begins after the delay at the earliest.
	retry(delay time.Duration)
}

// seqEntry is a job in bySeq; rec is nil if the job was forgotten.
type seqEntry struct {
	seq uint64
	rec *record
}

// nameCounts counts the jobs with a name.
type nameCounts struct {
	text    string
	counts  StateCounts
	unended int // number of jobs that have not ended
}

// record is a job in the machine. The fields that are needed only once the job has been handed out
// are in runInfo.
type record struct {
	*job.Job      // the job as it is stored; it is replaced, never changed
	name          *nameCounts
	constraints   *constraintSet // nil: no constraint applies to it
	runInfo       *runInfo       // nil before the first hand-out
	op            op
	submitted     bool   // the broker has the job, or the request to submit it is on its way
	handedOut     bool   // it was handed to one of the master's workers since it was submitted
	stale         bool   // its groups or its priority have changed while it ran
	priorityStale bool   // its priority has changed since it was submitted
	tooLong       bool   // its argument does not fit into a frame of the broker: only the master's workers get it
	submission    uint32 // number of its last submission
	dueAt         int64  // Due, converted to machine.monotonic, which does not jump when the wall clock is set
}

// op is a transition on its way into the store. A job has at most one op.
type op uint8

const (
	opNone op = iota
	opStart
	opRelease
	opEnd // a finish or a retry is being written
	opCancel
	opRevive
	opForget
	opPostpone
)

// runInfo is the part of a record that exists once the job has been handed out.
type runInfo struct {
	run        *run  // the current run
	forgetAt   int64 // when to forget the job, by the wall clock
	dropAt     int64 // when to drop the result, by the wall clock; 0: no result is kept
	keyUntil   int64 // until when the ended job holds its unique key, by the wall clock; 0: it does not
	fetching   bool  // a response with the result is being written
	timerAt    int64 // when the timer is due, as machine.now
	timerIndex int   // index in timers; -1: the job has no timer
	onIdle     waitList
	pollers    []*poller
}

// run is an attempt in progress.
type run struct {
	worker         *worker
	brokerJob      brokerJob // nil: the broker has not handed it out yet
	handedAt       int64     // when the broker handed it out, as machine.monotonic
	startedAt      int64     // monotonic
	deadline       int64     // monotonic
	stateBefore    job.State
	delivered      bool    // the worker may know about the run
	onlyThisWorker bool    // the job's type at the broker is one that only this worker serves
	replies        []reply // replies to the worker's reports, which are sent when the end is written
	ended          bool    // the worker has reported the end, which is being written
	pullRequest    *pullRequest
	unread         bool // the pull request that has it waits until its reply may be written
}

// reply is called with the outcome of a request, with the master's lock held; it must not block.
type reply func(error)

func newMachine(l Limits, seed uint64) *machine {
	return &machine{
		Limits: l, loading: true, rng: rand.New(rand.NewPCG(seed, seed)), newID: job.NewID,
		jobs: job.NewTable[*record](), oldestWaiting: math.MaxUint64, names: make(map[string]*nameCounts),
		workers: make(map[job.ID]*worker), constraints: newConstraints(), schedules: newSchedules(),
		uniques: make(map[uniqueKey]*claim), maxGroups: 16,
	}
}

const (
	// maxCommandGap is the longest gap between two commands that does not mean that the machine has
	// stood still.
	maxCommandGap = 2 * beatInterval
	// For readGrace after such a gap no deadline is enforced, so that messages that arrived during the
	// gap can be read. maxReadGrace limits this time if the machine stands still again and again.
	readGrace, maxReadGrace = 2 * beatInterval, 20 * beatInterval
)

// setTime sets the time of the next command. Time in which the machine stood still (the process was
// stopped or swapped out) or its store was away does not count towards deadlines. Messages that
// have arrived meanwhile are read before any deadline is judged. The first maxCommandGap of each
// stop does count, so that a machine that is stopped again and again still judges deadlines, only
// late.
func (m *machine) setTime(clock, wall, host int64) {
	gap := clock - m.monotonic
	stood := gap > toMillis(maxCommandGap) && m.monotonic != 0
	switch {
	case m.awayErr != nil:
		m.stoodStill += gap
	case stood:
		m.stoodStill += gap - toMillis(maxCommandGap)
	}
	if stood && m.now >= m.deadlinesFrom {
		m.graceFrom = m.now
	}
	m.monotonic, m.now, m.wallTime, m.hostTime = clock, clock-m.stoodStill, wall, host
	if stood {
		m.deadlinesFrom = max(m.deadlinesFrom, min(m.now+toMillis(readGrace), m.graceFrom+toMillis(maxReadGrace)))
	}
}

// runAfterStep makes f run after the step, without the lock.
func (m *machine) runAfterStep(f func()) { m.afterStep = append(m.afterStep, f) }

// tellBroker makes a call to the current broker, if there is one, after the step, without the lock.
func (m *machine) tellBroker(call func(brokerLink)) {
	if conn := m.env.broker; conn != nil {
		m.runAfterStep(func() { call(conn) })
	}
}

// wallAt converts a monotonic time to a wall time, and monoAt does the reverse.
func (m *machine) wallAt(now int64) int64  { return m.wallTime + now - m.now }
func (m *machine) monoAt(wall int64) int64 { return m.now + wall - m.wallTime }

func toMillis(d time.Duration) int64 { return d.Milliseconds() }

// ensureRunInfo returns the job's runInfo, and creates it if necessary.
func (r *record) ensureRunInfo() *runInfo {
	if r.runInfo == nil {
		r.runInfo = &runInfo{timerIndex: -1}
	}
	return r.runInfo
}

// currentRun returns the current run, or nil.
func (r *record) currentRun() *run {
	if r.runInfo == nil {
		return nil
	}
	return r.runInfo.run
}

// nextState returns a copy of the job with the next Rev. The caller makes the copy the next state
// of the job.
func (r *record) nextState() *job.Job {
	j := *r.Job
	j.Rev++
	return &j
}

// replaceJob replaces a record's Job by the one that was written.
func (m *machine) replaceJob(r *record, j *job.Job) {
	m.countJob(r, -1)
	if j.Due != r.Due {
		r.dueAt = m.monotonic + j.Due - m.wallTime
	}
	r.Job = j
	m.countJob(r, 1)
}

// remainingWait returns how long a job still has to wait because of its delay or backoff.
func (m *machine) remainingWait(r *record) time.Duration {
	return toBrokerDuration(r.dueAt - m.monotonic)
}

// toBrokerDuration returns a number of milliseconds as a duration, limited to the range that the
// broker accepts.
func toBrokerDuration(milliseconds int64) time.Duration {
	return time.Duration(min(max(milliseconds, 0), wire.MaxDurationMS)) * time.Millisecond
}

// countJob adds a job to all counts (delta is 1), or subtracts it (-1).
func (m *machine) countJob(r *record, delta int) {
	m.counts[r.State] += delta
	r.name.counts[r.State] += delta
	if !r.State.Ended() {
		r.name.unended += delta
		if r.name.unended == max(delta, 0) { // the first job of this name that has not ended was added, or the last one was removed
			m.liveNames += delta
		}
	}
	if delta > 0 && r.State.Waits() {
		m.oldestWaiting = min(m.oldestWaiting, r.Seq)
	}
	m.bytes += int64(delta) * r.size()
	switch p := r.runInfo; {
	case p != nil && p.dropAt != 0:
		m.results += delta
	case r.State.Ended() && r.op != opForget && (p == nil || p.keyUntil == 0):
		m.endedBytes += int64(delta) * r.size()
	}
	if r.State == job.Running {
		if g := r.constraints; g != nil {
			for i := range g.members {
				g.members[i].constraint.running += delta
			}
		}
	}
}

func (r *record) size() int64 { return sizeOf(r.Job) }

// sizeOf returns how many bytes of MaxBytes a job takes.
func sizeOf(j *job.Job) int64 {
	n := len(j.Argument) + len(j.Result) + len(j.Error) + len(j.Message) + int(j.Unique.Size())
	for i := range j.Attempts {
		n += len(j.Attempts[i].Message)
	}
	return int64(n)
}

// fewNames is the number of names with unended jobs that do not count towards MaxBytes. Each
// further name counts nameSize bytes, because it is a type at the broker.
const fewNames, nameSize = 1000, 5 << 10

// usedBytes returns the bytes that MaxBytes limits.
func (m *machine) usedBytes() int64 {
	return m.bytes + m.bytesPending + m.keyBytes + m.schedules.bytes + nameSize*int64(max(0, m.liveNames-fewNames))
}

// balance returns the ledger with the jobs that wait and run now.
func (m *machine) balance() Ledger {
	l := m.ledger
	l.Waiting, l.Running = uint64(m.counts[job.Queued]+m.counts[job.Retrying]), uint64(m.counts[job.Running])
	return l
}

// unended returns how many jobs have not ended, including those on their way into the
// store.
func (m *machine) unended() int {
	return m.counts[job.Queued] + m.counts[job.Running] + m.counts[job.Retrying] + m.jobsPending
}

// insert adds a stored job. While the store is being read, jobs may come in any order.
func (m *machine) insert(r *record) {
	m.jobs.Put(r.ID, r)
	m.bySeq = append(m.bySeq, seqEntry{r.Seq, r})
	for i := len(m.bySeq) - 1; !m.loading && i > 0 && m.bySeq[i-1].seq > m.bySeq[i].seq; i-- {
		m.bySeq[i-1], m.bySeq[i] = m.bySeq[i], m.bySeq[i-1]
	}
	m.seq = max(m.seq, r.Seq)
	m.countJob(r, 1)
}

// nameOf returns the entry of a name, and creates it if necessary.
func (m *machine) nameOf(text string) *nameCounts {
	n := m.names[text]
	if n == nil {
		n = &nameCounts{text: text}
		m.names[text] = n
	}
	return n
}

// remove removes a job from the machine.
func (m *machine) remove(r *record) {
	m.countJob(r, -1)
	m.timers.remove(r)
	m.constraints.remove(r)
	m.releaseKey(r)
	if r.name.counts == (StateCounts{}) {
		delete(m.names, r.Name)
	}
	m.jobs.Delete(r.ID)
	if i, ok := m.find(r.Seq); ok {
		m.bySeq[i].rec = nil
		m.forgottenCount++
	}
	if m.forgottenCount > 1024 && m.forgottenCount > len(m.bySeq)/2 {
		m.compact()
	}
}

func (m *machine) compact() {
	kept := make([]seqEntry, 0, len(m.bySeq)-m.forgottenCount+1024)
	submitIndex, sweep := 0, min(m.constraints.sweepIndex, 0)
	for i, p := range m.bySeq {
		if p.rec != nil {
			kept = append(kept, p)
		}
		if i < m.submitIndex {
			submitIndex = len(kept)
		}
		if i < m.constraints.sweepIndex {
			sweep = len(kept)
		}
	}
	m.bySeq, m.forgottenCount, m.submitIndex, m.constraints.sweepIndex = kept, 0, submitIndex, sweep
}

// find returns the index in bySeq of a job's Seq and true, or the index of the next larger Seq and
// false.
func (m *machine) find(seq uint64) (int, bool) {
	return slices.BinarySearchFunc(m.bySeq, seq, func(e seqEntry, seq uint64) int { return cmp.Compare(e.seq, seq) })
}

// waitList holds functions that wait for the end of a write.
type waitList fifo[func()]

// run calls the functions until there are none, or one of them has begun another write.
func (l *waitList) run(isBusy func() bool) {
	for len(*l) > 0 && !isBusy() {
		(*fifo[func()])(l).pop()()
	}
}

// runWaiting calls the functions that wait for the end of a job's transition.
func (m *machine) runWaiting(r *record) {
	if r.runInfo != nil {
		r.runInfo.onIdle.run(func() bool { return r.op != opNone })
	}
}

// addOnIdle makes f run when the current transition has been written.
func (r *record) addOnIdle(f func()) { p := r.ensureRunInfo(); p.onIdle = append(p.onIdle, f) }

// whenIdle calls f once no transition of the job is being written, provided that run is then its run.
func (m *machine) whenIdle(r *record, run *run, f func()) {
	switch {
	case r.currentRun() != run:
	case r.op == opNone:
		f()
	default:
		r.addOnIdle(func() { m.whenIdle(r, run, f) })
	}
}

// write replaces the job of a record with j, in the store. When the store has written it, j becomes
// the record's Job, and write calls onDone. forgetAt and dropAt are those of store.Move. A result
// that is too long for the store is left out. If the write fails otherwise, the machine ends,
// because it no longer knows the content of the store.
func (m *machine) write(o op, r *record, j *job.Job, forgetAt, dropAt int64, onDone func()) {
	oldJob := r.Job
	r.op = o
	arriving := max(0, sizeOf(j)-r.size())
	m.bytesPending += arriving
	m.runAfterStep(func() {
		m.env.store.Move(oldJob, j, forgetAt, dropAt, func(err error) {
			m.env.run(func() {
				m.bytesPending -= arriving
				if errors.Is(err, store.ErrTooLong) && len(j.Result) > 0 {
					copiedJob := *j
					copiedJob.Result = nil
					copiedJob.Message = fmt.Sprintf("the result of %d bytes is left out: %v", len(j.Result), err)
					m.write(o, r, &copiedJob, forgetAt, 0, onDone)
					return
				}
				if err != nil {
					m.env.fail(err)
					return
				}
				r.op = opNone
				m.replaceJob(r, j)
				onDone()
				m.runWaiting(r)
			})
		})
	})
}
