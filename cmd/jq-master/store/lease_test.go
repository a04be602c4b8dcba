package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"gloom/bench/throwaway"
	"gloom/bench/throwaway/redistest"
	"gloom/cmd/internal/process"
	"gloom/cmd/jq-master/job"
)

// awaitLost waits until a store reports that its term is over, with the error want.
func awaitLost(t *testing.T, r *Redis, want error) {
	t.Helper()
	select {
	case <-r.Lost():
	case <-time.After(waitLimit):
		t.Fatalf("the store does not notice within %s", waitLimit)
	}
	if !errors.Is(r.Err(), want) {
		t.Fatalf("the term ended with %v, want %v", r.Err(), want)
	}
	if e := await(t, enqueueing(r, nil, newJob(99))); !errors.Is(e.err, want) {
		t.Fatalf("enqueueing after it: %v, want %v", e.err, want)
	}
}

// standbyStore is a store that waits for the lease.
type standbyStore struct {
	*Redis
	waitReasons   chan string
	acquireResult chan error
}

func standby(t *testing.T, r *Redis) standbyStore { return standbyIf(t, r, canServe) }

func standbyIf(t *testing.T, r *Redis, canServe func() bool) standbyStore {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	t.Cleanup(cancel)
	w := standbyStore{r, make(chan string, 100), make(chan error, 1)}
	go func() {
		w.acquireResult <- r.Acquire(ctx, canServe, func(reason error) { w.waitReasons <- reason.Error() })
	}()
	return w
}

func (w standbyStore) acquired(t *testing.T) {
	t.Helper()
	select {
	case err := <-w.acquireResult:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(waitLimit):
		t.Fatalf("no lease within %s", waitLimit)
	}
}

// secondClient opens another store for the same namespace.
func secondClient(t *testing.T, r *Redis) *Redis { return reopen(t, r.opt.URL, r.opt.Namespace) }

func lease(t *testing.T, r *Redis) string {
	t.Helper()
	return shared.Do(t, "GET", r.keys.lease).(string)
}

func TestStandbyWaitsForLease(t *testing.T) {
	t.Parallel()
	first := open(t, shared)
	acquire(t, first)
	add(t, first, newJob(1))
	second := standby(t, secondClient(t, first))
	if reason := <-second.waitReasons; !strings.Contains(reason, fmt.Sprintf("process %d on ", os.Getpid())) {
		t.Errorf("the standby says %q", reason)
	}
	// A renewed lease is not free: the first store keeps it for longer than one term.
	before := lease(t, first)
	deadline := time.Now().Add(waitLimit)
	for lease(t, first) == before && time.Now().Before(deadline) {
		time.Sleep(10 * time.Millisecond)
	}
	w := &job.Worker{ID: job.NewID()}
	mustCall(t, func(f func(error)) { first.PutWorker(w.ID, w, f) })
	if err := first.Resign(context.Background()); err != nil {
		t.Fatal(err)
	}
	second.acquired(t)
	if e := await(t, enqueueing(first, nil, newJob(2))); !errors.Is(e.err, ErrClosed) {
		t.Errorf("enqueueing after Resign: %v", e.err)
	}
	if w := load(t, second); len(w.Live) != 1 || len(w.Workers) != 1 {
		t.Errorf("the second holds %d jobs and %d workers", len(w.Live), len(w.Workers))
	}
	// And back.
	third := standby(t, first)
	second.Close()
	third.acquired(t)
}

