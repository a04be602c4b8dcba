package probe

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// release releases a job and reads the ok. The string fields adds keys to the frame.
func (w worker) release(fields string) {
	w.t.Helper()
	w.send(`{"action":"release"%s}`, fields)
	w.wantOK()
}

// withdraw leaves, and releases a job that arrived before the ok of the leave: closing the
// connection would use up one of the job's runs.
func (w worker) withdraw() {
	w.t.Helper()
	w.send(`{"action":"leave"}`)
	if w.recv().kind() == "job" {
		w.wantOK()
		w.release("")
	}
}

func TestReleasedJobKeepsItsPlace(t *testing.T) {
	t.Parallel()
	b := shared(t)
	t.Run("ok, then the next job: the same one", func(t *testing.T) {
		typ := freshName("release")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFresh(typ, `{"a" : 1e400}`)
		w.wantJob(id)
		w.release("")
		if got, body := w.nextJob(); got != id || body != `{"a" : 1e400}` {
			t.Fatalf("job %q %s", got, body)
		}
		w.respond(`2`)
		s.wantResult(id, `2`)
		s.wantQuiet()
		b.awaitLedger(t, typ, map[string]int64{"submitted": 1, "answered": 1})
	})
	t.Run("no attempt is used", func(t *testing.T) {
		typ := freshName("release")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFreshWith(typ, `1`, `,"retries":0`)
		for range 20 {
			w.wantJob(id)
			w.release("")
		}
		w.wantJob(id)
		w.fail("")
		s.wantErrorFor("job_failed", id)
	})
	t.Run("attempts used before stay used", func(t *testing.T) {
		typ := freshName("release")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFreshWith(typ, `1`, `,"retries":1`)
		for range 2 {
			w.wantJob(id)
			w.release("")
			w.wantJob(id)
			w.fail("")
		}
		s.wantErrorFor("job_failed", id)
	})
	t.Run("back to its place by age", func(t *testing.T) {
		typ := freshName("release")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		first := s.submitFresh(typ, `1`)
		w.wantJob(first)
		second, third := s.submitFresh(typ, `1`), s.submitFresh(typ, `1`)
		w.leave()
		w.release("")
		other := b.servingWorker(t, typ)
		for _, id := range []string{first, second, third} {
			other.wantJob(id)
			other.respond(`1`)
		}
		w.wantQuiet()
	})
	t.Run("back to its place by priority", func(t *testing.T) {
		typ := freshName("release")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		lowID := s.submitFreshWith(typ, `1`, `,"priority":-1`)
		w.wantJob(lowID)
		midID := s.submitFresh(typ, `1`)
		w.release("")
		w.wantJob(midID)
		w.respond(`1`)
		w.wantJob(lowID)
	})
	t.Run("with delay_ms it waits so long first", func(t *testing.T) {
		typ := freshName("release")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFresh(typ, `1`)
		w.wantJob(id)
		begin := time.Now()
		w.release(`,"delay_ms":250`)
		if got := b.jobState(t, id); got != "delayed" {
			t.Errorf("state %q, want delayed", got)
		}
		otherID := s.submitFresh(typ, `1`)
		w.wantJob(otherID)
		w.respond(`1`)
		w.wantJob(id)
		checkNotBefore(t, begin, 250*ms, "handed out")
		checkSoonAfter(t, begin, 250*ms, "handed out")
	})
	t.Run("delay_ms null or 0", func(t *testing.T) {
		typ := freshName("release")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFreshWith(typ, `1`, `,"backoff_ms":60000`) // a backoff delays only failed jobs
		for _, fields := range []string{`,"delay_ms":null`, `,"delay_ms":0`, ""} {
			w.wantJob(id)
			w.release(fields)
		}
		w.wantJob(id)
	})
	t.Run("delay_ms refused", func(t *testing.T) {
		typ := freshName("release")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFresh(typ, `1`)
		w.wantJob(id)
		for _, v := range nonIntegers {
			w.send(`{"action":"release","delay_ms":%s}`, v)
			checkReason(t, w.wantError("invalid_type"), "delay_ms", year)
		}
		for _, v := range append([]string{`-1`, plusOne(year)}, hugeNumbers...) {
			w.send(`{"action":"release","delay_ms":%s}`, v)
			checkReason(t, w.wantError("invalid_value"), "delay_ms", year)
		}
		w.wantQuiet() // the job is still out
		w.respond(`2`)
		s.wantResult(id, `2`)
	})
	t.Run("leave first: not handed out here again", func(t *testing.T) {
		typ := freshName("release")
		s, w, other := b.submitter(t), b.servingWorker(t, typ), b.worker(t)
		id := s.submitFresh(typ, `1`)
		w.wantJob(id)
		w.leave()
		w.release("")
		w.wantQuiet()
		other.join(typ)
		other.wantJob(id)
		w.close()
		other.respond(`2`)
		s.wantResult(id, `2`)
	})
	t.Run("except first: others get it", func(t *testing.T) {
		p := freshName("release")
		s, w := b.submitter(t), b.joinWorker(t, p+"*")
		id := s.submitFresh(p+"-a", `1`)
		w.wantJob(id)
		w.joinTypes(jsonList(p+"*"), `,"except":`+jsonList(p+"-a"))
		w.release("")
		w.wantQuiet()
		b.servingWorker(t, p+"-a").wantJob(id)
		serveTypes(t, s, w, p+"-b")
	})
	t.Run("to an idle worker at once", func(t *testing.T) {
		typ := freshName("release")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFresh(typ, `1`)
		w.wantJob(id)
		idle := b.servingWorker(t, typ)
		w.leave()
		w.release("")
		idle.wantJob(id)
	})
	t.Run("the timeout of a released run is off", func(t *testing.T) {
		t.Parallel()
		typ := freshName("release")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFreshWith(typ, `1`, `,"timeout_ms":3000,"retries":0`)
		w.wantJob(id)
		w.release(`,"delay_ms":3500`)
		w.wantJob(id) // the timeout of the first run has passed and had no effect
		w.respond(`2`)
		s.wantResult(id, `2`)
	})
	t.Run("the place of a type is given back", func(t *testing.T) {
		typ := freshName("release")
		b.limitType(t, typ, `{"concurrency":1}`)
		s, w, other := b.submitter(t), b.servingWorker(t, typ), b.servingWorker(t, typ)
		first := s.submitFresh(typ, `1`)
		second := s.submitFresh(typ, `1`)
		w, other = whoHas(t, first, w, other)
		other.wantQuiet()
		w.release(`,"delay_ms":60000`)
		w, _ = whoHas(t, second, w, other)
		w.respond(`1`)
	})
	t.Run("the token of a type is given back", func(t *testing.T) {
		typ := freshName("release")
		b.limitType(t, typ, `{"rate":0.001}`)
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFresh(typ, `1`)
		for range 5 {
			w.wantJob(id)
			w.release("")
		}
		w.wantJob(id)
		w.respond(`1`)
		s.wantResult(id, `1`)
		s.submitFresh(typ, `1`)
		w.wantQuiet() // the run counts, so there is no retry
	})
	t.Run("counted", func(t *testing.T) {
		b := start(t)
		s, w := b.submitter(t), b.servingWorker(t, "counted")
		id := s.submitFresh("counted", `1`)
		for range 7 {
			w.wantJob(id)
			w.release("")
		}
		w.wantJob(id)
		if job := b.callHTTP(t, "GET", "/v1/jobs/"+id, "", 200); !strings.Contains(job, `"releases": 7`) && !strings.Contains(job, `"releases":7`) {
			t.Errorf("the job's releases are not told: %s", job)
		}
		samples, err := b.readSamples()
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for k, v := range samples {
			found = found || strings.HasPrefix(k, "gloom_") && strings.Contains(k, "release") && v == 7
		}
		if !found {
			t.Error("no gloom_ sample with release in its name is 7")
		}
	})
	t.Run("progress is not undone", func(t *testing.T) {
		typ := freshName("release")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFreshWith(typ, `1`, `,"progress":true`)
		w.wantJob(id)
		w.sendProgress(`1`)
		s.wantProgress(id, `1`)
		w.release("")
		s.wantQuiet() // the submitter gets no frame about a release
		w.wantJob(id)
		w.sendProgress(`2`)
		s.wantProgress(id, `2`)
	})
	t.Run("pipelined with the answer to the same job again", func(t *testing.T) {
		typ := freshName("release")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFresh(typ, `1`)
		w.wantJob(id)
		w.writeRaw([]byte(string(packFrame(`{"action":"release"}`)) + string(packFrame(`{"action":"respond","body":2}`))))
		w.wantOK()
		w.wantJob(id)
		w.wantOK()
		s.wantResult(id, `2`)
	})
	t.Run("a detached job", func(t *testing.T) {
		typ := freshName("release")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFreshWith(typ, `1`, `,"detach":true`)
		w.wantJob(id)
		s.close()
		w.release("")
		w.wantJob(id)
		w.respond(`1`)
	})
}

