package master

import (
	"context"
	"maps"
	"slices"
	"time"

	"gloom/cmd/jq-master/job"
)

// result is the reply to a command.
type result[T any] struct {
	v   T
	err error
}

// call runs a command and waits for its reply. If the machine ends first, call returns errStarting.
func call[T any](ctx context.Context, m *Master, f func(mc *machine, reply func(T, error))) (v T, err error) {
	replies, ended, err := send(m, f)
	if err != nil {
		return v, err
	}
	select {
	case a := <-replies:
		return a.v, m.ifLeaseHeld(a.err)
	case <-ended:
		return v, errStarting
	case <-ctx.Done():
		return v, context.Cause(ctx)
	}
}

// do is like call, for a command that replies only with an error.
func do(ctx context.Context, m *Master, f func(mc *machine, reply func(error))) error {
	_, err := call(ctx, m, func(mc *machine, reply func(noValue, error)) {
		f(mc, func(err error) { reply(noValue{}, err) })
	})
	return err
}

// ifLeaseHeld replaces an error if the lease has ended, because an error that comes from memory may
// then be out of date. A nil error is kept: what was written to the store is true, whichever master
// is active now.
func (m *Master) ifLeaseHeld(err error) error {
	if err != nil && !m.opt.Store.HoldsLease() {
		return errStandby
	}
	return err
}

// send queues a command. The command's reply, if any, arrives on the channel replies; the channel
// ended is closed when the machine ends.
func send[T any](m *Master, f func(mc *machine, reply func(T, error))) (replies <-chan result[T], ended <-chan struct{}, err error) {
	s, err := m.activeMachine()
	if err != nil {
		return nil, nil, err
	}
	ch := make(chan result[T], 1)
	reply := func(v T, err error) { ch <- result[T]{v, err} }
	m.queueCommand(command{s.machine, func() { f(s.machine, reply) }, func() { reply(*new(T), errStarting) }})
	return ch, s.ended, nil
}

