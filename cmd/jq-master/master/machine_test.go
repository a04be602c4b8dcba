package master

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"gloom/cmd/jq-master/job"
	"gloom/cmd/jq-master/pack"
	"gloom/cmd/jq-master/store"
)

// TestSeeds: worlds in which everything happens that may, and after each command
// the counts are right; in the end all that was taken in has ended as its workers
// and pushers were told.
func TestSeeds(t *testing.T) {
	if *seedFlag != 0 {
		newWorld(t, *seedFlag).run(400)
		return
	}
	base := rand.Uint64() >> 1
	t.Logf("seeds from %d on", base)
	for n := range *seedsFlag {
		newWorld(t, base+uint64(n)).run(400)
	}
}

func (w *world) run(steps int) {
	for range steps {
		w.act()
		w.settleDown()
	}
	w.heal()
}

func (w *world) pick(n int) bool { return w.rng.IntN(n) == 0 }

func pickOne[T any](w *world, all []T) (v T, ok bool) {
	if len(all) == 0 {
		return v, false
	}
	return all[w.rng.IntN(len(all))], true
}

// settleDown lets the surroundings do some of what they were asked.
func (w *world) settleDown() {
	if w.rng.IntN(2) == 0 {
		w.st.flush()
	}
	w.br.some(w.rng.IntN(6))
	if w.br.match() {
		w.br.match()
	}
	w.step(w.c, func() { w.c.linkSlice(3) })
	w.sweep()
	if w.over != nil {
		w.fatalf("the machine gave up: %v", w.over)
	}
	if len(w.br.todo) > 0 || w.c.constraints.sweep >= 0 {
		return
	}
	for _, r := range w.c.jobs { // that wait, as the broker has them
		if b := w.br.jobs[r.ID]; b != nil && r.inLine && r.waits() && r.op == idle && !b.running && !slices.ContainsFunc(w.c.late, func(l lateJob) bool { return l.id == r.ID }) && !slices.Equal(b.groups, r.groups.groups()) {
			w.fatalf("the broker has job %v in %q, not %q", r.ID, b.groups, r.groups.groups())
		}
	}
}

func (w *world) pass(d time.Duration) {
	w.now += ms(d)
	w.step(w.c, func() { w.c.beat(); w.c.refill(); w.c.placeLate(); w.c.tick() })
}

func (w *world) jobs() []*expected {
	all := make([]*expected, 0, len(w.model))
	for _, e := range w.model {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b *expected) int { return slices.Compare(a.id[:], b.id[:]) })
	return all
}

func (w *world) act() {
	switch n := w.rng.IntN(100); {
	case n < 22:
		w.enqueue()
	case n < 30 && len(w.workers) < 6:
		w.register()
	case n < 60:
		w.workerActs()
	case n < 64:
		w.cancelOne(w.pick(2))
	case n < 67:
		if e, ok := pickOne(w, w.jobs()); ok {
			w.say("revive %v", e.id)
			e.revived = true // perhaps: a crash may hide it
			w.step(w.c, func() {
				w.c.revive(e.id, func(err error) {
					if err == nil {
						w.say("revived %v", e.id)
						e.revived, e.final, e.cancelled, e.failures = true, false, false, 0
					}
				})
			})
		}
	case n < 70:
		w.constrain()
	case n < 72:
		w.storeGoes()
	case n < 73:
		w.crash()
	case n < 75:
		w.say("the broker is lost")
		w.step(w.c, func() { w.c.unlink() })
		b := w.br
		w.br = &naiveBroker{w: w, c: w.c, jobs: map[job.ID]*naiveJob{}, workers: map[job.ID]serving{}, ruled: map[string]ruleChange{}}
		b.todo = nil
		w.c.out.line = w.br
	case n < 80:
		w.poll()
	default:
		w.pass(time.Duration(w.rng.IntN(2500)) * time.Millisecond)
	}
}

func (w *world) enqueue() {
	var jobs []*New
	for range 1 + w.rng.IntN(3) {
		n := &New{Attributes: job.Attributes{
			Name: fmt.Sprintf("n%d", w.rng.IntN(3)), Argument: []byte{0x80}, Priority: int32(w.rng.IntN(3)),
			MaxRetry: int32(w.rng.IntN(3)), Timeout: int32(1 + w.rng.IntN(5)), KeepResult: w.pick(2),
		}}
		if w.pick(4) {
			n.Delay = time.Duration(w.rng.IntN(3000)) * time.Millisecond
		}
		jobs = append(jobs, n)
	}
	w.step(w.c, func() {
		w.c.enqueue(&enqueueing{jobs: jobs, reply: func(ids []job.ID, _ bool, err error) {
			for i, id := range ids {
				w.model[id] = &expected{id: id, maxRetry: jobs[i].MaxRetry, name: jobs[i].Name}
				w.say("enqueued %v %+v", id, jobs[i].Attributes)
			}
		}})
	})
}

