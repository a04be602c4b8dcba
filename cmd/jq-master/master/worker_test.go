package master

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"gloom/cmd/jq-master/job"
	"gloom/cmd/jq-master/store"
	"gloom/wire"
)

// someWorker adds a worker that may have two jobs.
func (w *simulation) someWorker() *worker {
	k := &worker{Worker: job.Worker{ID: w.machine.newID(), MaxJobs: 2, URL: "http://there", Names: []string{"*"}}, lastSeen: w.now, runs: map[*record]struct{}{}}
	w.machine.workers[k.ID] = k
	return k
}

// TestUnknownName: a worker that does not know a name gets no jobs of this name for a while, but
// still gets jobs of other names, whatever the name looks like.
func TestUnknownName(t *testing.T) {
	for _, name := range []string{"some", "so*", "*"} {
		t.Run(name, func(t *testing.T) {
			w := newSimulation(t, 1)
			m := w.machine
			k := w.someWorker()
			pushes := &pushRecorder{}
			m.env.push = pushes
			w.step(m, func() { m.submitSlice(1); m.workersMayGetJobs = true; m.updateServing(k) })
			for _, n := range []string{name, "something"} {
				w.step(m, func() {
					m.enqueue(&enqueueRequest{jobs: []*NewJob{{Attributes: job.Attributes{Name: n, Timeout: 30_000}}}, reply: func([]job.ID, bool, error) {}})
				})
			}
			w.store.flush()
			goOn := func() {
				w.broker.serveSome(1 << 20)
				for w.broker.match() {
					w.broker.serveSome(1 << 20)
					w.store.flush()
				}
			}
			goOn()
			if !slices.Equal(pushes.names, []string{name, "something"}) {
				t.Fatalf("pushed %q", pushes.names)
			}
			pushes.onAnswer[0](Answer{Kind: AnswerUnknownName})
			w.store.flush()
			goOn()
			w.pass(refusedNameFor / 2)
			goOn()
			if n := len(pushes.names); n != 2 {
				t.Fatalf("pushed %q", pushes.names)
			}
			for _, e := range k.serving.exceptTypes {
				if strings.Contains(e, "*") {
					t.Errorf("all of %s are kept away", e)
				}
			}
			w.pass(refusedNameFor)
			goOn()
			if n := len(pushes.names); n != 3 || pushes.names[2] != name {
				t.Fatalf("pushed %q", pushes.names)
			}
		})
	}
}

// pushRecorder records what is pushed.
type pushRecorder struct {
	names    []string
	onAnswer []func(Answer)
}

func (p *pushRecorder) Push(_ *job.Worker, h *job.Handout, onAnswer func(Answer)) {
	p.names, p.onAnswer = append(p.names, h.Name), append(p.onAnswer, onAnswer)
}

// TestPushAnswerAfterReport: an answer to a push that comes while the worker's report is being
// written counts.
func TestPushAnswerAfterReport(t *testing.T) {
	w := newSimulation(t, 1)
	m := w.machine
	k := w.someWorker()
	pushes := &pushRecorder{}
	m.env.push = pushes
	var id job.ID
	w.step(m, func() {
		m.submitSlice(1)
		m.workersMayGetJobs = true
		m.updateServing(k)
		m.enqueue(&enqueueRequest{jobs: []*NewJob{{Attributes: job.Attributes{Name: "n", Timeout: 30_000}}}, reply: func(ids []job.ID, _ bool, _ error) { id = ids[0] }})
	})
	for len(pushes.names) == 0 {
		w.store.flush()
		w.broker.serveSome(1 << 20)
		w.broker.match()
	}
	w.step(m, func() {
		m.report(k, &Report{Job: id, Outcome: job.Outcome{Success: true}}, func(error) {})
		if m.jobs.Get(id).op == opNone {
			t.Fatal("the report is not being written")
		}
		m.onPushAnswer(m.jobs.Get(id), m.jobs.Get(id).runInfo.run, 1, Answer{Kind: AnswerTaken})
	})
	w.store.flush()
	if n := m.metrics.pushes[AnswerTaken]; n != 1 {
		t.Errorf("%d answers are counted", n)
	}
}

