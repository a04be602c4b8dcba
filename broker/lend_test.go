package broker_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"gloom/broker"
	"gloom/broker/wording"
)

// summary describes effects in words, one description per frame.
func summary(fx []broker.Effect) string {
	names := map[broker.Op]string{
		broker.OpJob: "job", broker.OpResult: "result", broker.OpProgress: "progress",
		broker.OpCancel: "cancel", broker.OpEnd: "end", broker.OpReturn: "return", broker.OpRefuse: "refuse",
	}
	var out []string
	for _, e := range fx {
		if e.Op != broker.OpOK {
			out = append(out, fmt.Sprintf("%s:%s:%s", names[e.Op], e.ID, e.Body))
		}
	}
	return strings.Join(out, " ")
}

// TestEndsOfBorrowedRunsReachLender: however a borrowed run ends, its lender gets the right effect, and the
// borrower's ledger and dead letters do not count it.
func TestEndsOfBorrowedRunsReachLender(t *testing.T) {
	job := &broker.Submission{ID: []byte(`"a"`), Type: []byte(`"t"`), Body: []byte("1"), Retries: 1}
	for _, v := range []struct {
		name string
		// end ends the run; home checks the effect for the lender.
		end  func(b *broker.Broker, w broker.Peer) []broker.Effect
		home func(e *broker.Effect) bool
	}{
		{"answered", func(b *broker.Broker, w broker.Peer) []broker.Effect {
			return b.Respond(3, w, []byte(`"a"`), []byte("2"), false)
		}, func(e *broker.Effect) bool { return e.Op == broker.OpResult && string(e.Body) == "2" }},
		{"failed", func(b *broker.Broker, w broker.Peer) []broker.Effect {
			return b.Fail(3, w, &broker.Failure{ID: []byte(`"a"`), Reason: "no", Delay: -1})
		}, func(e *broker.Effect) bool {
			return e.Op == broker.OpEnd && e.Code == broker.JobFailed && e.Reason.Text == "no"
		}},
		{"for good", func(b *broker.Broker, w broker.Peer) []broker.Effect {
			return b.Fail(3, w, &broker.Failure{ID: []byte(`"a"`), NoRetry: true})
		}, func(e *broker.Effect) bool { return e.Op == broker.OpEnd && e.Code == broker.JobNoRetry }},
		{"garbage", func(b *broker.Broker, w broker.Peer) []broker.Effect { return b.ExpelPeer(3, w, "garbage") },
			func(e *broker.Effect) bool { return e.Op == broker.OpEnd && e.Code == broker.JobExpelled }},
		{"lost", func(b *broker.Broker, w broker.Peer) []broker.Effect { return b.RemovePeer(3, w) },
			func(e *broker.Effect) bool { return e.Op == broker.OpEnd && e.Code == broker.JobLost }},
		{"given back", func(b *broker.Broker, w broker.Peer) []broker.Effect {
			return b.Release(3, w, &broker.ReleaseRequest{ID: []byte(`"a"`), Delay: 5})
		}, func(e *broker.Effect) bool { return e.Op == broker.OpReturn && e.Delay == 5 }},
	} {
		t.Run(v.name, func(t *testing.T) {
			b := broker.New(broker.Config{MaxUnusedTypes: 10, DeadLetters: 10, DeadBytes: 1 << 20, DeadAge: 1 << 40})
			w := b.AddWorker()
			b.Join(1, w, &broker.JoinRequest{Type: []byte(`"t"`), Prefetch: 4})
			home := b.AddLender()
			var supplyList []broker.Supply
			b.Supply([]byte(`"t"`), func(uint32) int { return 10 }, func(s broker.Supply) bool {
				supplyList = append(supplyList, s)
				return true
			})
			if len(supplyList) != 1 || supplyList[0].Places != 4 {
				t.Errorf("%+v, want 4 places", supplyList)
			}
			fx, run, _ := b.Borrow(2, home, job)
			if run == 0 || summary(fx) != `job:"a":1` {
				t.Fatalf("run %d: %s", run, summary(fx))
			}
			if _, secondRun, why := b.Borrow(2, home, job); secondRun != 0 || why != broker.IDClash {
				t.Error("a worker has two jobs of one id")
			}
			if b.Totals() != (broker.Ledger{}) || b.BorrowedRuns() != 1 {
				t.Errorf("the ledger counts %+v, %d are borrowed", b.Totals(), b.BorrowedRuns())
			}
			fx = v.end(b, w)
			i := slices.IndexFunc(fx, func(e broker.Effect) bool { return e.Peer == home })
			if i < 0 || !v.home(&fx[i]) || fx[i].Run != run {
				t.Errorf("its lender is told %+v", fx)
			}
			if b.Totals() != (broker.Ledger{}) || b.BorrowedRuns() != 0 {
				t.Errorf("afterwards the ledger counts %+v, %d are borrowed", b.Totals(), b.BorrowedRuns())
			}
			if letters, _ := b.DeadLetters(3, []byte(`"t"`), 0, 10, nil); len(letters) != 0 {
				t.Error("a borrowed job is a dead letter")
			}
		})
	}
}

