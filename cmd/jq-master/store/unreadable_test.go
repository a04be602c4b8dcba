package store

import (
	"testing"
	"time"

	"gloom/cmd/jq-master/job"
)

// TestUnreadableRecordIsIgnored: a record that cannot be read is counted and ignored, whatever it
// is, and all other records are read and can be used.
func TestUnreadableRecordIsIgnored(t *testing.T) {
	t.Parallel()
	type place struct {
		r     *Redis
		queue string // key of a waiting job
		done  string // key of an ended job
		id    string // of the first
	}
	do := func(words ...any) func(*testing.T, place) {
		return func(t *testing.T, p place) {
			args := []any{}
			for _, w := range words {
				if f, ok := w.(func(place) string); ok {
					w = f(p)
				}
				args = append(args, w)
			}
			shared.Do(t, args...)
		}
	}
	allChecks := func(checks ...func(*testing.T, place)) func(*testing.T, place) {
		return func(t *testing.T, p place) {
			for _, f := range checks {
				f(t, p)
			}
		}
	}
	queue := func(p place) string { return p.queue }
	done := func(p place) string { return p.done }
	key := func(f func(keys) string) func(place) string { return func(p place) string { return f(p.r.keys) } }
	live := key(func(k keys) string { return k.live })
	endedKey := key(func(k keys) string { return k.ended })
	results := key(func(k keys) string { return k.results })
	workers := key(func(k keys) string { return k.workers })
	constraints := key(func(k keys) string { return k.constraints })
	seq := key(func(k keys) string { return k.seq })
	epoch := key(func(k keys) string { return k.epoch })
	leaseKey := key(func(k keys) string { return k.lease })
	idem := key(func(k keys) string { return k.idempotency("k") })
	id := func(p place) string { return p.id }
	for name, wreck := range map[string]func(*testing.T, place){
		"a job that is a string":          allChecks(do("DEL", queue), do("SET", queue, "x")),
		"a job without a hash":            do("DEL", queue),
		"a job without a name":            do("HDEL", queue, "name"),
		"a job without an argument":       do("HDEL", queue, "argument"),
		"an argument cut short":           do("HSET", queue, "argument", "\x81\xa1"),
		"an argument that is not a map":   do("HSET", queue, "argument", "\x01"),
		"a state that there is not":       do("HSET", queue, "state", "lost"),
		"a job that waits and has ended":  do("HSET", queue, "state", "done"),
		"a priority that is not a number": do("HSET", queue, "priority", "high"),
		"a number that is too large":      do("HSET", queue, "timeout", "99999999999"),
		"a timeout below 0":               do("HSET", queue, "timeout", "-1"),
		"attempts cut short":              do("HSET", queue, "attempts", "[{"),
		"a worker's id that is none":      do("HSET", queue, "worker", "me"),
		"a seq of another":                do("HSET", queue, "seq", "7777"),
		"a live id that is none":          do("ZADD", live, "1", "x"),
		"live is a string":                allChecks(do("DEL", live), do("SET", live, "x")),
		"ended is a list":                 allChecks(do("DEL", endedKey), do("RPUSH", endedKey, "x")),
		"results is a string":             allChecks(do("DEL", results), do("SET", results, "x")),
		"an ended job that is a list":     allChecks(do("DEL", done), do("RPUSH", done, "x")),
		"a result cut short":              do("HSET", done, "result", "\xc4\x09"),
		"an ended id without a hash":      do("DEL", done),
		"a worker that is not JSON":       do("HSET", workers, "w", "{"),
		"a worker of another id":          do("HSET", workers, id, "{}"),
		"workers is a string":             allChecks(do("DEL", workers), do("SET", workers, "x")),
		"a constraint that is not JSON":   do("HSET", constraints, "c", "\xff"),
		"a constraint without a match":    do("HSET", constraints, "c", `{"id":"c","enabled":true}`),
		"constraints is a list":           allChecks(do("DEL", constraints), do("RPUSH", constraints, "x")),
		"seq is not a number":             do("SET", seq, "many"),
		"seq is a list":                   allChecks(do("DEL", seq), do("RPUSH", seq, "x")),
		"epoch is a list":                 allChecks(do("DEL", epoch), do("RPUSH", epoch, "x")),
		"the lease is a list":             allChecks(do("DEL", leaseKey), do("RPUSH", leaseKey, "x")),
		"the lease is garbage":            do("SET", leaseKey, "mine"),
		"the lease never ends":            do("SET", leaseKey, "a b 1 99999999999999 x"),
		"a key that stands for nothing":   do("SET", idem, "x"),
		"a key that is a list":            do("RPUSH", idem, "x"),
	} {
		t.Run(name, func(t *testing.T) {
			first := open(t, shared)
			acquire(t, first)
			a, b, c, d := newJob(1), newJob(2), newJob(3), newJob(4)
			add(t, first, a, b, c, d)
			for _, j := range []*job.Job{c, d} {
				s := moveTo(t, first, j, started(j), 0, 0)
				*j = *moveTo(t, first, s, ended(s, job.Done), 70, 40)
			}
			w := &job.Worker{ID: job.NewID(), Name: "w", MaxJobs: 1, Names: []string{"*"}}
			k := &job.Constraint{ID: "k", Match: []byte{0x80}, Rate: 1, Burst: 1, Concurrency: -1}
			mustCall(t, func(f func(error)) { first.PutWorker(w.ID, w, f) })
			mustCall(t, func(f func(error)) { first.PutConstraint(k.ID, k, f) })
			if err := first.Resign(t.Context()); err != nil {
				t.Fatal(err)
			}
			wreck(t, place{first, first.keys.job(a.ID), first.keys.job(c.ID), a.ID.String()})
			r := secondClient(t, first)
			acquire(t, r)
			got := load(t, r)
			if got.Jobs[b.ID].Name == "" && name != "live is a string" || got.Jobs[d.ID].Name == "" && name != "ended is a list" {
				t.Errorf("others are not read: %v", got.Jobs)
			}
			if (len(got.Workers) != 1) != (name == "workers is a string") || (len(got.Constraints) != 1) != (name == "constraints is a list") {
				t.Errorf("workers %v, constraints %v", got.Workers, got.Constraints)
			}
			// Everything else works.
			n := newJob(9)
			if e := await(t, enqueueing(r, &Key{Name: "k", TTL: time.Hour}, n)); e.err != nil || e.replayed {
				t.Fatalf("%+v", e)
			}
			n = moveTo(t, r, n, started(n), 0, 0)
			moveTo(t, r, n, ended(n, job.Done), 70, 40)
			mustCall(t, func(f func(error)) { r.PutWorker(w.ID, w, f) })
			mustCall(t, func(f func(error)) { r.PutConstraint(k.ID, k, f) })
			if found := metric(t, r, "gloom_jq_unreadable"); found != 1 && name != "the lease never ends" {
				t.Errorf("%v records are counted", found)
			}
		})
	}
}

