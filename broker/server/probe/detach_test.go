package probe

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"gloom/bench/throwaway"
)

func TestDetachedJobOutlivesSubmitter(t *testing.T) {
	t.Parallel()
	b := shared(t)
	t.Run("outlives its submitter", func(t *testing.T) {
		t.Parallel()
		for _, d := range submitterEnds[:3] {
			typ := freshName("detach")
			s := b.submitter(t)
			id := s.submitFreshWith(typ, `{"keep":1}`, `,"detach":true`)
			plainID := s.submitFresh(typ, `1`)
			d.end(s.conn)
			b.waitState(t, plainID, "") // now the broker knows of the loss
			if got := b.jobState(t, id); got != "queued" {
				t.Errorf("state %q", got)
			}
			w := b.servingWorker(t, typ)
			if got, body := w.nextJob(); got != id || body != `{"keep":1}` {
				t.Fatalf("job %q %s", got, body)
			}
			w.respond(`1`)
			w.wantQuiet()
		}
	})
	t.Run("nothing is sent about it", func(t *testing.T) {
		t.Parallel()
		typ := freshName("detach")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		answeredID := s.submitFreshWith(typ, `1`, `,"detach":true,"progress":true`)
		w.wantJob(answeredID)
		w.sendProgress(`50`)
		w.respond(`2`)
		failedID := s.submitFreshWith(typ, `1`, `,"detach":true,"retries":0`)
		w.wantJob(failedID)
		w.fail(``)
		timedOutID := s.submitFreshWith(typ, `1`, `,"detach":true,"retries":0,"timeout_ms":50`)
		w.wantJob(timedOutID)
		b.waitState(t, timedOutID, "")
		w.respond(`1`)
		expiredID := s.submitFreshWith(freshName("nobody"), `1`, `,"detach":true,"expires_ms":50`)
		b.waitState(t, expiredID, "")
		s.wantQuiet()
		b.awaitLedger(t, typ, map[string]int64{"submitted": 3, "answered": 1, "failed": 2})
	})
	t.Run("holds its id", func(t *testing.T) {
		t.Parallel()
		typ := freshName("detach")
		s, other, w := b.submitter(t), b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFreshWith(typ, `1`, `,"detach":true`)
		w.wantJob(id)
		s.close()
		other.sendSubmit(id, typ, `1`, "")
		other.wantErrorFor("id_exists", id)
		w.respond(`1`)
		other.submit(id, typ, `1`)
	})
	t.Run("running without its submitter, it is retried", func(t *testing.T) {
		t.Parallel()
		typ := freshName("detach")
		s, w, successor := b.submitter(t), b.worker(t), b.worker(t)
		w.joinWith(typ, `,"cancel":true`)
		successor.join(typ)
		id := s.submitFreshWith(typ, `1`, `,"detach":true`)
		w.wantJob(id)
		plainID := s.submitFresh(freshName("elsewhere"), `1`)
		s.close()
		b.waitState(t, plainID, "")
		w.wantQuiet() // somebody still wants the job, so no notice comes
		w.close()
		successor.wantJob(id)
		successor.respond(`1`)
		b.awaitLedger(t, typ, map[string]int64{"submitted": 1, "answered": 1})
	})
	t.Run("cancelled by anybody", func(t *testing.T) {
		t.Parallel()
		typ := freshName("detach")
		s, other := b.submitter(t), b.submitter(t)
		queuedID := s.submitFreshWith(typ, `1`, `,"detach":true`)
		other.cancel(queuedID)
		ownID := s.submitFreshWith(typ, `1`, `,"detach":true`)
		s.cancel(ownID)
		s.wantQuiet()
		b.servingWorker(t, typ).wantQuiet()
		orphanID := s.submitFreshWith(typ, `1`, `,"detach":true,"delay_ms":60000`)
		s.close()
		other.cancel(orphanID)
		other.cancelFails("unknown_id", orphanID)
	})
	t.Run("cancelled by anybody at work", func(t *testing.T) {
		t.Parallel()
		typ := freshName("detach")
		s, other, w := b.submitter(t), b.submitter(t), b.worker(t)
		w.joinWith(typ, `,"cancel":true`)
		id := s.submitFreshWith(typ, `1`, `,"detach":true`)
		w.wantJob(id)
		other.cancel(id)
		w.wantNotice(id)
		w.respond(`1`)
		b.awaitLedger(t, typ, map[string]int64{"submitted": 1, "cancelled": 1})
	})
	t.Run("false is the plain job", func(t *testing.T) {
		t.Parallel()
		typ := freshName("detach")
		s := b.submitter(t)
		id := s.submitFreshWith(typ, `1`, `,"detach":false`)
		s.close()
		b.waitState(t, id, "")
	})
}

