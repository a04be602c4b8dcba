package fleet_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"gloom/broker"
)

// TestBorrowersRateLimitsBorrowing: a borrower's own rate for a type limits the jobs that it
// borrows, and no lent job is returned because of this rate.
func TestBorrowersRateLimitsBorrowing(t *testing.T) {
	for _, limits := range []broker.TypeLimits{{Rate: 50}, {Rate: 50, Burst: 20}, {Rate: 2000}, {Concurrency: 3}, {Concurrency: 7, Rate: 100, Burst: 1}} {
		t.Run(fmt.Sprintf("%+v", limits), func(t *testing.T) {
			const jobs = 100
			w := newTwins(time.Millisecond)
			w.join(&broker.JoinRequest{Type: []byte(`"t"`), Prefetch: 50})
			effects, err := w.cores[1].Configure(w.now, limitOf(`"t"`, limits))
			if err != nil {
				t.Fatal(err)
			}
			w.applyEffects(1, effects)
			for i := range jobs {
				w.submit(fmt.Sprint(i), `"t"`, []byte("1"))
			}
			start := w.now
			w.answerJobs(t, jobs)
			if st := w.machines[0].Info().Stats; st.ReturnedJobs != 0 || st.TotalLent != jobs {
				t.Errorf("%d jobs were lent %d times, %d came back without a run", jobs, st.TotalLent, st.ReturnedJobs)
			}
			if elapsed := float64(w.now-start) / 1e9; limits.Rate > 0 && (elapsed < 0.7*jobs/limits.Rate-0.1 || elapsed > 2*jobs/limits.Rate+0.5) {
				t.Errorf("it took %.3f s", elapsed)
			}
		})
	}
}

func limitOf(typ string, l broker.TypeLimits) *broker.Settings {
	return &broker.Settings{Types: []broker.TypeSetting{{Name: []byte(typ), Limits: &l}}}
}

func pauseOf(typ string, paused bool) *broker.Settings {
	return &broker.Settings{Types: []broker.TypeSetting{{Name: []byte(typ), Paused: &paused}}}
}

// TestBorrowerAtLimitRarelyTries: a borrower that has reached a limit on bytes rarely tries to borrow, and these
// attempts are not counted as runs.
func TestBorrowerAtLimitRarelyTries(t *testing.T) {
	const jobs = 60
	w := newTwinsApart(time.Millisecond, 0, broker.Config{MaxUnusedTypes: 10, MaxTypeBytes: 8 << 20})
	body := fmt.Appendf(nil, `"%0*d"`, 100<<10, 0)
	for i := range jobs {
		w.submit(fmt.Sprint(i), `"t"`, body)
	}
	p := w.cores[1].AddSubmitter()
	w.applyEffects(1, w.cores[1].Submit(w.now, p, &broker.Submission{ID: []byte("own"), Type: []byte(`"t"`), Body: bytes.Repeat([]byte("1"), 8<<20-50<<10), Delay: time.Hour}))
	w.join(&broker.JoinRequest{Type: []byte(`"t"`), Prefetch: 20})
	w.letPass(10 * time.Second)
	if st := w.machines[0].Info().Stats; st.ReturnedJobs < 50 || st.ReturnedJobs > 150 || len(w.assignments) != 0 {
		t.Errorf("no job could run for ten seconds, but %d ran and %d came back", len(w.assignments), st.ReturnedJobs)
	}
	if k, _, _ := w.cores[0].Type([]byte(`"t"`)); k.Releases != 0 || k.Requeued != 0 {
		t.Errorf("of the jobs that came back without a run, %d count as given back, %d as handed out again", k.Releases, k.Requeued)
	}
	w.applyEffects(1, w.cores[1].RemovePeer(w.now, p))
	w.answerJobs(t, jobs)
}

