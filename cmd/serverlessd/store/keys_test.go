package store_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"gloom/cmd/internal/unique"
	"gloom/cmd/serverlessd/job"
	. "gloom/cmd/serverlessd/store"
)

func addUnique(t *testing.T, s Store, req unique.Request, lines ...KeyedEntry) []UniqueResult {
	t.Helper()
	shared, err := s.AddUnique(t.Context(), lines, req, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	return shared
}

func keyedLine(jobtype, key string) KeyedEntry {
	return KeyedEntry{Entry: entry(jobtype, key), Key: key}
}

// TestUniqueKeysMatchModel compares the store with a model of the rules for unique keys, in random
// sequences of events.
func TestUniqueKeysMatchModel(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	eachStore(t, func(t *testing.T, s Store) {
		rng := rand.New(rand.NewPCG(seed, 1))
		type known struct {
			id     job.ID
			key    string
			period unique.Period
			state  string // the state of its job: waits, runs, ended or gone
			run    Run
		}
		var jobs []*known
		holder := map[string]*known{}
		isHolder := func(k *known) bool {
			switch {
			case k == nil || k.state == "gone":
				return false
			case k.period == unique.PeriodWindow: // of an hour
				return true
			case k.period == unique.PeriodWaiting:
				return k.state == "waits"
			}
			return k.state != "ended"
		}
		randomJob := func(state string) *known {
			var list []*known
			for _, k := range jobs {
				if k.state == state {
					list = append(list, k)
				}
			}
			if len(list) == 0 {
				return nil
			}
			return list[rng.IntN(len(list))]
		}
		for step := range 300 {
			switch rng.IntN(6) {
			case 0, 1:
				req := unique.Request{Period: unique.Period(rng.IntN(3)), Mode: unique.Mode(rng.IntN(3))}
				if req.Period == unique.PeriodWindow {
					req.Window = time.Hour
				}
				lines := make([]KeyedEntry, 1+rng.IntN(4))
				for i := range lines {
					lines[i] = keyedLine("c-t", fmt.Sprint("k\xff", rng.IntN(5)))
				}
				got := addUnique(t, s, req, lines...)
				seen := map[string]UniqueResult{}
				for i, l := range lines {
					h := holder[l.Key]
					want := UniqueResult{ID: l.ID}
					switch {
					case seen[l.Key].Outcome == unique.AnswerExtended:
						want = seen[l.Key]
					case seen[l.Key].ID != "":
						want = UniqueResult{ID: seen[l.Key].ID, Outcome: unique.AnswerKept}
					case isHolder(h) && h.state == "waits" && req.Mode == unique.ModeReplace:
						want.Outcome = unique.AnswerReplaced
						h.state = "gone"
					case isHolder(h) && h.state == "waits" && req.Mode == unique.ModeExtend:
						want = UniqueResult{ID: h.id, Outcome: unique.AnswerExtended}
					case isHolder(h):
						want = UniqueResult{ID: h.id, Outcome: unique.AnswerKept}
					}
					checkEqual(t, fmt.Sprintf("step %d, line %d, %v", step, i, req), got[i], want)
					seen[l.Key] = want
					if want.Made() {
						k := &known{id: l.ID, key: l.Key, period: req.Period, state: "waits"}
						jobs, holder[l.Key] = append(jobs, k), k
					}
				}
			case 2:
				for _, j := range take(t, s, testSysid, "c-t", 1+rng.IntN(3), testTTL) {
					for _, k := range jobs {
						if k.id == j.ID {
							k.state, k.run = "runs", j.Run
						}
					}
				}
			case 3:
				if k := randomJob("runs"); k != nil {
					e := RunEnd{Run: k.run, Action: EndArchive, Code: job.CodeOK, Status: 200}
					if k.state = "ended"; rng.IntN(2) == 0 {
						k.state, e.Action, e.Code, e.Status = "waits", EndRetry, job.CodeRetry, 100
					}
					checkEqual(t, "counted", end(t, s, testSysid, e), []bool{true})
				}
			case 4:
				if k := randomJob("waits"); k != nil {
					if err := s.Delete(t.Context(), k.id); err != nil {
						t.Fatal(err)
					}
					k.state = "gone"
				}
			case 5:
				if k := randomJob("ended"); k != nil {
					err := s.Retry(t.Context(), k.id)
					if h := holder[k.key]; h != k && isHolder(h) {
						checkError(t, err, ErrHeld)
						break
					}
					if err != nil {
						t.Fatal(err)
					}
					k.state, holder[k.key] = "waits", k
				}
			}
		}
		c, rest := counts(t, s, "c-t"), counts(t, s, "c-*") // the rest is from when the type had no job
		c.Add(&rest)
		states := map[string]int64{}
		for _, k := range jobs {
			states[k.state]++
		}
		checkEqual(t, "the ledger", fmt.Sprint(c.Added, c.Waiting, c.Running, c.OK, c.Deleted),
			fmt.Sprint(len(jobs), states["waits"], states["runs"], states["ended"], states["gone"]))
	})
}

// TestShareAtOnce: if many clients add lines with the same keys at the same time, through two
// daemons, one job is made for each key.
func TestShareAtOnce(t *testing.T) {
	forEachStore(t, func(t *testing.T, open func() Store) {
		stores := [2]Store{open(), open()}
		var mu sync.Mutex
		resultCounts := map[string]int{}
		var wg sync.WaitGroup
		for i := range 24 {
			var lines []KeyedEntry
			for n := range 5 {
				lines = append(lines, keyedLine("c-t", fmt.Sprint((n+i)%5)))
			}
			wg.Go(func() {
				got, err := stores[i%2].AddUnique(t.Context(), lines, unique.Request{}, time.Now)
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				for n, result := range got {
					if result.Made() {
						resultCounts[lines[n].Key]++
					}
				}
			})
		}
		wg.Wait()
		checkEqual(t, "jobs by key", resultCounts, map[string]int{"0": 1, "1": 1, "2": 1, "3": 1, "4": 1})
		checkEqual(t, "jobs", counts(t, stores[0], "c-t").Waiting, 5)
	})
}

// TestShareTimes: a job that replaces another takes its place in the queue. A line that extends a
// job delays it, but not beyond the limit, and never makes it due earlier.
func TestShareTimes(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
		old := keyedLine("c-t", "first")
		old.Accepted = time.Now().Add(-time.Hour)
		addUnique(t, s, unique.Request{}, old)
		addUnique(t, s, unique.Request{}, keyedLine("c-t", "second"))
		l := keyedLine("c-t", "first")
		checkEqual(t, "how", addUnique(t, s, unique.Request{Mode: unique.ModeReplace}, l)[0], UniqueResult{ID: l.ID, Outcome: unique.AnswerReplaced})
		checkEqual(t, "the line", payloads(take(t, s, testSysid, "c-t", 2, testTTL)), "first second")

		delayedEntry := func(delay time.Duration) KeyedEntry {
			l := keyedLine("c-t", "late")
			l.Due, l.Delay = time.Now().Add(delay), delay
			return l
		}
		id := addUnique(t, s, unique.Request{}, delayedEntry(time.Minute))[0].ID
		due := func() time.Duration { return time.Until(get(t, s, id).Due).Round(10 * time.Second) }
		for _, c := range []struct{ delay, limit, want time.Duration }{
			{time.Second, 0, time.Minute}, {time.Hour, 0, time.Hour}, {3 * time.Hour, 2 * time.Hour, 2 * time.Hour}, {0, 0, 2 * time.Hour},
		} {
			checkEqual(t, "how", addUnique(t, s, unique.Request{Mode: unique.ModeExtend, Max: c.limit}, delayedEntry(c.delay))[0], UniqueResult{ID: id, Outcome: unique.AnswerExtended})
			checkEqual(t, "due", due(), c.want)
		}
	})
}