// TestCancelIsToldAfterUndoneStart: a worker whose run was cancelled still learns of this if the job was
// revived and handed to it again, and this start was undone.
func TestCancelIsToldAfterUndoneStart(t *testing.T) {
	w := newSimulation(t, 1)
	m := w.machine
	k := w.someWorker()
	pushes := &pushRecorder{}
	m.env.push = pushes
	var id job.ID
	w.step(m, func() {
		m.submitSlice(1)
		m.workersMayGetJobs = true
		m.updateServing(k)
		m.enqueue(&enqueueRequest{jobs: []*NewJob{{Attributes: job.Attributes{Name: "n", Timeout: 30_000}}}, reply: func(ids []job.ID, _ bool, _ error) { id = ids[0] }})
	})
	waitForPush := func(n int) {
		for len(pushes.names) < n {
			w.store.flush()
			w.broker.serveSome(1 << 20)
			w.broker.match()
		}
	}
	waitForPush(1)
	w.step(m, func() { m.cancel(id, true, func(error) {}) })
	w.store.flush()
	w.step(m, func() { m.revive(id, func(error) {}) })
	waitForPush(2)
	if ids := m.heartbeat(k); len(ids) != 0 {
		t.Errorf("while the job runs again, the worker is to stop %v", ids)
	}
	pushes.onAnswer[1](Answer{Kind: AnswerBusy})
	w.store.flush()
	if ids := m.heartbeat(k); !slices.Equal(ids, []job.ID{id}) {
		t.Errorf("after the start was undone, the worker is to stop %v, not %v", ids, id)
	}
}

// TestCancelsExpire: the list of cancelled runs of a worker that sends no heartbeats does not grow
// forever.
func TestCancelsExpire(t *testing.T) {
	w := newSimulation(t, 1)
	k := w.someWorker()
	k.cancelUntil = map[job.ID]int64{w.machine.newID(): w.now + toMillis(time.Second), w.machine.newID(): w.now + toMillis(time.Hour)}
	w.pass(time.Minute)
	if n := len(k.cancelUntil); n != 1 {
		t.Fatalf("%d cancelled runs are noted, the time of one is over", n)
	}
}

// TestFetchDuringOutage: results that are fetched while the store is away do not make the alarm fire
// again and again.
func TestFetchDuringOutage(t *testing.T) {
	w := newSimulation(t, 1)
	m := w.machine
	w.step(m, func() { m.onStoreChange(store.ErrAway); m.dropFetchedAt = w.now - 1 })
	if at := m.nextAlarm(); at <= w.now {
		t.Errorf("due since %d ms", w.now-at)
	}
	w.step(m, func() { m.onStoreChange(nil) })
	if at := m.nextAlarm(); at > w.now {
		t.Errorf("not due before %d ms", at-w.now)
	}
}

// TestLongErrorIsLeftOut: an error that is too long is left out, and the message says so.
func TestLongErrorIsLeftOut(t *testing.T) {
	long := strings.Repeat("é", job.MaxMessage)
	m := newMachine(DefaultLimits(), 1)
	for _, v := range []struct {
		outcome         job.Outcome
		size, keptBytes int
	}{
		{job.Outcome{Message: "short", Error: make([]byte, m.MaxError)}, 5, m.MaxError},
		{job.Outcome{Message: "x" + long}, job.MaxMessage - 1, 0},
		{job.Outcome{Message: long, Error: make([]byte, m.MaxError+1)}, job.MaxMessage, 0},
	} {
		got := m.limitOutcome(&v.outcome)
		if !utf8.ValidString(got.Message) || len(got.Message) != v.size || len(got.Error) != v.keptBytes || strings.Contains(got.Message, "65537") != (len(v.outcome.Error) > m.MaxError) {
			t.Errorf("%d bytes, an error of %d: %d and %d: %.20s…%s", len(v.outcome.Message), len(v.outcome.Error), len(got.Message), len(got.Error), got.Message, got.Message[max(0, len(got.Message)-60):])
		}
	}
}