// TestUnableStandbyYields: a standby that cannot serve leaves the lease to a standby that can, as
// long as there is such a standby.
func TestUnableStandbyYields(t *testing.T) {
	t.Parallel()
	unable := func() bool { return false }
	first := open(t, shared)
	acquire(t, first)
	unableStandby := standbyIf(t, secondClient(t, first), unable)
	<-unableStandby.waitReasons
	awaited := func(want bool) {
		t.Helper()
		for end := time.Now().Add(waitLimit); first.HasWaitingStandby() != want; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("the holder does not learn that a standby could serve: %t", want)
			}
		}
	}
	// addDead adds a standby that was able to serve, and that died while Redis's clock was ahead by
	// an hour.
	addDead := func() { shared.Do(t, "ZADD", first.keys.standbys, time.Now().Add(time.Hour).UnixMilli(), "dead") }
	before := lease(t, first)
	for end := time.Now().Add(waitLimit); lease(t, first) == before && time.Now().Before(end); time.Sleep(time.Millisecond) {
		addDead()
	}
	if first.HasWaitingStandby() {
		t.Error("a standby that could not serve, or is dead, is waited for")
	}
	second := standby(t, secondClient(t, first))
	awaited(true)
	if err := first.Resign(context.Background()); err != nil {
		t.Fatal(err)
	}
	second.acquired(t)
	select {
	case err := <-unableStandby.acquireResult:
		t.Fatalf("the one that could not serve took the lease: %v", err)
	default:
	}
	addDead()
	if err := second.Resign(context.Background()); err != nil { // now no standby that could serve is waiting
		t.Fatal(err)
	}
	unableStandby.acquired(t)
	first = unableStandby.Redis
	shared.Do(t, "DEL", first.keys.standbys)
	shared.Do(t, "SET", first.keys.standbys, "no list") // a value of the wrong type must not disturb the masters
	third := standby(t, secondClient(t, first))
	if err := first.Resign(context.Background()); err != nil {
		t.Fatal(err)
	}
	third.acquired(t)
	load(t, third)
	if kind := shared.Do(t, "TYPE", first.keys.standbys); kind != "none" {
		t.Errorf("the foreign value is still there: %v", kind)
	}
}

// TestFormerLeaseHolderCannotWrite: any master may take an expired lease, and then its former
// holder can write nothing.
func TestFormerLeaseHolderCannotWrite(t *testing.T) {
	t.Parallel()
	first := open(t, shared)
	acquire(t, first)
	j := newJob(1)
	add(t, first, j)
	f := strings.Fields(lease(t, first))
	f[3] = "1" // ended in 1970
	shared.Do(t, "SET", first.keys.lease, strings.Join(f, " "))
	second := secondClient(t, first)
	acquire(t, second)
	if err := await(t, func(f func(error)) { first.Move(j, started(j), 0, 0, f) }); !errors.Is(err, ErrFenced) {
		t.Errorf("start by the first: %v", err)
	}
	awaitLost(t, first, ErrFenced)
	checkJobs(t, second, j)
	// An idle store notices the loss of its lease at the next renewal.
	shared.Do(t, "SET", first.keys.lease, strings.Join(f, " "))
	third := secondClient(t, first)
	acquire(t, third)
	awaitLost(t, second, ErrFenced)
	// A fenced master may come back once the lease is free.
	secondStore := standby(t, first)
	third.Resign(context.Background())
	secondStore.acquired(t)
	checkJobs(t, first, j)
}

// TestFencedMeanwhile: a master loses the answer to an enqueue and then its lease. Stored jobs are
// reported as stored, and other jobs as refused.
func TestFencedMeanwhile(t *testing.T) {
	for _, written := range []bool{true, false} {
		t.Run(fmt.Sprintf("written %t", written), func(t *testing.T) {
			otherStore := open(t, shared)
			gate := redistest.NewGate(t, shared.Addr())
			r := reopen(t, gate.URL(), otherStore.opt.Namespace)
			acquire(t, r)
			newLease := lease(t, r)
			hook := func(name string) {
				f := strings.Fields(newLease)
				f[1] = "another"
				switch {
				case name == "before enqueue" && written:
					gate.Mute()
				case name == "before enqueue" || name == "after enqueue":
					shared.Do(t, "SET", r.keys.lease, strings.Join(f, " "))
				}
			}
			point.Store(&hook)
			defer point.Store(nil)
			e := await(t, enqueueing(r, nil, newJob(1)))
			if written && e.err != nil || !written && !errors.Is(e.err, ErrFenced) {
				t.Errorf("enqueueing: %v", e.err)
			}
			if n := shared.Do(t, "ZCARD", r.keys.live); (n == int64(1)) != written {
				t.Errorf("%v jobs are there", n)
			}
		})
	}
}

