package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/rs/zerolog"

	"gloom/bench/throwaway/redistest"
	"gloom/cmd/internal/boot"
	"gloom/cmd/internal/unique"
	"gloom/cmd/jq-master/job"
)

// waitLimit bounds each wait in these tests.
const waitLimit = 45 * time.Second

var shared *redistest.Server

func TestMain(m *testing.M) {
	var err error
	if shared, err = redistest.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	shared.Close()
	os.Exit(code)
}

var namespaces atomic.Int64

// open returns a Redis store with a namespace of its own.
func open(t *testing.T, server *redistest.Server) *Redis {
	t.Helper()
	return reopen(t, server.URL(), fmt.Sprintf("t%d", namespaces.Add(1)))
}

func reopen(t *testing.T, url, namespace string) *Redis {
	t.Helper()
	r, err := Open(Options{URL: url, Namespace: namespace, Log: zerolog.New(zerolog.NewTestWriter(t))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func acquire(t *testing.T, s Store) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	if err := s.Acquire(ctx, canServe, func(reason error) { t.Logf("waits: %v", reason) }); err != nil {
		t.Fatal(err)
	}
}

// onBothStores runs a test on each kind of store.
func onBothStores(t *testing.T, test func(*testing.T, Store)) {
	for name, make := range map[string]func(*testing.T) Store{
		"memory": func(*testing.T) Store { return NewMemory() },
		"redis":  func(t *testing.T) Store { return open(t, shared) },
	} {
		t.Run(name, func(t *testing.T) {
			s := make(t)
			acquire(t, s)
			test(t, s)
		})
	}
}

// await waits for the answer to a transition.
func await[T any](t *testing.T, call func(func(T))) T {
	t.Helper()
	answer := make(chan T, 1)
	call(func(v T) { answer <- v })
	select {
	case v := <-answer:
		return v
	case <-time.After(waitLimit):
		t.Fatalf("no answer within %s", waitLimit)
		panic("unreachable")
	}
}

// mustCall waits for a transition that must succeed.
func mustCall(t *testing.T, call func(func(error))) {
	t.Helper()
	if err := await(t, call); err != nil {
		t.Fatal(err)
	}
}

// moveTo makes a transition, which must succeed, and returns the job's new state.
func moveTo(t *testing.T, s Store, oldJob, j *job.Job, forgetAt, dropAt int64) *job.Job {
	t.Helper()
	mustCall(t, func(f func(error)) { s.Move(oldJob, j, forgetAt, dropAt, f) })
	return j
}

type enqueueResult struct {
	ids      []job.ID
	replayed bool
	err      error
}

func enqueueing(s Store, key *Key, jobs ...*job.Job) func(func(enqueueResult)) {
	return func(f func(enqueueResult)) {
		s.Enqueue(jobs, key, func(ids []job.ID, replayed bool, err error) { f(enqueueResult{ids, replayed, err}) })
	}
}

func add(t *testing.T, s Store, jobs ...*job.Job) {
	t.Helper()
	if e := await(t, enqueueing(s, nil, jobs...)); e.err != nil {
		t.Fatal(e.err)
	}
}

// snapshot is the content of a store.
type snapshot struct {
	Seq          uint64
	Live, Ended  []job.ID
	Jobs         map[job.ID]job.Job
	Forget, Drop map[job.ID]int64
	Workers      map[job.ID]job.Worker
	Constraints  map[string]job.Constraint
	Keys         []int // their sizes
}

func emptySnapshot() *snapshot {
	return &snapshot{Jobs: map[job.ID]job.Job{}, Forget: map[job.ID]int64{}, Drop: map[job.ID]int64{},
		Workers: map[job.ID]job.Worker{}, Constraints: map[string]job.Constraint{}}
}

func load(t *testing.T, s Store) *snapshot {
	t.Helper()
	w := emptySnapshot()
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	err := s.Load(ctx, LoadHandlers{
		Seq:        func(n uint64) { w.Seq = n },
		Key:        func(_ int64, size int) { w.Keys = append(w.Keys, size) },
		Worker:     func(v *job.Worker) { w.Workers[v.ID] = *v },
		Constraint: func(c *job.Constraint) error { w.Constraints[c.ID] = *c; return nil },
		Schedule:   func(string, []byte) error { return nil },
		Job: func(j *job.Job, forgetAt, dropAt int64) {
			if j.State.Ended() {
				w.Ended = append(w.Ended, j.ID)
				w.Forget[j.ID] = forgetAt
			} else {
				w.Live = append(w.Live, j.ID)
			}
			if dropAt != 0 {
				w.Drop[j.ID] = dropAt
			}
			w.Jobs[j.ID] = *j
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// checkJobs fails the test unless the store holds exactly these jobs.
func checkJobs(t *testing.T, s Store, want ...*job.Job) {
	t.Helper()
	jobs := map[job.ID]job.Job{}
	for _, j := range want {
		jobs[j.ID] = *j
	}
	if diff := cmp.Diff(jobs, load(t, s).Jobs); diff != "" {
		t.Errorf("the store holds something else (-want +got):\n%s", diff)
	}
}

func newJob(seq uint64) *job.Job {
	return &job.Job{ID: job.NewID(), Seq: seq, Enqueued: 1_700_000_000_000 + int64(seq), Attributes: job.Attributes{
		Name: "mail", Argument: []byte{0x80}, MaxRetry: job.DefaultMaxRetry, Timeout: job.Seconds(job.DefaultTimeout)}}
}

// These functions return the job j in its next state, as a new value.

func started(j *job.Job) *job.Job {
	n := *j
	n.Rev++
	n.State, n.Attempt, n.Worker, n.Started, n.Deadline = job.Running, j.Attempt+1, job.NewID(), 5, 37
	return &n
}

func ended(j *job.Job, s job.State) *job.Job {
	n := *j
	n.Rev++
	n.State, n.Finished, n.ReportedAt = s, 9, 8
	switch s {
	case job.Done:
		n.Result = []byte{0xc4, 2, 0, 0xff}
	case job.Failed, job.Retrying:
		n.Error, n.Message, n.Reason = []byte{0xa1, 'x'}, "no\r\n", job.Timeout
	}
	n.Attempts = append(n.Attempts[:len(n.Attempts):len(n.Attempts)],
		job.Attempt{Number: n.Attempt, Worker: n.Worker, Started: 5, Finished: 9, Success: s == job.Done, Reason: n.Reason, Message: n.Message})
	if s == job.Retrying {
		n.Retries, n.Due = j.Retries+1, 1_800_000_000_000
	}
	return &n
}

func released(j *job.Job) *job.Job {
	n := *j
	n.Rev++
	n.State, n.Attempt, n.Worker, n.Started, n.Deadline = job.Queued, j.Attempt-1, job.ID{}, 0, 0
	return &n
}

func revived(j *job.Job) *job.Job {
	n := *j
	n.Rev++
	n.Due, n.Retries, n.Finished = 0, 0, 0
	if j.State != job.Retrying {
		n.State = job.Queued
	}
	return &n
}

func TestJobLifecycle(t *testing.T) {
	onBothStores(t, func(t *testing.T, s Store) {
		j := newJob(7)
		j.Name, j.Argument = "ünïcode *{}", []byte("\x81\xa1a\xc4\x03\x00\r\n")
		j.Priority, j.MaxRetry, j.Timeout, j.KeepResult, j.Due = math.MinInt32, 1000, 2_591_999_997, true, 1_900_000_000_000
		add(t, s, j)
		checkJobs(t, s, j)
		for _, step := range []struct {
			name             string
			next             func(*job.Job) *job.Job
			forgetAt, dropAt int64
		}{
			{"start", started, 0, 0},
			{"release", released, 0, 0},
			{"start again", started, 0, 0},
			{"retry", func(j *job.Job) *job.Job { return ended(j, job.Retrying) }, 0, 0},
			{"retry now", revived, 0, 0},
			{"start of the retry", started, 0, 0},
			{"error", func(j *job.Job) *job.Job { return ended(j, job.Failed) }, 50, 0},
			{"revive", revived, 0, 0},
			{"cancel", func(j *job.Job) *job.Job { return ended(j, job.Cancelled) }, 60, 0},
			{"revive again", revived, 0, 0},
			{"third start", started, 0, 0},
			{"done", func(j *job.Job) *job.Job { return ended(j, job.Done) }, 70, 40},
		} {
			oldJob := j
			j = step.next(j)
			for range 2 { // the second time is a repeat
				if err := await(t, func(f func(error)) { s.Move(oldJob, j, step.forgetAt, step.dropAt, f) }); err != nil {
					t.Fatalf("%s: %v", step.name, err)
				}
			}
			checkJobs(t, s, j)
		}
		w := load(t, s)
		if w.Forget[j.ID] != 70 || w.Drop[j.ID] != 40 || w.Seq < j.Seq {
			t.Errorf("forget %d, drop %d, seq %d", w.Forget[j.ID], w.Drop[j.ID], w.Seq)
		}
		for range 2 {
			mustCall(t, func(f func(error)) { s.Fetch([]job.ID{j.ID}, f) })
		}
		fetched := *j
		fetched.Result = nil
		checkJobs(t, s, &fetched)
		if w := load(t, s); w.Drop[j.ID] != 0 {
			t.Errorf("drop is %d after the fetch", w.Drop[j.ID])
		}
		for range 2 {
			mustCall(t, func(f func(error)) { s.Forget([]job.ID{j.ID}, f) })
		}
		mustCall(t, func(f func(error)) { s.Fetch([]job.ID{j.ID}, f) })
		checkJobs(t, s)
	})
}

// TestForbiddenTransitionChangesNothing: a transition that the job's state or attempt forbids
// changes nothing.
func TestForbiddenTransitionChangesNothing(t *testing.T) {
	running := func(j *job.Job) *job.Job { // its transitions would be valid if the stored job were running
		r := started(j)
		r.Rev--
		return r
	}
	for name, move := range map[string]func(queued *job.Job) (oldJob, j *job.Job){
		"start with a transition missing": func(j *job.Job) (_, _ *job.Job) { return j, started(started(j)) },
		"finish of one that is queued":    func(j *job.Job) (_, _ *job.Job) { return running(j), ended(running(j), job.Done) },
		"retry of one that is queued":     func(j *job.Job) (_, _ *job.Job) { return running(j), ended(running(j), job.Retrying) },
		"release of one that is queued":   func(j *job.Job) (_, _ *job.Job) { return running(j), released(running(j)) },
		"a job that is unknown":           func(*job.Job) (_, _ *job.Job) { j := newJob(9); return j, started(j) },
	} {
		t.Run(name, func(t *testing.T) {
			onBothStores(t, func(t *testing.T, s Store) {
				j := newJob(1)
				add(t, s, j)
				oldJob, next := move(j)
				err := await(t, func(f func(error)) { s.Move(oldJob, next, 0, 0, f) })
				if !errors.Is(err, ErrLost) {
					t.Errorf("answer is %v, want ErrLost", err)
				}
				checkJobs(t, s, j)
			})
		})
	}
}

// TestForgetLive: a job that has not ended is never forgotten.
func TestForgetLive(t *testing.T) {
	onBothStores(t, func(t *testing.T, s Store) {
		j := newJob(1)
		add(t, s, j)
		mustCall(t, func(f func(error)) { s.Forget([]job.ID{j.ID}, f) })
		checkJobs(t, s, j)
	})
}

func TestBatchIsStoredAsWhole(t *testing.T) {
	onBothStores(t, func(t *testing.T, s Store) {
		var batch []*job.Job
		for i := range job.MaxBatch {
			j := newJob(uint64(i) + 1)
			j.Priority = int32(i % 3)
			batch = append(batch, j)
		}
		add(t, s, batch...)
		checkJobs(t, s, batch...)
		w := load(t, s)
		for i, id := range w.Live {
			if id != batch[i].ID {
				t.Fatalf("job %d of the batch is not at its place", i)
			}
		}
		if w.Seq < job.MaxBatch {
			t.Errorf("seq is %d", w.Seq)
		}
	})
}

func TestRepeatedKeyReturnsSameJob(t *testing.T) {
	onBothStores(t, func(t *testing.T, s Store) {
		key := &Key{Name: "token /job 1", Body: [32]byte{1}, TTL: time.Hour}
		other := &Key{Name: key.Name, Body: [32]byte{2}, TTL: time.Hour}
		first, second := []*job.Job{newJob(1), newJob(2)}, []*job.Job{newJob(3), newJob(4)}
		for i, c := range []struct {
			key  *Key
			jobs []*job.Job
			want enqueueResult
		}{
			{key, first, enqueueResult{ids: []job.ID{first[0].ID, first[1].ID}}},
			{key, second, enqueueResult{ids: []job.ID{first[0].ID, first[1].ID}, replayed: true}},
			{other, second, enqueueResult{err: ErrKeyReused}},
			{key, nil, enqueueResult{ids: []job.ID{first[0].ID, first[1].ID}, replayed: true}},
			{other, nil, enqueueResult{err: ErrKeyReused}},
			{&Key{Name: "not used", TTL: time.Hour}, nil, enqueueResult{ids: []job.ID{}}},
		} {
			got := await(t, enqueueing(s, c.key, c.jobs...))
			if diff := cmp.Diff(c.want.ids, got.ids, cmpopts.EquateEmpty()); diff != "" || got.replayed != c.want.replayed || !errors.Is(got.err, c.want.err) {
				t.Errorf("enqueueing %d: %v, want %v", i, got, c.want)
			}
		}
		checkJobs(t, s, first...)
		if got := load(t, s).Keys; len(got) != 1 || got[0] != key.Size(len(first)) {
			t.Errorf("keys of %v bytes, want one of %d", got, key.Size(len(first)))
		}
		// The key outlives its jobs.
		j := moveTo(t, s, first[0], ended(first[0], job.Cancelled), 1, 0)
		mustCall(t, func(f func(error)) { s.Forget([]job.ID{j.ID}, f) })
		if got := await(t, enqueueing(s, key, second...)); !got.replayed || got.ids[0] != first[0].ID {
			t.Errorf("after the job was forgotten: %v", got)
		}
	})
}

// TestKeyEnds: an idempotency key ends by the store's clock, however the clock of Redis or of the
// host is set, and is then removed.
func TestKeyEnds(t *testing.T) {
	onBothStores(t, func(t *testing.T, s Store) {
		var c *clock
		r, _ := s.(*Redis)
		if m, ok := s.(*Memory); ok {
			c, m.now = &m.clock, func() time.Time { return time.Now().Add(46 * 24 * time.Hour) }
		} else {
			c = &r.clock
		}
		pass := func(d time.Duration) {
			uptime := boot.Since()
			c.start(time.Duration(c.at(uptime))*time.Millisecond+d, uptime)
		}
		key := &Key{Name: "k", TTL: time.Hour}
		first := await(t, enqueueing(s, key, newJob(1)))
		if r != nil {
			if ttl, err := r.client.PTTL(t.Context(), r.keys.idempotency("k")).Result(); err != nil || ttl < 300*24*time.Hour {
				t.Errorf("Redis drops the key after %v, %v", ttl, err)
			}
		}
		pass(key.TTL - time.Minute)
		if e := await(t, enqueueing(s, key, newJob(2))); !e.replayed || e.ids[0] != first.ids[0] {
			t.Errorf("before its end the key gives %v", e)
		}
		pass(2 * time.Minute)
		if e := await(t, enqueueing(s, key, newJob(2))); e.replayed || e.err != nil {
			t.Errorf("the key is still known after its time: %v", e)
		}
		pass(2 * time.Hour)
		await(t, enqueueing(s, &Key{Name: "l", TTL: time.Hour}, newJob(3)))
		if m, ok := s.(*Memory); ok {
			if len(m.keys) != 1 || len(m.order) != 1 {
				t.Errorf("%d keys, %d in order", len(m.keys), len(m.order))
			}
			return
		}
		if err := r.holdLease(t.Context(), r.current(), 1, leaseTerm); err != nil {
			t.Fatal(err)
		}
		if n, err := r.client.Exists(t.Context(), r.keys.idempotency("k"), r.keys.idempotency("l")).Result(); err != nil || n != 1 {
			t.Errorf("%d keys are left, %v", n, err)
		}
		if n, err := r.client.ZCard(t.Context(), r.keys.idems).Result(); err != nil || n != 1 {
			t.Errorf("%d keys are in their set, %v", n, err)
		}
	})
}

// TestKeyFromFuture: once a master knows that the clock of Redis is right, an idempotency key that
// was stored while the clock was ahead is remembered no longer than a new key.
func TestKeyFromFuture(t *testing.T) {
	t.Parallel()
	r := open(t, shared)
	acquire(t, r)
	uptime := boot.Since()
	now := time.Duration(r.At(uptime)) * time.Millisecond
	r.clock.start(now+46*24*time.Hour, uptime)
	key := &Key{Name: "k", TTL: KeyTTL}
	await(t, enqueueing(r, key, newJob(1)))
	r.clock.start(now, uptime)
	if err := r.Load(t.Context(), LoadHandlers{
		Worker: func(*job.Worker) {}, Job: func(*job.Job, int64, int64) {}, Seq: func(uint64) {},
		Key: func(until int64, _ int) {
			if until > r.At(boot.Since())+KeyTTL.Milliseconds() {
				t.Errorf("the key ends in %v", time.Duration(until)*time.Millisecond-now)
			}
		},
	}); err != nil {
		t.Fatal(err)
	}
	if err := r.holdLease(t.Context(), r.current(), 1, leaseTerm); err != nil {
		t.Fatal(err)
	}
	if e := await(t, enqueueing(r, key, newJob(2))); !e.replayed {
		t.Errorf("while it is remembered: %v", e)
	}
	uptime = boot.Since()
	r.clock.start(time.Duration(r.At(uptime))*time.Millisecond+KeyTTL, uptime)
	if e := await(t, enqueueing(r, key, newJob(2))); e.replayed || e.err != nil {
		t.Errorf("after its time: %v", e)
	}
}

func TestWorkersAndConstraints(t *testing.T) {
	onBothStores(t, func(t *testing.T, s Store) {
		w := &job.Worker{ID: job.NewID(), Name: "w", MaxJobs: 3, URL: "http://127.0.0.1:1", Names: []string{"a*", "*"},
			Token: "t", Heartbeat: true, Owner: "AQ", Since: 12}
		c := &job.Constraint{ID: "c/1 {}", Match: []byte{0x80}, Rate: 0.1, Burst: 2, Concurrency: -1, Per: "/argument/x", Enabled: true, Version: 9}
		for range 2 {
			mustCall(t, func(f func(error)) { s.PutWorker(w.ID, w, f) })
			mustCall(t, func(f func(error)) { s.PutConstraint(c.ID, c, f) })
		}
		got := load(t, s)
		want := emptySnapshot()
		want.Workers[w.ID], want.Constraints[c.ID], want.Seq = *w, *c, got.Seq
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		for range 2 {
			mustCall(t, func(f func(error)) { s.PutWorker(w.ID, nil, f) })
			mustCall(t, func(f func(error)) { s.PutConstraint(c.ID, nil, f) })
		}
		got = load(t, s)
		want = emptySnapshot()
		want.Seq = got.Seq
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}

func TestClosedStoreRefuses(t *testing.T) {
	onBothStores(t, func(t *testing.T, s Store) {
		s.Close()
		if e := await(t, enqueueing(s, nil, newJob(1))); !errors.Is(e.err, ErrClosed) {
			t.Errorf("enqueue after Close: %v", e.err)
		}
	})
}

// TestUniqueKeyIsStoredWithJob: a unique key is stored with its job, and a transition changes when
// a waiting job is due and its priority.
func TestUniqueKeyIsStoredWithJob(t *testing.T) {
	onBothStores(t, func(t *testing.T, s Store) {
		j := newJob(1)
		j.Unique = &job.Unique{Key: "ü\n k", Period: unique.PeriodWindow, Until: 1_900_000_000_000, Replaces: job.NewID(), ReplacesRev: 7}
		add(t, s, j)
		checkJobs(t, s, j)
		laterJob := *j
		laterJob.Rev++
		laterJob.Due, laterJob.Priority = 1_950_000_000_000, -7
		for range 2 { // the second one is a repeat
			mustCall(t, func(f func(error)) { s.Move(j, &laterJob, 0, 0, f) })
			checkJobs(t, s, &laterJob)
		}
		run := moveTo(t, s, &laterJob, started(&laterJob), 0, 0)
		lateJob := *run
		lateJob.Rev++
		lateJob.State = job.Queued
		if err := await(t, func(f func(error)) { s.Move(&laterJob, &lateJob, 0, 0, f) }); err == nil {
			t.Error("a job that runs was postponed")
		}
	})
}

func canServe() bool { return true }