// activeMachine returns the active machine, or why there is none.
func (m *Master) activeMachine() (*activeMachine, error) {
	if s := m.active.Load(); s != nil {
		return s, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.inactiveFault != nil {
		return nil, m.inactiveFault
	}
	return nil, errStarting
}

// readMachine runs a command that replies at once, from memory.
func readMachine[T any](m *Master, f func(mc *machine) (T, error)) (v T, err error) {
	s, err := m.activeMachine()
	if err != nil {
		return v, err
	}
	if !m.runNow(s.machine, func() { v, err = f(s.machine) }) {
		return v, errStarting
	}
	if !m.opt.Store.HoldsLease() { // checked after f: the lease may have ended meanwhile
		return v, errStandby
	}
	return v, err
}

type noValue = struct{}

// Enqueue adds all jobs or none, and returns their ids in the same order. If key was used before
// with the same body, it returns the ids of the earlier request, and replayed is true. It returns
// the outcome even if the master ends during the call. A job with a UniqueRequest must be the only
// job, and key must then be nil. If another job holds its unique key, unique says what happened to
// that job: "kept", "replaced" or "extended".
func (m *Master) Enqueue(jobs []*NewJob, key *Key) (ids []job.ID, replayed bool, unique string, err error) {
	e := &enqueueRequest{jobs: jobs, key: key}
	e.match(m.enabledConstraints())
	replies, ended, err := send(m, func(mc *machine, reply func([]job.ID, error)) {
		e.reply = func(ids []job.ID, again bool, err error) {
			replayed = again
			reply(ids, err)
		}
		mc.enqueue(e)
	})
	if err != nil {
		return nil, false, "", err
	}
	if jobs[0].UniqueRequest == nil {
		ended = nil // the store gets the request at once, and its answer always comes
	}
	var a result[[]job.ID]
	select {
	case a = <-replies:
	case <-ended:
		m.mu.Lock()
		sent, ids := e.inStore, e.ids
		m.mu.Unlock()
		switch {
		case ids != nil: // the next master cancels the replaced job
			return ids, false, e.unique, nil
		case !sent: // the request was still waiting for the other job
			return nil, false, "", errStarting
		}
		a = <-replies
	}
	return a.v, replayed, e.unique, m.ifLeaseHeld(a.err)
}

// enabledConstraints returns the enabled constraints, without the lock.
func (m *Master) enabledConstraints() []*constraint {
	if s := m.active.Load(); s != nil {
		if list := s.machine.constraints.enabledCopy.Load(); list != nil {
			return *list
		}
	}
	return nil
}

// Status returns a job's status. Unless peek is set, it fetches the result, which only one request
// can do.
func (m *Master) Status(id job.ID, peek bool) (*Status, error) {
	st, err := readMachine(m, func(mc *machine) (*Status, error) { return mc.status(id, peek) })
	if err != nil {
		st.putBack()
		return nil, err
	}
	return st, nil
}

// putBack returns the fetched result because the client does not get the status.
func (st *Status) putBack() {
	if st != nil && st.Fetch != nil {
		st.Fetch(false)
	}
}

// Poll waits until a job has ended, but no longer than wait, and returns its status. Unless peek is
// set, it fetches the result.
func (m *Master) Poll(ctx context.Context, id job.ID, wait time.Duration, peek bool) (*Status, error) {
	s, err := m.activeMachine()
	if err != nil {
		return nil, err
	}
	replies := make(chan result[*Status], 1)
	p := &poller{peek: peek, reply: func(st *Status, err error) { replies <- result[*Status]{st, err} }}
	m.runNow(s.machine, func() { s.machine.poll(id, p) })
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	var a result[*Status]
	select {
	case a = <-replies:
	case <-s.ended:
		a.err = errStarting
	case <-ctx.Done():
		m.runNow(s.machine, func() { s.machine.endPoll(id, p) })
		select {
		case a = <-replies:
		case <-s.ended:
			a.err = errStarting
		}
	}
	if !m.opt.Store.HoldsLease() && m.active.Load() != nil {
		a.v.putBack()
		return nil, errStandby
	}
	return a.v, a.err
}

// codeOf returns the code of a Fault, and no code for other errors.
func codeOf(err error) (code job.Code) {
	if f, ok := err.(*job.Fault); ok {
		code = f.Code
	}
	return code
}

// Cancel ends a waiting job. With force, it also ends a running one.
func (m *Master) Cancel(ctx context.Context, id job.ID, force bool) error {
	return do(context.WithoutCancel(ctx), m, func(mc *machine, reply func(error)) { mc.cancel(id, force, reply) })
}

// Register registers a worker and returns its registration. It waits for the store's answer even if
// the machine ends during the call.
func (m *Master) Register(w job.Worker) (*job.Worker, error) {
	replies, _, err := send(m, func(mc *machine, reply func(*job.Worker, error)) { mc.register(w, reply) })
	if err != nil {
		return nil, err
	}
	a := <-replies
	return a.v, m.ifLeaseHeld(a.err)
}

// Unregister removes a worker. Its running jobs may still be answered.
func (m *Master) Unregister(from job.Caller) error {
	_, err := readMachine(m, func(mc *machine) (noValue, error) {
		w, err := mc.findWorker(from, false)
		if err == nil {
			mc.removeWorker(w)
		}
		return noValue{}, err
	})
	return err
}

// Dismiss is Unregister for operators.
func (m *Master) Dismiss(id job.ID) error {
	_, err := readMachine(m, func(mc *machine) (noValue, error) {
		w := mc.workers[id]
		if w == nil || w.removed || w.Leaving {
			return noValue{}, job.Refuse(job.UnknownWorker, "", "there is no worker %v", id)
		}
		mc.removeWorker(w)
		return noValue{}, nil
	})
	return err
}

// CheckWorker returns an error unless the worker is registered or leaving. The call counts as a
// sign of life.
func (m *Master) CheckWorker(from job.Caller) error {
	_, err := readMachine(m, func(mc *machine) (*worker, error) { return mc.findWorker(from, true) })
	return err
}

// Done handles a worker's report of how a run has ended.
func (m *Master) Done(ctx context.Context, from job.Caller, p *Report) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.opt.StoreWait)
	defer cancel()
	err := do(ctx, m, func(mc *machine, reply func(error)) {
		w, err := mc.findWorker(from, true)
		if err != nil {
			reply(err)
			return
		}
		mc.report(w, p, reply)
	})
	if err != nil && ctx.Err() != nil && codeOf(err) == (job.Code{}) {
		if !m.opt.Store.HoldsLease() {
			return errStandby
		}
		f := job.Refuse(job.StoreUnavailable, "", "the store has not written the outcome within %v; send it again", m.opt.StoreWait)
		f.RetryAfter = time.Second
		return f
	}
	return err
}

