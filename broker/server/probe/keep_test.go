package probe

import (
	"fmt"
	"io"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"
)

const keepField = `,"keep_ms":60000`

// loseSubmitter ends a submitter's connection and waits until the broker knows of the loss. It submits a
// job that is not kept, which the broker then discards.
func (d *daemon) loseSubmitter(t tb, s submitter, end func(*conn)) {
	t.Helper()
	boundID := s.submitFresh(freshName("bound"), `1`)
	end(s.conn)
	d.waitState(t, boundID, "")
}

// makeOutcome submits a kept job, loses the submitter, and has the job answered.
func (d *daemon) makeOutcome(t tb, typ, body, fields string) (id string) {
	t.Helper()
	s, w := d.submitter(t), d.worker(t)
	id = s.submitFreshWith(typ, `1`, keepField+fields)
	d.loseSubmitter(t, s, (*conn).close)
	w.join(typ)
	w.wantJob(id)
	w.respond(body)
	w.retire()
	return id
}

func TestKeptJobOutlivesConnection(t *testing.T) {
	t.Parallel()
	b := shared(t)
	t.Run("as long as the connection lives, all is as without", func(t *testing.T) {
		typ := freshName("keep")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		for range 30 {
			id := s.submitFreshWith(typ, `1`, keepField)
			w.wantJob(id)
			w.respond(`2`)
			s.wantResult(id, `2`)
			s.submitWith(id, typ, `1`, keepField) // a submitter that has read the last frame may use the id at once
			w.wantJob(id)
			w.fail(`,"retry":false`)
			s.wantErrorFor("job_failed", id)
		}
		s.wantQuiet()
	})
	for ending, end := range map[string]func(*conn){"closed": (*conn).close, "reset": (*conn).reset, "half closed": (*conn).halfClose} {
		t.Run(ending+": it waits and runs on, its result is kept", func(t *testing.T) {
			typ := freshName("keep")
			s := b.submitter(t)
			id := s.submitFreshWith(typ, `1`, keepField)
			b.loseSubmitter(t, s, end)
			if got := b.jobState(t, id); got != "queued" {
				t.Fatalf("state %q, want queued", got)
			}
			w := b.servingWorker(t, typ)
			w.wantJob(id)
			w.respond(`{"v" : 1e400}`)
			if got := b.jobState(t, id); got != "ended" {
				t.Fatalf("state %q, want ended", got)
			}
			successor := b.submitter(t)
			successor.attach(id, "ended", "")
			successor.wantResult(id, `{"v" : 1e400}`)
			successor.submit(id, typ, `1`)
		})
	}
	t.Run("lost at work, it is answered for the next", func(t *testing.T) {
		typ := freshName("keep")
		s, w := b.submitter(t), b.worker(t)
		w.joinWith(typ, `,"cancel":true`)
		id := s.submitFreshWith(typ, `1`, keepField)
		w.wantJob(id)
		b.loseSubmitter(t, s, (*conn).close)
		w.wantQuiet() // somebody still wants the run, so no notice comes
		w.respond(`2`)
		successor := b.submitter(t)
		successor.attach(id, "ended", "")
		successor.wantResult(id, `2`)
		b.awaitLedger(t, typ, map[string]int64{"submitted": 1, "answered": 1})
	})
	t.Run("without its connection it is retried", func(t *testing.T) {
		typ := freshName("keep")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFreshWith(typ, `1`, keepField)
		w.wantJob(id)
		b.loseSubmitter(t, s, (*conn).reset)
		w.close()
		w = b.servingWorker(t, typ)
		w.wantJob(id)
		w.fail("")
		w.wantJob(id)
		w.release("")
		w.wantJob(id)
		w.respond(`1`)
	})
	t.Run("a connection that the broker drops", func(t *testing.T) {
		t.Parallel()
		s := b.submitter(t)
		s.hello(`,"heartbeat_ms":500`)
		id, boundID := s.submitFreshWith(freshName("keep"), `1`, keepField), s.submitFresh(freshName("keep"), `1`)
		b.waitState(t, boundID, "") // once s has been silent for two beats
		if got := b.jobState(t, id); got != "queued" {
			t.Errorf("state %q, want queued", got)
		}
	})
	t.Run("a connection that the broker closes", func(t *testing.T) {
		s := b.submitter(t)
		id, boundID := s.submitFreshWith(freshName("keep"), `1`, keepField), s.submitFresh(freshName("keep"), `1`)
		s.writeRaw(announceFrame(1 << 31))
		s.wantError("size_error")
		s.wantEOF()
		b.waitState(t, boundID, "")
		b.submitter(t).attach(id, "queued", "")
	})
	t.Run("errors are kept too", func(t *testing.T) {
		typ := freshName("keep")
		s, successor := b.submitter(t), b.submitter(t)
		failedID := s.submitFreshWith(typ, `1`, keepField+`,"retries":0`)
		cancelledID := s.submitFreshWith(freshName("keep"), `1`, keepField)
		timedID := s.submitFreshWith(typ, `1`, keepField+`,"retries":0,"timeout_ms":20`)
		expiredID := s.submitFreshWith(freshName("keep"), `1`, keepField+`,"expires_ms":2000`)
		b.loseSubmitter(t, s, (*conn).close)
		w := b.servingWorker(t, typ)
		w.wantJob(failedID)
		w.fail(`,"reason":"as it happens"`)
		w.wantJob(timedID)
		deleteJob(t, b, cancelledID, 200)
		for id, code := range map[string]string{failedID: "job_failed", expiredID: "expired", cancelledID: "cancelled", timedID: "job_failed"} {
			b.waitState(t, id, "ended")
			successor.attach(id, "ended", "")
			f := successor.wantErrorFor(code, id)
			if id == failedID {
				checkReason(t, f, "as it happens")
			}
		}
		w.respond(`1`) // overdue
	})
	t.Run("forgotten when keep_ms is over", func(t *testing.T) {
		t.Parallel()
		typ := freshName("keep")
		s, w, successor := b.submitter(t), b.worker(t), b.submitter(t)
		id := s.submitFreshWith(typ, `1`, `,"keep_ms":400`)
		b.loseSubmitter(t, s, (*conn).close)
		time.Sleep(20 * ms) // keep_ms counts from the job's end, not from the loss
		w.join(typ)
		w.wantJob(id)
		begin := time.Now()
		w.respond(`2`)
		successor.sendSubmit(id, typ, `1`, "")
		if f := successor.recv(); f.text("error") != "id_exists" && roundedSince(begin) < 300*ms {
			t.Errorf("got %s, want id_exists while it is kept", f)
		}
		b.waitState(t, id, "")
		checkNotBefore(t, begin, 400*ms, "forgotten")
		checkSoonAfter(t, begin, 400*ms, "forgotten")
		successor.attachFails("unknown_id", id)
		successor.submit(id, typ, `1`)
	})
	t.Run("holds its id until it is read", func(t *testing.T) {
		typ := freshName("keep")
		id := b.makeOutcome(t, typ, `2`, "")
		s, successor := b.submitter(t), b.submitter(t)
		s.sendSubmit(id, typ, `1`, "")
		s.wantErrorFor("id_exists", id)
		successor.attach(id, "ended", "")
		successor.wantResult(id, `2`)
		s.submit(id, typ, `1`) // the id is free for all submitters, at once
		b.submitter(t).attachFails("unknown_id", id)
	})
	t.Run("cancel forgets it", func(t *testing.T) {
		typ := freshName("keep")
		id := b.makeOutcome(t, typ, `2`, "")
		s := b.submitter(t)
		s.cancel(id)
		s.cancelFails("unknown_id", id)
		s.attachFails("unknown_id", id)
		s.submit(id, typ, `1`)
		b.awaitLedger(t, typ, map[string]int64{"submitted": 2, "answered": 1, "queued": 1})
	})
	t.Run("cancel of a waiting one whose connection is gone", func(t *testing.T) {
		s, other := b.submitter(t), b.submitter(t)
		id := s.submitFreshWith(freshName("keep"), `1`, keepField)
		other.cancelFails("unknown_id", id) // others cannot cancel the job while its submitter is connected
		b.loseSubmitter(t, s, (*conn).close)
		other.cancel(id)
		other.attachFails("unknown_id", id)
		if got := b.jobState(t, id); got != "" {
			t.Errorf("state %q, want it gone", got)
		}
	})
	t.Run("cancel of a run whose connection is gone: nothing is kept", func(t *testing.T) {
		typ := freshName("keep")
		s, other, w := b.submitter(t), b.submitter(t), b.worker(t)
		w.joinWith(typ, `,"cancel":true`)
		id := s.submitFreshWith(typ, `1`, keepField)
		w.wantJob(id)
		b.loseSubmitter(t, s, (*conn).close)
		other.cancel(id)
		w.wantNotice(id)
		other.attachFails("unknown_id", id)
		w.respond(`2`)
		other.attachFails("unknown_id", id)
		other.submit(id, typ, `1`)
		b.awaitLedger(t, typ, map[string]int64{"submitted": 2, "cancelled": 1, "running": 1})
	})
	t.Run("DELETE forgets it, PATCH is 404", func(t *testing.T) {
		typ := freshName("keep")
		id := b.makeOutcome(t, typ, `2`, "")
		b.callHTTP(t, "PATCH", "/v1/jobs/"+url.PathEscape(id), `{"priority":1}`, 404)
		job := b.jobInfo(t, id)
		if job["state"] != "ended" || job["keep_ms"] != 60000.0 {
			t.Errorf("told %v", job)
		}
		deleteJob(t, b, id, 200)
		deleteJob(t, b, id, 404)
		b.submitter(t).submit(id, typ, `1`)
	})
	t.Run("keep_ms is told", func(t *testing.T) {
		s := b.submitter(t)
		if got := b.jobInfo(t, s.submitFreshWith(freshName("keep"), `1`, `,"keep_ms":1234`))["keep_ms"]; got != 1234.0 {
			t.Errorf("keep_ms %v", got)
		}
	})
	t.Run("0 and null are none", func(t *testing.T) {
		s := b.submitter(t)
		for _, v := range []string{"0", "null"} {
			id := s.submitFreshWith(freshName("keep"), `1`, `,"detach":false,"keep_ms":`+v)
			b.submitter(t).attachFails("unknown_id", id)
			s.submitFreshWith(freshName("keep"), `1`, `,"detach":true,"keep_ms":`+v)
		}
		id := s.submitFreshWith(freshName("keep"), `1`, `,"keep_ms":0`)
		b.loseSubmitter(t, s, (*conn).close)
		b.waitState(t, id, "")
	})
	t.Run("with detach", func(t *testing.T) {
		s := b.submitter(t)
		id := freshName("keep")
		s.sendSubmit(id, "t", `1`, keepField+`,"detach":true`)
		checkReason(t, s.wantErrorFor("invalid_value", id), "keep_ms", "detach")
		s.submitFreshWith(freshName("keep"), `1`, keepField+`,"detach":false`)
		s.submitFreshWith(freshName("keep"), `1`, keepField+`,"detach":null`)
	})
	t.Run("with ack false", func(t *testing.T) {
		typ := freshName("keep")
		s := b.submitter(t)
		id := freshName("keep")
		s.sendSubmit(id, typ, `1`, keepField+`,"ack":false`)
		b.loseSubmitter(t, s, (*conn).close)
		b.submitter(t).attach(id, "queued", "")
	})
	t.Run("a gauge of their own", func(t *testing.T) {
		b := start(t)
		for i := range 3 {
			b.makeOutcome(t, fmt.Sprint("t", i), `1`, "")
		}
		samples, err := b.readSamples()
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for k, v := range samples {
			found = found || strings.HasPrefix(k, "gloom_") && strings.Contains(k, "kept") && v == 3
		}
		if !found {
			t.Error("no gloom_ sample with kept in its name is 3")
		}
	})
	t.Run("a drain does not wait for kept outcomes", func(t *testing.T) {
		b := start(t, "--drain-timeout=60s")
		b.makeOutcome(t, "t", `1`, "")
		b.Signal(syscall.SIGTERM)
		b.awaitExit(t, 5*time.Second, 0)
	})
}

