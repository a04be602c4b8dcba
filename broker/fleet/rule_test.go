package fleet_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"gloom/broker"
)

// reportProgress makes a worker at the borrower report progress.
func (tw *twins) reportProgress(p broker.Peer, id []byte, body []byte) {
	tw.applyEffects(1, tw.cores[1].Progress(tw.now, p, id, body, false))
}

// submitLent submits jobs and waits until workers have them.
func (tw *twins) submitLent(t *testing.T, jobs ...*broker.Submission) {
	t.Helper()
	for _, s := range jobs {
		tw.applyEffects(0, tw.cores[0].Submit(tw.now, tw.submitter, s))
	}
	if tw.letPass(100 * time.Millisecond); len(tw.assignments) != len(jobs) {
		t.Fatalf("%d of %d jobs run", len(tw.assignments), len(jobs))
	}
}

// TestUnreadProgressIsSampled: if a home reads nothing for a while, the borrower needs little memory
// and loses no run, however much its workers report; afterwards the latest progress of each run
// arrives.
func TestUnreadProgressIsSampled(t *testing.T) {
	const runs, reports = 5, 120
	w := newTwins(0)
	w.join(&broker.JoinRequest{Type: []byte(`"t"`), Prefetch: runs})
	var jobs []*broker.Submission
	for i := range runs {
		jobs = append(jobs, &broker.Submission{ID: fmt.Append(nil, i), Type: []byte(`"t"`), Body: []byte("1"), Progress: true})
	}
	w.submitLent(t, jobs...)
	w.unreachable[0] = true
	for i := range reports {
		for _, j := range w.assignments {
			w.reportProgress(j.to, j.id, fmt.Appendf(nil, "%0*d", 1<<20, i))
		}
		w.letPass(5 * time.Millisecond)
		if n := w.machines[1].Memory(); n > 12<<20 {
			t.Fatalf("after %d reports of 1 MiB by each of %d runs, %d MiB are held for their home", i+1, runs, n>>20)
		}
	}
	w.unreachable[0] = false
	w.letPass(2 * time.Second)
	for _, j := range w.assignments {
		if lastReport := w.progress[string(j.id)]; !bytes.HasSuffix(lastReport, fmt.Append(nil, reports-1)) {
			t.Errorf("of job %s the last progress is not told, of %d bytes", j.id, len(lastReport))
		}
	}
	w.answerJobs(t, runs)
	for i, m := range w.machines {
		if st := m.Info().Stats; st.LostJobs != 0 || st.LateResults != 0 {
			t.Errorf("broker %d: %+v", i, st)
		}
	}
}

// TestUnrequestedProgressIsNotSent: progress is sent home only once it has been requested.
func TestUnrequestedProgressIsNotSent(t *testing.T) {
	w := newTwins(0)
	w.join(&broker.JoinRequest{Type: []byte(`"t"`), Prefetch: 1})
	w.submitLent(t, &broker.Submission{ID: []byte("1"), Type: []byte(`"t"`), Body: []byte("1"), Keep: time.Hour})
	for _, follow := range []bool{false, true, false} {
		w.applyEffects(0, w.cores[0].Attach(w.now, w.submitter, []byte("1"), follow, 1<<20))
		w.letPass(10 * time.Millisecond)
		w.progress = map[string][]byte{}
		before := w.machines[1].Info().Stats.Items
		w.reportProgress(w.assignments[0].to, w.assignments[0].id, []byte("2"))
		w.letPass(10 * time.Millisecond)
		if n := w.machines[1].Info().Stats.Items - before; (n > 0) != follow || (w.progress["1"] != nil) != follow {
			t.Errorf("progress is asked for: %v; %d items were sent, %q told", follow, n, w.progress["1"])
		}
	}
	w.answerJobs(t, 1)
}

