package store

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"gloom/cmd/internal/boot"
	"gloom/cmd/jq-master/job"
)

// Memory is a Store in memory; a restart loses its content. It holds the master's jobs without
// copying them.
type Memory struct {
	now   func() time.Time
	clock clock

	mu          sync.Mutex // guards the fields below
	seq         uint64
	jobs        *job.Table[memoryJob]
	keys        map[string]storedKey
	order       []string // the names in keys, the oldest first
	workers     map[job.ID]*job.Worker
	constraints map[string]*job.Constraint
	schedules   map[string][]byte
	closed      bool
}

// memoryJob holds a job and, once the job has ended, the times when to forget the job and to drop
// its result.
type memoryJob struct {
	*job.Job
	forgetAt, dropAt int64
}

// storedKey is the value of an idempotency key.
type storedKey struct {
	text  string
	until int64 // in milliseconds since 1970, by the store's clock
}

// NewMemory returns an empty store.
func NewMemory() *Memory {
	m := &Memory{
		now: time.Now, jobs: job.NewTable[memoryJob](), keys: map[string]storedKey{},
		workers: map[job.ID]*job.Worker{}, constraints: map[string]*job.Constraint{}, schedules: map[string][]byte{},
	}
	m.clock.start(since1970(time.Now()), boot.Since())
	return m
}

// step runs a transition under the lock, and calls f with its outcome without the lock.
func (m *Memory) step(f func(error), do func() error) {
	m.mu.Lock()
	err := ErrClosed
	if !m.closed {
		err = do()
	}
	m.mu.Unlock()
	f(err)
}

// Enqueue implements Store.
func (m *Memory) Enqueue(jobs []*job.Job, key *Key, answer func([]job.ID, bool, error)) {
	var ids []job.ID
	replayed := false
	m.step(func(err error) { answer(ids, replayed, err) }, func() (err error) {
		if key != nil {
			if known, ok := m.keys[key.Name]; ok && known.until > m.At(boot.Since()) {
				ids, err = parseKeyValue(key, known.text)
				replayed = err == nil
				return err
			}
			if len(jobs) == 0 {
				return nil
			}
			m.remember(key, jobs)
		}
		for _, j := range jobs {
			ids = append(ids, j.ID)
		}
		m.add(jobs)
		return nil
	})
}

func (m *Memory) add(jobs []*job.Job) {
	for _, j := range jobs {
		m.jobs.Put(j.ID, memoryJob{Job: j})
		m.seq = max(m.seq, j.Seq)
	}
}

func (m *Memory) remember(key *Key, jobs []*job.Job) {
	now := m.At(boot.Since())
	for len(m.order) > 0 && m.keys[m.order[0]].until <= now {
		delete(m.keys, m.order[0])
		m.order = m.order[1:]
	}
	m.keys[key.Name] = storedKey{keyValue(key, jobs), now + key.TTL.Milliseconds()}
	m.order = append(m.order, key.Name)
}

// Move implements Store.
func (m *Memory) Move(old, j *job.Job, forgetAt, dropAt int64, f func(error)) {
	m.step(f, func() error {
		stored := m.jobs.Get(j.ID)
		switch {
		case stored.Job == nil:
			return fmt.Errorf("%w: job %s is not there", ErrLost, j.ID)
		case stored.Rev == j.Rev && stored.State == j.State: // a repeat
		case stored.Rev == j.Rev-1 && stored.State == old.State:
			m.jobs.Put(j.ID, memoryJob{j, forgetAt, dropAt})
		default:
			return fmt.Errorf("%w: job %s is %s after %d transitions, so that it cannot become %s with number %d",
				ErrLost, j.ID, stored.State, stored.Rev, j.State, j.Rev)
		}
		return nil
	})
}

// Fetch implements Store.
func (m *Memory) Fetch(ids []job.ID, f func(error)) {
	m.step(f, func() error {
		for _, id := range ids {
			if k := m.jobs.Get(id); k.Job != nil && k.Result != nil {
				copiedJob := *k.Job
				copiedJob.Result = nil
				m.jobs.Put(id, memoryJob{&copiedJob, k.forgetAt, 0})
			}
		}
		return nil
	})
}