// TestLostLenderCannotChangeRun: a lender that is gone can no longer change the run that it leaves behind.
func TestLostLenderCannotChangeRun(t *testing.T) {
	b := broker.New(broker.Config{MaxUnusedTypes: 10})
	w := b.AddWorker()
	b.Join(1, w, &broker.JoinRequest{Type: []byte(`"t"`), WantsNotices: true})
	home := b.AddLender()
	_, run, _ := b.Borrow(2, home, &broker.Submission{ID: []byte(`"a"`), Type: []byte(`"t"`), Body: []byte("1")})
	if fx := b.RemovePeer(3, home); summary(fx) != `cancel:"a":` {
		t.Errorf("the worker is told %q", summary(fx))
	}
	if fx := b.MarkUnwanted(4, home, run, true); len(fx) > 0 {
		t.Errorf("after its lender is gone, a run that it no longer wants causes %q", summary(fx))
	}
	if runs, overdueRuns := b.RunCount(w); runs != 1 || overdueRuns != 0 {
		t.Errorf("%d runs are out, %d overdue", runs, overdueRuns)
	}
}

// TestBorrowerGetsOnlyAllottedJobs: a borrower gets jobs only while no other worker is idle, and no
// more than it was allotted.
func TestBorrowerGetsOnlyAllottedJobs(t *testing.T) {
	b := broker.New(broker.Config{MaxUnusedTypes: 10})
	s := b.AddSubmitter()
	p, _ := b.AddBorrower(1, []byte(`"t"`), "b")
	b.Allot(1, p, 2)
	w := b.AddWorker()
	b.Join(1, w, &broker.JoinRequest{Type: []byte(`"t"`)})
	for i, want := range []broker.Peer{w, p, p, 0} {
		fx := b.Submit(2, s, &broker.Submission{ID: fmt.Appendf(nil, "%d", i), Type: []byte(`"t"`), Body: []byte("1"), Retries: 5})
		var to broker.Peer
		for _, e := range fx {
			if e.Op == broker.OpJob {
				to = e.Peer
			}
		}
		if to != want {
			t.Errorf("job %d went to %x, want %x", i, to, want)
		}
	}
	if d := b.Demand([]byte(`"t"`)); d.Jobs != 1 {
		t.Errorf("demand %+v, want one job", d)
	}
	// When a borrower loses the run's worker, the job is handed out again.
	b.Allot(3, p, 1)
	if fx := b.Fail(3, p, &broker.Failure{ID: []byte("1"), WorkerLost: true, Delay: -1}); summary(fx) != "" {
		t.Errorf("with one place less: %s", summary(fx))
	}
	if fx := b.Release(3, p, &broker.ReleaseRequest{ID: []byte("2")}); summary(fx) != "job:1:1" {
		t.Errorf("a place is free: %s", summary(fx))
	}
	if info, _, _ := b.Type([]byte(`"t"`)); info.Workers != 1 || info.IdleWorkers != 0 {
		t.Errorf("%d workers, %d idle", info.Workers, info.IdleWorkers)
	}
	if fx := b.RemovePeer(4, p); summary(fx) != "" || b.Totals().Queued != 3 {
		t.Errorf("it is gone: %s, %+v", summary(fx), b.Totals())
	}
}