// Heartbeat handles a worker's heartbeat. It returns the worker's jobs that were cancelled.
func (m *Master) Heartbeat(from job.Caller) (cancel []job.ID, err error) {
	return readMachine(m, func(mc *machine) ([]job.ID, error) {
		w, err := mc.findWorker(from, false)
		if err != nil {
			return nil, err
		}
		return mc.heartbeat(w), nil
	})
}

// lingerTime is the time that a pull waits for more jobs after the first jobs.
const lingerTime = 5 * time.Millisecond

// minPull is the minimum time that a pull waits: enough for the broker to hand out a waiting job
// and the store to write the attempt.
const minPull = 100 * time.Millisecond

// Pull returns up to limit jobs for a worker. If there are none, it waits for some, at most for
// wait. The arguments of several jobs have at most maxBytes. admit reserves room for their bytes, and may
// wait for it only if mayWait is set; if it then returns an error, the jobs are given back.
func (m *Master) Pull(ctx context.Context, from job.Caller, limit, maxBytes int, wait time.Duration, admit func(bytes int, mayWait bool) error) ([]job.Handout, error) {
	ctx, cancel := context.WithTimeout(ctx, max(wait, minPull))
	defer cancel()
	delivered := make(chan struct{}, 1)
	p := &pullRequest{max: limit, maxBytes: maxBytes, ready: func() { delivered <- struct{}{} }}
	var pulledFrom *machine
	var ended <-chan struct{}
	w, err := readMachine(m, func(mc *machine) (*worker, error) {
		w, err := mc.findWorker(from, false)
		switch {
		case err != nil:
			return nil, err
		case !w.Pulls():
			return nil, job.Refuse(job.InvalidValue, "worker-id", "the worker %v has an address, to which jobs are pushed", from.ID)
		case mc.draining:
			return nil, errDraining
		case mc.waiters >= mc.MaxWaiters:
			return nil, overloaded("%d requests wait, and no more are allowed (max-waiters)", mc.MaxWaiters)
		}
		pulledFrom, ended = mc, m.active.Load().ended
		mc.waiters++
		p.max = min(p.max, w.MaxJobs)
		mc.pull(w, p)
		return w, nil
	})
	if err != nil {
		if w != nil { // the lease has just ended
			cancel()
			m.runNow(pulledFrom, func() { pulledFrom.waiters--; pulledFrom.closePull(w, p); pulledFrom.endPull(w, p, false) })
		}
		return nil, err
	}
	timeout := false
	select {
	case <-delivered:
		if limit > 1 {
			t := time.NewTimer(lingerTime)
			select {
			case <-t.C:
			case <-ctx.Done():
			}
			t.Stop()
		}
	case <-ctx.Done():
		timeout = true
	case <-ended:
		return nil, errStarting
	}
	var jobs []job.Handout
	gone := ctx.Err() != nil && context.Cause(ctx) != context.DeadlineExceeded
	end := func() {
		pulledFrom.waiters--
		holds := m.opt.Store.HoldsLease()
		jobs = pulledFrom.endPull(w, p, !gone && err == nil && holds)
		if !holds {
			err = errStandby
		} else if err == nil && pulledFrom.draining && len(jobs) == 0 {
			err = errDraining
		} else if err == nil && len(jobs) == 0 && !timeout && (w.Leaving || w.removed) {
			_, err = pulledFrom.findWorker(from, false)
		}
	}
	bytes, admitted := 0, false
	m.runNow(pulledFrom, func() {
		bytes = pulledFrom.closePull(w, p)
		if admitted = admit(bytes, false) == nil; admitted {
			end()
		}
	})
	if !admitted {
		if err = admit(bytes, true); !m.runNow(pulledFrom, end) {
			err = errStarting
		}
	}
	return jobs, err
}