// TestHolderGone: the lease of a process that has ended is taken over at once.
func TestHolderGone(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := selfHolder()
	p.PID = cmd.Process.Pid
	if p.Start, _ = process.StartTime(p.PID); p.Start == "" {
		t.Fatalf("process %d has no start", p.PID)
	}
	other := p
	other.Start += "0" // another process has this id now
	for name, c := range map[string]struct {
		p    leaseHolder
		gone bool
	}{
		"alive":         {p, false},
		"id used again": {other, true},
		"other host":    {leaseHolder{"elsewhere", process.Process{Boot: p.Boot, PIDNamespace: p.PIDNamespace, PID: 1, Start: "1"}}, false},
		"other boot":    {leaseHolder{p.host, process.Process{Boot: "another", PIDNamespace: p.PIDNamespace, PID: p.PID, Start: "1"}}, false},
		"other space":   {leaseHolder{p.host, process.Process{Boot: p.Boot, PIDNamespace: "pid:[1]", PID: p.PID, Start: "1"}}, false},
	} {
		if got := c.p.hasEnded(); got != c.gone {
			t.Errorf("%s: gone is %t", name, got)
		}
		if q, ok := holderOf("e n 1 2 " + c.p.String()); !ok || q != c.p {
			t.Errorf("%s: the lease names %v, %t", name, q, ok)
		}
	}
	first := open(t, shared)
	first.holder = p
	acquire(t, first)
	cmd.Process.Kill()
	deadline := time.Now().Add(waitLimit)
	for !p.hasEnded() { // a zombie counts as gone, so cmd.Wait is not needed
		if time.Now().After(deadline) {
			t.Fatal("the killed process does not count as gone")
		}
		time.Sleep(time.Millisecond)
	}
	second := secondClient(t, first)
	acquire(t, second)
	awaitLost(t, first, ErrFenced)
	cmd.Wait()
}

// TestReplacedStoreIsNoticed: the next write, or the next renewal, notices that a store was
// emptied, replaced or restored.
func TestReplacedStoreIsNoticed(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(t *testing.T, s *redistest.Server, r *Redis){
		"flushed":  func(t *testing.T, s *redistest.Server, _ *Redis) { s.Do(t, "FLUSHALL") },
		"no lease": func(t *testing.T, s *redistest.Server, r *Redis) { s.Do(t, "DEL", r.keys.lease) },
		"set back": func(t *testing.T, s *redistest.Server, r *Redis) { s.Do(t, "SET", r.keys.seq, 1) },
		"another store": func(t *testing.T, s *redistest.Server, r *Redis) {
			f := strings.Fields(s.Do(t, "GET", r.keys.lease).(string))
			f[0] = "00000000" + f[0][8:]
			s.Do(t, "SET", r.keys.lease, strings.Join(f, " "))
		},
	} {
		for _, write := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, write %t", name, write), func(t *testing.T) {
				t.Parallel()
				server := redistest.New(t)
				r := open(t, server)
				acquire(t, r)
				add(t, r, newJob(1), newJob(2))
				damage(t, server, r)
				if write {
					if e := await(t, enqueueing(r, nil, newJob(3))); !errors.Is(e.err, ErrLost) {
						t.Errorf("enqueueing: %v", e.err)
					}
				}
				awaitLost(t, r, ErrLost)
			})
		}
	}
}

func TestUnusableRedisIsRefused(t *testing.T) {
	server := redistest.New(t, "--maxmemory-policy", "allkeys-lru")
	r := open(t, server)
	err := r.Acquire(context.Background(), canServe, func(error) {})
	if err == nil || !strings.Contains(err.Error(), "maxmemory-policy is allkeys-lru") {
		t.Errorf("Acquire: %v", err)
	}
	server.Do(t, "CONFIG", "SET", "maxmemory-policy", "noeviction")
	acquire(t, r)
	if _, err := Open(Options{URL: "http://127.0.0.1"}); err == nil {
		t.Error("an address that is not Redis's is taken")
	}
}