// TestExplainNamesBorrower: Explain and Runs name the borrower of a lent job, even after that is lost.
// Jobs that their home holds back are shown as held back, whether the type has workers or not.
func TestExplainNamesBorrower(t *testing.T) {
	b := broker.New(broker.Config{MaxUnusedTypes: 10})
	s, typ := b.AddSubmitter(), []byte(`"t"`)
	p, _ := b.AddBorrower(1, typ, "b")
	b.Allot(1, p, 3)
	for _, id := range []string{"0", "1", "2", "waits"} {
		b.Submit(1, s, &broker.Submission{ID: []byte(id), Type: typ, Body: []byte("1"), Retries: 5})
	}
	if x, _ := b.Explain(1, []byte("0")); x.Worker != p || x.Broker != "b" {
		t.Errorf("it runs at %d, %q, want %d, the broker b", x.Worker, x.Broker, p)
	}
	for _, v := range []struct {
		limits broker.TypeLimits
		paused bool
		want   string
	}{
		{broker.TypeLimits{}, false, "no worker has joined its type"},
		{broker.TypeLimits{Concurrency: 3}, false, "the limit of 3 running jobs of its type"},
		{broker.TypeLimits{Concurrency: 3}, true, "its type is paused"},
	} {
		if _, err := b.Limit(1, typ, v.limits); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Pause(1, typ, v.paused); err != nil {
			t.Fatal(err)
		}
		if x, _ := b.Explain(1, []byte("waits")); wording.WaitingFor(&x) != v.want {
			t.Errorf("%+v, paused %v: it waits for %q, want %q", v.limits, v.paused, wording.WaitingFor(&x), v.want)
		}
		if offered := b.Demand(typ).Jobs > 0; offered != (v.limits.Concurrency == 0) {
			t.Errorf("%+v, paused %v: it is offered: %v", v.limits, v.paused, offered)
		}
	}
	b.Fail(2, p, &broker.Failure{ID: []byte("0"), Reason: "no", Delay: int64(time.Hour)})
	b.RemovePeer(3, p)
	for id, want := range map[string]broker.RunInfo{
		"0": {Run: 1, Worker: p, Broker: "b", StartedAt: 1, EndedAt: 2, EndKind: broker.EndFailed, Reason: broker.Reason{Text: "no"}},
		"1": {Run: 1, Worker: p, Broker: "b", StartedAt: 1, EndedAt: 3, EndKind: broker.EndLost, Reason: broker.Reason{Why: broker.WhyWorkerLost, Have: 1}, BrokerLost: true},
	} {
		if runs := b.Runs([]byte(id)); len(runs) != 1 || runs[0] != want {
			t.Errorf("runs of %s: %+v, want %+v", id, runs, want)
		}
	}
}

// TestJobWithSharedIDDelaysNoOther: the only worker runs a borrowed job while a job with the same
// id waits. The waiting job delays no other job. The waiting job is handed out once the first job
// has ended or another worker has joined, even if the new worker is not the first in line.
func TestJobWithSharedIDDelaysNoOther(t *testing.T) {
	for i := range 4 {
		beside, types := i%2 > 0, [][]byte(nil)
		if i > 1 {
			types = [][]byte{[]byte(`"*"`)}
		}
		b := broker.New(broker.Config{MaxUnusedTypes: 10})
		w, s, home := b.AddWorker(), b.AddSubmitter(), b.AddLender()
		typ := []byte(`"t"`)
		b.Join(1, w, &broker.JoinRequest{Type: typ, Types: types, Prefetch: 10})
		b.IntroduceType(1, typ)
		if _, run, _ := b.Borrow(2, home, &broker.Submission{ID: []byte(`"same"`), Type: typ, Body: []byte("1")}); run == 0 {
			t.Fatal("nothing is borrowed")
		}
		if fx := b.Submit(3, s, &broker.Submission{ID: []byte(`"same"`), Type: typ, Body: []byte("2")}); summary(fx) != "" {
			t.Errorf("a worker gets two jobs of one id: %s", summary(fx))
		}
		if fx := b.Submit(3, s, &broker.Submission{ID: []byte(`"own"`), Type: typ, Body: []byte("3")}); summary(fx) != `job:"own":3` {
			t.Errorf("the next one: %s", summary(fx))
		}
		now := int64(3 + broker.ClashDelay)
		if fx := b.Tick(now); summary(fx) != "" {
			t.Errorf("a worker gets two jobs of one id: %s", summary(fx))
		}
		if beside {
			b.Join(now, b.AddWorker(), &broker.JoinRequest{Type: typ, Types: types, Prefetch: 1})
			now += int64(broker.ClashDelay)
			b.Tick(now) // meets the first worker again
		} else {
			b.Respond(now, w, []byte(`"same"`), []byte("4"), false)
		}
		if fx := b.Tick(now + int64(broker.ClashDelay)); summary(fx) != `job:"same":2` {
			t.Errorf("when the other one has ended, or another worker is there (%v): %s", beside, summary(fx))
		}
	}
}
