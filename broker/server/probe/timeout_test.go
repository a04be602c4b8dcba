package probe

import (
	"fmt"
	"testing"
	"time"
)

func TestTimeoutEndsRun(t *testing.T) {
	t.Parallel()
	b := shared(t)
	t.Run("of the only run", func(t *testing.T) {
		t.Parallel()
		typ := freshName("timeout")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		begin := time.Now()
		id := s.submitFreshWith(typ, `1`, `,"timeout_ms":150,"retries":0`)
		w.wantJob(id)
		s.wantErrorFor("job_failed", id)
		checkNotBefore(t, begin, 150*ms, "timed out")
		checkSoonAfter(t, begin, 150*ms, "timed out")
		s.submit(id, typ, `"again"`) // the overdue run does not hold the id
		w.wantQuiet()                // a stalled worker gets no job before it has answered
		w.respond(`"late"`)          // ok, but discarded
		s.wantQuiet()
		if got, body := w.nextJob(); got != id || body != `"again"` {
			t.Fatalf("job %q %s", got, body)
		}
		w.respond(`"in time"`)
		s.wantResult(id, `"in time"`)
	})
	t.Run("counts from handing out", func(t *testing.T) {
		t.Parallel()
		typ := freshName("timeout")
		s := b.submitter(t)
		id := s.submitFreshWith(typ, `1`, `,"timeout_ms":100,"retries":0`)
		s.wantSilence(250 * ms) // the timeout does not run while the job waits
		begin := time.Now()
		w := b.servingWorker(t, typ)
		w.wantJob(id)
		s.wantErrorFor("job_failed", id)
		checkNotBefore(t, begin, 100*ms, "timed out")
	})
	t.Run("then another worker", func(t *testing.T) {
		t.Parallel()
		typ := freshName("timeout")
		s, w1, w2 := b.submitter(t), b.servingWorker(t, typ), b.servingWorker(t, typ)
		id := s.submitFreshWith(typ, `1`, `,"timeout_ms":1000`)
		w1.wantJob(id)
		w2.wantJob(id)
		w2.respond(`"second"`)
		s.wantResult(id, `"second"`)
		w1.respond(`"first, late"`)
		s.wantQuiet()
		checkServes(t, s, w2, typ) // longest idle
		checkServes(t, s, w1, typ)
	})
	t.Run("an answer in time stops the clock", func(t *testing.T) {
		t.Parallel()
		typ := freshName("timeout")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFreshWith(typ, `1`, `,"timeout_ms":1000,"retries":0`)
		w.wantJob(id)
		w.respond(`1`)
		s.wantResult(id, `1`)
		next := s.submitFreshWith(typ, `1`, `,"retries":0`) // this job has no timeout
		w.wantJob(next)
		s.wantSilence(1200 * ms)
		w.respond(`2`)
		s.wantResult(next, `2`)
	})
	t.Run("each run anew", func(t *testing.T) {
		t.Parallel()
		typ := freshName("timeout")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFreshWith(typ, `1`, `,"timeout_ms":60,"retries":2`)
		for range 3 {
			w.wantJob(id)
			b.waitNotRunning(t, id)
			w.respond(`"late"`) // only now may the worker get jobs again
		}
		s.wantErrorFor("job_failed", id)
		w.wantQuiet()
		s.wantQuiet()
	})
	t.Run("the late answer is discarded while the job waits", func(t *testing.T) {
		t.Parallel()
		typ := freshName("timeout")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFreshWith(typ, `1`, `,"timeout_ms":1000,"backoff_ms":300`)
		w.wantJob(id)
		b.waitState(t, id, "delayed")
		w.respond(`"late"`)
		s.wantQuiet()
		w.wantJob(id)
		w.respond(`"again"`)
		s.wantResult(id, `"again"`)
	})
	t.Run("a late fail is discarded", func(t *testing.T) {
		t.Parallel()
		typ := freshName("timeout")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFreshWith(typ, `1`, `,"timeout_ms":1000,"backoff_ms":1000,"retries":1`)
		w.wantJob(id)
		b.waitState(t, id, "delayed")
		w.fail(`,"retry":false`) // ends only the overdue run, not the job
		s.wantQuiet()
		w.wantJob(id)
	})
	t.Run("stalled forever, it closes", func(t *testing.T) {
		t.Parallel()
		typ := freshName("timeout")
		s, w, successor := b.submitter(t), b.servingWorker(t, typ), b.servingWorker(t, typ)
		id := s.submitFreshWith(typ, `1`, `,"timeout_ms":1000,"retries":1`)
		w.wantJob(id)
		successor.wantJob(id)
		w.close() // the run has failed already, so its loss does not count again
		successor.respond(`1`)
		s.wantResult(id, `1`)
		successor.wantQuiet()
		b.awaitLedger(t, typ, map[string]int64{"submitted": 1, "answered": 1})
	})
	t.Run("stalled, rejoining frees nothing", func(t *testing.T) {
		t.Parallel()
		typ, otherType := freshName("timeout"), freshName("timeout")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFreshWith(typ, `1`, `,"timeout_ms":60,"retries":0`)
		w.wantJob(id)
		s.wantErrorFor("job_failed", id)
		next := s.submitFresh(otherType, `1`)
		w.join(otherType)
		w.join(typ)
		w.join(otherType)
		w.wantQuiet()
		w.respond(`"late"`)
		w.wantJob(next)
	})
	t.Run("of an unwanted run", func(t *testing.T) {
		t.Parallel()
		typ := freshName("timeout")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFreshWith(typ, `1`, `,"timeout_ms":1000`)
		w.wantJob(id)
		s.cancel(id)
		if got := b.jobState(t, id); got == "" {
			t.Error("the id is free before the run is over")
		}
		b.waitState(t, id, "") // no retry; the id is free
		b.awaitLedger(t, typ, map[string]int64{"submitted": 1, "cancelled": 1})
		s.submit(id, typ, `"again"`)
		w.wantQuiet()
		w.respond(`"late"`)
		w.wantJob(id)
	})
	t.Run("a year is no overflow", func(t *testing.T) {
		t.Parallel()
		typ := freshName("timeout")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFreshWith(typ, `1`, `,"timeout_ms":`+year)
		w.wantJob(id)
		s.wantSilence(100 * ms)
		w.respond(`1`)
		s.wantResult(id, `1`)
	})
	t.Run("race with the answer", func(t *testing.T) {
		t.Parallel()
		typ := freshName("timeout")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		wins := map[string]int{}
		for i := range 60 {
			id := s.submitFreshWith(typ, `1`, `,"timeout_ms":10,"retries":0`)
			w.wantJob(id)
			time.Sleep(time.Duration(8000+i*70) * time.Microsecond)
			w.respond(`1`) // gets ok, whether the timeout or the answer wins
			f := s.recv()
			if f.text("id") != id || f.kind() != "result" && f.text("error") != "job_failed" {
				t.Fatalf("got %s", f)
			}
			wins[f.kind()]++
		}
		s.wantQuiet()
		w.wantQuiet()
		t.Logf("won by %v", wins)
	})
}

// waitNotRunning waits until the current run of a job is over.
func (d *daemon) waitNotRunning(t tb, id string) {
	t.Helper()
	waitFor(t, "the run is over", func() error {
		if got := d.jobState(t, id); got == "running" {
			return fmt.Errorf("still %s", got)
		}
		return nil
	})
}