func TestAckFalseOmitsTheReply(t *testing.T) {
	t.Parallel()
	b := shared(t)
	t.Run("false: the result is the first frame", func(t *testing.T) {
		typ := freshName("ack")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := freshName("job")
		s.sendSubmit(id, typ, `1`, `,"ack":false`)
		w.wantJob(id)
		s.wantQuiet()
		w.respond(`2`)
		s.wantResult(id, `2`)
	})
	t.Run("true: as ever", func(t *testing.T) {
		s := b.submitter(t)
		s.submitFreshWith(freshName("ack"), `1`, `,"ack":true`)
		s.wantQuiet()
	})
	t.Run("errors are sent anyway", func(t *testing.T) {
		s := b.submitter(t)
		id := s.submitFresh(freshName("ack"), `1`)
		s.sendSubmit(id, "t", `1`, `,"ack":false`)
		s.wantErrorFor("id_exists", id)
		s.send(`{"action":"submit","id":%q,"type":"t","ack":false}`, id)
		s.wantErrorFor("missing_field", id)
		s.sendSubmit(id, "t", `1`, `,"ack":false,"priority":"high"`)
		s.wantErrorFor("invalid_type", id)
		failed := freshName("job")
		s.sendSubmit(failed, freshName("ack"), `1`, `,"ack":false,"expires_ms":50`)
		s.wantErrorFor("expired", failed)
	})
	t.Run("mixed in one segment", func(t *testing.T) {
		typ := freshName("ack")
		s := b.submitter(t)
		var batch []byte
		for i := range 100 {
			fields := ""
			if i%3 != 0 {
				fields = `,"ack":false`
			}
			batch = append(batch, packFrame(fmt.Sprintf(`{"action":"submit","id":"%s-%d","type":%q,"body":1%s}`, typ, i, typ, fields))...)
		}
		s.writeRaw(batch)
		for i := 0; i < 100; i += 3 {
			s.wantAck(fmt.Sprintf("%s-%d", typ, i))
		}
		s.wantQuiet()
		if got := b.readLedger(t, typ)["queued"]; got != 100 {
			t.Errorf("%d queued, want 100", got)
		}
	})
	t.Run("fire and forget", func(t *testing.T) {
		typ := freshName("ack")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		for range 20 {
			id := freshName("job")
			s.sendSubmit(id, typ, `1`, `,"ack":false,"detach":true`)
			w.wantJob(id)
			w.respond(`1`)
		}
		s.wantQuiet()
	})
}

