package master

import (
	"testing"
	"time"

	"gloom/cmd/jq-master/job"
	"gloom/cmd/jq-master/store"
)

// TestPullMisses: when the store goes away, a request for jobs returns the jobs that have arrived,
// and does not wait for a job that is on its way.
func TestPullMisses(t *testing.T) {
	w := newSimulation(t, 1)
	m := w.machine
	k := &worker{Worker: job.Worker{ID: m.newID(), MaxJobs: 2, Names: []string{"*"}}, runs: map[*record]struct{}{}}
	m.workers[k.ID] = k
	m.submitSlice(1)
	m.workersMayGetJobs = true
	onDone := map[job.ID]func(error){}
	m.env.store = &heldStartStore{Store: w.store, pendingStarts: onDone}
	var ready int
	p := &pullRequest{max: 2, ready: func() { ready++ }}
	ids := []job.ID{m.newID(), m.newID()}
	w.step(m, func() {
		m.pull(k, p)
		for i, id := range ids {
			m.ledger.Enqueued++
			r := m.newRecord(&job.Job{ID: id, Attributes: job.Attributes{Name: "n", Timeout: 30_000}, Seq: uint64(i + 1), State: job.Queued})
			m.submitWaiting(r)
			m.onHandout(k.ID, id, false, naiveRun{w.broker, &naiveJob{submission: submission{id: id}}})
		}
	})
	onDone[ids[0]](nil)
	if ready != 0 || p.expectedJobs != 1 {
		t.Fatalf("ready %d times with %d coming", ready, p.expectedJobs)
	}
	w.step(m, func() { m.onStoreChange(store.ErrAway) })
	if ready != 1 {
		t.Fatal("the first job waits for the store")
	}
	onDone[ids[1]](nil)
	w.step(m, func() { m.onStoreChange(nil) })
	if p.expectedJobs != 0 || k.demand() != 1 {
		t.Fatalf("%d jobs are coming that do not, the demand is %d", p.expectedJobs, k.demand())
	}
}

// heldStartStore is a store that holds back its answers when a job starts to run.
type heldStartStore struct {
	store.Store
	pendingStarts map[job.ID]func(error)
}

func (s *heldStartStore) Move(_, j *job.Job, _, _ int64, done func(error)) {
	if j.State == job.Running {
		s.pendingStarts[j.ID] = done
		return
	}
	done(nil)
}

// TestPullWaitsForRoom: while jobs wait until they may be written to their worker, they do not time
// out, and the worker does not count as lost. Their timeouts begin after that.
func TestPullWaitsForRoom(t *testing.T) {
	w := newSimulation(t, 1)
	m := w.machine
	k := &worker{Worker: job.Worker{ID: m.newID(), MaxJobs: 1, Names: []string{"*"}, Heartbeat: true}, runs: map[*record]struct{}{}}
	m.workers[k.ID] = k
	m.submitSlice(1)
	m.workersMayGetJobs = true
	onDone := map[job.ID]func(error){}
	m.env.store = &heldStartStore{Store: w.store, pendingStarts: onDone}
	id, p := m.newID(), &pullRequest{max: 1, ready: func() {}}
	w.step(m, func() {
		m.pull(k, p)
		m.ledger.Enqueued++
		r := m.newRecord(&job.Job{ID: id, Attributes: job.Attributes{Name: "n", Timeout: 1000}, Seq: 1, State: job.Queued})
		m.submitWaiting(r)
		m.onHandout(k.ID, id, false, naiveRun{w.broker, &naiveJob{submission: submission{id: id}}})
	})
	onDone[id](nil)
	w.step(m, func() { m.closePull(k, p) })
	w.elapse(time.Minute)
	w.step(m, func() { m.checkPeriodic(); m.tick() })
	var jobs []job.Handout
	w.step(m, func() { jobs = m.endPull(k, p, true) })
	if len(jobs) != 1 || k.removed {
		t.Fatalf("the worker gets %d jobs; removed: %v", len(jobs), k.removed)
	}
	if left := jobs[0].Deadline - m.wallTime; left < 900 || left > 1000 {
		t.Errorf("%d ms are left", left)
	}
	w.elapse(time.Minute)
	w.step(m, func() { m.checkPeriodic(); m.tick() })
	if r := m.jobs.Get(jobs[0].ID); r.currentRun() != nil {
		t.Error("the run does not time out")
	}
}
