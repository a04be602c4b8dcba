package master

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"gloom/cmd/internal/unique"
	"gloom/cmd/jq-master/job"
)

// modelJob is what the oracle knows about a job.
type modelJob struct {
	id                job.ID
	key               string
	period            unique.Period
	enqueuedAt, until int64
	due               int64
	state             job.State
	seq               uint64
}

func (h *modelJob) isWaiting() bool { return h.state == job.Queued || h.state == job.Retrying }

func (h *modelJob) holds(now int64) bool {
	switch h.period {
	case unique.PeriodWindow:
		return now < h.until && h.state != job.Cancelled
	case unique.PeriodWaiting:
		return h.isWaiting()
	}
	return !h.state.Ended()
}

// TestUniqueKeys: a naive oracle predicts the result of each request with a unique key, through
// transitions of all kinds and restarts.
func TestUniqueKeys(t *testing.T) {
	for seed := range uint64(40) {
		w := newSimulation(t, seed)
		w.machine.MaxJobs = 1000
		rng := rand.New(rand.NewPCG(seed, 7))
		jobs, owner := map[job.ID]*modelJob{}, map[string]*modelJob{}
		add := func() {
			key := fmt.Sprint("k", rng.IntN(3))
			s := &job.UniqueRequest{Key: key, Request: unique.Request{Period: unique.Period(rng.IntN(3)), Mode: unique.Mode(rng.IntN(3))}}
			if s.Period == unique.PeriodWindow {
				s.Window = time.Duration(1+rng.IntN(20)) * time.Second
			}
			if s.Mode == unique.ModeExtend {
				s.Max = time.Duration(1+rng.IntN(30)) * time.Second
			}
			n := &NewJob{Attributes: job.Attributes{Name: "n", Argument: []byte{0x80}, MaxRetry: 3, Timeout: 1000}, Delay: time.Duration(rng.IntN(10)) * time.Second, UniqueRequest: s}
			want, holder := "", owner[key]
			switch now := w.now; {
			case holder == nil || !holder.holds(now):
			case s.Mode == unique.ModeReplace && holder.isWaiting():
				want = "replaced"
			case s.Mode == unique.ModeExtend && holder.isWaiting():
				want = "extended"
				holder.due = max(holder.due, min(now+toMillis(n.Delay), holder.enqueuedAt+toMillis(s.Max)))
			default:
				want = "kept"
			}
			e := &enqueueRequest{jobs: []*NewJob{n}}
			var got []job.ID
			e.reply = func(ids []job.ID, _ bool, err error) {
				if err != nil {
					w.fatalf("enqueue: %v", err)
				}
				got = ids
			}
			w.step(w.machine, func() { w.machine.enqueue(e) })
			w.settleStore()
			if len(got) != 1 || e.unique != want {
				w.fatalf("a job with %+v became %q %v, wanted %q beside %+v", s, e.unique, got, want, holder)
			}
			if want == "kept" || want == "extended" {
				if got[0] != holder.id || w.machine.jobs.Get(holder.id).Due != holder.due && want == "extended" {
					w.fatalf("%s: %v, due %d, wanted %+v", want, got[0], w.machine.jobs.Get(holder.id).Due, holder)
				}
				return
			}
			h := &modelJob{id: got[0], key: key, period: s.Period, enqueuedAt: w.now, until: w.now + toMillis(s.Window)}
			if n.Delay > 0 {
				h.due = w.now + toMillis(n.Delay)
			}
			if want == "replaced" {
				h.enqueuedAt, holder.state = holder.enqueuedAt, job.Cancelled
			}
			h.seq = w.machine.jobs.Get(h.id).Seq
			jobs[h.id], owner[key] = h, h
		}
		for range 150 {
			var choice *modelJob
			if len(jobs) > 0 && rng.IntN(2) == 0 {
				ids := slices.SortedFunc(maps.Keys(jobs), func(a, b job.ID) int { return bytes.Compare(a[:], b[:]) })
				choice = jobs[ids[max(0, len(ids)-1-rng.IntN(6))]]
			}
			switch rng.IntN(8) {
			case 0:
				w.now += int64(rng.IntN(8000))
				w.step(w.machine, func() {})
			case 1:
				w.start() // a new machine loads the content of the store
				assignKeys(jobs, owner, w.now)
			case 2, 3:
				if choice != nil {
					force(w, choice, rng)
					assignKeys(jobs, owner, w.now)
				}
			case 4:
				if choice == nil || choice.state != job.Cancelled && choice.state != job.Failed {
					break
				}
				var got error
				w.step(w.machine, func() { w.machine.revive(choice.id, func(err error) { got = err }) })
				w.settleStore()
				other := owner[choice.key]
				if holder := other != nil && other != choice && other.holds(w.now); holder != (got != nil) {
					w.fatalf("a revived job: %v, beside %+v", got, other)
				} else if !holder {
					choice.state, choice.due, owner[choice.key] = job.Queued, 0, choice
				}
			default:
				add()
			}
			for h := range maps.Values(jobs) {
				if r := w.machine.jobs.Get(h.id); r == nil || r.State != h.state {
					w.fatalf("%+v is %+v", h, r)
				}
			}
		}
	}
}