func TestProgressReachesWhoAskedForIt(t *testing.T) {
	t.Parallel()
	b := shared(t)
	t.Run("to one that asked", func(t *testing.T) {
		typ := freshName("progress")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFreshWith(typ, `1`, `,"progress":true`)
		w.wantJob(id)
		for _, body := range []string{`1`, `null`, `{"b" : 1e400, "a":"\u00e9"}`, `[ ]`, `"` + strings.Repeat("p", 100<<10) + `"`} {
			w.sendProgress(body)
			s.wantProgress(id, body)
		}
		w.respond(`2`)
		s.wantResult(id, `2`)
		s.wantQuiet()
	})
	t.Run("to nobody else", func(t *testing.T) {
		typ := freshName("progress")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		for _, fields := range []string{``, `,"progress":false`, `,"progress":null`} {
			id := s.submitFreshWith(typ, `1`, fields)
			w.wantJob(id)
			w.sendProgress(`1`)
			s.wantQuiet()
			w.respond(`2`)
			s.wantResult(id, `2`)
		}
	})
	t.Run("in order, and never after the end", func(t *testing.T) {
		typ := freshName("progress")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		for range 20 {
			id := s.submitFreshWith(typ, `1`, `,"progress":true`)
			w.wantJob(id)
			var batch []byte
			for i := range 20 {
				batch = append(batch, packFrame(fmt.Sprintf(`{"action":"progress","body":%d}`, i))...)
			}
			w.writeRaw(append(batch, packFrame(`{"action":"respond","body":"end"}`)...))
			for i := range 20 {
				w.wantOK()
				s.wantProgress(id, fmt.Sprint(i))
			}
			w.wantOK()
			s.wantResult(id, `"end"`)
		}
		s.wantQuiet()
	})
	t.Run("without a job", func(t *testing.T) {
		w := b.worker(t)
		w.send(`{"action":"progress","body":1}`)
		checkReason(t, w.wantError("invalid_state"), "not_processing")
		w.join(freshName("progress"))
		w.send(`{"action":"progress","body":1}`)
		checkReason(t, w.wantError("invalid_state"), "not_processing")
	})
	t.Run("its id is ignored on a socket without names", func(t *testing.T) {
		typ := freshName("progress")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFreshWith(typ, `1`, `,"progress":true`)
		w.wantJob(id)
		for _, v := range []string{`5`, `"another"`, `null`, `[]`} {
			w.send(`{"action":"progress","id":%s,"body":1}`, v)
			w.wantOK()
			s.wantProgress(id, `1`)
		}
		w.send(`{"action":"respond","id":{},"body":2}`)
		w.wantOK()
		s.wantResult(id, `2`)
	})
	t.Run("extends nothing", func(t *testing.T) {
		typ := freshName("progress")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		begin := time.Now()
		id := s.submitFreshWith(typ, `1`, `,"timeout_ms":200,"retries":0,"progress":true`)
		w.wantJob(id)
		for time.Since(begin) < 150*ms {
			w.sendProgress(`1`)
		}
		for {
			f := s.recv()
			if f.kind() == "progress" {
				continue
			}
			if f.text("error") != "job_failed" || f.text("id") != id {
				t.Fatalf("got %s", f)
			}
			break
		}
		checkNotBefore(t, begin, 200*ms, "timed out")
		checkSoonAfter(t, begin, 200*ms, "timed out")
		s.wantQuiet()
	})
	t.Run("of an unwanted run", func(t *testing.T) {
		typ := freshName("progress")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFreshWith(typ, `1`, `,"progress":true`)
		w.wantJob(id)
		s.cancel(id)
		w.sendProgress(`1`) // ok, discarded
		s.wantQuiet()
		w.respond(`1`)
		s.wantQuiet()
	})
	t.Run("of every run of a job", func(t *testing.T) {
		typ := freshName("progress")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFreshWith(typ, `1`, `,"progress":true`)
		for i := range 3 {
			w.wantJob(id)
			w.sendProgress(fmt.Sprint(i))
			s.wantProgress(id, fmt.Sprint(i))
			w.fail(``)
		}
		w.wantJob(id)
		w.respond(`1`)
		s.wantResult(id, `1`)
	})
	t.Run("to a submitter that never reads", func(t *testing.T) {
		b := start(t, "--max-outbound=1MiB")
		typ := freshName("progress")
		s, w := submitter{dialSlowReader(t, b.submitAddr)}, b.servingWorker(t, typ)
		id := s.submitFreshWith(typ, `1`, `,"progress":true`)
		w.wantJob(id)
		body := quote(strings.Repeat("p", 32<<10))
		for range 1000 { // 32 MiB of progress may be dropped but must not pile up, and the worker gets its oks
			w.sendProgress(body)
		}
		if growth := b.usage().RSS; growth > 256*mib && !throwaway.Race {
			t.Errorf("resident memory is %d MiB", growth/mib)
		}
		w.respond(`1`)
		b.checkAlive(t)
	})
}
