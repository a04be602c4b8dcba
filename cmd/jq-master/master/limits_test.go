package master

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"gloom/cmd/jq-master/job"
	"gloom/cmd/jq-master/store"
)

// TestResultsBounded: results beyond max-bytes are refused, and their runs wait for the worker to
// report again. When there is room again, all reports succeed.
func TestResultsBounded(t *testing.T) {
	w := newSimulation(t, 1)
	m := w.machine
	m.MaxBytes = 64 << 10
	k := w.someWorker()
	k.MaxJobs = 40
	m.env.push = &pushRecorder{}
	var runs []*record
	for n := range 40 {
		j := &job.Job{ID: m.newID(), Attributes: job.Attributes{Name: "n", Timeout: 5, KeepResult: true}, Seq: uint64(n + 1), Enqueued: w.now}
		w.memory.Enqueue([]*job.Job{j}, nil, func([]job.ID, bool, error) {})
		w.step(m, func() {
			m.load(j, 0, 0)
			r := m.jobs.Get(j.ID)
			r.submitted = true
			m.workersMayGetJobs = true
			m.start(r, k, nil)
			runs = append(runs, r)
		})
	}
	w.store.flush()
	refused := 0
	report := func() (runsLeft int) {
		for _, r := range runs {
			if r.State != job.Running {
				continue
			}
			var result error
			w.step(m, func() {
				m.report(k, &Report{Job: r.ID, Outcome: job.Outcome{Success: true, Result: make([]byte, 4<<10)}}, func(err error) { result = err })
			})
			w.store.flush()
			if result != nil {
				if runsLeft++; codeOf(result) != job.Overloaded {
					t.Fatal(result)
				}
				refused++
			}
			if m.usedBytes() > m.MaxBytes {
				t.Fatalf("%d bytes are held of at most %d", m.usedBytes(), m.MaxBytes)
			}
		}
		return runsLeft
	}
	runsLeft := report()
	for n := 0; runsLeft > 0; n++ { // results expire after 20 s, runs after 7
		if n > 1000 {
			t.Fatalf("%d jobs do not end", runsLeft)
		}
		w.pass(time.Second)
		w.store.flush()
		runsLeft = report()
	}
	if refused == 0 || m.ledger.Timeouts != 0 || m.ledger.Done != 40 {
		t.Fatalf("refused %d times, %d timeouts, %d done", refused, m.ledger.Timeouts, m.ledger.Done)
	}
}

// TestResultsOfGloomWorkersBounded: a run at a Gloom worker has failed if there is no room for its
// result.
func TestResultsOfGloomWorkersBounded(t *testing.T) {
	w := newSimulation(t, 2) // Gloom workers may join
	m := w.machine
	m.MaxBytes = 64 << 10
	var records []*record
	for n := range 40 {
		j := &job.Job{ID: m.newID(), Attributes: job.Attributes{Name: "n", Timeout: 5, KeepResult: true, MaxRetry: 1}, Seq: uint64(n + 1), Enqueued: w.now}
		w.memory.Enqueue([]*job.Job{j}, nil, func([]job.ID, bool, error) {})
		w.step(m, func() {
			m.load(j, 0, 0)
			r := m.jobs.Get(j.ID)
			r.submitted = true
			records = append(records, r)
		})
	}
	w.store.flush()
	for _, r := range records {
		w.step(m, func() {
			m.onBrokerAnswer(r.ID, r.submission, &job.Outcome{Success: true, Result: make([]byte, 4<<10)}, false)
		})
	}
	w.store.flush()
	w.store.flush()
	if m.ledger.Done != 16 || m.ledger.Retries != 24 { // 16 results of 4 KiB fit
		t.Errorf("%d jobs are done, %d are retried", m.ledger.Done, m.ledger.Retries)
	}
	if r := records[39]; r.State != job.Retrying || !strings.Contains(r.Message, "4096 bytes (max-bytes)") {
		t.Errorf("a job without room for its result is %v: %q", r.State, r.Message)
	}
}