func (w *world) register() {
	g := &Registration{Name: "sim", MaxJobs: 1 + w.rng.IntN(3), Heartbeat: w.pick(2)}
	if !w.pick(3) {
		g.URL = "http://127.0.0.1:1"
	}
	if w.pick(3) {
		g.Names = []string{"n0", "n1*"}
	}
	if w.healed {
		g.URL, g.Names, g.Heartbeat = "http://127.0.0.1:1", nil, false
	}
	w.step(w.c, func() {
		w.c.register(g, func(r *Registered, err error) {
			if err == nil {
				w.say("worker %v max %d pulls %v", r.ID, g.MaxJobs, g.URL == "")
				w.workers = append(w.workers, &simWorker{id: r.ID, max: g.MaxJobs, pulls: g.URL == "", beats: g.Heartbeat, silent: !w.healed && w.pick(6), out: map[job.ID]int32{}})
			}
		})
	})
}

// Push implements Pusher.
func (w *world) Push(k *job.Worker, h *job.Handout, answered func(Answer)) {
	i := slices.IndexFunc(w.workers, func(s *simWorker) bool { return s.id == k.ID })
	if i < 0 {
		w.fatalf("a push to worker %v that is not registered", k.ID)
	}
	s, e := w.workers[i], w.expect(h)
	kind := Taken
	if !w.healed && w.pick(3) {
		kind = AnswerKind(w.rng.IntN(int(Unreachable) + 1))
	}
	w.say("push %v attempt %d to %v: answer %d", h.ID, h.Attempt, k.ID, kind)
	if kind == Taken || kind == Broken || kind == Refused {
		w.sent(s, e, h)
	}
	if kind == Refused || kind == Broken {
		delete(s.out, h.ID)
	}
	if w.pick(2) && !w.healed {
		w.br.later(func() { answered(Answer{Kind: kind}) })
	} else {
		w.br.later(func() { answered(Answer{Kind: kind}) })
	}
}

// expect is what is known of a job that is handed out; if nobody was told of it,
// its enqueueing was cut off by a crash.
func (w *world) expect(h *job.Handout) *expected {
	if w.model[h.ID] == nil {
		w.model[h.ID] = &expected{id: h.ID, name: h.Name, maxRetry: w.c.jobs[h.ID].MaxRetry}
	}
	return w.model[h.ID]
}

func (w *world) sent(s *simWorker, e *expected, h *job.Handout) {
	e.sent++
	if e.maxRetry == 0 && !e.revived && e.sent > 1 {
		w.fatalf("job %v with max_retry 0 ran twice", e.id)
	}
	if !e.revived && e.sent > int(e.maxRetry)+1 {
		w.fatalf("job %v with max_retry %d ran %d times", e.id, e.maxRetry, e.sent)
	}
	if (e.cancelled || e.final) && !e.revived || e.succeeded {
		w.fatalf("job %v is pushed and had ended: %+v", e.id, *e)
	}
	s.out[h.ID] = h.Attempt
}

func (w *world) workerActs() {
	s, ok := pickOne(w, w.workers)
	if !ok || s.gone {
		return
	}
	if s.silent && !w.healed {
		return
	}
	switch n := w.rng.IntN(20); {
	case n == 0 && !w.healed:
		w.say("unregister %v", s.id)
		s.gone = true
		w.step(w.c, func() {
			if k, err := w.c.known(s.id, false); err == nil {
				w.c.retire(k)
			}
		})
		w.workers = slices.DeleteFunc(w.workers, func(o *simWorker) bool { return o == s && len(s.out) == 0 && false })
	case n < 4 && (s.beats || !w.healed): // else it would be lost in time
		w.step(w.c, func() {
			if k, err := w.c.known(s.id, false); err == nil {
				for _, id := range w.c.heartbeat(k) {
					delete(s.out, id)
				}
			}
		})
	case n < 10 && s.pulls:
		w.pull(s)
	default:
		w.report(s)
	}
}

