package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"

	"gloom/bench/throwaway"
	"gloom/bench/throwaway/redistest"
	"gloom/cmd/internal/failpoint"
	"gloom/cmd/jq-master/job"
)

// point is called at each failpoint, if a test has set it.
var point atomic.Pointer[func(string)]

func init() {
	failpoint.Hook = func(name string) {
		if f := point.Load(); f != nil {
			(*f)(name)
		}
	}
}

// jobLoad moves jobs through their lives from several goroutines, and remembers the store's answers.
type jobLoad struct {
	t         *testing.T
	r         *Redis
	storeBack chan struct{} // gets a value when the store is back
	outages   atomic.Int64  // how often the store went away
	stop      chan struct{}
	seq       atomic.Uint64
	wg        sync.WaitGroup

	mu           sync.Mutex
	expectedJobs map[job.ID]job.Job // acknowledged
	refused      map[job.ID]bool    // enqueueings that failed
	ended        int                // how many jobs have ended
}

func startLoad(t *testing.T, r *Redis) *jobLoad {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	l := &jobLoad{t: t, r: r, storeBack: make(chan struct{}, 1), stop: make(chan struct{}),
		expectedJobs: map[job.ID]job.Job{}, refused: map[job.ID]bool{}}
	r.Watch(func(awayErr error) {
		if awayErr != nil {
			l.outages.Add(1)
			return
		}
		select {
		case l.storeBack <- struct{}{}:
		default:
		}
	})
	acquire(t, r)
	for i := range 8 {
		l.wg.Go(func() { l.run(rand.New(rand.NewPCG(seed, uint64(i)))) })
	}
	return l
}

func (l *jobLoad) run(rng *rand.Rand) {
	for {
		select {
		case <-l.stop:
			return
		default:
		}
		var key *Key
		if rng.IntN(2) == 0 {
			key = &Key{Name: job.NewID().String(), TTL: time.Hour}
		}
		jobs := make([]*job.Job, 1+rng.IntN(3))
		for i := range jobs {
			jobs[i] = newJob(l.seq.Add(1))
		}
		e := await(l.t, enqueueing(l.r, key, jobs...))
		switch {
		case errors.Is(e.err, ErrAway):
			l.mu.Lock()
			for _, j := range jobs {
				l.refused[j.ID] = true
			}
			l.mu.Unlock()
			pauseFor(l.stop, newBackoff())
			continue
		case e.err != nil || e.replayed:
			l.t.Errorf("enqueueing: %v", e)
			return
		}
		for _, j := range jobs {
			l.remember(j)
			for rng.IntN(12) > 0 {
				if j = l.step(rng, j); j == nil {
					return
				}
				l.remember(j)
			}
		}
	}
}

// step moves a job to one of its possible next states and returns the job, or nil if the move
// failed.
func (l *jobLoad) step(rng *rand.Rand, j *job.Job) *job.Job {
	var next *job.Job
	var dropAt int64
	switch j.State {
	case job.Queued, job.Retrying:
		if next = started(j); rng.IntN(8) == 0 {
			next = ended(j, job.Cancelled)
		}
	case job.Running:
		switch rng.IntN(8) {
		case 0:
			if j.Attempt == 1 {
				next = released(j)
				break
			}
			fallthrough
		case 1, 2:
			next = ended(j, job.Retrying)
		case 3:
			next = ended(j, job.Failed)
		case 4:
			next = ended(j, job.Cancelled)
		default:
			next, dropAt = ended(j, job.Done), 1
		}
	case job.Done:
		dropped := *j
		dropped.Result = nil
		next = &dropped
	default:
		next = revived(j)
	}
	err := await(l.t, func(f func(error)) {
		if j.State == job.Done {
			l.r.Fetch([]job.ID{j.ID}, f)
		} else {
			l.r.Move(j, next, int64(j.Seq), dropAt, f)
		}
	})
	if err != nil {
		l.t.Errorf("%s → %s: %v", j.State, next.State, err)
		return nil
	}
	return next
}

func (l *jobLoad) remember(j *job.Job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expectedJobs[j.ID] = *j
	if j.State.Ended() {
		l.ended++
	}
}

func (l *jobLoad) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

// awaitMore waits until 20 more jobs have ended.
func (l *jobLoad) awaitMore() {
	l.t.Helper()
	eventually(l.t, "jobs end", func(before int) func() bool {
		return func() bool { return l.count() >= before+20 }
	}(l.count()))
}

