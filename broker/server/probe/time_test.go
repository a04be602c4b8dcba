package probe

import (
	"fmt"
	"testing"
	"time"
)

// notBefore checks that at least d has passed since begin. The broker handles
// a frame after it was sent, so there is no excuse for a millisecond less.
func notBefore(t tb, begin time.Time, d time.Duration, what string) {
	t.Helper()
	if got := time.Since(begin); got < d {
		t.Errorf("%s after %s, not before %s", what, got, d)
	}
}

// soonAfter checks that not much more than d has passed, by a wide margin.
func soonAfter(t tb, begin time.Time, d time.Duration, what string) {
	t.Helper()
	if got, limit := time.Since(begin), d+patience; got > limit {
		t.Errorf("%s after %s, want about %s", what, got, d)
	}
}

const ms = time.Millisecond

func TestDelay(t *testing.T) {
	t.Parallel()
	b := shared(t)
	t.Run("not handed out before", func(t *testing.T) {
		t.Parallel()
		typ := name("delay")
		s, w := b.submitter(t), b.joined(t, typ)
		begin := time.Now()
		id := s.freshWith(typ, `1`, `,"delay_ms":250`)
		w.takes(id)
		notBefore(t, begin, 250*ms, "handed out")
		soonAfter(t, begin, 250*ms, "handed out")
		w.respond(`2`)
		s.result(id, `2`)
	})
	t.Run("others are not held up", func(t *testing.T) {
		t.Parallel()
		typ := name("delay")
		s, w := b.submitter(t), b.joined(t, typ)
		late := s.freshWith(typ, `1`, `,"delay_ms":1000,"priority":100`)
		for range 3 {
			serve(t, s, w, typ)
		}
		w.takes(late)
	})
	t.Run("keeps its age", func(t *testing.T) {
		t.Parallel()
		typ := name("delay")
		s := b.submitter(t)
		first := s.freshWith(typ, `1`, `,"delay_ms":100`)
		second := s.fresh(typ, `1`)
		better := s.freshWith(typ, `1`, `,"delay_ms":50,"priority":1`)
		worse := s.freshWith(typ, `1`, `,"delay_ms":50,"priority":-1`)
		third := s.fresh(typ, `1`)
		for _, id := range []string{first, better, worse} {
			b.waitState(t, id, "queued")
		}
		got := drainOrder(t, b, typ, 5)
		if want := []string{better, first, second, third, worse}; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("order %v, want %v", got, want)
		}
	})
	t.Run("holds its id", func(t *testing.T) {
		t.Parallel()
		typ := name("delay")
		s := b.submitter(t)
		id := s.freshWith(typ, `1`, `,"delay_ms":60000`)
		s.put(id, typ, `1`, "")
		s.failsFor("id_exists", id)
	})
	t.Run("many come due in order of priority and age", func(t *testing.T) {
		t.Parallel()
		typ := name("delay")
		s := b.submitter(t)
		var want []string
		for i := range 50 {
			want = append(want, s.freshWith(typ, `1`, fmt.Sprintf(`,"delay_ms":%d`, 50+(i*37)%100)))
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
		typ := name("delay")
		s := b.submitter(t)
		id := s.freshWith(typ, `1`, `,"delay_ms":150`)
		s.close()
		b.claim(t, id, name("elsewhere"))
		b.joined(t, typ).silent(300 * ms)
	})
	t.Run("a year is no overflow", func(t *testing.T) {
		t.Parallel()
		typ := name("delay")
		s, w := b.submitter(t), b.joined(t, typ)
		id := s.freshWith(typ, `1`, `,"delay_ms":`+year)
		w.silent(100 * ms)
		if got := b.state(t, id); got != "delayed" {
			t.Errorf("state %q", got)
		}
	})
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	b := shared(t)
	t.Run("of the only run", func(t *testing.T) {
		t.Parallel()
		typ := name("timeout")
		s, w := b.submitter(t), b.joined(t, typ)
		begin := time.Now()
		id := s.freshWith(typ, `1`, `,"timeout_ms":150,"retries":0`)
		w.takes(id)
		s.failsFor("job_failed", id)
		notBefore(t, begin, 150*ms, "timed out")
		soonAfter(t, begin, 150*ms, "timed out")
		s.submit(id, typ, `"again"`) // the run no longer holds the id
		w.quiet()                    // a stalled worker gets no job before it has answered
		w.respond(`"late"`)          // ok, discarded
		s.quiet()
		if got, body := w.job(); got != id || body != `"again"` {
			t.Fatalf("job %q %s", got, body)
		}
		w.respond(`"in time"`)
		s.result(id, `"in time"`)
	})
	t.Run("counts from handing out", func(t *testing.T) {
		t.Parallel()
		typ := name("timeout")
		s := b.submitter(t)
		id := s.freshWith(typ, `1`, `,"timeout_ms":100,"retries":0`)
		s.silent(250 * ms) // waiting does not count
		begin := time.Now()
		w := b.joined(t, typ)
		w.takes(id)
		s.failsFor("job_failed", id)
		notBefore(t, begin, 100*ms, "timed out")
	})
	t.Run("then another worker", func(t *testing.T) {
		t.Parallel()
		typ := name("timeout")
		s, w1, w2 := b.submitter(t), b.joined(t, typ), b.joined(t, typ)
		id := s.freshWith(typ, `1`, `,"timeout_ms":1000`)
		w1.takes(id)
		w2.takes(id)
		w2.respond(`"second"`)
		s.result(id, `"second"`)
		w1.respond(`"first, late"`)
		s.quiet()
		serve(t, s, w2, typ) // longest idle
		serve(t, s, w1, typ)
	})
	t.Run("an answer in time stops the clock", func(t *testing.T) {
		t.Parallel()
		typ := name("timeout")
		s, w := b.submitter(t), b.joined(t, typ)
		id := s.freshWith(typ, `1`, `,"timeout_ms":1000,"retries":0`)
		w.takes(id)
		w.respond(`1`)
		s.result(id, `1`)
		next := s.freshWith(typ, `1`, `,"retries":0`) // no timeout of its own
		w.takes(next)
		s.silent(1200 * ms)
		w.respond(`2`)
		s.result(next, `2`)
	})
	t.Run("each run anew", func(t *testing.T) {
		t.Parallel()
		typ := name("timeout")
		s, w := b.submitter(t), b.joined(t, typ)
		id := s.freshWith(typ, `1`, `,"timeout_ms":60,"retries":2`)
		for range 3 {
			w.takes(id)
			b.waitNotRunning(t, id)
			w.respond(`"late"`) // and only then a worker again
		}
		s.failsFor("job_failed", id)
		w.quiet()
		s.quiet()
	})
	t.Run("the late answer is discarded while the job waits", func(t *testing.T) {
		t.Parallel()
		typ := name("timeout")
		s, w := b.submitter(t), b.joined(t, typ)
		id := s.freshWith(typ, `1`, `,"timeout_ms":1000,"backoff_ms":300`)
		w.takes(id)
		b.waitState(t, id, "delayed")
		w.respond(`"late"`)
		s.quiet()
		w.takes(id)
		w.respond(`"again"`)
		s.result(id, `"again"`)
	})
	t.Run("a late fail is discarded", func(t *testing.T) {
		t.Parallel()
		typ := name("timeout")
		s, w := b.submitter(t), b.joined(t, typ)
		id := s.freshWith(typ, `1`, `,"timeout_ms":1000,"backoff_ms":1000,"retries":1`)
		w.takes(id)
		b.waitState(t, id, "delayed")
		w.fail(`,"retry":false`) // not of this job any more
		s.quiet()
		w.takes(id)
	})
	t.Run("stalled for ever, it closes", func(t *testing.T) {
		t.Parallel()
		typ := name("timeout")
		s, w, heir := b.submitter(t), b.joined(t, typ), b.joined(t, typ)
		id := s.freshWith(typ, `1`, `,"timeout_ms":1000,"retries":1`)
		w.takes(id)
		heir.takes(id)
		w.close() // the lost run has failed before: nothing is counted twice
		heir.respond(`1`)
		s.result(id, `1`)
		heir.quiet()
		b.ledgerIs(t, typ, map[string]int64{"submitted": 1, "answered": 1})
	})
	t.Run("stalled, rejoining frees nothing", func(t *testing.T) {
		t.Parallel()
		typ, other := name("timeout"), name("timeout")
		s, w := b.submitter(t), b.joined(t, typ)
		id := s.freshWith(typ, `1`, `,"timeout_ms":60,"retries":0`)
		w.takes(id)
		s.failsFor("job_failed", id)
		next := s.fresh(other, `1`)
		w.join(other)
		w.join(typ)
		w.join(other)
		w.quiet()
		w.respond(`"late"`)
		w.takes(next)
	})
	t.Run("of an unwanted run", func(t *testing.T) {
		t.Parallel()
		typ := name("timeout")
		s, w := b.submitter(t), b.joined(t, typ)
		id := s.freshWith(typ, `1`, `,"timeout_ms":1000`)
		w.takes(id)
		s.cancel(id)
		if got := b.state(t, id); got == "" {
			t.Error("the id is free before the run is over")
		}
		b.waitState(t, id, "") // no retry; the id is free
		b.ledgerIs(t, typ, map[string]int64{"submitted": 1, "cancelled": 1})
		s.submit(id, typ, `"again"`)
		w.quiet()
		w.respond(`"late"`)
		w.takes(id)
	})
	t.Run("a year is no overflow", func(t *testing.T) {
		t.Parallel()
		typ := name("timeout")
		s, w := b.submitter(t), b.joined(t, typ)
		id := s.freshWith(typ, `1`, `,"timeout_ms":`+year)
		w.takes(id)
		s.silent(100 * ms)
		w.respond(`1`)
		s.result(id, `1`)
	})
	t.Run("race with the answer", func(t *testing.T) {
		t.Parallel()
		typ := name("timeout")
		s, w := b.submitter(t), b.joined(t, typ)
		won := map[string]int{}
		for i := range 60 {
			id := s.freshWith(typ, `1`, `,"timeout_ms":10,"retries":0`)
			w.takes(id)
			time.Sleep(time.Duration(8000+i*70) * time.Microsecond)
			w.respond(`1`) // ok, whoever wins
			f := s.recv()
			if f.text("id") != id || f.kind() != "result" && f.text("error") != "job_failed" {
				t.Fatalf("got %s", f)
			}
			won[f.kind()]++
		}
		s.quiet()
		w.quiet()
		t.Logf("won by %v", won)
	})
}