// TestUnusableLater: an operator lets Redis evict jobs while masters run. No master exits. The
// active master accepts no more jobs, the standby waits, and both continue when Redis keeps all
// jobs again.
func TestUnusableLater(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	r := open(t, server)
	changes := make(chan error, 100)
	r.Watch(func(reason error) { changes <- reason })
	acquire(t, r)
	w := standby(t, secondClient(t, r))
	<-w.waitReasons
	server.Do(t, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	for active, standby := "", ""; active == "" || standby == ""; {
		reason := ""
		select {
		case err := <-changes:
			active = err.Error()
			reason = active
		case standby = <-w.waitReasons:
			reason = standby
		case err := <-w.acquireResult:
			t.Fatalf("the standby ended: %v", err)
		case <-time.After(waitLimit):
			t.Fatalf("the active master says %q, the standby %q", active, standby)
		}
		if !strings.Contains(reason, "maxmemory-policy is allkeys-lru") {
			t.Errorf("the reason is %q", reason)
		}
	}
	if e := await(t, enqueueing(r, nil, newJob(1))); !errors.Is(e.err, ErrAway) {
		t.Errorf("enqueueing: %v", e.err)
	}
	server.Do(t, "CONFIG", "SET", "maxmemory-policy", "noeviction")
	select {
	case reason := <-changes:
		if reason != nil {
			t.Errorf("it is back: %v", reason)
		}
	case <-time.After(waitLimit):
		t.Fatal("it does not come back")
	}
	add(t, r, newJob(1))
	if err := r.Resign(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.acquired(t)
}

// TestAcquireWaits: Acquire waits while no Redis listens.
func TestAcquireWaits(t *testing.T) {
	server := redistest.New(t)
	server.Stop()
	w := standby(t, open(t, server))
	<-w.waitReasons
	if err := server.Launch(); err != nil {
		t.Fatal(err)
	}
	w.acquired(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := secondClient(t, w.Redis).Acquire(ctx, canServe, func(error) {}); !errors.Is(err, context.Canceled) {
		t.Errorf("Acquire without time: %v", err)
	}
}

// TestLoadingRedisIsNotEmpty: a Redis that is still loading its append-only file is not mistaken
// for an empty Redis.
func TestLoadingRedisIsNotEmpty(t *testing.T) {
	t.Parallel()
	server := redistest.New(t, "--appendfsync", "always", "--key-load-delay", "500")
	server.Do(t, "EVAL", "for i = 1, 10000 do redis.call('SET', i, i) end return 1", 0)
	server.Stop()
	var log throwaway.Log
	r, err := Open(Options{URL: server.URL(), Namespace: "n", Log: zerolog.New(&log)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	launched := make(chan error, 1)
	go func() { launched <- server.Launch() }()
	for err := error(nil); err == nil || !strings.Contains(err.Error(), "LOADING"); {
		if err = r.client.Ping(t.Context()).Err(); err == nil {
			t.Fatal("it has loaded already")
		}
	}
	w := standby(t, r)
	w.acquired(t)
	if err := <-launched; err != nil {
		t.Fatal(err)
	}
	loading := false
	for len(w.waitReasons) > 0 {
		loading = strings.Contains(<-w.waitReasons, "LOADING") || loading
	}
	if !loading || strings.Contains(log.String(), "append-only") {
		t.Errorf("it was seen loading: %v\n%s", loading, log.String())
	}
}

// TestRenewalOfStrangeKey: a renewal that fails because a key has the wrong type has not renewed
// the lease. This must be tested, since a failed script's writes stay.
func TestRenewalOfStrangeKey(t *testing.T) {
	t.Parallel()
	r := open(t, shared)
	acquire(t, r)
	term := r.current()
	before, err := r.client.Get(t.Context(), r.keys.lease).Result()
	if err != nil {
		t.Fatal(err)
	}
	shared.Do(t, "SET", r.keys.idems, "no set")
	if err := r.holdLease(t.Context(), term, term.fence+1, leaseTerm); kindOf(err) != kindFaulty {
		t.Errorf("renewed: %v", err)
	}
	if after, err := r.client.Get(t.Context(), r.keys.lease).Result(); err != nil || after != before {
		t.Errorf("the lease was %q, and is %q, %v", before, after, err)
	}
}