// TestMessagesBounded: at max-bytes a failed run leaves no error and only a short message, so that
// jobs that fail again and again do not fill the memory.
func TestMessagesBounded(t *testing.T) {
	w := newSimulation(t, 1)
	m := w.machine
	m.MaxBytes = 64 << 10
	k := w.someWorker()
	k.MaxJobs = 10
	m.env.push = &pushRecorder{}
	var records []*record
	for n := range 10 {
		j := &job.Job{ID: m.newID(), Attributes: job.Attributes{Name: "n", Timeout: 5, MaxRetry: 20}, Seq: uint64(n + 1), Enqueued: w.now}
		w.memory.Enqueue([]*job.Job{j}, nil, func([]job.ID, bool, error) {})
		w.step(m, func() {
			m.load(j, 0, 0)
			r := m.jobs.Get(j.ID)
			r.submitted = true
			m.workersMayGetJobs, m.allSubmitted = true, true
			records = append(records, r)
		})
	}
	long := strings.Repeat("x", job.MaxMessage)
	for range 18 {
		for _, r := range records {
			w.step(m, func() { m.start(r, k, nil) })
			w.store.flush()
			w.step(m, func() {
				m.report(k, &Report{Job: r.ID, Outcome: job.Outcome{Reason: job.Other, Retry: true, Message: long, Error: []byte{0x01}}}, func(error) {})
			})
			w.store.flush()
			if r.State != job.Retrying {
				t.Fatalf("a failed job is %v", r.State)
			}
		}
	}
	if limit := m.MaxBytes + int64(len(records)*(128+45)); m.usedBytes() > limit {
		t.Errorf("%d bytes are held of at most %d", m.usedBytes(), limit)
	}
	if r := records[0]; r.Error != nil || r.Message != long[:128]+" [the rest is left out: max-bytes is reached]" {
		t.Errorf("the error is %x, the message %q", r.Error, r.Message)
	}
}

// TestMessagesBeingWrittenCount: errors and messages count while the store writes them.
func TestMessagesBeingWrittenCount(t *testing.T) {
	w := newSimulation(t, 1)
	m := w.machine
	m.MaxBytes = 64 << 10
	k := w.someWorker()
	k.MaxJobs = 40
	m.env.push = &pushRecorder{}
	var records []*record
	for range 40 {
		r := w.addWaiting(5)
		r.MaxRetry = 1
		records = append(records, r)
		w.step(m, func() { m.workersMayGetJobs, m.allSubmitted = true, true; m.start(r, k, nil) })
	}
	w.store.flush()
	m.env.store = pausedStore{w.store}
	for _, r := range records {
		w.step(m, func() {
			m.report(k, &Report{Job: r.ID, Outcome: job.Outcome{Reason: job.Other, Retry: true, Message: "m", Error: make([]byte, 4<<10)}}, func(error) {})
		})
	}
	w.store.flush()
	if limit := m.MaxBytes + int64(len(records)*len(noRoom)); m.ledger.Retries != 40 || m.usedBytes() > limit {
		t.Errorf("%d jobs are retried; %d bytes are held of at most %d", m.ledger.Retries, m.usedBytes(), limit)
	}
	if m.bytesPending != 0 {
		t.Errorf("%d bytes are still being written", m.bytesPending)
	}
}

// pausedStore writes transitions only at a flush.
type pausedStore struct{ *slowStore }

func (s pausedStore) Move(old, j *job.Job, forgetAt, dropAt int64, done func(error)) {
	s.pending = append(s.pending, func() { s.Memory.Move(old, j, forgetAt, dropAt, done) })
}

// TestSingleLargeResult: there is always room for a result if no other result is kept.
func TestSingleLargeResult(t *testing.T) {
	m := newMachine(DefaultLimits(), 1)
	m.MaxBytes = 10
	r := &record{Job: &job.Job{Attributes: job.Attributes{KeepResult: true}}}
	o := &job.Outcome{Success: true, Result: make([]byte, 11)}
	if err := m.checkResultRoom(r, o); err != nil {
		t.Error(err)
	}
	m.results = 1
	if err := m.checkResultRoom(r, o); codeOf(err) != job.Overloaded {
		t.Error(err)
	}
}

// TestNamesCount: names beyond the first thousand count towards max-bytes while jobs with them have
// not ended.
func TestNamesCount(t *testing.T) {
	w := newSimulation(t, 1)
	var ids []job.ID
	add := func(name string) (result error) {
		w.step(w.machine, func() {
			w.machine.enqueue(&enqueueRequest{jobs: []*NewJob{{Attributes: job.Attributes{Name: name}}}, reply: func(newIDs []job.ID, _ bool, err error) { ids, result = append(ids, newIDs...), err }})
		})
		w.store.flush()
		return result
	}
	w.machine.MaxJobs, w.machine.MaxBytes = 1<<20, 8*nameSize // an eighth of max-bytes is for results
	for i := range fewNames + 7 {
		if err := add(fmt.Sprint(i)); err != nil {
			t.Fatalf("name %d: %v", i, err)
		}
	}
	if n := w.machine.usedBytes(); n != 7*nameSize {
		t.Fatalf("%d bytes are held", n)
	}
	if err := add("0"); err != nil {
		t.Fatalf("one more job of a name: %v", err)
	}
	if err := add("x"); err != nil {
		t.Fatalf("the limit is %d bytes, %d are held: %v", w.machine.MaxBytes, w.machine.usedBytes(), err)
	}
	if err := add("y"); codeOf(err) != job.Overloaded {
		t.Fatal(err)
	}
	for _, id := range []job.ID{ids[1], ids[2]} {
		w.step(w.machine, func() { w.machine.cancel(id, false, func(error) {}) })
	}
	w.store.flush()
	if err := add("y"); err != nil {
		t.Fatalf("%d bytes are held after two names have gone: %v", w.machine.usedBytes(), err)
	}
}