// assignKeys determines who holds each key, as a master does at its start.
func assignKeys(jobs map[job.ID]*modelJob, owner map[string]*modelJob, now int64) {
	clear(owner)
	for _, h := range jobs {
		holder := owner[h.key]
		switch {
		case h.state.Ended() && !h.holds(now):
		case holder == nil, h.holds(now) && !holder.holds(now), h.holds(now) == holder.holds(now) && h.seq > holder.seq:
			owner[h.key] = h
		}
	}
}

// settleStore lets the store perform all pending writes.
func (w *simulation) settleStore() { w.store.flush() }

// force changes a job in the store, and starts a new machine from the store.
func force(w *simulation, h *modelJob, rng *rand.Rand) {
	r, forget := w.machine.jobs.Get(h.id), int64(0)
	j := r.nextState()
	checkNil := func(err error) {
		if err != nil {
			w.fatalf("%v of %+v: %v", j.State, h, err)
		}
	}
	switch {
	case h.state.Ended():
		return
	case rng.IntN(5) == 0:
		w.step(w.machine, func() { w.machine.cancel(h.id, true, checkNil) })
		w.settleStore()
		h.state = job.Cancelled
		return
	case h.isWaiting():
		j.State, j.Attempt = job.Running, j.Attempt+1
	case rng.IntN(3) == 0:
		if j.State = job.Queued; j.Retries > 0 {
			j.State = job.Retrying
		}
	case rng.IntN(2) == 0:
		j.State, j.Retries = job.Retrying, j.Retries+1
	default:
		j.State, j.Finished = job.Done+job.State(rng.IntN(2)), w.now
		forget = w.now + toMillis(time.Hour)
	}
	w.memory.Move(r.Job, j, forget, 0, checkNil)
	h.state = j.State
	w.start()
}

// TestPartialReplacement: if a master ends while it replaces a job, the next master completes the
// replacement.
func TestPartialReplacement(t *testing.T) {
	w := newSimulation(t, 1)
	old := &job.Job{ID: w.machine.newID(), Seq: 1, Enqueued: w.now, Attributes: job.Attributes{
		Name: "n", Argument: []byte{0x80}, Timeout: 1000, Unique: &job.Unique{Key: "k"}}}
	newJob := &job.Job{ID: w.machine.newID(), Seq: 2, Enqueued: w.now, Attributes: old.Attributes}
	newJob.Unique = &job.Unique{Key: "k", Replaces: old.ID, ReplacesRev: 1}
	w.memory.Enqueue([]*job.Job{old, newJob}, nil, func([]job.ID, bool, error) {})
	w.start()
	w.step(w.machine, func() {})
	w.settleStore()
	if a, b := w.machine.jobs.Get(old.ID).State, w.machine.jobs.Get(newJob.ID).State; a != job.Cancelled || b != job.Queued {
		t.Errorf("the old job is %v, the new one %v", a, b)
	}
	if m := w.machine.uniques[uniqueKey{"n", "k"}]; m == nil || m.rec.ID != newJob.ID {
		t.Errorf("the key is of %+v", m)
	}
}

// TestReviveAfterReplacement: a job was replaced, and after the window of its successor an operator
// revived it. The next master does not cancel it.
func TestReviveAfterReplacement(t *testing.T) {
	w := newSimulation(t, 1)
	add := func() (id job.ID) {
		e := &enqueueRequest{jobs: []*NewJob{{
			Attributes:    job.Attributes{Name: "n", Argument: []byte{0x80}, Timeout: 1000},
			Delay:         time.Hour,
			UniqueRequest: &job.UniqueRequest{Key: "k", Request: unique.Request{Period: unique.PeriodWindow, Window: time.Second, Mode: unique.ModeReplace}},
		}}, reply: func(ids []job.ID, _ bool, _ error) { id = ids[0] }}
		w.step(w.machine, func() { w.machine.enqueue(e) })
		w.settleStore()
		return id
	}
	old := add()
	holder := add()
	if s := w.machine.jobs.Get(old).State; s != job.Cancelled {
		t.Fatalf("the old job is %v", s)
	}
	w.elapse(2 * time.Second)
	maxJobs := w.machine.MaxJobs
	w.machine.MaxJobs = 1
	w.step(w.machine, func() {
		w.machine.revive(old, func(err error) {
			if k := (uniqueKey{"n", "k"}); err == nil || w.machine.uniques[k].rec.ID != holder {
				t.Errorf("without room, revive: %v, and %v has the key", err, w.machine.uniques[k].rec.ID)
			}
		})
	})
	w.machine.MaxJobs = maxJobs
	w.step(w.machine, func() {
		w.machine.revive(old, func(err error) {
			if err != nil {
				t.Errorf("revive: %v", err)
			}
		})
	})
	w.settleStore()
	w.start()
	w.settleStore()
	if s := w.machine.jobs.Get(old).State; s != job.Queued {
		t.Errorf("the revived job is %v", s)
	}
}