// waitNotRunning waits until the current run of a job is over.
func (d *daemon) waitNotRunning(t tb, id string) {
	t.Helper()
	until(t, "the run is over", func() error {
		if got := d.state(t, id); got == "running" {
			return fmt.Errorf("still %s", got)
		}
		return nil
	})
}

func TestRetries(t *testing.T) {
	t.Parallel()
	b := shared(t)
	t.Run("lost, failed and timed-out runs share one count", func(t *testing.T) {
		t.Parallel()
		typ := name("retry")
		s := b.submitter(t)
		id := s.freshWith(typ, `1`, `,"retries":3,"timeout_ms":100`)
		w := b.joined(t, typ)
		w.takes(id)
		w.close()
		w = b.joined(t, typ)
		w.takes(id)
		w.fail(``)
		w.takes(id)
		b.waitNotRunning(t, id)
		w.respond(`"late"`)
		w.takes(id)
		w.fail(`,"reason":"the last one"`)
		if f := s.failsFor("job_failed", id); f.text("reason") == "" {
			t.Error("no reason")
		}
		w.quiet()
	})
	for _, n := range []int{0, 1, 7} {
		t.Run(fmt.Sprintf("retries %d: fails", n), func(t *testing.T) {
			t.Parallel()
			typ := name("retry")
			s, w := b.submitter(t), b.joined(t, typ)
			id := s.freshWith(typ, `1`, fmt.Sprintf(`,"retries":%d`, n))
			for range n + 1 {
				w.takes(id)
				w.fail(``)
			}
			s.failsFor("job_failed", id)
			w.quiet()
			s.submit(id, typ, `1`) // free
		})
		t.Run(fmt.Sprintf("retries %d: lost workers", n), func(t *testing.T) {
			t.Parallel()
			typ := name("retry")
			s := b.submitter(t)
			id := s.freshWith(typ, `1`, fmt.Sprintf(`,"retries":%d`, n))
			loseWorkers(t, b, typ, id, n+1)
			s.failsFor("job_failed", id)
		})
	}
	t.Run("a thousand", func(t *testing.T) {
		t.Parallel()
		typ := name("retry")
		s, w := b.submitter(t), b.joined(t, typ)
		id := s.freshWith(typ, `1`, `,"retries":1000`)
		for range 1001 {
			w.takes(id)
			w.fail(``)
		}
		s.failsFor("job_failed", id)
	})
	t.Run("default is 3", func(t *testing.T) {
		t.Parallel()
		typ := name("retry")
		s, w := b.submitter(t), b.joined(t, typ)
		id := s.fresh(typ, `1`)
		for range 4 {
			w.takes(id)
			w.fail(``)
		}
		s.failsFor("job_failed", id)
	})
	t.Run("default by --retries", func(t *testing.T) {
		t.Parallel()
		b := start(t, "--retries=1")
		typ := name("retry")
		s, w := b.submitter(t), b.joined(t, typ)
		for _, more := range []string{``, `,"retries":null`} {
			id := s.freshWith(typ, `1`, more)
			for range 2 {
				w.takes(id)
				w.fail(``)
			}
			s.failsFor("job_failed", id)
		}
		id := s.freshWith(typ, `1`, `,"retries":2`)
		for range 3 {
			w.takes(id)
			w.fail(``)
		}
		s.failsFor("job_failed", id)
	})
	t.Run("a retry keeps its age", func(t *testing.T) {
		t.Parallel()
		typ := name("retry")
		s, w := b.submitter(t), b.joined(t, typ)
		first := s.fresh(typ, `1`)
		w.takes(first)
		var rest []string
		for range 3 {
			rest = append(rest, s.fresh(typ, `1`))
		}
		better := s.freshWith(typ, `1`, `,"priority":1`)
		w.fail(``)
		for _, id := range append([]string{better, first}, rest...) {
			w.takes(id)
			w.respond(`1`)
			s.result(id, `1`)
		}
	})
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	b := shared(t)
	t.Run("doubles", func(t *testing.T) {
		t.Parallel()
		typ := name("backoff")
		s, w := b.submitter(t), b.joined(t, typ)
		id := s.freshWith(typ, `1`, `,"backoff_ms":100,"retries":4`)
		w.takes(id)
		for _, wait := range []time.Duration{100 * ms, 200 * ms, 400 * ms} {
			begin := time.Now()
			w.fail(``)
			w.takes(id)
			notBefore(t, begin, wait, "retried")
			soonAfter(t, begin, wait+wait/4, "retried")
		}
	})
	t.Run("of a lost worker", func(t *testing.T) {
		t.Parallel()
		typ := name("backoff")
		s, w, heir := b.submitter(t), b.joined(t, typ), b.joined(t, typ)
		id := s.freshWith(typ, `1`, `,"backoff_ms":200`)
		w.takes(id)
		begin := time.Now()
		w.close()
		heir.takes(id)
		notBefore(t, begin, 200*ms, "retried")
	})
	t.Run("of a timeout", func(t *testing.T) {
		t.Parallel()
		typ := name("backoff")
		s, w, heir := b.submitter(t), b.joined(t, typ), b.joined(t, typ)
		begin := time.Now()
		id := s.freshWith(typ, `1`, `,"backoff_ms":200,"timeout_ms":100`)
		w.takes(id)
		heir.takes(id)
		notBefore(t, begin, 300*ms, "retried")
		soonAfter(t, begin, 350*ms, "retried")
	})
	t.Run("replaced by fail's delay_ms", func(t *testing.T) {
		t.Parallel()
		typ := name("backoff")
		s, w := b.submitter(t), b.joined(t, typ)
		id := s.freshWith(typ, `1`, `,"backoff_ms":86400000`)
		w.takes(id)
		w.fail(`,"delay_ms":0`)
		w.takes(id)
		begin := time.Now()
		w.fail(`,"delay_ms":150`)
		w.takes(id)
		notBefore(t, begin, 150*ms, "retried")
		w.fail(``) // back to the backoff: a day
		if got := b.state(t, id); got != "delayed" {
			t.Errorf("state %q", got)
		}
		w.silent(50 * ms)
	})
	t.Run("fail's delay_ms without a backoff", func(t *testing.T) {
		t.Parallel()
		typ := name("backoff")
		s, w := b.submitter(t), b.joined(t, typ)
		id := s.fresh(typ, `1`)
		w.takes(id)
		begin := time.Now()
		w.fail(`,"delay_ms":150`)
		w.takes(id)
		notBefore(t, begin, 150*ms, "retried")
		w.fail(``)
		w.takes(id) // only that one retry was delayed
	})
	t.Run("the cap is a day, not an overflow", func(t *testing.T) {
		t.Parallel()
		typ := name("backoff")
		s, w := b.submitter(t), b.joined(t, typ)
		id := s.freshWith(typ, `1`, `,"backoff_ms":1,"retries":1000`)
		w.takes(id)
		for range 100 {
			w.fail(`,"delay_ms":0`)
			w.takes(id)
		}
		w.fail(``) // retry 101: 1 ms · 2¹⁰⁰, at most a day
		w.silent(100 * ms)
		if got := b.state(t, id); got != "delayed" {
			t.Errorf("state %q", got)
		}
	})
	t.Run("others are not held up", func(t *testing.T) {
		t.Parallel()
		typ := name("backoff")
		s, w := b.submitter(t), b.joined(t, typ)
		id := s.freshWith(typ, `1`, `,"backoff_ms":1000`)
		w.takes(id)
		w.fail(``)
		serve(t, s, w, typ)
		s.put(id, typ, `1`, "")
		s.failsFor("id_exists", id) // waiting, it holds its id
		w.takes(id)
	})
}