// TestGroupNames: the constraint of a group is found by its name, with or without per,
// and no other constraint has that name; the name is no longer than the broker allows.
func TestGroupNames(t *testing.T) {
	ownerOf := map[string]string{}
	per := func(*job.Attributes) []byte { return nil }
	for _, ns := range []string{"default", "a", "a:b", "%41", "A", strings.Repeat("%", 100)} {
		for _, id := range []string{"a", "a:b", "b", "%41", "A", "*", "100%", "ü/ ", "a:" + hex.EncodeToString(sharedValue[:]), strings.Repeat("*", job.MaxConstraintID)} {
			for _, p := range []selector{{}, {valueOf: per}} {
				k := &constraint{Constraint: job.Constraint{ID: id}, selector: p, groupPrefix: groupPrefixOf(ns, id)}
				for _, prefix := range []byte("cr") {
					name, text := k.group(prefix, sharedValue), fmt.Sprintf("%c of %q of %q, per %v", prefix, id, ns, p.valueOf != nil)
					if earlier, known := ownerOf[name]; known || len(name) > wire.MaxNameBytes {
						t.Errorf("%s has the name %q with %d bytes, as %q", text, name, len(name), earlier)
					}
					ownerOf[name] = text
					if got, ours := constraintOf(ns, name); got != id || !ours {
						t.Errorf("%s is of %q, %v", text, got, ours)
					}
					if _, theirs := constraintOf("b", name); theirs {
						t.Errorf("%s is another namespace's, too", text)
					}
					p := wire.NewPattern([]byte(k.pattern(prefix)))
					if !p.Matches(name) {
						t.Errorf("%s is not in %s", name, k.pattern(prefix))
					}
					for other := range ownerOf {
						if o, ours := constraintOf(ns, other); p.Matches(other) && (!ours || o != id) {
							t.Errorf("%s is in %s", other, k.pattern(prefix))
						}
					}
				}
			}
		}
	}
	for _, other := range []string{"", "c", "c:a", "user:7", "x:a:b"} {
		if id, ours := constraintOf("a", other); ours {
			t.Errorf("%q is of the constraint %q", other, id)
		}
	}
}

// TestHeartbeatStops: a worker that registered without heartbeats and has sent some counts as lost
// when the heartbeats stop.
func TestHeartbeatStops(t *testing.T) {
	w := newSimulation(t, 1)
	m := w.machine
	k := &worker{Worker: job.Worker{ID: m.newID(), MaxJobs: 1, Names: []string{"*"}}, lastSeen: w.now, runs: map[*record]struct{}{}}
	m.workers[k.ID] = k
	w.pass(time.Hour)
	if m.workers[k.ID] != k {
		t.Fatal("a worker is lost that never sent a heartbeat")
	}
	w.step(m, func() {
		if known, err := m.findWorker(job.Caller{ID: k.ID}, false); err == nil {
			m.heartbeat(known)
		}
	})
	w.pass((missedHeartbeats + 1) * m.Heartbeat)
	if m.workers[k.ID] != nil {
		t.Fatal("the worker is still there")
	}
}