// TestKeysCount: the number and the bytes of remembered idempotency keys are bounded, also after a
// restart.
func TestKeysCount(t *testing.T) {
	w := newSimulation(t, 1)
	n := 0
	add := func() (result error) {
		n++
		w.step(w.machine, func() {
			w.machine.enqueue(&enqueueRequest{jobs: []*NewJob{{Attributes: job.Attributes{Name: "n", Argument: []byte{0x80}}}},
				key: &store.Key{Name: fmt.Sprint("key", n), TTL: time.Hour}, reply: func(_ []job.ID, _ bool, err error) { result = err }})
		})
		w.store.flush()
		return result
	}
	w.machine.MaxJobs = 1 << 20
	if err := add(); err != nil {
		t.Fatal(err)
	}
	size := w.machine.keyBytes
	if size != int64(len("key1")+32+16) || w.machine.usedBytes() != size+1 {
		t.Fatalf("a key counts %d bytes, with its job %d", size, w.machine.usedBytes())
	}
	w.machine.MaxBytes = size + 2
	if err := add(); codeOf(err) != job.Overloaded {
		t.Fatal(err)
	}
	w.crash()
	if w.machine.keyBytes != size || len(w.machine.keys) != 1 {
		t.Fatalf("after a restart %d keys count %d bytes", len(w.machine.keys), w.machine.keyBytes)
	}
	w.machine.MaxJobs = 10
	for range minKeys - 1 {
		w.machine.keys = append(w.machine.keys, keyEntry{w.now + toMillis(time.Minute), 1})
	}
	if err := add(); codeOf(err) != job.Overloaded {
		t.Fatalf("key %d: %v", minKeys+1, err)
	}
	w.machine.keys = fifo[keyEntry]{}
	w.machine.loadKey(w.now+toMillis(time.Minute), int(size))
	w.machine.keyBytes = size
	w.pass(time.Hour)
	if err := add(); err != nil || w.machine.keyBytes != size || len(w.machine.keys) != 1 {
		t.Fatalf("%v; %d keys of %d bytes are counted", err, len(w.machine.keys), w.machine.keyBytes)
	}
}

// shortStore is a store that does not take long values.
type shortStore struct{ store.Store }

const maxShort = 1000

func (s shortStore) Enqueue(jobs []*job.Job, key *store.Key, done func([]job.ID, bool, error)) {
	if len(jobs[0].Argument) > maxShort {
		done(nil, false, store.ErrTooLong)
		return
	}
	s.Store.Enqueue(jobs, key, done)
}

func (s shortStore) Move(old, j *job.Job, forgetAt, dropAt int64, done func(error)) {
	if len(j.Result) > maxShort {
		done(store.ErrTooLong)
		return
	}
	s.Store.Move(old, j, forgetAt, dropAt, done)
}

// TestTooLongForStore: an argument that is too long for the store is refused. A job whose result is
// too long for the store reports this. The master keeps serving.
func TestTooLongForStore(t *testing.T) {
	w := newSimulation(t, 1)
	m := w.machine
	m.env.store = shortStore{m.env.store}
	m.env.push = &pushRecorder{}
	k := w.someWorker()
	k.MaxJobs = 1
	var refused error
	long := &NewJob{Attributes: job.Attributes{Name: "n", Timeout: 5, Argument: make([]byte, maxShort+1)}}
	w.step(m, func() {
		e := &enqueueRequest{jobs: []*NewJob{long}, reply: func(_ []job.ID, _ bool, err error) { refused = err }}
		m.enqueue(e)
	})
	w.store.flush()
	if codeOf(refused) != job.TooLarge {
		t.Errorf("a long argument: %v", refused)
	}
	j := &job.Job{ID: m.newID(), Attributes: job.Attributes{Name: "n", Timeout: 5, KeepResult: true}, Seq: 9, Enqueued: w.now}
	w.memory.Enqueue([]*job.Job{j}, nil, func([]job.ID, bool, error) {})
	var r *record
	w.step(m, func() {
		m.load(j, 0, 0)
		r = m.jobs.Get(j.ID)
		r.submitted, m.workersMayGetJobs = true, true
		m.start(r, k, nil)
	})
	w.store.flush()
	result := fmt.Errorf("no answer")
	w.step(m, func() {
		m.report(k, &Report{Job: r.ID, Outcome: job.Outcome{Success: true, Result: make([]byte, maxShort+1)}}, func(err error) { result = err })
	})
	w.store.flush()
	if result != nil || r.State != job.Done || r.Result != nil || !strings.Contains(r.Message, "1001 bytes is left out") || m.results != 0 {
		t.Errorf("a long result: %v, %v, result %v, message %q, %d results", result, r.State, r.Result, r.Message, m.results)
	}
	if w.failure != nil {
		t.Errorf("the master stops: %v", w.failure)
	}
}