func (w *world) pull(s *simWorker) {
	if s.pending != nil {
		p, c := s.pending, w.c
		s.pending = nil
		taken := w.healed || !w.pick(4)
		w.step(c, func() {
			k := c.workers[s.id]
			if k == nil {
				return
			}
			for _, h := range c.endPull(k, p, taken) {
				w.say("pulled %v attempt %d by %v", h.ID, h.Attempt, s.id)
				w.sent(s, w.expect(&h), &h)
			}
		})
		return
	}
	w.step(w.c, func() {
		k, err := w.c.known(s.id, false)
		if err != nil {
			return
		}
		s.pending = &puller{max: 1 + w.rng.IntN(2), ready: func() {}}
		w.c.pull(k, s.pending)
	})
}

func (w *world) report(s *simWorker) {
	var ids []job.ID
	for id := range s.out {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b job.ID) int { return slices.Compare(a[:], b[:]) })
	id, ok := pickOne(w, ids)
	if !ok {
		return
	}
	attempt := s.out[id]
	delete(s.out, id)
	o := job.Outcome{Success: w.healed || w.pick(2), Result: []byte{1}}
	if !o.Success {
		o = job.Outcome{Reason: job.Other, Retry: !w.pick(4), Message: "no", Error: []byte{0xa1, 'x'}}
	}
	c, e := w.c, w.model[id]
	w.step(c, func() {
		k, err := c.known(s.id, true)
		if err != nil {
			return
		}
		c.done(k, &Report{Job: id, Attempt: attempt, Outcome: o}, func(err error) {
			w.say("done %v attempt %d by %v success %v retry %v: %v", id, attempt, s.id, o.Success, o.Retry, err)
			if err != nil {
				return
			}
			r := c.jobs[id]
			switch {
			case r == nil:
			case o.Success:
				if r.State != job.Done {
					w.fatalf("job %v: success was taken, and it is %v", id, r.State)
				}
				e.succeeded = true
			case r.State == job.Failed && r.Attempt == attempt:
				e.final = true
			}
		})
	})
}

func (w *world) cancelOne(force bool) {
	e, ok := pickOne(w, w.jobs())
	if !ok {
		return
	}
	w.step(w.c, func() {
		w.c.cancel(e.id, force, func(err error) {
			w.say("cancel %v force %v: %v", e.id, force, err)
			if err == nil {
				e.cancelled = true
			}
		})
	})
}

func (w *world) constrain() {
	id := fmt.Sprintf("k%d", w.rng.IntN(2))
	if w.pick(3) {
		w.step(w.c, func() { w.c.dropConstraint(id, 0, func(error) {}) })
		return
	}
	k := &job.Constraint{ID: id, Concurrency: int64(w.rng.IntN(4)) - 1, Enabled: !w.pick(4)}
	if k.Concurrency < 0 || w.pick(4) {
		k.Rate, k.Burst = 1000, 1000
	}
	if w.pick(2) {
		k.Per = "/priority"
	}
	op := []string{"eq", "ne", "ge"}[w.rng.IntN(3)]
	k.Match, _ = pack.FromJSON([]byte(`{"field":"/name","op":"` + op + `","value":"n` + id[1:] + `"}`))
	pick, fault := Compile(k)
	if fault != nil {
		w.fatalf("%v", fault)
	}
	w.step(w.c, func() { w.c.putConstraint(k, pick, 0, false, func(bool, error) {}) })
}

func (w *world) storeGoes() {
	w.st.away = !w.st.away
	var err error
	if w.st.away {
		err = store.ErrAway
	}
	w.say("store away: %v", w.st.away)
	w.step(w.c, func() { w.c.storeChanged(err) })
}

// crash begins anew from what the store holds. What was on its way there is lost,
// or not.
func (w *world) crash() {
	w.say("crash")
	pending := w.st.pending
	w.st.pending = nil
	w.c = nil // answers to those who wait are lost
	for _, s := range w.workers {
		s.pending = nil
	}
	w.st.away = false
	for _, f := range pending {
		if w.pick(2) {
			break
		}
		f()
	}
	w.start()
}

func (w *world) poll() {
	e, ok := pickOne(w, w.jobs())
	if !ok {
		return
	}
	c := w.c
	p := &poller{peek: w.pick(2), reply: func(st *Status, err error) {
		if st != nil && st.Fetch != nil {
			st.Fetch(w.pick(2))
		}
	}}
	w.step(c, func() { c.poll(e.id, p) })
	if w.pick(2) {
		w.step(c, func() { c.endPoll(e.id, p) })
	}
}