// whoHas returns first the worker that got this job, then the other worker.
func whoHas(t *testing.T, id string, a, b worker) (holder, other worker) {
	t.Helper()
	a.send(`{"action":"ping"}`)
	if f := a.recv(); f.kind() == "job" {
		if f.text("id") != id {
			t.Fatalf("got %s, want job %q", f, id)
		}
		a.wantOK()
		return a, b
	}
	b.wantJob(id)
	return b, a
}

func TestReleaseNamesItsJob(t *testing.T) {
	t.Parallel()
	b := shared(t)
	t.Run("what has not begun", func(t *testing.T) {
		typ := freshName("release")
		s, w := b.submitter(t), b.workerWithPrefetch(t, typ, "5")
		var ids []string
		for range 5 {
			ids = append(ids, s.submitFresh(typ, `1`))
		}
		for _, id := range ids {
			w.wantJob(id)
		}
		w.leave()
		for _, id := range []string{ids[3], ids[1], ids[4], ids[2]} {
			w.release(`,"id":` + quote(id))
		}
		other := b.servingWorker(t, typ)
		for _, id := range ids[1:] {
			other.wantJob(id)
			other.respond(`1`)
		}
		w.respondTo(ids[0], `1`)
		w.close()
	})
	t.Run("needs its id", func(t *testing.T) {
		typ := freshName("release")
		s, w := b.submitter(t), b.workerWithPrefetch(t, typ, "1")
		id := s.submitFresh(typ, `1`)
		w.wantJob(id)
		w.send(`{"action":"release"}`)
		checkReason(t, w.wantError("missing_field"), "id")
		w.send(`{"action":"release","id":null}`)
		w.wantError("missing_field|invalid_type")
		w.send(`{"action":"release","id":5}`)
		w.wantError("invalid_type")
		w.send(`{"action":"release","id":"no such job"}`)
		w.wantError("unknown_id")
		w.release(`,"id":` + quote(id))
		w.wantJob(id)
		w.respondTo(id, `1`)
		w.send(`{"action":"release","id":%q}`, id)
		w.wantErrorFor("unknown_id", id)
	})
	t.Run("of another socket", func(t *testing.T) {
		typ := freshName("release")
		s, w := b.submitter(t), b.workerWithPrefetch(t, typ, "1")
		id := s.submitFresh(typ, `1`)
		w.wantJob(id)
		thief := b.workerWithPrefetch(t, typ, "1")
		thief.send(`{"action":"release","id":%q}`, id)
		thief.wantErrorFor("unknown_id", id)
		w.respondTo(id, `2`)
		s.wantResult(id, `2`)
	})
	t.Run("without a job", func(t *testing.T) {
		w := b.worker(t)
		for range 2 {
			w.send(`{"action":"release"}`)
			checkReason(t, w.wantError("invalid_state"), "not_processing")
			w.join(freshName("release"))
		}
		w.send(`{"action":"release","id":"x","delay_ms":5}`)
		checkReason(t, w.wantError("invalid_state"), "not_processing")
	})
	t.Run("its id is ignored on a socket without names", func(t *testing.T) {
		typ := freshName("release")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFresh(typ, `1`)
		for _, v := range []string{`5`, `"another"`, `null`, `{}`} {
			w.wantJob(id)
			w.release(`,"id":` + v)
		}
		w.wantJob(id)
	})
	t.Run("on the submit port", func(t *testing.T) {
		s := b.submitter(t)
		s.send(`{"action":"release","id":"x"}`)
		checkReason(t, s.wantError("invalid_action"), "not_a_slave")
	})
}

