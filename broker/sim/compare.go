package sim

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"time"

	"gloom/broker"
)

var opNames = map[broker.Op]string{
	broker.OpOK: "ok", broker.OpJob: "job", broker.OpResult: "result", broker.OpProgress: "progress",
	broker.OpCancel: "cancel", broker.OpOverdue: "overdue", broker.OpFollow: "follow", broker.OpReturn: "return", broker.OpRefuse: "refuse", broker.OpEnd: "end", broker.OpClose: "close",
}

var codeNames = map[broker.Code]string{
	broker.IDExists: "id_exists", broker.UnknownID: "unknown_id", broker.NotProcessing: "not_processing",
	broker.Overloaded: "overloaded", broker.Draining: "draining", broker.JobFailed: "job_failed", broker.JobLost: "job_failed (lost)", broker.JobNoRetry: "job_failed (final)", broker.JobRetryLater: "job_failed (later)", broker.JobExpelled: "job_failed (expelled)",
	broker.Expired: "expired", broker.Cancelled: "cancelled", broker.TakenOver: "taken_over",
}

func (f *frame) String() string { return nonZero(*f)[1:] }

// unordered reports whether two neighbouring frames of one command may come in either order: if
// several jobs end together, the protocol does not define the order of their frames.
func (f *frame) unordered(g *frame, endTogether bool) bool {
	return f.op == g.op && f.peer == g.peer &&
		(f.op == broker.OpCancel || f.op == broker.OpEnd && (endTogether || f.code == g.code && (f.code == broker.Draining || f.code == broker.Expired)))
}

// sortFrames sorts frames by peer. The frames of a peer keep their order, except that unordered
// frames are sorted by id.
func sortFrames(fs []frame, endTogether bool) {
	slices.SortStableFunc(fs, func(a, b frame) int { return a.peer - b.peer })
	for i := range fs {
		for n := i; n > 0 && fs[n].unordered(&fs[n-1], endTogether) && fs[n].id < fs[n-1].id; n-- {
			fs[n], fs[n-1] = fs[n-1], fs[n]
		}
	}
}

func (f frame) equal(got frame) bool {
	if f.reason == "" {
		got.reason = ""
	}
	return reflect.DeepEqual(f, got)
}

func compareFrames(want, got []frame, endTogether bool) error {
	sortFrames(want, endTogether)
	sortFrames(got, endTogether)
	if slices.EqualFunc(want, got, frame.equal) {
		return nil
	}
	list := func(fs []frame) (s string) {
		for i := range fs {
			s += fmt.Sprintf("    %s\n", &fs[i])
		}
		return s
	}
	return fmt.Errorf("frames differ, by peer\n  expected:\n%s  got:\n%s", list(want), list(got))
}

// totals are figures of the whole core.
type totals struct {
	broker.Ledger
	jobs                                             uint64
	borrowed, outcomes, letters, submitters, workers int
	outcomeBytes, letterBytes                        int64
}

// compareLedgers compares the counters of each type and the totals.
func (r *runner) compareLedgers() error {
	o, b := r.oracle, r.driver.core
	var sum broker.Ledger
	unused := 0
	var survey broker.Survey
	for b.Survey(o.now, &survey) {
	}
	for _, name := range o.names {
		ot := o.types[name]
		info, _, known := b.Type([]byte(name))
		if !known {
			if o.used(name) || len(o.lettersOf(name)) > 0 {
				return fmt.Errorf("type %q is in use, and forgotten", name)
			}
			o.forgotten.Add(&ot.Ledger)
			ot.Ledger = broker.Ledger{}
			continue
		}
		if !o.used(name) && len(o.lettersOf(name)) == 0 {
			unused++
		}
		if l := info.Ledger; l.Submitted != l.Delayed+l.Queued+l.Running+l.Answered+l.Failed+l.Cancelled+l.Expired+l.Discarded {
			return fmt.Errorf("the ledger of type %q does not balance: %+v", name, l)
		}
		sum.Add(&info.Ledger)
		survey.Complete(&info)
		if err := cmp.Or(o.compareType(ot, info), r.compareLending(ot)); err != nil {
			return err
		}
	}
	sum.Add(&o.forgotten)
	want := totals{Ledger: sum, borrowed: len(o.borrowed), letters: len(o.letters), letterBytes: o.letterBytes(), submitters: o.connectedCount(submitters), workers: o.connectedCount(workers)}
	want.outcomes, want.outcomeBytes = total(o.jobs, func(j *oracleJob) bool { return j.state == ended })
	want.jobs = uint64(len(o.jobs) - want.outcomes)
	got := totals{Ledger: b.Totals(), jobs: b.JobCount(), borrowed: b.BorrowedRuns()}
	got.outcomes, got.outcomeBytes = b.Outcomes()
	got.letters, got.letterBytes = b.LetterCount()
	got.submitters, got.workers = b.Peers()
	if err := checkEqual("the whole", want, got); err != nil {
		return err
	}
	// Types whose jobs are not swept yet may still count as in use.
	if unused > o.cfg.MaxUnusedTypes && o.vanished == 0 {
		return fmt.Errorf("%d unused types are remembered, at most %d may be", unused, o.cfg.MaxUnusedTypes)
	}
	return nil
}

// compareType compares the readable facts about a type. It adopts one fact from the core and does
// not compare it: how many jobs groups hold back.
func (o *oracle) compareType(ot *oracleType, info broker.TypeInfo) error {
	want, owners := info, map[int]bool{0: true}
	want.OldestAge, want.Workers, want.IdleWorkers = 0, 0, 0
	_, want.Bytes = total(slices.Concat(o.jobs, o.borrowed), ofType(ot.name))
	for _, j := range o.jobs {
		if j.typ == ot.name {
			owners[j.owner] = true
			if j.state == queued {
				want.OldestAge = max(want.OldestAge, time.Duration(o.now-j.submittedAt))
			}
		}
	}
	for _, w := range o.peers {
		if w.kind == workers && w.joined && !w.left && w.serves(ot.name) {
			want.Workers++
			if w.free() {
				want.IdleWorkers++
			}
		}
	}
	want.Submitters, want.DeadLetters = len(owners)-1, len(o.lettersOf(ot.name))
	want.Name, want.Paused, want.Fair = []byte(ot.name), ot.paused, ot.fair
	want.Limits = broker.TypeLimits{Concurrency: ot.concurrency, Rate: ot.rate, Burst: ot.burst}
	want.Ledger = ot.Ledger
	want.Delayed, want.Queued, want.Running = uint64(o.countIn(delayed, ot.name)), uint64(o.countIn(queued, ot.name)), uint64(o.countIn(running, ot.name))
	return checkEqual("type "+ot.name, want, info)
}

// compareNext checks that the core asks for a tick in time, and not for a tick that it does not
// need. Any time in the past means at once.
func (r *runner) compareNext() error {
	want, got := max(r.oracle.next(), r.oracle.now), max(r.driver.core.NextTick(), r.oracle.now)
	if got > want {
		return fmt.Errorf("the next deadline is at %v, the core asks for %v", time.Duration(want), time.Duration(got))
	}
	if got < want && r.oracle.vanished == 0 && !r.paced {
		return fmt.Errorf("the next deadline is at %v, the core asks for %v already", time.Duration(want), time.Duration(got))
	}
	return nil
}
