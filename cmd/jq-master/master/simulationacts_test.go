package master

import (
	"fmt"
	"slices"
	"time"

	"gloom/cmd/jq-master/job"
	"gloom/cmd/jq-master/pack"
	"gloom/cmd/jq-master/store"
)

func (w *simulation) enqueue() {
	var jobs []*NewJob
	for range 1 + w.rng.IntN(3) {
		n := &NewJob{Attributes: job.Attributes{
			Name: fmt.Sprintf("n%d", w.rng.IntN(3)), Argument: []byte{0x80}, Priority: int32(w.rng.IntN(3)),
			MaxRetry: int32(w.rng.IntN(3)), Timeout: job.Span(500 + w.rng.IntN(5000)), KeepResult: w.oneIn(2),
		}}
		if w.oneIn(4) {
			n.Delay = time.Duration(w.rng.IntN(3000)) * time.Millisecond
		}
		jobs = append(jobs, n)
	}
	w.step(w.machine, func() {
		w.machine.enqueue(&enqueueRequest{jobs: jobs, reply: func(ids []job.ID, _ bool, err error) {
			for i, id := range ids {
				w.model[id] = &expectedJob{id: id, maxRetry: jobs[i].MaxRetry, name: jobs[i].Name}
				w.logf("enqueued %v %+v", id, jobs[i].Attributes)
			}
		}})
	})
}

func (w *simulation) register() {
	g := job.Worker{Name: "sim", MaxJobs: 1 + w.rng.IntN(3), Heartbeat: w.oneIn(2)}
	if !w.oneIn(3) {
		g.URL = fmt.Sprintf("http://127.0.0.1:%d", 1+w.rng.IntN(9))
	}
	if w.oneIn(3) {
		g.Names = []string{"n0", "n1*"}
	}
	if w.healed {
		g.URL, g.Names, g.Heartbeat = fmt.Sprintf("http://127.0.0.1:%d", 10+len(w.workers)), nil, false
	}
	w.step(w.machine, func() {
		w.machine.register(g, func(r *job.Worker, err error) {
			if err == nil {
				w.logf("worker %v max %d pulls %v", r.ID, g.MaxJobs, g.URL == "")
				w.workers = append(w.workers, &simWorker{id: r.ID, max: g.MaxJobs, pulls: g.URL == "", beats: g.Heartbeat, silent: !w.healed && w.oneIn(6), running: map[job.ID]int32{}})
			}
		})
	})
}

// Push implements Pusher.
func (w *simulation) Push(k *job.Worker, h *job.Handout, onAnswer func(Answer)) {
	i := slices.IndexFunc(w.workers, func(s *simWorker) bool { return s.id == k.ID })
	if i < 0 {
		w.fatalf("a push to worker %v that is not registered", k.ID)
	}
	s, e := w.workers[i], w.expect(h)
	kind := AnswerTaken
	if !w.healed && w.oneIn(3) {
		kind = AnswerKind(w.rng.IntN(int(AnswerUnreachable) + 1))
	}
	w.logf("push %v attempt %d to %v: answer %d", h.ID, h.Attempt, k.ID, kind)
	if kind == AnswerTaken || kind == AnswerBroken || kind == AnswerRefused {
		w.sent(s, e, h)
	}
	if kind == AnswerRefused || kind == AnswerBroken {
		delete(s.running, h.ID)
	}
	if w.oneIn(2) && !w.healed {
		w.broker.later(func() { onAnswer(Answer{Kind: kind}) })
	} else {
		w.broker.later(func() { onAnswer(Answer{Kind: kind}) })
	}
}

// expect returns the test's record of a job that is handed out. A job that no pusher knows was
// stored, but a crash lost the reply to its pusher.
func (w *simulation) expect(h *job.Handout) *expectedJob {
	if w.model[h.ID] == nil {
		w.model[h.ID] = &expectedJob{id: h.ID, name: h.Name, maxRetry: w.machine.jobs.Get(h.ID).MaxRetry}
	}
	return w.model[h.ID]
}

func (w *simulation) sent(s *simWorker, e *expectedJob, h *job.Handout) {
	e.sentCount++
	if e.maxRetry == 0 && !e.revived && e.sentCount > 1 {
		w.fatalf("job %v with max_retry 0 ran twice", e.id)
	}
	if !e.revived && e.sentCount > int(e.maxRetry)+1 {
		w.fatalf("job %v with max_retry %d ran %d times", e.id, e.maxRetry, e.sentCount)
	}
	if (e.cancelled || e.ended) && !e.revived || e.succeeded {
		w.fatalf("job %v is pushed and had ended: %+v", e.id, *e)
	}
	s.running[h.ID] = h.Attempt
}

func (w *simulation) workerActs() {
	s, ok := pickOne(w, w.workers)
	if ok && s.pending != nil && s.pending.closed { // it ends, whatever its worker does
		w.pull(s)
		return
	}
	if !ok || s.removed {
		return
	}
	if s.silent && !w.healed {
		return
	}
	switch n := w.rng.IntN(20); {
	case n == 0 && !w.healed:
		w.logf("unregister %v", s.id)
		s.removed = true
		w.step(w.machine, func() {
			if k, err := w.machine.findWorker(job.Caller{ID: s.id}, false); err == nil {
				w.machine.removeWorker(k)
			}
		})
		w.workers = slices.DeleteFunc(w.workers, func(o *simWorker) bool { return o == s && len(s.running) == 0 && false })
	case n < 4 && (s.beats || !w.healed): // a worker's first heartbeat obliges it to send more
		w.step(w.machine, func() {
			if k, err := w.machine.findWorker(job.Caller{ID: s.id}, false); err == nil {
				for _, id := range w.machine.heartbeat(k) {
					delete(s.running, id)
				}
			}
		})
	case n < 10 && s.pulls:
		w.pull(s)
	default:
		w.report(s)
	}
}