// Constraints returns all constraints, by id.
func (m *Master) Constraints() ([]*ConstraintView, error) {
	var conn *brokerConn
	views, err := readMachine(m, func(mc *machine) ([]*ConstraintView, error) {
		conn = m.broker
		views := []*ConstraintView{}
		for _, id := range slices.Sorted(maps.Keys(mc.constraints.byID)) {
			k := mc.constraints.byID[id]
			views = append(views, &ConstraintView{Constraint: k.Constraint, Matching: k.matching, Blocked: -1, Running: k.running, Persisted: m.opt.Persisted})
		}
		return views, nil
	})
	m.addBlocked(conn, views)
	return views, err
}

// addBlocked asks the broker how many jobs each constraint holds back.
func (m *Master) addBlocked(conn *brokerConn, views []*ConstraintView) {
	if conn == nil || len(views) == 0 {
		return
	}
	counts, err := m.heldCounts.get(func() (map[string]int, bool, error) { return m.countHeldBack(conn) })
	if err != nil {
		if conn.ctx.Err() == nil {
			conn.sampledLog.Warn().Err(err).Msg("the broker did not report what its groups hold back")
		}
		return
	}
	for _, v := range views {
		v.Blocked = min(counts[v.ID], v.Matching-v.Running)
	}
}

// countHeldBack counts the held-back jobs of each constraint; isExpensive says that there are so
// many groups that the result should be cached.
func (m *Master) countHeldBack(conn *brokerConn) (counts map[string]int, isExpensive bool, err error) {
	ctx, cancel := context.WithTimeout(conn.ctx, time.Second)
	defer cancel()
	groups, err := conn.broker.Rules.Groups(ctx)
	counts = make(map[string]int)
	for _, g := range groups {
		id, ours := constraintOf(m.opt.Namespace, g.Group)
		if n := counts[id]; ours && (g.Group[0] == 'c' || n == 0) { // a job may be in groups of both kinds
			counts[id] = n + g.Held
		}
	}
	return counts, len(groups) > statNames, err
}

// Constraint returns the constraint with this id.
func (m *Master) Constraint(id string) (*ConstraintView, error) {
	views, err := m.Constraints()
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(views, func(v *ConstraintView) bool { return v.ID == id })
	if i < 0 {
		return nil, job.Refuse(job.UnknownConstraint, "", "there is no constraint %q", id)
	}
	return views[i], nil
}

// PutConstraint sets a constraint. If ifMatch is not 0, the constraint must exist in that version;
// if mustExist is set, it must exist in any version.
func (m *Master) PutConstraint(ctx context.Context, k *job.Constraint, ifMatch uint64, mustExist bool) (v *ConstraintView, created bool, err error) {
	sel, fault := Compile(k)
	if fault != nil {
		return nil, false, fault
	}
	created, err = call(ctx, m, func(mc *machine, reply func(bool, error)) {
		mc.changeConstraint(k.ID, k, sel, ifMatch, mustExist, reply)
	})
	if err != nil {
		return nil, false, err
	}
	if v, err = m.Constraint(k.ID); err == nil && v.Version != k.Version { // it has changed again, but the reply is about this change
		v = &ConstraintView{Constraint: *k, Blocked: -1, Persisted: m.opt.Persisted}
	}
	return v, created, err
}

// DropConstraint drops a constraint. If ifMatch is not 0, the constraint must have that version.
func (m *Master) DropConstraint(ctx context.Context, id string, ifMatch uint64) error {
	_, err := call(ctx, m, func(mc *machine, reply func(bool, error)) {
		mc.changeConstraint(id, nil, selector{}, ifMatch, false, reply)
	})
	return err
}
