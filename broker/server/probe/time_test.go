package probe

import (
	"fmt"
	"testing"
	"time"
)

// checkNotBefore checks that at least d has passed since begin. The broker starts its clock when it
// handles a frame, which is after begin, so not even a millisecond may be missing.
func checkNotBefore(t tb, begin time.Time, d time.Duration, name string) {
	t.Helper()
	if got := time.Since(begin); got < d {
		t.Errorf("%s after %s, not before %s", name, got, d)
	}
}

// checkSoonAfter checks that not much more than d has passed since begin; the margin is wide.
func checkSoonAfter(t tb, begin time.Time, d time.Duration, name string) {
	t.Helper()
	if got, limit := time.Since(begin), d+patience; got > limit {
		t.Errorf("%s after %s, want about %s", name, got, d)
	}
}

const ms = time.Millisecond

func TestDelayedJobIsNotHandedOut(t *testing.T) {
	t.Parallel()
	b := shared(t)
	t.Run("not handed out before", func(t *testing.T) {
		t.Parallel()
		typ := freshName("delay")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		begin := time.Now()
		id := s.submitFreshWith(typ, `1`, `,"delay_ms":250`)
		w.wantJob(id)
		checkNotBefore(t, begin, 250*ms, "handed out")
		checkSoonAfter(t, begin, 250*ms, "handed out")
		w.respond(`2`)
		s.wantResult(id, `2`)
	})
	t.Run("others are not held up", func(t *testing.T) {
		t.Parallel()
		typ := freshName("delay")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		lateID := s.submitFreshWith(typ, `1`, `,"delay_ms":1000,"priority":100`)
		for range 3 {
			checkServes(t, s, w, typ)
		}
		w.wantJob(lateID)
	})
	t.Run("keeps its age", func(t *testing.T) {
		t.Parallel()
		typ := freshName("delay")
		s := b.submitter(t)
		first := s.submitFreshWith(typ, `1`, `,"delay_ms":100`)
		second := s.submitFresh(typ, `1`)
		betterID := s.submitFreshWith(typ, `1`, `,"delay_ms":50,"priority":1`)
		worseID := s.submitFreshWith(typ, `1`, `,"delay_ms":50,"priority":-1`)
		third := s.submitFresh(typ, `1`)
		for _, id := range []string{first, betterID, worseID} {
			b.waitState(t, id, "queued")
		}
		got := drainOrder(t, b, typ, 5)
		if want := []string{betterID, first, second, third, worseID}; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("order %v, want %v", got, want)
		}
	})
	t.Run("holds its id", func(t *testing.T) {
		t.Parallel()
		typ := freshName("delay")
		s := b.submitter(t)
		id := s.submitFreshWith(typ, `1`, `,"delay_ms":60000`)
		s.sendSubmit(id, typ, `1`, "")
		s.wantErrorFor("id_exists", id)
	})
	t.Run("many come due in order of priority and age", func(t *testing.T) {
		t.Parallel()
		typ := freshName("delay")
		s := b.submitter(t)
		var want []string
		for i := range 50 {
			want = append(want, s.submitFreshWith(typ, `1`, fmt.Sprintf(`,"delay_ms":%d`, 50+(i*37)%100)))
		}
		for _, id := range want {
			b.waitState(t, id, "queued")
		}
		if got := drainOrder(t, b, typ, 50); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("order %v, want %v", got, want)
		}
	})
	t.Run("cleared with its submitter", func(t *testing.T) {
		t.Parallel()
		typ := freshName("delay")
		s := b.submitter(t)
		id := s.submitFreshWith(typ, `1`, `,"delay_ms":150`)
		s.close()
		b.submitWhenFree(t, id, freshName("elsewhere"))
		b.servingWorker(t, typ).wantSilence(300 * ms)
	})
	t.Run("a year is no overflow", func(t *testing.T) {
		t.Parallel()
		typ := freshName("delay")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFreshWith(typ, `1`, `,"delay_ms":`+year)
		w.wantSilence(100 * ms)
		if got := b.jobState(t, id); got != "delayed" {
			t.Errorf("state %q", got)
		}
	})
}