// TestRestartedWorker: a worker whose process was killed registers with the same URL again, and gets
// no jobs that are meant for its first registration. The runs of that end as if it were still there.
func TestRestartedWorker(t *testing.T) {
	w := newSimulation(t, 1)
	m := w.machine
	register := func(g job.Worker) (k *worker) {
		g.Name, g.MaxJobs = "w", 1
		w.step(m, func() { m.register(g, func(r *job.Worker, err error) { k = m.workers[r.ID] }) })
		w.store.flush()
		return k
	}
	first := register(job.Worker{URL: "http://there", Heartbeat: true})
	others := []*worker{
		register(job.Worker{URL: "http://elsewhere"}),
		register(job.Worker{URL: "http://there", Owner: "another"}),
		register(job.Worker{}),
		register(job.Worker{}),
	}
	m.env.push, m.workersMayGetJobs = &pushRecorder{}, true
	r := w.addWaiting(3600)
	w.step(m, func() { m.start(r, first, nil) })
	w.store.flush()
	again := register(job.Worker{URL: "http://there"})
	if first.mayTake(m) || !again.mayTake(m) {
		t.Errorf("the first registration gets jobs: %v, the second: %v", first.mayTake(m), again.mayTake(m))
	}
	for i, o := range others {
		if o.Leaving {
			t.Errorf("worker %d, which is another one, has been unregistered", i)
		}
	}
	w.pass((missedHeartbeats + 1) * m.Heartbeat)
	w.store.flush()
	if r.State != job.Failed || m.workers[first.ID] != nil {
		t.Errorf("the job that the first one had is %v", r.State)
	}
	mail := register(job.Worker{URL: "http://here", Names: []string{"mail", "sms"}})
	report := register(job.Worker{URL: "http://here", Names: []string{"report"}})
	if register(job.Worker{URL: "http://here", Names: []string{"sms"}}); !mail.Leaving || report.Leaving {
		t.Errorf("the worker for mail and sms is unregistered: %v; the one for reports: %v", mail.Leaving, report.Leaving)
	}
}

// TestRegistrationIsRepeated: a worker that had no reply in time registers again before its first
// registration is stored. The second one counts.
func TestRegistrationIsRepeated(t *testing.T) {
	w := newSimulation(t, 1)
	m := w.machine
	m.workersMayGetJobs = true
	m.env.store = heldWorkerStore{w.store}
	var last *job.Worker
	for range 3 {
		w.step(m, func() {
			m.register(job.Worker{Name: "w", MaxJobs: 1, URL: "http://there"}, func(r *job.Worker, err error) { last = r })
		})
	}
	w.store.flush()
	if k := m.workers[last.ID]; len(m.workers) != 1 || k == nil || !k.mayTake(m) {
		t.Errorf("of three registrations there are %d; the last one: %+v", len(m.workers), k)
	}
}

// heldWorkerStore is a store that answers a change of a worker only when it is flushed.
type heldWorkerStore struct{ *slowStore }

func (s heldWorkerStore) PutWorker(id job.ID, w *job.Worker, done func(error)) {
	s.pending = append(s.pending, func() { s.Memory.PutWorker(id, w, done) })
}

// TestReplacedWorkerLives: a process that hands its port over to another one finishes its jobs. Its
// heartbeats are refused, but show that it lives.
func TestReplacedWorkerLives(t *testing.T) {
	w := newSimulation(t, 1)
	m := w.machine
	register := func() (k *worker) {
		g := job.Worker{Name: "w", MaxJobs: 1, URL: "http://there", Heartbeat: true}
		w.step(m, func() { m.register(g, func(r *job.Worker, err error) { k = m.workers[r.ID] }) })
		w.store.flush()
		return k
	}
	first := register()
	m.env.push, m.workersMayGetJobs = &pushRecorder{}, true
	r := w.addWaiting(3600)
	w.step(m, func() { m.start(r, first, nil) })
	w.store.flush()
	register()
	for range 2 * missedHeartbeats {
		w.pass(m.Heartbeat)
		if _, err := m.findWorker(job.Caller{ID: first.ID}, false); err == nil {
			t.Fatal("its heartbeat is accepted")
		}
	}
	w.store.flush()
	if r.State != job.Running {
		t.Errorf("the job is %v", r.State)
	}
}

