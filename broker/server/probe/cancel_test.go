package probe

import (
	"fmt"
	"sync"
	"testing"
)

func TestCancelInEveryState(t *testing.T) {
	t.Parallel()
	b := shared(t)
	t.Run("queued", func(t *testing.T) {
		t.Parallel()
		typ := freshName("cancel")
		s := b.submitter(t)
		id, next := s.submitFresh(typ, `1`), s.submitFresh(typ, `2`)
		s.cancel(id)
		s.submit(id, typ, `"again"`) // the id is free at once; the new job is the last in line
		if got := drainOrder(t, b, typ, 2); fmt.Sprint(got) != fmt.Sprint([]string{next, id}) {
			t.Errorf("order %v", got)
		}
	})
	t.Run("delayed", func(t *testing.T) {
		t.Parallel()
		typ := freshName("cancel")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFreshWith(typ, `1`, `,"delay_ms":1000`)
		s.cancel(id)
		w.wantSilence(1200 * ms)
		s.wantQuiet()
		s.submit(id, freshName("elsewhere"), `1`)
	})
	t.Run("waiting for its retry", func(t *testing.T) {
		t.Parallel()
		typ := freshName("cancel")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFreshWith(typ, `1`, `,"backoff_ms":1000`)
		w.wantJob(id)
		w.fail(``)
		s.cancel(id)
		s.submit(id, freshName("elsewhere"), `1`)
		w.wantSilence(1400 * ms)
		b.awaitLedger(t, typ, map[string]int64{"submitted": 1, "cancelled": 1})
	})
	t.Run("with a deadline", func(t *testing.T) {
		t.Parallel()
		s := b.submitter(t)
		id := s.submitFreshWith(freshName("cancel"), `1`, `,"expires_ms":1000`)
		s.cancel(id)
		s.wantSilence(1200 * ms) // the job's deadline passes, but no expired error may come
	})
	t.Run("running", func(t *testing.T) {
		t.Parallel()
		typ := freshName("cancel")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFresh(typ, `1`)
		w.wantJob(id)
		next := s.submitFresh(typ, `2`)
		s.cancel(id)
		w.wantQuiet() // the worker did not ask for notices, and still runs the job
		s.sendSubmit(id, typ, `1`, "")
		s.wantErrorFor("id_exists", id)
		w.respond(`"unwanted"`)
		s.submit(id, typ, `3`)
		w.wantJob(next)
		w.respond(`2`)
		s.wantResult(next, `2`)
		w.wantJob(id)
		w.respond(`3`)
		s.wantResult(id, `3`)
		s.wantQuiet()
	})
	t.Run("running, then failed", func(t *testing.T) {
		t.Parallel()
		typ := freshName("cancel")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFresh(typ, `1`)
		w.wantJob(id)
		s.cancel(id)
		w.fail(``) // the fail is discarded: there is no retry and no job_failed
		s.wantQuiet()
		w.wantQuiet()
		s.submit(id, freshName("elsewhere"), `1`)
	})
	t.Run("running, then its worker lost", func(t *testing.T) {
		t.Parallel()
		typ := freshName("cancel")
		s, w, successor := b.submitter(t), b.servingWorker(t, typ), b.servingWorker(t, typ)
		id := s.submitFresh(typ, `1`)
		w.wantJob(id)
		s.cancel(id)
		w.close()
		b.waitState(t, id, "")
		successor.wantQuiet()
		s.wantQuiet()
		b.awaitLedger(t, typ, map[string]int64{"submitted": 1, "cancelled": 1})
	})
	t.Run("running, then a size_error of its worker", func(t *testing.T) {
		t.Parallel()
		typ := freshName("cancel")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFresh(typ, `1`)
		w.wantJob(id)
		s.cancel(id)
		w.writeRaw(announceFrame(0x7fffffff))
		w.wantError("size_error")
		b.waitState(t, id, "")
		s.wantQuiet() // no more frames for that id
	})
	t.Run("running, then its submitter gone", func(t *testing.T) {
		t.Parallel()
		typ := freshName("cancel")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFresh(typ, `1`)
		w.wantJob(id)
		s.cancel(id)
		mark := s.submitFresh(freshName("elsewhere"), `1`)
		s.close()
		b.waitState(t, mark, "")
		w.respond(`1`)
		b.awaitLedger(t, typ, map[string]int64{"submitted": 1, "cancelled": 1})
	})
	t.Run("what is not there", func(t *testing.T) {
		t.Parallel()
		typ := freshName("cancel")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		s.cancelFails("unknown_id", freshName("never"))
		answeredID := s.submitFresh(typ, `1`)
		w.wantJob(answeredID)
		w.respond(`1`)
		s.wantResult(answeredID, `1`)
		s.cancelFails("unknown_id", answeredID)
		queuedID := s.submitFresh(freshName("elsewhere"), `1`)
		s.cancel(queuedID)
		s.cancelFails("unknown_id", queuedID) // already cancelled
		runningID := s.submitFresh(typ, `1`)
		w.wantJob(runningID)
		s.cancel(runningID)
		s.cancelFails("unknown_id", runningID) // a second cancel is refused, even while the run continues
		w.respond(`1`)
		s.cancelFails("unknown_id", runningID)
		failedID := s.submitFreshWith(typ, `1`, `,"retries":0`)
		w.wantJob(failedID)
		w.fail(``)
		s.wantErrorFor("job_failed", failedID)
		s.cancelFails("unknown_id", failedID)
	})
	t.Run("others' jobs", func(t *testing.T) {
		t.Parallel()
		typ := freshName("cancel")
		s, other, w := b.submitter(t), b.submitter(t), b.servingWorker(t, typ)
		runningID := s.submitFresh(typ, `1`)
		w.wantJob(runningID)
		queuedID := s.submitFresh(typ, `2`)
		other.cancelFails("unknown_id", runningID)
		other.cancelFails("unknown_id", queuedID)
		w.respond(`1`)
		s.wantResult(runningID, `1`)
		w.wantJob(queuedID)
		w.respond(`2`)
		s.wantResult(queuedID, `2`)
	})
	t.Run("by value", func(t *testing.T) {
		t.Parallel()
		typ := freshName("cancel")
		s := b.submitter(t)
		s.submit(typ+"é/", typ, `1`)
		s.send(`{"action":"cancel","id":"%s\u00e9\/"}`, typ)
		s.wantAck(typ + "é/")
		b.servingWorker(t, typ).wantQuiet()
	})
	t.Run("overdue: the job, not the run, is cancelled", func(t *testing.T) {
		t.Parallel()
		typ := freshName("cancel")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFreshWith(typ, `1`, `,"timeout_ms":50,"backoff_ms":60000`)
		w.wantJob(id)
		b.waitState(t, id, "delayed")
		s.cancel(id)
		s.submit(id, freshName("elsewhere"), `1`) // the id is free at once, because no run holds it
		w.wantQuiet()
		w.respond(`"late"`)
		s.wantQuiet()
		checkServes(t, s, w, typ)
	})
	t.Run("many of a queue", func(t *testing.T) {
		t.Parallel()
		typ := freshName("cancel")
		s := b.submitter(t)
		var left []string
		for i := range 300 {
			id := s.submitFreshWith(typ, `1`, fmt.Sprintf(`,"priority":%d`, i%3))
			if i%2 == 0 {
				s.cancel(id)
			} else {
				left = append(left, id)
			}
		}
		if got := drainOrder(t, b, typ, len(left)); len(got) != len(left) {
			t.Errorf("%d left, want %d", len(got), len(left))
		}
		b.awaitLedger(t, typ, map[string]int64{"submitted": 300, "answered": 150, "cancelled": 150})
	})
}