// TestHalfReadOutcomeIsKept: an outcome of which a lost connection has read a part is kept as a whole.
func TestHalfReadOutcomeIsKept(t *testing.T) {
	t.Parallel()
	b := shared(t)
	typ := freshName("half")
	body := quote(strings.Repeat("h", 8<<20))
	w := b.servingWorker(t, typ)
	s := submitter{dialSlowReader(t, b.submitAddr)}
	id := s.submitFreshWith(typ, `1`, keepField)
	w.wantJob(id)
	w.respond(body)
	readHalf := func(s submitter) {
		t.Helper()
		_ = s.net.SetReadDeadline(time.Now().Add(patience))
		if _, err := io.CopyN(io.Discard, s.in, 10_000); err != nil {
			t.Fatalf("read a part: %v", err)
		}
	}
	readHalf(s)
	s.sendSubmit(freshName("probe"), typ, `1`, `,"delay_ms":60000`)
	s.reset()
	for range 2 {
		b.waitState(t, id, "ended")
		successor := submitter{dialSlowReader(t, b.submitAddr)}
		waitFor(t, "it can be attached", func() error {
			successor.send(`{"action":"attach","id":%q}`, id)
			f := successor.recv()
			if f.text("state") != "ended" {
				return fmt.Errorf("%s", f)
			}
			return nil
		})
		readHalf(successor)
		successor.reset()
	}
	successor := b.submitter(t)
	waitFor(t, "it can be attached", func() error {
		successor.send(`{"action":"attach","id":%q}`, id)
		f := successor.recv()
		if f.text("state") != "ended" {
			return fmt.Errorf("%s", f)
		}
		return nil
	})
	successor.wantResult(id, body)
	successor.attachFails("unknown_id", id)
}