// heal lets everything work, and demands that all jobs end.
func (w *world) heal() {
	w.healed = true
	if w.st.away {
		w.storeGoes()
	}
	for _, id := range []string{"k0", "k1"} {
		w.step(w.c, func() { w.c.dropConstraint(id, 0, func(error) {}) })
	}
	w.register()
	w.register()
	ended := func() bool {
		return w.c.counts[job.Queued]+w.c.counts[job.Running]+w.c.counts[job.Retrying] == 0
	}
	for n := 0; !ended(); n++ {
		if n > 20_000 {
			for _, r := range w.c.jobs {
				if !r.State.Ended() {
					w.t.Logf("%v %v op %d inLine %v attempt %d due in %d: broker %+v", r.ID, r.State, r.op, r.inLine, r.Attempt, r.Due-w.now, w.br.jobs[r.ID])
				}
			}
			for id, v := range w.br.workers {
				w.t.Logf("%v %+v", id, v)
			}
			w.fatalf("jobs do not end: %v", w.c.counts)
		}
		w.st.flush()
		w.br.some(10)
		w.br.match()
		w.step(w.c, func() { w.c.linkSlice(3) })
		w.sweep()
		for range 3 {
			w.workerActs()
		}
		w.pass(100 * time.Millisecond)
		if w.over != nil {
			w.fatalf("the machine gave up: %v", w.over)
		}
	}
	for _, e := range w.jobs() {
		r := w.c.jobs[e.id]
		switch {
		case r == nil:
		case e.cancelled && !e.revived && r.State != job.Cancelled:
			w.fatalf("job %v was cancelled, and is %v", e.id, r.State)
		case e.succeeded && r.State != job.Done:
			w.fatalf("job %v succeeded, and is %v", e.id, r.State)
		}
	}
	if w.c.entering != 0 || len(w.c.late) > 0 {
		w.fatalf("%d jobs are still to come, %d late", w.c.entering, len(w.c.late))
	}
}

// TestSurplus: what has ended is forgotten down to the limit and no further, also
// when the store is slow to forget it.
func TestSurplus(t *testing.T) {
	w := newWorld(t, 1)
	c := w.c
	c.MaxEnded = 10
	w.step(c, func() {
		for n := range 3 * manyAtOnce {
			j := &job.Job{ID: c.newID(), Attributes: job.Attributes{Name: "n"}, Seq: uint64(n + 1), State: job.Done, Finished: w.now}
			c.load(j, w.now+ms(time.Hour), 0)
		}
	})
	w.now += ms(2 * justEnded)
	w.st.away = true
	for range 5 {
		w.step(c, c.expire)
	}
	w.st.away = false
	w.st.flush()
	if n := c.counts[job.Done]; n != c.MaxEnded || c.leaving != 0 {
		t.Fatalf("%d jobs are left of at most %d, %d are leaving", n, c.MaxEnded, c.leaving)
	}
}

// TestLoadInAnyOrder: ended jobs are read after those that wait, and are older.
func TestLoadInAnyOrder(t *testing.T) {
	const n = 1000
	c := newMachine(DefaultLimits(), 1)
	load := func(seq uint64, s job.State) {
		c.load(&job.Job{ID: job.NewID(), Attributes: job.Attributes{Name: "n"}, Seq: seq, State: s}, never, 0)
	}
	for i := range uint64(n) {
		load(n+1+i, job.Queued)
	}
	for i := range uint64(n) {
		load(n-i, job.Done)
	}
	if first := c.order[0].seq; first != n+1 {
		t.Fatalf("the first job is %d: each one that was read later has moved all others", first)
	}
	c.loaded()
	for i, p := range c.order {
		if p.seq != uint64(i+1) || p.rec.Seq != p.seq {
			t.Fatalf("place %d is of job %d", i, p.seq)
		}
	}
}

// TestSize: what failures have left behind counts.
func TestSize(t *testing.T) {
	r := record{Job: &job.Job{Message: "four", Attempts: []job.Attempt{{Message: "one"}, {Message: "four"}}}}
	if n := r.size(); n != 4+3+4 {
		t.Errorf("size %d", n)
	}
}

