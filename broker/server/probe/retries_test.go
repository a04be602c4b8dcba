package probe

import (
	"fmt"
	"testing"
	"time"
)

func TestRetriesAreCountedTogether(t *testing.T) {
	t.Parallel()
	b := shared(t)
	t.Run("lost, failed and timed-out runs share one count", func(t *testing.T) {
		t.Parallel()
		typ := freshName("retry")
		s := b.submitter(t)
		id := s.submitFreshWith(typ, `1`, `,"retries":3,"timeout_ms":100`)
		w := b.servingWorker(t, typ)
		w.wantJob(id)
		w.close()
		w = b.servingWorker(t, typ)
		w.wantJob(id)
		w.fail(``)
		w.wantJob(id)
		b.waitNotRunning(t, id)
		w.respond(`"late"`)
		w.wantJob(id)
		w.fail(`,"reason":"the last one"`)
		if f := s.wantErrorFor("job_failed", id); f.text("reason") == "" {
			t.Error("no reason")
		}
		w.wantQuiet()
	})
	for _, n := range []int{0, 1, 7} {
		t.Run(fmt.Sprintf("retries %d: fails", n), func(t *testing.T) {
			t.Parallel()
			typ := freshName("retry")
			s, w := b.submitter(t), b.servingWorker(t, typ)
			id := s.submitFreshWith(typ, `1`, fmt.Sprintf(`,"retries":%d`, n))
			w.failRuns(n+1, id)
			s.wantErrorFor("job_failed", id)
			w.wantQuiet()
			s.submit(id, typ, `1`) // free
		})
		t.Run(fmt.Sprintf("retries %d: lost workers", n), func(t *testing.T) {
			t.Parallel()
			typ := freshName("retry")
			s := b.submitter(t)
			id := s.submitFreshWith(typ, `1`, fmt.Sprintf(`,"retries":%d`, n))
			loseWorkers(t, b, typ, id, n+1)
			s.wantErrorFor("job_failed", id)
		})
	}
	t.Run("a thousand", func(t *testing.T) {
		t.Parallel()
		typ := freshName("retry")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFreshWith(typ, `1`, `,"retries":1000`)
		w.failRuns(1001, id)
		s.wantErrorFor("job_failed", id)
	})
	t.Run("default is 3", func(t *testing.T) {
		t.Parallel()
		typ := freshName("retry")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFresh(typ, `1`)
		w.failRuns(4, id)
		s.wantErrorFor("job_failed", id)
	})
	t.Run("default by --retries", func(t *testing.T) {
		t.Parallel()
		b := start(t, "--retries=1")
		typ := freshName("retry")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		for _, fields := range []string{``, `,"retries":null`} {
			id := s.submitFreshWith(typ, `1`, fields)
			w.failRuns(2, id)
			s.wantErrorFor("job_failed", id)
		}
		id := s.submitFreshWith(typ, `1`, `,"retries":2`)
		w.failRuns(3, id)
		s.wantErrorFor("job_failed", id)
	})
	t.Run("a retry keeps its age", func(t *testing.T) {
		t.Parallel()
		typ := freshName("retry")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		first := s.submitFresh(typ, `1`)
		w.wantJob(first)
		var rest []string
		for range 3 {
			rest = append(rest, s.submitFresh(typ, `1`))
		}
		betterID := s.submitFreshWith(typ, `1`, `,"priority":1`)
		w.fail(``)
		for _, id := range append([]string{betterID, first}, rest...) {
			w.wantJob(id)
			w.respond(`1`)
			s.wantResult(id, `1`)
		}
	})
}

func TestBackoffDelaysRetries(t *testing.T) {
	t.Parallel()
	b := shared(t)
	t.Run("doubles", func(t *testing.T) {
		t.Parallel()
		typ := freshName("backoff")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFreshWith(typ, `1`, `,"backoff_ms":100,"retries":4`)
		w.wantJob(id)
		for _, wait := range []time.Duration{100 * ms, 200 * ms, 400 * ms} {
			begin := time.Now()
			w.fail(``)
			w.wantJob(id)
			checkNotBefore(t, begin, wait, "retried")
			checkSoonAfter(t, begin, wait+wait/4, "retried")
		}
	})
	t.Run("of a lost worker", func(t *testing.T) {
		t.Parallel()
		typ := freshName("backoff")
		s, w, successor := b.submitter(t), b.servingWorker(t, typ), b.servingWorker(t, typ)
		id := s.submitFreshWith(typ, `1`, `,"backoff_ms":86400000`)
		w.wantJob(id)
		begin := time.Now()
		w.close()
		successor.wantJob(id) // soon, because the loss of a worker causes no backoff
		checkSoonAfter(t, begin, 0, "retried")
	})
	t.Run("of a timeout", func(t *testing.T) {
		t.Parallel()
		typ := freshName("backoff")
		s, w, successor := b.submitter(t), b.servingWorker(t, typ), b.servingWorker(t, typ)
		begin := time.Now()
		id := s.submitFreshWith(typ, `1`, `,"backoff_ms":200,"timeout_ms":100`)
		w.wantJob(id)
		successor.wantJob(id)
		checkNotBefore(t, begin, 300*ms, "retried")
		checkSoonAfter(t, begin, 350*ms, "retried")
	})
	t.Run("replaced by fail's delay_ms", func(t *testing.T) {
		t.Parallel()
		typ := freshName("backoff")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFreshWith(typ, `1`, `,"backoff_ms":86400000`)
		w.wantJob(id)
		w.fail(`,"delay_ms":0`)
		w.wantJob(id)
		begin := time.Now()
		w.fail(`,"delay_ms":150`)
		w.wantJob(id)
		checkNotBefore(t, begin, 150*ms, "retried")
		w.fail(``) // this time the job's own backoff applies, which is a day
		if got := b.jobState(t, id); got != "delayed" {
			t.Errorf("state %q", got)
		}
		w.wantSilence(50 * ms)
	})
	t.Run("fail's delay_ms without a backoff", func(t *testing.T) {
		t.Parallel()
		typ := freshName("backoff")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFresh(typ, `1`)
		w.wantJob(id)
		begin := time.Now()
		w.fail(`,"delay_ms":150`)
		w.wantJob(id)
		checkNotBefore(t, begin, 150*ms, "retried")
		w.fail(``)
		w.wantJob(id) // at once: the delay was for one retry only
	})
	t.Run("the cap is a day, not an overflow", func(t *testing.T) {
		t.Parallel()
		typ := freshName("backoff")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFreshWith(typ, `1`, `,"backoff_ms":1,"retries":1000`)
		w.wantJob(id)
		for range 100 {
			w.fail(`,"delay_ms":0`)
			w.wantJob(id)
		}
		w.fail(``) // retry 101 waits 1 ms · 2¹⁰⁰, at most a day
		w.wantSilence(100 * ms)
		if got := b.jobState(t, id); got != "delayed" {
			t.Errorf("state %q", got)
		}
	})
	t.Run("others are not held up", func(t *testing.T) {
		t.Parallel()
		typ := freshName("backoff")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFreshWith(typ, `1`, `,"backoff_ms":1000`)
		w.wantJob(id)
		w.fail(``)
		checkServes(t, s, w, typ)
		s.sendSubmit(id, typ, `1`, "")
		s.wantErrorFor("id_exists", id) // a waiting job holds its id
		w.wantJob(id)
	})
}

func (w worker) failRuns(n int, id string) {
	w.t.Helper()
	for range n {
		w.wantJob(id)
		w.fail(``)
	}
}