func TestOutcomesCountAgainstLimits(t *testing.T) {
	t.Parallel()
	t.Run("--max-jobs counts them, nothing kept is dropped", func(t *testing.T) {
		t.Parallel()
		b := start(t, "--max-jobs=4")
		id1, id2, id3 := b.makeOutcome(t, "t", `1`, ""), b.makeOutcome(t, "t", `2`, ""), b.makeOutcome(t, "t", `3`, "")
		s := b.submitter(t)
		s.submit("free", "u", `1`)
		s.sendSubmit("no", "u", `1`, "")
		wantOverloaded(t, s, "no", "job")
		s.attach(id2, "ended", "")
		s.wantResult(id2, `2`)
		s.submit("room", "u", `1`)
		s.sendSubmit("no", "u", `1`, "")
		wantOverloaded(t, s, "no", "job")
		for _, id := range []string{id1, id3} {
			if got := b.jobState(t, id); got != "ended" {
				t.Errorf("%q is %q", id, got)
			}
		}
	})
	t.Run("--max-type-jobs counts them", func(t *testing.T) {
		t.Parallel()
		b := start(t, "--max-type-jobs=2")
		b.makeOutcome(t, "t", `1`, "")
		id := b.makeOutcome(t, "t", `1`, "")
		s := b.submitter(t)
		s.sendSubmit("no", "t", `1`, "")
		wantOverloaded(t, s, "no", "type")
		s.submit("other", "u", `1`)
		s.cancel(id)
		s.submit("yes", "t", `1`)
	})
	t.Run("--max-submitter-jobs does not once its connection is gone", func(t *testing.T) {
		t.Parallel()
		b := start(t, "--max-submitter-jobs=2")
		for range 5 {
			b.makeOutcome(t, "t", `1`, "")
		}
		s := b.submitter(t)
		s.submitFresh("t", `1`)
		s.submitFresh("t", `1`)
		s.sendSubmit("no", "t", `1`, "")
		wantOverloaded(t, s, "no", "submitter")
	})
	t.Run("--max-bytes counts what they hold", func(t *testing.T) {
		t.Parallel()
		b := start(t, "--max-bytes=4MiB")
		body := quote(strings.Repeat("b", 3<<20))
		id := b.makeOutcome(t, "t", body, "")
		s := b.submitter(t)
		big := quote(strings.Repeat("n", 2<<20))
		s.sendSubmit("no", "u", big, "")
		wantOverloaded(t, s, "no", "byte")
		s.attach(id, "ended", "")
		s.wantResult(id, body)
		s.submit("yes", "u", big)
	})
	t.Run("an outcome beyond the outbound limit stays", func(t *testing.T) {
		t.Parallel()
		b := start(t, "--max-outbound=64KiB")
		body := quote(strings.Repeat("o", 1<<20))
		id := b.makeOutcome(t, "t", body, "")
		s := b.submitter(t)
		for range 3 {
			f := s.attachFails("overloaded", id)
			checkReason(t, f, "outbound")
		}
		if got := b.jobState(t, id); got != "ended" {
			t.Errorf("state %q, want ended", got)
		}
		s.cancel(id)
	})
}