// TestMoveDuringLoad: a job whose move has failed midway, and was never repeated, is in two sets. The
// reload reads it once, in its real state, and removes it from the other set.
func TestMoveDuringLoad(t *testing.T) {
	t.Parallel()
	first := open(t, shared)
	acquire(t, first)
	liveJob, done := newJob(1), newJob(2)
	add(t, first, liveJob, done)
	s := moveTo(t, first, done, started(done), 0, 0)
	done = moveTo(t, first, s, ended(s, job.Done), 70, 40)
	if err := first.Resign(t.Context()); err != nil {
		t.Fatal(err)
	}
	shared.Do(t, "ZADD", first.keys.live, done.Seq, done.ID.String())
	shared.Do(t, "ZADD", first.keys.ended, 70, liveJob.ID.String())
	r := secondClient(t, first)
	acquire(t, r)
	got := load(t, r)
	if len(got.Live) != 1 || got.Live[0] != liveJob.ID || len(got.Ended) != 1 || got.Ended[0] != done.ID || got.Forget[done.ID] != 70 || got.Drop[done.ID] != 40 {
		t.Errorf("live %v, ended %v", got.Live, got.Ended)
	}
	add(t, r, newJob(3)) // after the moves
	for set, n := range map[string]int64{r.keys.live: 2, r.keys.ended: 1} {
		if found, err := r.client.ZCard(t.Context(), set).Result(); err != nil || found != n {
			t.Errorf("%s has %d members, want %d: %v", set, found, n, err)
		}
	}
	if n := metric(t, r, "gloom_jq_unreadable"); n != 0 {
		t.Errorf("%v records are counted as unreadable", n)
	}
}