// TestRefusedJobDelaysNoOther: a job for which a borrower has not enough bytes, now or ever, is rarely sent to it,
// and the jobs behind it are lent meanwhile.
func TestRefusedJobDelaysNoOther(t *testing.T) {
	for name, cfg := range map[string]broker.Config{
		"now":  {MaxUnusedTypes: 10, MaxTypeBytes: 4 << 20},
		"ever": {MaxUnusedTypes: 10, MaxSubmitterBytes: 1 << 20}, // at home, it does not hold for detached jobs
	} {
		t.Run(name, func(t *testing.T) {
			const jobs = 500
			w := newTwinsApart(time.Millisecond, 0, cfg)
			submit := func(i int, p broker.Peer, size int, delay time.Duration) {
				w.applyEffects(i, w.cores[i].Submit(w.now, p, &broker.Submission{ID: []byte("large"), Type: []byte(`"t"`), Body: bytes.Repeat([]byte("1"), size), Detach: true, Delay: delay}))
			}
			submit(1, w.cores[1].AddSubmitter(), 5<<19, time.Hour)
			submit(0, w.submitter, 2<<20, 0)
			for i := range jobs {
				w.submit(fmt.Sprint(i), `"t"`, []byte("1"))
			}
			start := w.now
			w.join(&broker.JoinRequest{Type: []byte(`"t"`), Prefetch: 1})
			w.answerJobs(t, jobs)
			if elapsed := time.Duration(w.now - start); elapsed > 10*time.Second {
				t.Errorf("%d jobs behind the large one took %v", jobs, elapsed)
			}
			before := w.machines[0].Info().Stats.ReturnedJobs
			w.letPass(10 * time.Second)
			if n := w.machines[0].Info().Stats.ReturnedJobs - before; n < 5 || n > 15 {
				t.Errorf("the large job was sent %d times in ten seconds", n)
			}
		})
	}
}

// TestHomeRulesApplyToGroups: the rules of a job's home apply to its groups.
func TestHomeRulesApplyToGroups(t *testing.T) {
	w := newTwins(time.Millisecond)
	w.join(&broker.JoinRequest{Type: []byte(`"t"`), Prefetch: 10})
	for i, n := range []int64{3, 0} { // the borrower's own rule holds all of its jobs back
		effects, err := w.cores[i].Configure(w.now, &broker.Settings{Rules: []broker.RuleInfo{{Pattern: []byte(`"g"`), Rule: broker.Rule{Concurrency: n}}}})
		if err != nil {
			t.Fatal(err)
		}
		w.applyEffects(i, effects)
	}
	for i := range 10 {
		w.applyEffects(0, w.cores[0].Submit(w.now, w.submitter, &broker.Submission{
			ID: fmt.Append(nil, i), Type: []byte(`"t"`), Body: []byte("1"), Groups: [][]byte{[]byte(`"g"`)},
		}))
	}
	w.letPass(time.Second)
	if len(w.assignments) != 3 {
		t.Errorf("%d of a group run that may run 3", len(w.assignments))
	}
	w.answerJobs(t, 10)
	if st := w.machines[0].Info().Stats; st.TotalLent != 10 || st.ReturnedJobs != 0 {
		t.Errorf("%+v", st)
	}
}

// TestJobsAreLentWhenHomeGroupOpens: jobs that a group held back are lent when the group opens,
// even if their home has no workers and no broker has lately asked the home for jobs.
func TestJobsAreLentWhenHomeGroupOpens(t *testing.T) {
	group := []byte(`"g"`)
	for _, end := range []string{"the rule is dropped", "the job has ended", "the rate has room"} {
		t.Run(end, func(t *testing.T) {
			w := newTwins(time.Millisecond)
			w.join(&broker.JoinRequest{Type: []byte(`"t"`), Prefetch: 1})
			w.join(&broker.JoinRequest{Type: []byte(`"u"`), Prefetch: 1})
			configure := func(s *broker.Settings) {
				effects, err := w.cores[0].Configure(w.now, s)
				if err != nil {
					t.Fatal(err)
				}
				w.applyEffects(0, effects)
			}
			rule := broker.Rule{Concurrency: 1}
			if end == "the rate has room" {
				rule = broker.Rule{Concurrency: -1, Rate: 0.01}
			}
			configure(&broker.Settings{Rules: []broker.RuleInfo{{Pattern: group, Rule: rule}}})
			for i := range 6 {
				w.applyEffects(0, w.cores[0].Submit(w.now, w.submitter, &broker.Submission{
					ID: fmt.Append(nil, i), Type: []byte{'"', "tu"[i%2], '"'}, Body: []byte("1"), Groups: [][]byte{group},
				}))
			}
			w.letPass(time.Minute)
			if len(w.assignments) != 1 {
				t.Fatalf("%d of a group run that may run 1", len(w.assignments))
			}
			switch end {
			case "the rate has room":
				w.letPass(50 * time.Second)
				if len(w.assignments) != 2 {
					t.Errorf("%d jobs run, want 2", len(w.assignments))
				}
				configure(&broker.Settings{Drop: [][]byte{group}})
			case "the rule is dropped":
				configure(&broker.Settings{Drop: [][]byte{group}})
				w.letPass(time.Second)
				if len(w.assignments) != 2 {
					t.Errorf("%d jobs run, want 2", len(w.assignments))
				}
			}
			w.answerJobs(t, 6)
		})
	}
}