func eventually(t *testing.T, name string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(waitLimit); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", waitLimit, name)
		}
	}
}

// settle ends the load. It checks that acknowledged jobs are stored as acknowledged, and that
// refused jobs are not stored.
func (l *jobLoad) settle() {
	l.t.Helper()
	close(l.stop)
	l.wg.Wait()
	w := &job.Worker{ID: job.NewID()}
	mustCall(l.t, func(f func(error)) { l.r.PutWorker(w.ID, w, f) }) // this write follows the removal of refused jobs
	got := load(l.t, l.r)
	if diff := cmp.Diff(l.expectedJobs, got.Jobs); diff != "" {
		l.t.Errorf("the store holds something else than it has acknowledged (-want +got):\n%s", diff)
	}
	for id := range l.refused {
		if _, there := got.Jobs[id]; there {
			l.t.Errorf("job %s is there, though its client was refused", id)
		}
	}
	if n := metric(l.t, l.r, "gloom_jq_unreadable"); n != 0 {
		l.t.Errorf("%v records are unreadable", n)
	}
	l.t.Logf("%d jobs, %d refused, away %d times", len(l.expectedJobs), len(l.refused), l.outages.Load())
}

func (l *jobLoad) awaitOutage(before int64) {
	l.t.Helper()
	eventually(l.t, "the store is away", func() bool { return l.outages.Load() > before })
}

// With appendfsync everysec a killed server may lose acknowledged writes, because it puts off
// writing while it flushes. Therefore these tests use appendfsync always.

type fault struct {
	begin, end func(*testing.T, *redistest.Server)
	away       bool // the fault lasts long enough to be noticed
}

// forbid forbids the user some commands, so that scripts fail halfway.
func forbid(rules ...any) fault {
	return fault{
		begin: func(t *testing.T, s *redistest.Server) {
			s.Do(t, append([]any{"ACL", "SETUSER", "default"}, rules...)...)
		},
		end: func(t *testing.T, s *redistest.Server) { s.Do(t, "ACL", "SETUSER", "default", "+@all") }, away: true,
	}
}

// TestRedisFaultsLoseNoWrite: Redis fails twice under load, and recovers. No acknowledged write is
// lost, and no refused write stays.
func TestRedisFaultsLoseNoWrite(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]fault{
		"killed":  {begin: func(_ *testing.T, s *redistest.Server) { s.Kill() }, end: launch, away: true},
		"stopped": {begin: func(_ *testing.T, s *redistest.Server) { s.Stop() }, end: launch, away: true},
		"frozen": {
			begin: func(_ *testing.T, s *redistest.Server) { s.Freeze() },
			end:   func(_ *testing.T, s *redistest.Server) { s.Thaw() }, away: true,
		},
		"read-only": {
			begin: func(t *testing.T, s *redistest.Server) { s.Do(t, "REPLICAOF", "127.0.0.1", "1") },
			end:   func(t *testing.T, s *redistest.Server) { s.Do(t, "REPLICAOF", "NO", "ONE") }, away: true,
		},
		"other password": {
			begin: func(t *testing.T, s *redistest.Server) {
				s.Do(t, "CONFIG", "SET", "requirepass", "x")
				client := redis.NewClient(&redis.Options{Addr: s.Addr(), Password: "x"})
				defer client.Close()
				if err := client.ClientKillByFilter(context.Background(), "TYPE", "normal").Err(); err != nil {
					t.Fatal(err)
				}
			},
			end: func(t *testing.T, s *redistest.Server) {
				client := redis.NewClient(&redis.Options{Addr: s.Addr(), Password: "x"})
				defer client.Close()
				if err := client.ConfigSet(context.Background(), "requirepass", "").Err(); err != nil {
					t.Fatal(err)
				}
			}, away: true,
		},
		"no zadd":            forbid("-zadd"),
		"no hset":            forbid("-hset"),
		"no zrem":            forbid("-zrem", "-del"),
		"no incr":            forbid("-incr"),
		"no set":             forbid("-set"),
		"connections killed": {begin: func(t *testing.T, s *redistest.Server) { s.Do(t, "CLIENT", "KILL", "TYPE", "normal") }},
		"scripts flushed":    {begin: func(t *testing.T, s *redistest.Server) { s.Do(t, "SCRIPT", "FLUSH") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.New(t, "--appendfsync", "always")
			l := startLoad(t, open(t, server))
			for range 2 {
				l.awaitMore()
				before := l.outages.Load()
				f.begin(t, server)
				if f.away {
					l.awaitOutage(before)
					if e := await(t, enqueueing(l.r, nil, newJob(l.seq.Add(1)))); !errors.Is(e.err, ErrAway) {
						t.Errorf("enqueueing meanwhile: %v", e.err)
					}
					drain(l.storeBack)
					f.end(t, server)
					select {
					case <-l.storeBack:
					case <-time.After(waitLimit):
						t.Fatal("the store does not come back")
					}
				}
			}
			l.awaitMore()
			l.settle()
			if f.away && metric(t, l.r, "gloom_jq_store_errors_total") == 0 {
				t.Error("no error was counted")
			}
			if metric(t, l.r, "gloom_jq_store_round_transitions") == 0 {
				t.Error("no round trip was counted")
			}
		})
	}
}