// TestEitherCancelOrAnswerWins: if a cancel and an answer come at the same time, exactly one of them
// wins.
func TestEitherCancelOrAnswerWins(t *testing.T) {
	t.Parallel()
	b := shared(t)
	typ := freshName("race")
	s, w := b.submitter(t), b.worker(t)
	w.joinWith(typ, `,"cancel":true`)
	wins := map[string]int{}
	for range 300 {
		id := s.submitFresh(typ, `1`)
		w.wantJob(id)
		var both sync.WaitGroup
		both.Go(func() { _ = s.write(packFrame(`{"action":"cancel","id":` + quote(id) + `}`)) })
		both.Go(func() { _ = w.write(packFrame(`{"action":"respond","body":"answer"}`)) })
		both.Wait()
		switch f := s.recv(); f.kind() {
		case "result":
			wins["answer"]++
			s.wantErrorFor("unknown_id", id)
			w.wantOK()
		case "ack":
			wins["cancel"]++
			w.wantNotice(id) // the notice comes before the ok, never after it
			w.wantOK()
		default:
			t.Fatalf("got %s", f)
		}
		s.wantQuiet()
		w.wantQuiet()
	}
	t.Logf("won by %v", wins)
	b.awaitLedger(t, typ, map[string]int64{"submitted": 300, "answered": int64(wins["answer"]), "cancelled": int64(wins["cancel"])})
}