func TestDeadlineEndsWaitingJob(t *testing.T) {
	t.Parallel()
	b := shared(t)
	t.Run("queued", func(t *testing.T) {
		t.Parallel()
		typ := freshName("expires")
		s := b.submitter(t)
		begin := time.Now()
		id := s.submitFreshWith(typ, `1`, `,"expires_ms":150`)
		s.wantErrorFor("expired", id)
		checkNotBefore(t, begin, 150*ms, "expired")
		checkSoonAfter(t, begin, 150*ms, "expired")
		b.servingWorker(t, typ).wantQuiet()
		s.submit(id, typ, `1`) // free
	})
	t.Run("counted from the submit, delay included", func(t *testing.T) {
		t.Parallel()
		typ := freshName("expires")
		s := b.submitter(t)
		begin := time.Now()
		id := s.submitFreshWith(typ, `1`, `,"delay_ms":200,"expires_ms":300`)
		s.wantErrorFor("expired", id)
		checkNotBefore(t, begin, 300*ms, "expired")
	})
	t.Run("taken after its delay, before its deadline", func(t *testing.T) {
		t.Parallel()
		typ := freshName("expires")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFreshWith(typ, `1`, `,"delay_ms":100,"expires_ms":60000`)
		w.wantJob(id)
		w.respond(`1`)
		s.wantResult(id, `1`)
		s.wantQuiet()
	})
	t.Run("a run is not interrupted", func(t *testing.T) {
		t.Parallel()
		typ := freshName("expires")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFreshWith(typ, `1`, `,"expires_ms":100`)
		w.wantJob(id)
		s.wantSilence(250 * ms)
		w.respond(`"late, but an answer"`)
		s.wantResult(id, `"late, but an answer"`)
	})
	for _, c := range []struct {
		name, fields string
		end          func(b *daemon, w worker, id string)
		code         string
	}{
		{"fail after it, a retry left", ``, func(_ *daemon, w worker, _ string) { w.fail(``) }, "expired"},
		{"fail after it, none left", `,"retries":0`, func(_ *daemon, w worker, _ string) { w.fail(``) }, "job_failed"},
		{"fail after it, no retry wanted", ``, func(_ *daemon, w worker, _ string) { w.fail(`,"retry":false`) }, "job_failed"},
		{"lost after it, a retry left", ``, func(_ *daemon, w worker, _ string) { w.close() }, "expired"},
		{"lost after it, none left", `,"retries":0`, func(_ *daemon, w worker, _ string) { w.close() }, "job_failed"},
		{"timeout after it, a retry left", `,"timeout_ms":1000`, func(*daemon, worker, string) {}, "expired"},
		{"timeout after it, none left", `,"timeout_ms":1000,"retries":0`, func(*daemon, worker, string) {}, "job_failed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			typ := freshName("expires")
			s, w := b.submitter(t), b.servingWorker(t, typ)
			id := s.submitFreshWith(typ, `1`, `,"expires_ms":100`+c.fields)
			w.wantJob(id)
			s.wantSilence(150 * ms)
			c.end(b, w, id)
			s.wantErrorFor(c.code, id)
			s.submit(id, freshName("elsewhere"), `1`)
		})
	}
	t.Run("while waiting for its retry", func(t *testing.T) {
		t.Parallel()
		typ := freshName("expires")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		begin := time.Now()
		id := s.submitFreshWith(typ, `1`, `,"expires_ms":250,"backoff_ms":60000`)
		w.wantJob(id)
		w.fail(``)
		s.wantErrorFor("expired", id)
		checkNotBefore(t, begin, 250*ms, "expired")
		checkSoonAfter(t, begin, 250*ms, "expired")
		w.wantQuiet()
	})
	t.Run("a retry before it goes on", func(t *testing.T) {
		t.Parallel()
		typ := freshName("expires")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFreshWith(typ, `1`, `,"expires_ms":60000`)
		w.wantJob(id)
		w.fail(``)
		w.wantJob(id)
		w.respond(`1`)
		s.wantResult(id, `1`)
	})
	t.Run("many at once", func(t *testing.T) {
		t.Parallel()
		typ := freshName("expires")
		s := b.submitter(t)
		acked, open := map[string]bool{}, map[string]bool{}
		for range 300 {
			id := freshName("job")
			s.sendSubmit(id, typ, `1`, `,"expires_ms":200`)
			open[id] = true
		}
		for len(open) > 0 {
			f := s.recv()
			id := f.text("id")
			switch {
			case f.kind() == "ack":
				acked[id] = true
			case f.text("error") != "expired" || !open[id] || !acked[id]:
				t.Fatalf("got %s: unknown, unacked or twice", f)
			default:
				delete(open, id)
			}
		}
		s.wantQuiet()
		b.awaitLedger(t, typ, map[string]int64{"submitted": 300, "expired": 300})
	})
	t.Run("a year is no overflow", func(t *testing.T) {
		t.Parallel()
		s := b.submitter(t)
		id := s.submitFreshWith(freshName("expires"), `1`, `,"expires_ms":`+year)
		s.wantSilence(100 * ms)
		if got := b.jobState(t, id); got != "queued" {
			t.Errorf("state %q", got)
		}
	})
}