// metric returns the sum of the counters, gauges and histogram counts of a metric.
func metric(t *testing.T, r *Redis, name string) (n float64) {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(r)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name {
				n += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return n
}

func launch(t *testing.T, s *redistest.Server) {
	if err := s.Launch(); err != nil {
		t.Fatal(err)
	}
}

func drain(c chan struct{}) {
	select {
	case <-c:
	default:
	}
}

// TestFaultsAtPoints: for each script, the server is killed right before and right after the script is
// sent, or its answer is lost. Each transition happens exactly once.
func TestFaultsAtPoints(t *testing.T) {
	for _, s := range []*transition{enqueueScript, moveScript, fetchScript, forgetScript, putScript} {
		for _, moment := range []string{"before", "after", "muted"} {
			t.Run(moment+" "+s.name, func(t *testing.T) {
				server := redistest.New(t, "--appendfsync", "always")
				gate := redistest.NewGate(t, server.Addr())
				r := reopen(t, gate.URL(), "boundary")
				acquire(t, r)
				j, removedJob := newJob(1), newJob(2)
				add(t, r, removedJob)
				removedJob = moveTo(t, r, removedJob, ended(removedJob, job.Cancelled), 5, 0)
				fired := false
				hook := func(name string) {
					switch {
					case fired || name != "before "+s.name && name != "after "+s.name:
						return
					case moment == "muted":
						gate.Mute()
					case name != moment+" "+s.name:
						return
					default:
						server.Kill()
						launch(t, server)
					}
					fired = true
				}
				point.Store(&hook)
				defer point.Store(nil)
				key := &Key{Name: "k", Body: [32]byte{1}, TTL: time.Hour}
				if e := await(t, enqueueing(r, key, j)); e.err != nil || e.replayed {
					t.Fatalf("enqueueing: %v", e)
				}
				j = moveTo(t, r, j, started(j), 0, 0)
				j = moveTo(t, r, j, ended(j, job.Done), 9, 8)
				mustCall(t, func(f func(error)) { r.Fetch([]job.ID{j.ID}, f) })
				mustCall(t, func(f func(error)) { r.Forget([]job.ID{removedJob.ID}, f) })
				w := &job.Worker{ID: job.NewID()}
				mustCall(t, func(f func(error)) { r.PutWorker(w.ID, w, f) })
				j.Result = nil
				checkJobs(t, r, j)
				if e := await(t, enqueueing(r, key, newJob(3))); !e.replayed || e.ids[0] != j.ID {
					t.Errorf("the same key again: %v", e)
				}
				if len(load(t, r).Workers) != 1 {
					t.Error("the worker is not there")
				}
				point.Store(nil)
				if !fired {
					t.Error("the fault point was never reached")
				}
			})
		}
	}
}

// TestLateAnswers: commands of a broken connection that reach the server late have no effect.
func TestLateAnswers(t *testing.T) {
	t.Parallel()
	gate := redistest.NewGate(t, shared.Addr())
	r := open(t, shared)
	r = reopen(t, gate.URL(), r.opt.Namespace)
	acquire(t, r)
	j := newJob(1)
	add(t, r, j)
	gate.Hold()
	running := moveTo(t, r, j, started(j), 0, 0) // this succeeds after the first connection was given up
	queued := moveTo(t, r, running, released(running), 0, 0)
	if gate.Release() == 0 {
		t.Error("nothing was held")
	}
	add(t, r, newJob(2)) // by now the server has read the late commands, or will refuse them
	running = moveTo(t, r, queued, started(queued), 0, 0)
	w := load(t, r)
	if diff := cmp.Diff(*running, w.Jobs[j.ID]); diff != "" || len(w.Jobs) != 2 {
		t.Errorf("the job (-want +got):\n%s", diff)
	}
}

// TestSlowLink: many large results are written and read over a slow link, because no round trip has
// more of them than the link can carry within answerTimeout.
func TestSlowLink(t *testing.T) {
	t.Parallel()
	const jobs, size = 48, 1 << 20
	gate := redistest.NewGate(t, shared.Addr())
	r := open(t, shared)
	r = reopen(t, gate.URL(), r.opt.Namespace)
	acquire(t, r)
	var running []*job.Job
	for i := range jobs {
		running = append(running, newJob(uint64(i+1)))
		add(t, r, running[i])
		running[i] = moveTo(t, r, running[i], started(running[i]), 0, 0)
	}
	gate.Throttle(12 * size) // 36 results in the 3 s of answerTimeout
	storeTime := make(chan error, jobs)
	for _, oldJob := range running {
		j := ended(oldJob, job.Done)
		j.Result = slices.Concat([]byte{0xc6, 0, size >> 16, 0, 0}, make([]byte, size))
		r.Move(oldJob, j, 1<<50, 1<<50, func(err error) { storeTime <- err })
	}
	timeout := time.After(10 * answerTimeout)
	for range jobs {
		select {
		case err := <-storeTime:
			if err != nil {
				t.Fatal(err)
			}
		case <-timeout:
			t.Fatal("results of 48 MiB are not written at 12 MiB/s")
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*answerTimeout)
	defer cancel()
	read := 0
	err := r.Load(ctx, LoadHandlers{
		Worker: func(*job.Worker) {}, Constraint: func(*job.Constraint) error { return nil },
		Key: func(int64, int) {}, Seq: func(uint64) {},
		Job: func(j *job.Job, _, _ int64) { read += len(j.Result) / size },
	})
	if err != nil || read != jobs {
		t.Fatalf("%d results are read, %v", read, err)
	}
}

// TestFailoverWithMissingWritesIsLost: a replica takes over. If the replica has all writes, the
// master continues; if writes are missing, the store reports ErrLost.
func TestFailoverWithMissingWritesIsLost(t *testing.T) {
	t.Parallel()
	for _, behind := range []bool{false, true} {
		t.Run(fmt.Sprintf("behind %t", behind), func(t *testing.T) {
			t.Parallel()
			first := redistest.New(t)
			second := redistest.New(t, "--replicaof", "127.0.0.1 "+fmt.Sprint(first.Port()))
			gate := redistest.NewGate(t, first.Addr())
			r := reopen(t, gate.URL(), "failover")
			acquire(t, r)
			add(t, r, newJob(1))
			caughtUp := func() bool {
				c := second.Client()
				defer c.Close()
				a, err := c.Get(context.Background(), r.keys.seq).Result()
				return err == nil && a == first.Do(t, "GET", r.keys.seq).(string)
			}
			eventually(t, "the replica has caught up", caughtUp)
			if behind {
				second.Do(t, "REPLICAOF", "NO", "ONE")
				add(t, r, newJob(2))
			} else {
				add(t, r, newJob(2))
				eventually(t, "the replica has caught up", caughtUp)
				second.Do(t, "REPLICAOF", "NO", "ONE")
			}
			first.Kill()
			gate.SetTarget(second.Addr())
			if behind {
				awaitLost(t, r, ErrLost)
				acquire(t, r)
				if w := load(t, r); len(w.Live) != 1 {
					t.Errorf("%d jobs are left", len(w.Live))
				}
				return
			}
			add(t, r, newJob(3))
			if w := load(t, r); len(w.Live) != 3 {
				t.Errorf("%d jobs, not 3", len(w.Live))
			}
		})
	}
}

func TestKindOf(t *testing.T) {
	for text, want := range map[string]kind{
		"LOADING Redis is loading the dataset in memory":                            kindAway,
		"READONLY You can't write against a read only replica. script: 1, on @u:1.": kindAway,
		"OOM command not allowed when used memory > 'maxmemory'.":                   kindFull,
		"NOAUTH Authentication required.":                                           kindAway,
		"MISCONF Errors writing to the AOF file: No space left on device":           kindAway,
		"MASTERDOWN Link with MASTER is down":                                       kindAway,
		"BUSY Redis is busy running a script.":                                      kindAway,
		"ERR max number of clients reached":                                         kindAway,
		"ERR The user executing the script can't run this command or subcommand":    kindAway,
		"ERR ACL failure in script: User u has no permissions to run 'zadd'":        kindAway,
		"NOSCRIPT No matching script.":                                              kindAway,
		"DENIED by a proxy":                                                         kindAway,
		"IOERR":                                                                     kindAway,
		"upstream failure":                                                          kindAway,
		"FENCED lease is \"x\"":                                                     kindFenced,
		"LOST lease \"x\"":                                                          kindLost,
		"CONFLICT job is queued":                                                    kindConflict,
		"WRONGTYPE Operation against a key":                                         kindFaulty,
		"UNREADABLE jq:idem:x is a hash that has no ids":                            kindFaulty,
		"ERR value is not an integer or out of range script: 0a, on @user_script:9": kindFaulty,
		"ERR ACL failure in script: User u may not script: 0a, on @user_script:9":   kindAway,
		"ERR Protocol error: invalid bulk length":                                   kindFaulty,
		"ERR Protocol error: unauthenticated bulk length":                           kindAway,
		"ERR upstream failure":                                                      kindAway, // what proxies say
		"ERR Connection refused":                                                    kindAway,
		"ERR server closed connection":                                              kindAway,
		"ERR unknown command":                                                       kindAway,
	} {
		if got := kindOf(redisError(text)); got != want {
			t.Errorf("%s: kind %d, want %d", text, got, want)
		}
	}
	if got := kindOf(fmt.Errorf("dial: %w", context.DeadlineExceeded)); got != kindAway {
		t.Errorf("no answer: kind %d", got)
	}
}

// TestKindOfScriptFault: a script that fails because of its data is at fault.
func TestKindOfScriptFault(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	server.Do(t, "SET", "text", "x")
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	for _, text := range []string{"return redis.call('INCR', 'text')", "return nil + 1", "return redis.call('nothing')", "return redis.call('ZCARD', 'text')"} {
		if err := client.Eval(t.Context(), growingShebang+text, nil).Err(); err == nil || kindOf(err) != kindFaulty {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestReadsRefused: while Redis lets a master take the lease, but not read its jobs, the log says why.
func TestReadsRefused(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	var log throwaway.Log
	r, err := Open(Options{URL: server.URL(), Namespace: "refused", Log: zerolog.New(&log)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	server.Do(t, "ACL", "SETUSER", "default", "-hgetall")
	acquire(t, r)
	loaded := make(chan error, 1)
	go func() {
		loaded <- r.Load(context.Background(), LoadHandlers{Seq: func(uint64) {}})
	}()
	eventually(t, "the log says why", func() bool { return strings.Contains(log.String(), "hgetall") })
	server.Do(t, "ACL", "SETUSER", "default", "+@all")
	if err := <-loaded; err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(log.String(), "trying again"); n != 1 {
		t.Errorf("it is said %d times: %s", n, log.String())
	}
}

// redisError is an error reply of Redis.
type redisError string

func (a redisError) Error() string { return string(a) }
func (redisError) RedisError()     {}

// TestRefusedConnection: while Redis refuses new connections because the password was changed, no
// command counts as done.
func TestRefusedConnection(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	server.Do(t, "ACL", "SETUSER", "u", "on", ">p", "~*", "&*", "+@all")
	gate := redistest.NewGate(t, server.Addr())
	r := reopen(t, strings.Replace(gate.URL(), "redis://", "redis://u:p@", 1), "refused")
	acquire(t, r)
	first, second := newJob(1), newJob(2)
	add(t, r, first)
	for range 3 {
		server.Do(t, "ACL", "SETUSER", "u", "<p", ">q")
		gate.Cut()
		if e := await(t, enqueueing(r, nil, second)); !errors.Is(e.err, ErrAway) {
			t.Errorf("enqueued with a wrong password: %v", e.err)
		}
		if _, err := r.readHashes(t.Context(), []redis.Z{{Member: first.ID.String()}}); err == nil {
			t.Error("jobs were read with a wrong password")
		}
		running, answer := started(first), make(chan error, 1)
		r.Move(first, running, 0, 0, func(err error) { answer <- err })
		select {
		case err := <-answer:
			t.Errorf("started with a wrong password: %v", err)
		default:
		}
		server.Do(t, "ACL", "SETUSER", "u", "<q", ">p")
		if err := await(t, func(f func(error)) { go func() { f(<-answer) }() }); err != nil {
			t.Error(err)
		}
		first = moveTo(t, r, running, released(running), 0, 0)
		checkJobs(t, r, first)
	}
}