func (w *simulation) pull(s *simWorker) {
	if s.pending != nil {
		p, c := s.pending, w.machine
		if !p.closed {
			w.step(c, func() {
				if k := c.workers[s.id]; k != nil {
					c.closePull(k, p)
				}
			})
			if p.closed && w.oneIn(2) {
				return // its jobs wait until they may be written
			}
		}
		s.pending = nil
		taken := w.healed || !w.oneIn(4)
		w.step(c, func() {
			k := c.workers[s.id]
			if k == nil {
				return
			}
			for _, h := range c.endPull(k, p, taken) {
				w.logf("pulled %v attempt %d by %v", h.ID, h.Attempt, s.id)
				w.sent(s, w.expect(&h), &h)
			}
		})
		return
	}
	w.step(w.machine, func() {
		k, err := w.machine.findWorker(job.Caller{ID: s.id}, false)
		if err != nil {
			return
		}
		s.pending = &pullRequest{max: 1 + w.rng.IntN(2), maxBytes: w.rng.IntN(2) << 20, ready: func() {}}
		w.machine.pull(k, s.pending)
	})
}

func (w *simulation) report(s *simWorker) {
	var ids []job.ID
	for id := range s.running {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b job.ID) int { return slices.Compare(a[:], b[:]) })
	id, ok := pickOne(w, ids)
	if !ok {
		return
	}
	attempt := s.running[id]
	delete(s.running, id)
	o := job.Outcome{Success: w.healed || w.oneIn(2), Result: []byte{1}}
	if !o.Success {
		o = job.Outcome{Reason: job.Other, Retry: !w.oneIn(4), Message: "no", Error: []byte{0xa1, 'x'}}
	}
	c, e := w.machine, w.model[id]
	w.step(c, func() {
		k, err := c.findWorker(job.Caller{ID: s.id}, true)
		if err != nil {
			return
		}
		c.report(k, &Report{Job: id, Attempt: attempt, Outcome: o}, func(err error) {
			w.logf("done %v attempt %d by %v success %v retry %v: %v", id, attempt, s.id, o.Success, o.Retry, err)
			if err != nil {
				return
			}
			r := c.jobs.Get(id)
			switch {
			case r == nil:
			case o.Success:
				if r.State != job.Done {
					w.fatalf("job %v: success was taken, and it is %v", id, r.State)
				}
				e.succeeded = true
			case r.State == job.Failed && r.Attempt == attempt:
				e.ended = true
			}
		})
	})
}

func (w *simulation) cancelOne(force bool) {
	e, ok := pickOne(w, w.jobs())
	if !ok {
		return
	}
	w.step(w.machine, func() {
		w.machine.cancel(e.id, force, func(err error) {
			w.logf("cancel %v force %v: %v", e.id, force, err)
			if err == nil {
				e.cancelled = true
			}
		})
	})
}

func (w *simulation) constrain() {
	id := fmt.Sprintf("k%d", w.rng.IntN(2))
	if w.oneIn(3) {
		w.step(w.machine, func() { w.machine.changeConstraint(id, nil, selector{}, 0, false, func(bool, error) {}) })
		return
	}
	k := &job.Constraint{ID: id, Concurrency: int64(w.rng.IntN(4)) - 1, Enabled: !w.oneIn(4)}
	if k.Concurrency < 0 || w.oneIn(4) {
		k.Rate, k.Burst = 1000, 1000
	}
	if w.oneIn(2) {
		k.Per = "/priority"
	}
	op := []string{"eq", "ne", "ge"}[w.rng.IntN(3)]
	k.Match, _ = pack.FromJSON([]byte(`{"field":"/name","op":"` + op + `","value":"n` + id[1:] + `"}`))
	sel, fault := Compile(k)
	if fault != nil {
		w.fatalf("%v", fault)
	}
	w.step(w.machine, func() { w.machine.changeConstraint(k.ID, k, sel, 0, false, func(bool, error) {}) })
}

func (w *simulation) toggleStore() {
	w.store.away = !w.store.away
	var err error
	if w.store.away {
		err = store.ErrAway
	}
	w.logf("store away: %v", w.store.away)
	w.step(w.machine, func() { w.machine.onStoreChange(err) })
}

// crash starts a new machine from the content of the store. Writes that have not reached the store
// may be lost.
func (w *simulation) crash() {
	w.logf("crash")
	pending := w.store.pending
	w.store.pending = nil
	w.machine = nil // requests that wait get no reply
	for _, s := range w.workers {
		s.pending = nil
	}
	w.store.away = false
	for _, f := range pending {
		if w.oneIn(2) {
			break
		}
		f()
	}
	w.start()
}

func (w *simulation) poll() {
	e, ok := pickOne(w, w.jobs())
	if !ok {
		return
	}
	m := w.machine
	p := &poller{peek: w.oneIn(2), reply: func(st *Status, err error) {
		if st != nil && st.Fetch != nil {
			written := w.oneIn(2)
			m.runAfterStep(func() { st.Fetch(written) })
		}
	}}
	w.step(m, func() { m.poll(e.id, p) })
	if w.oneIn(2) {
		w.step(m, func() { m.endPoll(e.id, p) })
	}
}