func TestExpires(t *testing.T) {
	t.Parallel()
	b := shared(t)
	t.Run("queued", func(t *testing.T) {
		t.Parallel()
		typ := name("expires")
		s := b.submitter(t)
		begin := time.Now()
		id := s.freshWith(typ, `1`, `,"expires_ms":150`)
		s.failsFor("expired", id)
		notBefore(t, begin, 150*ms, "expired")
		soonAfter(t, begin, 150*ms, "expired")
		b.joined(t, typ).quiet()
		s.submit(id, typ, `1`) // free
	})
	t.Run("counted from the submit, delay included", func(t *testing.T) {
		t.Parallel()
		typ := name("expires")
		s := b.submitter(t)
		begin := time.Now()
		id := s.freshWith(typ, `1`, `,"delay_ms":200,"expires_ms":300`)
		s.failsFor("expired", id)
		notBefore(t, begin, 300*ms, "expired")
	})
	t.Run("taken after its delay, before its deadline", func(t *testing.T) {
		t.Parallel()
		typ := name("expires")
		s, w := b.submitter(t), b.joined(t, typ)
		id := s.freshWith(typ, `1`, `,"delay_ms":100,"expires_ms":60000`)
		w.takes(id)
		w.respond(`1`)
		s.result(id, `1`)
		s.quiet()
	})
	t.Run("a run is not interrupted", func(t *testing.T) {
		t.Parallel()
		typ := name("expires")
		s, w := b.submitter(t), b.joined(t, typ)
		id := s.freshWith(typ, `1`, `,"expires_ms":100`)
		w.takes(id)
		s.silent(250 * ms)
		w.respond(`"late, but an answer"`)
		s.result(id, `"late, but an answer"`)
	})
	for _, c := range []struct {
		what, more string
		end        func(b *daemon, w worker, id string)
		code       string
	}{
		{"fail after it, a retry left", ``, func(_ *daemon, w worker, _ string) { w.fail(``) }, "expired"},
		{"fail after it, none left", `,"retries":0`, func(_ *daemon, w worker, _ string) { w.fail(``) }, "job_failed"},
		{"fail after it, no retry wanted", ``, func(_ *daemon, w worker, _ string) { w.fail(`,"retry":false`) }, "job_failed"},
		{"lost after it, a retry left", ``, func(_ *daemon, w worker, _ string) { w.close() }, "expired"},
		{"lost after it, none left", `,"retries":0`, func(_ *daemon, w worker, _ string) { w.close() }, "job_failed"},
		{"timeout after it, a retry left", `,"timeout_ms":1000`, func(*daemon, worker, string) {}, "expired"},
		{"timeout after it, none left", `,"timeout_ms":1000,"retries":0`, func(*daemon, worker, string) {}, "job_failed"},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			typ := name("expires")
			s, w := b.submitter(t), b.joined(t, typ)
			id := s.freshWith(typ, `1`, `,"expires_ms":100`+c.more)
			w.takes(id)
			s.silent(150 * ms)
			c.end(b, w, id)
			s.failsFor(c.code, id)
			s.submit(id, name("elsewhere"), `1`)
		})
	}
	t.Run("while waiting for its retry", func(t *testing.T) {
		t.Parallel()
		typ := name("expires")
		s, w := b.submitter(t), b.joined(t, typ)
		begin := time.Now()
		id := s.freshWith(typ, `1`, `,"expires_ms":250,"backoff_ms":60000`)
		w.takes(id)
		w.fail(``)
		s.failsFor("expired", id)
		notBefore(t, begin, 250*ms, "expired")
		soonAfter(t, begin, 250*ms, "expired")
		w.quiet()
	})
	t.Run("a retry before it goes on", func(t *testing.T) {
		t.Parallel()
		typ := name("expires")
		s, w := b.submitter(t), b.joined(t, typ)
		id := s.freshWith(typ, `1`, `,"expires_ms":60000`)
		w.takes(id)
		w.fail(``)
		w.takes(id)
		w.respond(`1`)
		s.result(id, `1`)
	})
	t.Run("many at once", func(t *testing.T) {
		t.Parallel()
		typ := name("expires")
		s := b.submitter(t)
		acked, open := map[string]bool{}, map[string]bool{}
		for range 300 {
			id := name("job")
			s.put(id, typ, `1`, `,"expires_ms":200`)
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
		s.quiet()
		b.ledgerIs(t, typ, map[string]int64{"submitted": 300, "expired": 300})
	})
	t.Run("a year is no overflow", func(t *testing.T) {
		t.Parallel()
		s := b.submitter(t)
		id := s.freshWith(name("expires"), `1`, `,"expires_ms":`+year)
		s.silent(100 * ms)
		if got := b.state(t, id); got != "queued" {
			t.Errorf("state %q", got)
		}
	})
}