// TestWorkerOfManyTypesTakesBestFirst: a worker of many types runs jobs of any of them one after the other, the best
// first. If many types have workers of their own, every one of the types is wanted.
func TestWorkerOfManyTypesTakesBestFirst(t *testing.T) {
	joining := &broker.JoinRequest{Types: [][]byte{[]byte(`"*"`)}, Prefetch: 1}
	t.Run("one job each", func(t *testing.T) {
		w := newTwinsApart(time.Millisecond, 0, broker.Config{MaxUnusedTypes: 2000})
		w.join(joining)
		for i := range 1000 {
			w.submit(fmt.Sprint(i), fmt.Sprintf(`"t%d"`, i), []byte("1"))
		}
		start := w.now
		w.answerJobs(t, 1000)
		if elapsed := time.Duration(w.now - start); elapsed > 40*time.Second {
			t.Errorf("it took %v", elapsed)
		}
	})
	t.Run("one is better", func(t *testing.T) {
		w := newTwins(time.Millisecond)
		w.join(joining)
		for i := range 1000 {
			w.submit(fmt.Sprint(i), `"many"`, []byte("1"))
		}
		w.answerJobs(t, 200) // the worker has worked for a second
		w.applyEffects(0, w.cores[0].Submit(w.now, w.submitter, &broker.Submission{ID: []byte("x"), Type: []byte(`"one"`), Body: []byte("1"), Priority: 1}))
		for n := w.answers; !slices.ContainsFunc(w.assignments, func(j assignment) bool { return string(j.id) == "x" }); w.letPass(5 * time.Millisecond) {
			if w.answers > n+40 {
				t.Fatal("it waits for jobs of another type that are worse")
			}
			jobs := w.assignments
			w.assignments = nil
			for _, j := range jobs {
				w.respond(j.to, j.id, []byte("1"))
			}
		}
	})
	t.Run("a worker each", func(t *testing.T) {
		w := newTwins(time.Millisecond)
		for i := range 3000 {
			w.join(&broker.JoinRequest{Type: fmt.Appendf(nil, `"t%d"`, i), Prefetch: 1})
		}
		w.letPass(3 * time.Second)
		for i := range 11_000 {
			w.submit(fmt.Sprint("none", i), fmt.Sprintf(`"none%d"`, i), []byte("1"))
		}
		for i := range 3000 {
			w.submit(fmt.Sprint(i), fmt.Sprintf(`"t%d"`, i), []byte("1"))
		}
		w.answerJobs(t, 3000)
	})
}

// TestRemainingSetsAreWantedLater: if workers have more sets of types than may be wanted at a time, the remaining
// sets are wanted once workers of others leave.
func TestRemainingSetsAreWantedLater(t *testing.T) {
	const sets = 1024
	w := newTwins(time.Millisecond)
	of := func(i int) *broker.JoinRequest {
		return &broker.JoinRequest{Types: [][]byte{fmt.Appendf(nil, `"a%d"`, i), fmt.Appendf(nil, `"b%d"`, i)}, Prefetch: 1}
	}
	var workers []broker.Peer
	for i := range sets + 1 {
		workers = append(workers, w.join(of(i)))
	}
	w.letPass(5 * time.Second)
	for _, p := range workers[:sets] {
		w.applyEffects(1, w.cores[1].RemovePeer(w.now, p))
	}
	w.submit("x", fmt.Sprintf(`"a%d"`, sets), []byte("1"))
	w.answerJobs(t, 1)
}

// TestLateGrantAddsNoType: a grant that arrives after the type's last job has ended does not give a home
// more types than it may have.
func TestLateGrantAddsNoType(t *testing.T) {
	w := newTwinsApart(5*time.Millisecond, 0, broker.Config{MaxUnusedTypes: 10, MaxTypes: 2})
	w.join(&broker.JoinRequest{Type: []byte(`"t"`), Prefetch: 1})
	w.letPass(3 * time.Second)
	w.submit("1", `"t"`, []byte("1"))
	w.letPass(3 * time.Millisecond) // the offer is on its way
	w.applyEffects(0, w.cores[0].Cancel(w.now, w.submitter, []byte("1")))
	w.submit("2", `"u"`, []byte("1"))
	w.submit("3", `"v"`, []byte("1"))
	w.letPass(100 * time.Millisecond)
	if n := w.cores[0].TypesInUse(); n != 2 {
		t.Errorf("%d types are in use, want 2", n)
	}
}