// Forget implements Store.
func (m *Memory) Forget(ids []job.ID, f func(error)) {
	m.step(f, func() error {
		for _, id := range ids {
			if k := m.jobs.Get(id); k.Job != nil && k.State.Ended() {
				m.jobs.Delete(id)
			}
		}
		return nil
	})
}

// PutWorker implements Store.
func (m *Memory) PutWorker(id job.ID, w *job.Worker, f func(error)) {
	m.step(f, func() error { put(m.workers, id, w); return nil })
}

// PutConstraint implements Store.
func (m *Memory) PutConstraint(id string, c *job.Constraint, f func(error)) {
	m.step(f, func() error { put(m.constraints, id, c); return nil })
}

// put sets a value of a map; nil deletes it.
func put[K comparable, V any](in map[K]*V, key K, value *V) {
	if in[key] = value; value == nil {
		delete(in, key)
	}
}

// PutSchedule implements Store.
func (m *Memory) PutSchedule(name string, text []byte, jobs []*job.Job, f func(error)) {
	m.step(f, func() error {
		if m.schedules[name] = text; text == nil {
			delete(m.schedules, name)
		}
		m.add(jobs)
		return nil
	})
}

// Load implements Store.
func (m *Memory) Load(_ context.Context, load LoadHandlers) error {
	m.mu.Lock()
	seq := m.seq
	workers := slices.Collect(maps.Values(m.workers))
	constraints := slices.Collect(maps.Values(m.constraints))
	schedules := maps.Clone(m.schedules)
	var live, ended []memoryJob
	for k := range m.jobs.All() {
		if k.State.Ended() {
			ended = append(ended, k)
		} else {
			live = append(live, k)
		}
	}
	type known struct {
		until int64
		size  int
	}
	var keys []known
	for _, name := range m.order {
		if k := m.keys[name]; k.until > m.At(boot.Since()) {
			keys = append(keys, known{k.until, len(name) + len(k.text)})
		}
	}
	m.mu.Unlock()
	for _, k := range keys {
		load.Key(k.until, k.size)
	}
	slices.SortFunc(live, func(a, b memoryJob) int { return cmp.Compare(a.Seq, b.Seq) })
	slices.SortFunc(ended, func(a, b memoryJob) int {
		return cmp.Or(cmp.Compare(a.forgetAt, b.forgetAt), strings.Compare(a.ID.String(), b.ID.String()))
	})
	load.Seq(seq)
	for _, w := range workers {
		load.Worker(w)
	}
	for _, c := range constraints {
		_ = load.Constraint(c) // the master itself has stored it
	}
	for name, text := range schedules {
		_ = load.Schedule(name, text) // the master itself has stored it
	}
	for _, k := range append(live, ended...) {
		load.Job(k.Job, k.forgetAt, k.dropAt)
	}
	return nil
}

// At implements Store.
func (m *Memory) At(uptime time.Duration) int64 {
	m.clock.follow(since1970(m.now()), uptime)
	return m.clock.at(uptime)
}

// Durable implements Store.
func (m *Memory) Durable() bool { return false }

// Acquire implements Store; no other master has this Memory.
func (m *Memory) Acquire(context.Context, func() bool, func(error)) error { return nil }

// Lost implements Store; a Memory is never lost.
func (m *Memory) Lost() <-chan struct{} { return nil }

// Err implements Store.
func (m *Memory) Err() error { return nil }

// HoldsLease implements Store; no other master has this Memory.
func (m *Memory) HoldsLease() bool { return true }

// HasWaitingStandby implements Store; no other master has this Memory.
func (m *Memory) HasWaitingStandby() bool { return false }

// Watch implements Store; a Memory is never away.
func (m *Memory) Watch(func(error)) {}

// Resign implements Store.
func (m *Memory) Resign(context.Context) error { return nil }

// Close implements Store.
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	return nil
}