// TestPullMisses: a request for jobs gets what has come when the store goes away,
// and is not left waiting for a job that was on its way.
func TestPullMisses(t *testing.T) {
	w := newWorld(t, 1)
	c := w.c
	k := &worker{Worker: job.Worker{ID: c.newID(), MaxJobs: 2, Names: []string{"*"}}, runs: map[*record]struct{}{}}
	c.workers[k.ID] = k
	c.linkSlice(1)
	c.linked = true
	started := map[job.ID]func(error){}
	c.out.store = &heldStarts{Store: w.st, held: started}
	var ready int
	p := &puller{max: 2, ready: func() { ready++ }}
	ids := []job.ID{c.newID(), c.newID()}
	w.step(c, func() {
		c.pull(k, p)
		for i, id := range ids {
			c.ledger.Enqueued++
			c.ledger.Waiting++
			r := c.adopt(&job.Job{ID: id, Attributes: job.Attributes{Name: "n", Timeout: 30}, Seq: uint64(i + 1), State: job.Queued})
			c.place(r)
			c.handed(k.ID, id, false, naiveRun{w.br, &naiveJob{submission: submission{id: id}}})
		}
	})
	started[ids[0]](nil)
	if ready != 0 || p.coming != 1 {
		t.Fatalf("ready %d times with %d coming", ready, p.coming)
	}
	w.step(c, func() { c.storeChanged(store.ErrAway) })
	if ready != 1 {
		t.Fatal("the first job waits for the store")
	}
	started[ids[1]](nil)
	w.step(c, func() { c.storeChanged(nil) })
	if p.coming != 0 || k.demand() != 1 {
		t.Fatalf("%d jobs are coming that do not, the demand is %d", p.coming, k.demand())
	}
}

// heldStarts keeps the answers to starts.
type heldStarts struct {
	store.Store
	held map[job.ID]func(error)
}

func (s *heldStarts) Start(j *job.Job, done func(error))       { s.held[j.ID] = done }
func (s *heldStarts) Release(_ *job.Job, done func(err error)) { done(nil) }

// TestLineOfThen: what a step has for a broker does not go to the next one.
func TestLineOfThen(t *testing.T) {
	w := newWorld(t, 1)
	c, next := w.c, &naiveBroker{w: w}
	c.place(c.adopt(&job.Job{ID: c.newID(), Attributes: job.Attributes{Name: "n"}, Seq: 1, State: job.Queued}))
	c.linkSlice(2)
	c.rule(ruleChange{pattern: "c:x"})
	c.out.line = next
	for _, f := range c.todo {
		f()
	}
	if len(next.todo) != 0 || len(w.br.todo) != 3 {
		t.Fatalf("the broker got %d errands, the next one %d", len(w.br.todo), len(next.todo))
	}
}

// TestIfMatchAtOnce: of two changes of one version of a constraint, made at once,
// the second is refused.
func TestIfMatchAtOnce(t *testing.T) {
	w := newWorld(t, 1)
	c := w.c
	held := &heldConstraints{Store: w.st}
	c.out.store = held
	var refused, other int
	put := func(ifMatch uint64) {
		k := &job.Constraint{ID: "k", Match: []byte{0x80}, Concurrency: 1, Enabled: true}
		w.step(c, func() {
			c.putConstraint(k, picker{match: func(*job.Attributes) bool { return false }}, ifMatch, ifMatch != 0, func(_ bool, err error) {
				var f *job.Fault
				if errors.As(err, &f) && f.Code == job.PreconditionFailed {
					refused++
				} else if err != nil {
					other++
				}
			})
		})
	}
	put(0)
	held.answer()
	put(1)
	put(1)
	w.step(c, func() { c.dropConstraint("k", 1, func(error) { refused++ }) })
	for held.answer() {
	}
	if v := c.constraints.byID["k"].Version; v != 2 || refused != 2 || other != 0 || c.changing {
		t.Fatalf("version %d, %d were refused, %d failed", v, refused, other)
	}
}

// heldConstraints keeps the answers to changes of constraints.
type heldConstraints struct {
	store.Store
	held []func(error)
}

func (s *heldConstraints) PutConstraint(_ *job.Constraint, done func(error)) {
	s.held = append(s.held, done)
}

func (s *heldConstraints) answer() bool {
	if len(s.held) == 0 {
		return false
	}
	done := s.held[0]
	s.held = s.held[1:]
	done(nil)
	return true
}

// TestHeartbeatStops: a worker that has sent heartbeats is lost when they stop, also
// if it did not ask for that.
func TestHeartbeatStops(t *testing.T) {
	w := newWorld(t, 1)
	c := w.c
	k := &worker{Worker: job.Worker{ID: c.newID(), MaxJobs: 1, Names: []string{"*"}}, seen: w.now, runs: map[*record]struct{}{}}
	c.workers[k.ID] = k
	w.pass(time.Hour)
	if c.workers[k.ID] != k {
		t.Fatal("a worker is lost that never sent a heartbeat")
	}
	w.step(c, func() {
		if known, err := c.known(k.ID, false); err == nil {
			c.heartbeat(known)
		}
	})
	w.pass((missedBeats + 1) * c.Heartbeat)
	if c.workers[k.ID] != nil {
		t.Fatal("the worker is still there")
	}
}