// TestRestartedWorkerNeedsNoRoom: a worker may register again although there are as many workers as
// are allowed.
func TestRestartedWorkerNeedsNoRoom(t *testing.T) {
	w := newSimulation(t, 1)
	m := w.machine
	m.MaxWorkers = 1
	register := func(url string) (refusal error) {
		w.step(m, func() {
			m.register(job.Worker{Name: "w", MaxJobs: 1, URL: url}, func(_ *job.Worker, err error) { refusal = err })
		})
		w.store.flush()
		return refusal
	}
	for _, url := range []string{"http://there", "http://there"} {
		if err := register(url); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
	if err := register("http://elsewhere"); codeOf(err) != job.Overloaded || len(m.workers) != 1 {
		t.Errorf("another worker: %v; there are %d", err, len(m.workers))
	}
}

// TestStoredLeavingWorker: a worker that was leaving is forgotten, also if the last master ended after its
// last run and before it was forgotten.
func TestStoredLeavingWorker(t *testing.T) {
	w := newSimulation(t, 1)
	g := &job.Worker{ID: w.machine.newID(), Name: "w", MaxJobs: 1, Names: []string{"*"}, Leaving: true}
	w.store.PutWorker(g.ID, g, func(error) {})
	for _, want := range []int{1, 0} {
		if w.start(); len(w.machine.workers) != want {
			t.Errorf("there are %d workers, not %d", len(w.machine.workers), want)
		}
		w.step(w.machine, w.machine.checkPeriodic)
		w.store.flush()
	}
}

// TestSilentWorkers: workers that have gone without unregistering do not keep others out forever.
func TestSilentWorkers(t *testing.T) {
	w := newSimulation(t, 1)
	m := w.machine
	m.MaxWorkers = 3
	register := func(g job.Worker) (id job.ID, result error) {
		g.Name, g.MaxJobs = "w", 1
		w.step(m, func() {
			m.register(g, func(r *job.Worker, err error) {
				if result = err; err == nil {
					id = r.ID
				}
			})
		})
		w.store.flush()
		return id, result
	}
	pushed, _ := register(job.Worker{URL: "http://there"})
	livingWorker, _ := register(job.Worker{})
	silentWorker, _ := register(job.Worker{})
	if _, err := register(job.Worker{}); codeOf(err) != job.Overloaded {
		t.Fatal(err)
	}
	w.elapse(silentAfter)
	w.step(m, func() { _, _ = m.findWorker(job.Caller{ID: livingWorker}, false) })
	if _, err := register(job.Worker{}); err != nil {
		t.Fatal(err)
	}
	if m.workers[silentWorker] != nil || m.workers[livingWorker] == nil || m.workers[pushed] == nil {
		t.Errorf("there are %v", m.workers)
	}
	if _, err := register(job.Worker{}); codeOf(err) != job.Overloaded {
		t.Error(err)
	}
}

// TestTimeWithoutWorkerIsKnown: the master knows for how long no worker that serves a name has
// asked for jobs. A worker that gets jobs pushed, runs a job or has an open request is not silent.
func TestTimeWithoutWorkerIsKnown(t *testing.T) {
	w := newSimulation(t, 1)
	m := w.machine
	register := func(g job.Worker) (k *worker) {
		w.step(m, func() { m.register(g, func(r *job.Worker, err error) { k = m.workers[r.ID] }) })
		w.store.flush()
		return k
	}
	register(job.Worker{URL: "http://there", Names: []string{"pushed*"}})
	deadWorker := register(job.Worker{Names: []string{"mail", "sms"}})
	open := register(job.Worker{Names: []string{"sms"}})
	w.step(m, func() { m.pull(open, &pullRequest{max: 1, ready: func() {}}) })
	w.elapse(12 * time.Minute)
	for name, want := range map[string]string{"mail": "true 12m0s", "sms": "true 0s", "pushed-1": "true 0s", "none": "false 0s"} {
		if served, since := silenceOf(askedGlobs(m.lastAsked()), name, m.now); fmt.Sprint(served, " ", since.Truncate(time.Minute)) != want {
			t.Errorf("%s: %v, %v; want %s", name, served, since, want)
		}
	}
	w.step(m, func() { _, _ = m.findWorker(job.Caller{ID: deadWorker.ID}, false) })
	if _, since := silenceOf(askedGlobs(m.lastAsked()), "mail", m.now); since != 0 {
		t.Errorf("silent for %v after a request", since)
	}
}