// TestKeysExpire: a key is removed with its job, except a key with a window, which outlives its job
// and expires. A bulk retry skips jobs whose key another job has.
func TestKeysExpire(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store) {
		run := func(jobtype string) {
			t.Helper()
			for _, j := range take(t, s, testSysid, jobtype, 10, testTTL) {
				end(t, s, testSysid, RunEnd{Run: j.Run, Action: EndArchive, Code: job.CodeOK, Status: 200})
			}
		}
		window := unique.Request{Period: unique.PeriodWindow, Window: time.Hour}
		short := unique.Request{Period: unique.PeriodWindow, Window: time.Millisecond}
		heldID := addUnique(t, s, window, keyedLine("c-t", "hour"))[0].ID
		addUnique(t, s, short, keyedLine("c-t", "short"))
		addUnique(t, s, unique.Request{}, keyedLine("c-t", "live"))
		run("c-t")
		at := laxSweep
		at.KeepDone, at.TTL = -time.Hour, time.Minute
		time.Sleep(5 * time.Millisecond)
		checkEqual(t, "purged", sweep(t, s, at).Purged, 3)
		checkEqual(t, "of a job that is gone", addUnique(t, s, window, keyedLine("c-t", "hour"))[0], UniqueResult{ID: heldID, Outcome: unique.AnswerKept})
		for _, key := range []string{"short", "live"} {
			checkEqual(t, "how", addUnique(t, s, unique.Request{}, keyedLine("c-t", key))[0].Outcome, "")
		}
		run("c-t")
		results := addUnique(t, s, unique.Request{}, keyedLine("c-t", "live"), keyedLine("c-t", "free"))
		run("c-t")
		secondResults := addUnique(t, s, unique.Request{}, keyedLine("c-t", "live"))
		run("c-t")
		n, more, err := s.RetryAll(t.Context(), Query{Client: "c", Limit: 10})
		checkEqual(t, "retried, more, error", fmt.Sprint(n, more, err), "3 false <nil>")
		checkError(t, s.Retry(t.Context(), results[0].ID), ErrHeld)
		if err := s.Retry(t.Context(), results[0].ID); !strings.Contains(fmt.Sprint(err), string(secondResults[0].ID)) {
			t.Errorf("%v does not name %s", err, secondResults[0].ID)
		}
	})
}
