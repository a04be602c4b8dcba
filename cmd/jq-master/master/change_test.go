package master

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"gloom/broker"
	"gloom/cmd/jq-master/job"
	"gloom/cmd/jq-master/store"
)

// TestIfMatchAtOnce: if two requests at the same time change the same version of a constraint, the
// second is refused.
func TestIfMatchAtOnce(t *testing.T) {
	w := newSimulation(t, 1)
	m := w.machine
	heldStore := &heldConstraintStore{Store: w.store}
	m.env.store = heldStore
	var refused, other int
	put := func(ifMatch uint64) {
		k := &job.Constraint{ID: "k", Match: []byte{0x80}, Concurrency: 1, Enabled: true}
		w.step(m, func() {
			m.changeConstraint(k.ID, k, selector{match: func(*job.Attributes) bool { return false }}, ifMatch, ifMatch != 0, func(_ bool, err error) {
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
	heldStore.answer()
	first := m.constraints.byID["k"].Version
	put(first)
	put(first)
	w.step(m, func() { m.changeConstraint("k", nil, selector{}, first, false, func(bool, error) { refused++ }) })
	for heldStore.answer() {
	}
	if v := m.constraints.byID["k"].Version; v != first+1 || refused != 2 || other != 0 || m.changingConstraints {
		t.Fatalf("version %d, %d were refused, %d failed", v, refused, other)
	}
}

// TestVersionsAreNew: a constraint that was changed several times in a millisecond, dropped and set
// again has a version that it never had.
func TestVersionsAreNew(t *testing.T) {
	w := newSimulation(t, 1)
	m := w.machine
	heldStore := &heldConstraintStore{Store: w.store}
	m.env.store = heldStore
	change := func(k *job.Constraint) {
		w.step(m, func() {
			m.changeConstraint("k", k, selector{match: func(*job.Attributes) bool { return false }}, 0, false, func(bool, error) {})
		})
		heldStore.answer()
	}
	last := uint64(0)
	for n := range 9 {
		k := &job.Constraint{ID: "k", Match: []byte{0x80}, Concurrency: 1, Enabled: true}
		if change(k); k.Version <= last {
			t.Fatalf("change %d has version %d, after version %d", n, k.Version, last)
		}
		if last = k.Version; n%3 == 2 {
			change(nil)
		}
	}
}

// TestManyPatterns: a constraint with "per" is refused if the broker cannot take the rules that it
// needs; a constraint without "per" is accepted.
func TestManyPatterns(t *testing.T) {
	w := newSimulation(t, 1)
	put := func(id, per string, enabled bool) (err error) {
		k := &job.Constraint{ID: id, Match: []byte{0x80}, Per: per, Rate: 1, Burst: 1, Concurrency: 1, Enabled: enabled}
		sel, _ := Compile(k)
		w.step(w.machine, func() { w.machine.changeConstraint(k.ID, k, sel, 0, false, func(_ bool, e error) { err = e }) })
		w.store.flush()
		return err
	}
	for i := range broker.MaxWildcardRules / 2 {
		if err := put(fmt.Sprint(i), "/name", true); err != nil {
			t.Fatal(err)
		}
	}
	if err := put("more", "/name", true); codeOf(err) != job.Overloaded || len(w.machine.constraints.byID) != broker.MaxWildcardRules/2 {
		t.Fatalf("one more: %v", err)
	}
	for _, v := range []struct {
		id, per string
		enabled bool
	}{{"0", "/priority", true}, {"plain", "", true}, {"off", "/name", false}} {
		if err := put(v.id, v.per, v.enabled); err != nil {
			t.Errorf("%+v: %v", v, err)
		}
	}
	if err := put("off", "/name", true); codeOf(err) != job.Overloaded {
		t.Errorf("one that is enabled: %v", err)
	}
}

// TestFasterRateAfterRestart: buckets that began empty fill at the rate that a constraint has now, also
// if it was slow when they began.
func TestFasterRateAfterRestart(t *testing.T) {
	for _, name := range []string{"a", "b"} { // only numbers change, or also the matcher
		w := newSimulation(t, 1)
		m := w.machine
		put := func(rate float64, burst int64, name string) {
			k := &job.Constraint{ID: "k", Match: []byte("\x83\xa5field\xa5/name\xa2op\xa2eq\xa5value\xa1" + name), Concurrency: -1, Rate: rate, Burst: burst, Enabled: true}
			sel, fault := Compile(k)
			if fault != nil {
				t.Fatal(fault)
			}
			w.step(m, func() { m.changeConstraint(k.ID, k, sel, 0, false, func(bool, error) {}) })
			w.store.flush()
		}
		rule := func() ruleChange { return w.broker.rules[m.constraints.byID["k"].pattern(rateKind)] }
		put(0.001, 1, "a")
		w.step(m, func() { m.forgetSubmissions(); m.submitSlice(1) })
		w.broker.serveSome(1 << 20)
		if rule().concurrency != 0 {
			t.Fatalf("after a restart the rule is %+v", rule())
		}
		put(100, 100, name)
		for range 2 { // the first token after 10 ms, the others after a second
			w.elapse(time.Second)
			w.step(m, m.refill)
		}
		w.broker.serveSome(1 << 20)
		if got := rule(); got.rate != 100 || got.burst != 100 || got.concurrency >= 0 {
			t.Errorf("two seconds after the change for jobs with the name %s the rule is %+v", name, got)
		}
	}
}

// heldConstraintStore is a store that answers a change of a constraint only when answer is called.
type heldConstraintStore struct {
	store.Store
	pendingCalls []func(error)
}

func (s *heldConstraintStore) PutConstraint(_ string, _ *job.Constraint, done func(error)) {
	s.pendingCalls = append(s.pendingCalls, done)
}

func (s *heldConstraintStore) answer() bool {
	if len(s.pendingCalls) == 0 {
		return false
	}
	done := s.pendingCalls[0]
	s.pendingCalls = s.pendingCalls[1:]
	done(nil)
	return true
}

// TestSlicesOfSweepAreSmall: however many jobs wait and however large they are, one slice of a
// sweep examines few jobs and changes only those, and all slices together examine every job once.
func TestSlicesOfSweepAreSmall(t *testing.T) {
	const jobs = 50_000
	w := newSimulation(t, 1)
	m := w.machine
	long := append([]byte{0x81, 0xa1, 'x', 0xc6, 0, 1, 0, 0}, make([]byte, 1<<16)...)
	for i := range jobs {
		argument := []byte{0x80}
		if i%1000 == 0 {
			argument = long
		}
		r := m.newRecord(&job.Job{ID: m.newID(), Attributes: job.Attributes{Name: "n", Argument: argument}, Seq: uint64(i + 1), State: job.Queued})
		r.submitted = true
	}
	m.submitIndex, m.allSubmitted = len(m.bySeq), true
	replies := 0
	for _, id := range []string{"a", "b"} { // the second one restarts the sweep
		k := &job.Constraint{ID: id, Match: []byte{0x80}, Concurrency: 1, Enabled: true}
		sel, fault := Compile(k)
		if fault != nil {
			t.Fatal(fault)
		}
		m.constraints.startSweep(m.replace(k, sel), func() { replies++ })
	}
	m.afterStep = nil
	doneCount := 0
	for {
		part := m.nextSlice(maxSliceCost)
		if part == nil {
			break
		}
		cost := 0
		for _, l := range part.jobs[:len(part.jobs)-1] {
			cost += 1 + changeCost + len(part.sweeping)*matchCost(l.job)
		}
		if cost >= maxSliceCost {
			t.Fatalf("a slice has %d jobs and goes on at a cost of %d", len(part.jobs), cost)
		}
		doneCount += len(part.jobs)
		part.match()
		m.sweepSlice(part)
		if n := len(m.afterStep); n > len(part.jobs)+len(m.constraints.onSweepEnd)+2 {
			t.Fatalf("a slice of %d jobs leaves %d things to do", len(part.jobs), n)
		}
		w.broker.todo = nil
		for _, f := range m.afterStep {
			f()
		}
		m.afterStep = m.afterStep[:0]
	}
	for _, f := range w.broker.todo {
		f()
	}
	if doneCount != jobs || replies != 2 {
		t.Errorf("%d of %d jobs were reached, %d of 2 changes told", doneCount, jobs, replies)
	}
	for _, p := range m.bySeq {
		if len(p.rec.constraints.groups()) != 2 {
			t.Fatalf("job %d is under %v", p.seq, p.rec.constraints.groups())
		}
	}
}