// TestReleaseAfterEnd: releases of runs that are overdue, or whose job has ended.
func TestReleaseAfterEnd(t *testing.T) {
	t.Parallel()
	b := shared(t)
	t.Run("cancelled", func(t *testing.T) {
		typ := freshName("release")
		s, w := b.submitter(t), b.worker(t)
		w.joinWith(typ, `,"cancel":true`)
		id := s.submitFresh(typ, `1`)
		w.wantJob(id)
		s.cancel(id)
		w.wantNotice(id)
		w.release("")
		w.wantQuiet()
		s.wantQuiet()
		b.awaitLedger(t, typ, map[string]int64{"submitted": 1, "cancelled": 1})
		s.submit(id, typ, `1`)
	})
	t.Run("its submitter gone", func(t *testing.T) {
		typ := freshName("release")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFresh(typ, `1`)
		w.wantJob(id)
		queuedID := s.submitFresh(freshName("elsewhere"), `1`)
		s.close()
		b.waitState(t, queuedID, "")
		w.release(`,"delay_ms":60000`)
		w.wantQuiet()
		b.awaitLedger(t, typ, map[string]int64{"submitted": 1, "discarded": 1})
	})
	t.Run("overdue", func(t *testing.T) {
		typ := freshName("release")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFreshWith(typ, `1`, `,"timeout_ms":50,"retries":0`)
		w.wantJob(id)
		s.wantErrorFor("job_failed", id)
		w.release("")
		w.wantQuiet()
		b.awaitLedger(t, typ, map[string]int64{"submitted": 1, "failed": 1})
		checkServes(t, s, w, typ) // the worker has room again
	})
	t.Run("past its deadline", func(t *testing.T) {
		typ := freshName("release")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFreshWith(typ, `1`, `,"expires_ms":60`)
		w.wantJob(id)
		time.Sleep(80 * ms)
		s.wantQuiet() // a run is never interrupted
		w.release("")
		s.wantErrorFor("expired", id)
		w.wantQuiet()
	})
	t.Run("a delay beyond its deadline", func(t *testing.T) {
		typ := freshName("release")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		begin := time.Now()
		id := s.submitFreshWith(typ, `1`, `,"expires_ms":200`)
		w.wantJob(id)
		w.release(`,"delay_ms":60000`)
		s.wantErrorFor("expired", id)
		checkSoonAfter(t, begin, 200*ms, "expired")
	})
	t.Run("round and round, nothing is lost", func(t *testing.T) {
		typ := freshName("release")
		s := b.submitter(t)
		const jobs = 50
		for i := range jobs {
			s.submit(fmt.Sprintf("%s-%d", typ, i), typ, `1`)
		}
		runParallel(t, 4, func(f *parallelT, n int) {
			w := b.worker(f)
			w.join(typ)
			for i := range jobs {
				w.send(`{"action":"ping"}`)
				fr := w.recv()
				if fr.kind() != "job" {
					break // other workers have taken all jobs
				}
				w.wantOK()
				if (i+n)%2 == 0 {
					w.leave()
					w.release("")
				} else {
					w.leave()
					w.respond(`1`)
				}
				w.join(typ)
			}
			w.withdraw()
			w.close()
		})
		lastWorker := b.servingWorker(t, typ)
		waitFor(t, "all jobs are answered", func() error {
			l := b.readLedger(t, typ)
			for l["running"] > 0 {
				f, err := lastWorker.next(50 * ms)
				if err != nil {
					break
				}
				if f.kind() == "job" {
					lastWorker.respond(`1`)
				}
				l = b.readLedger(t, typ)
			}
			if l["answered"] != jobs {
				return fmt.Errorf("%v", l)
			}
			return nil
		})
		for range jobs {
			s.want("result")
		}
		s.wantQuiet()
	})
}