func TestCancelNoticesReachWorkersThatAsk(t *testing.T) {
	t.Parallel()
	b := shared(t)
	joinAsking := func(t *testing.T, typ string) worker {
		t.Helper()
		w := b.worker(t)
		w.joinWith(typ, `,"cancel":true`)
		return w
	}
	t.Run("when the job is cancelled", func(t *testing.T) {
		t.Parallel()
		typ := freshName("notice")
		s, w := b.submitter(t), joinAsking(t, typ)
		id := s.submitFresh(typ, `1`)
		w.wantJob(id)
		next := s.submitFresh(typ, `1`)
		s.cancel(id)
		w.wantNotice(id)
		w.wantQuiet()     // only one notice; the worker still has to answer
		w.respond(`null`) // it may answer early
		w.wantJob(next)
	})
	t.Run("when its submitter goes", func(t *testing.T) {
		t.Parallel()
		typ := freshName("notice")
		s, w := b.submitter(t), joinAsking(t, typ)
		id := s.submitFresh(typ, `1`)
		w.wantJob(id)
		s.close()
		w.wantNotice(id)
		w.wantQuiet()
		w.respond(`null`)
	})
	t.Run("when the run is overdue", func(t *testing.T) {
		t.Parallel()
		typ := freshName("notice")
		s, w := b.submitter(t), joinAsking(t, typ)
		id := s.submitFreshWith(typ, `1`, `,"timeout_ms":80,"retries":0`)
		w.wantJob(id)
		w.wantNotice(id)
		s.wantErrorFor("job_failed", id)
		w.respond(`"late"`)
		w.wantQuiet()
	})
	t.Run("once, though cancelled and then overdue", func(t *testing.T) {
		t.Parallel()
		typ := freshName("notice")
		s, w := b.submitter(t), joinAsking(t, typ)
		id := s.submitFreshWith(typ, `1`, `,"timeout_ms":1000`)
		w.wantJob(id)
		s.cancel(id)
		w.wantNotice(id)
		b.waitState(t, id, "")
		// a second notice for the same run would do no harm, but a notice for a run that was
		// answered would: none may come after the ok
		w.send(`{"action":"respond","body":1}`)
		for {
			f := w.recv()
			if f.kind() == "ok" {
				break
			}
			if f.kind() != "cancel" {
				t.Fatalf("got %s", f)
			}
		}
		w.wantQuiet()
	})
	t.Run("not for a queued job", func(t *testing.T) {
		t.Parallel()
		typ := freshName("notice")
		s, w := b.submitter(t), joinAsking(t, typ)
		id := s.submitFresh(typ, `1`)
		w.wantJob(id)
		s.cancel(s.submitFresh(typ, `1`))
		w.wantQuiet()
	})
	t.Run("not for an answered one", func(t *testing.T) {
		t.Parallel()
		typ := freshName("notice")
		s, w := b.submitter(t), joinAsking(t, typ)
		id := s.submitFresh(typ, `1`)
		w.wantJob(id)
		w.respond(`1`)
		s.wantResult(id, `1`)
		s.cancelFails("unknown_id", id)
		s.close()
		w.wantSilence(60 * ms)
	})
	t.Run("each join sets it anew", func(t *testing.T) {
		t.Parallel()
		typ := freshName("notice")
		s, w := b.submitter(t), joinAsking(t, typ)
		w.join(typ)
		id := s.submitFresh(typ, `1`)
		w.wantJob(id)
		s.cancel(id)
		w.wantQuiet()
		w.respond(`1`)
		w.joinWith(typ, `,"cancel":true`)
		id = s.submitFresh(typ, `1`)
		w.wantJob(id)
		s.cancel(id)
		w.wantNotice(id)
		w.respond(`1`)
		w.joinWith(typ, `,"cancel":false`)
		id = s.submitFresh(typ, `1`)
		w.wantJob(id)
		s.cancel(id)
		w.wantQuiet()
	})
	t.Run("asked for while at work", func(t *testing.T) {
		t.Parallel()
		typ := freshName("notice")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFresh(typ, `1`)
		w.wantJob(id)
		w.joinWith(typ, `,"cancel":true`)
		s.cancel(id)
		w.wantNotice(id)
		w.respond(`1`)
	})
	t.Run("with several jobs out, for the right one", func(t *testing.T) {
		t.Parallel()
		typ := freshName("notice")
		s, w := b.submitter(t), b.worker(t)
		w.joinWith(typ, `,"cancel":true,"prefetch":3`)
		var ids []string
		for range 3 {
			ids = append(ids, s.submitFresh(typ, `1`))
			w.wantJob(ids[len(ids)-1])
		}
		s.cancel(ids[1])
		w.wantNotice(ids[1])
		w.respondTo(ids[2], `2`)
		s.wantResult(ids[2], `2`)
		w.respondTo(ids[1], `1`)
		w.respondTo(ids[0], `0`)
		s.wantResult(ids[0], `0`)
		s.wantQuiet()
		w.wantQuiet()
	})
}