// TestWorkerOverdueAtHomeGetsNoJob: a worker whose run is overdue at home gets no further job at
// the borrower before it has answered, even if it has room for more jobs.
func TestWorkerOverdueAtHomeGetsNoJob(t *testing.T) {
	for _, cancelled := range []bool{false, true} {
		w := newTwins(time.Millisecond)
		w.join(&broker.JoinRequest{Type: []byte(`"t"`), Prefetch: 10})
		w.submitLent(t, &broker.Submission{ID: []byte("1"), Type: []byte(`"t"`), Body: []byte("1"), Timeout: time.Second})
		if cancelled {
			w.applyEffects(0, w.cores[0].Cancel(w.now, w.submitter, []byte("1")))
		}
		w.letPass(2 * time.Second)
		stalledRun := w.assignments[0]
		w.assignments = nil
		w.submit("2", `"t"`, []byte("1"))
		p := w.cores[1].AddSubmitter() // submits a job of the borrower's own
		w.applyEffects(1, w.cores[1].Submit(w.now, p, &broker.Submission{ID: []byte("own"), Type: []byte(`"t"`), Body: []byte("1")}))
		w.letPass(10 * time.Second)
		if len(w.assignments) != 0 {
			t.Errorf("it has a run that is overdue at home (cancelled: %v), and is given %s", cancelled, w.assignments[0].id)
		}
		w.respond(stalledRun.to, stalledRun.id, []byte("1"))
		w.letPass(time.Second)
		if len(w.assignments) != 2 {
			t.Errorf("it has answered, and is given %d jobs, want 2", len(w.assignments))
		}
		w.answerJobs(t, 2)
		if st := w.machines[0].Info().Stats; st.Lent != 0 || w.cores[0].JobCount() != 0 || w.cores[1].Totals().Overdue != 0 {
			t.Errorf("%+v, %+v", st, w.cores[1].Totals())
		}
	}
}

// TestStreamBytesAreBounded: the bytes that all streams hold are bounded; beyond the bound, the largest stream
// restarts.
func TestStreamBytesAreBounded(t *testing.T) {
	const runs = 32
	w := newTwins(0)
	w.join(&broker.JoinRequest{Type: []byte(`"t"`), Prefetch: runs})
	var jobs []*broker.Submission
	for i := range runs {
		jobs = append(jobs, &broker.Submission{ID: fmt.Append(nil, i), Type: []byte(`"t"`), Body: []byte("1"), Retries: 3})
	}
	w.submitLent(t, jobs...)
	w.unreachable[0] = true
	for _, j := range w.assignments {
		w.respond(j.to, j.id, make([]byte, 1<<20))
		w.letPass(time.Millisecond)
		if n := w.machines[1].Memory(); n > 17<<20 {
			t.Fatalf("%d MiB are held, 16 may be", n>>20)
		}
	}
	w.unreachable[0], w.assignments, w.answers = false, nil, 0
	w.letPass(3 * time.Second)
	w.answerJobs(t, runs)
}

// BenchmarkManyWaitingTypes measures a tick of a home that has a waiting job of each of many types.
func BenchmarkManyWaitingTypes(b *testing.B) {
	for _, lines := range []int{100, 10_000} {
		b.Run(fmt.Sprint(lines), func(b *testing.B) {
			w := newTwinsApart(0, 0, broker.Config{MaxUnusedTypes: 20_000})
			for i := range lines {
				w.join(&broker.JoinRequest{Type: fmt.Appendf(nil, `"t%d"`, i), Prefetch: 1})
			}
			w.letPass(3 * time.Second)
			for i := range lines {
				w.submit(fmt.Sprint(i), fmt.Sprintf(`"t%d"`, i), []byte("1"))
			}
			w.letPass(time.Second)
			for b.Loop() {
				w.machines[0].Tick(w.now)
				w.now += int64(100 * time.Millisecond)
				w.machines[0].Messages(nil)
			}
		})
	}
}

// TestDyingProcessAtBorrowerUsesOneRun: a process whose connections close one after the other costs
// a lent job one run, as it costs a job of the broker itself.
func TestDyingProcessAtBorrowerUsesOneRun(t *testing.T) {
	w := newTwins(time.Millisecond)
	var connections []broker.Peer
	for range 5 {
		connections = append(connections, w.join(&broker.JoinRequest{Type: []byte(`"t"`)}))
	}
	w.submitLent(t, &broker.Submission{ID: []byte("1"), Type: []byte(`"t"`), Body: []byte("1"), Retries: 3})
	w.assignments = nil
	for _, p := range connections {
		w.applyEffects(1, w.cores[1].RemovePeer(w.now, p))
		w.letPass(10 * time.Millisecond)
	}
	w.join(&broker.JoinRequest{Type: []byte(`"t"`)})
	w.answerJobs(t, 1)
}
